//! A list that any thread can add to without waiting, and that one other takes as a whole.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The place of an element in a [`PushList`], inside of the element: adding it needs no memory.
#[derive(Debug)]
pub struct Link<T> {
    is_linked: AtomicBool,
    next: AtomicPtr<T>,
}

impl<T> Link<T> {
    /// A link of an element that is in no list.
    pub const fn unlinked() -> Link<T> {
        Link {
            is_linked: AtomicBool::new(false),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

/// Shared elements, the newest first. An element is in the list at most once in its life.
#[derive(Debug)]
pub struct PushList<T> {
    newest: AtomicPtr<T>,
    link_of: fn(&T) -> &Link<T>,
}

impl<T> PushList<T> {
    /// `link_of` returns the link of an element, which is always the same and used by this list alone.
    pub const fn new(link_of: fn(&T) -> &Link<T>) -> PushList<T> {
        PushList {
            newest: AtomicPtr::new(ptr::null_mut()),
            link_of,
        }
    }

    /// Adds `element`, unless it was added before. Never waits: a retry means that another thread has
    /// added one.
    pub fn push(&self, element: &Arc<T>) {
        let link = (self.link_of)(element);
        if link.is_linked.swap(true, Ordering::Relaxed) {
            return;
        }
        let added = Arc::into_raw(element.clone()).cast_mut();
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            link.next.store(newest, Ordering::Relaxed);
            // Release: who takes it sees the element and its link.
            match self.newest.compare_exchange_weak(
                newest,
                added,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(newer) => newest = newer,
            }
        }
    }

    /// Takes all elements that were added since the last call, the oldest first.
    pub fn take(&self) -> Elements<T> {
        let mut newest = self.newest.swap(ptr::null_mut(), Ordering::Acquire);
        let mut oldest: *mut T = ptr::null_mut();
        // SAFETY: the list owned a reference to each of its elements, which is now ours.
        while let Some(element) = unsafe { newest.as_ref() } {
            let link = (self.link_of)(element);
            let older = link.next.swap(oldest, Ordering::Relaxed);
            oldest = newest;
            newest = older;
        }
        Elements {
            oldest,
            link_of: self.link_of,
        }
    }
}

impl<T> Drop for PushList<T> {
    fn drop(&mut self) {
        self.take().for_each(drop);
    }
}

/// Elements taken from a [`PushList`].
pub struct Elements<T> {
    oldest: *mut T,
    link_of: fn(&T) -> &Link<T>,
}

impl<T> Iterator for Elements<T> {
    type Item = Arc<T>;

    fn next(&mut self) -> Option<Arc<T>> {
        if self.oldest.is_null() {
            return None;
        }
        // SAFETY: it came from `Arc::into_raw` in `push`, and this value owns that reference.
        let element = unsafe { Arc::from_raw(self.oldest) };
        self.oldest = (self.link_of)(&element).next.load(Ordering::Relaxed);
        Some(element)
    }
}

impl<T> Drop for Elements<T> {
    fn drop(&mut self) {
        self.by_ref().for_each(drop);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    struct Element {
        number: usize,
        link: Link<Element>,
    }

    fn element(number: usize) -> Arc<Element> {
        Arc::new(Element {
            number,
            link: Link::unlinked(),
        })
    }

    #[test]
    fn elements_are_taken_once_and_in_order() {
        let list = PushList::new(|element: &Element| &element.link);
        let elements: Vec<_> = (0..5).map(element).collect();
        elements[..3].iter().for_each(|element| list.push(element));
        list.push(&elements[1]);
        assert_eq!(
            list.take()
                .map(|element| element.number)
                .collect::<Vec<_>>(),
            [0, 1, 2]
        );
        elements[3..].iter().for_each(|element| list.push(element));
        assert_eq!(list.take().next().map(|element| element.number), Some(3));
        assert!(list.take().next().is_none());
        list.push(&element(9));
        drop(list);
        assert!(
            elements
                .iter()
                .all(|element| Arc::strong_count(element) == 1)
        );
    }

    #[test]
    fn nothing_is_lost_while_many_threads_add() {
        const EACH: usize = 5_000;
        let list = PushList::new(|element: &Element| &element.link);
        let ended = AtomicUsize::new(0);
        let mut last = [None; 4];
        thread::scope(|scope| {
            for writer in 0..4 {
                let list = &list;
                let ended = &ended;
                scope.spawn(move || {
                    (0..EACH).for_each(|number| list.push(&element(writer * EACH + number)));
                    ended.fetch_add(1, Ordering::Release);
                });
            }
            let mut count = 0;
            loop {
                let all_ended = ended.load(Ordering::Acquire) == 4;
                for element in list.take() {
                    let writer = element.number / EACH;
                    assert!(
                        last[writer] < Some(element.number),
                        "in the order of each thread"
                    );
                    last[writer] = Some(element.number);
                    count += 1;
                }
                if all_ended {
                    break;
                }
            }
            assert_eq!(count, 4 * EACH);
        });
    }
}
