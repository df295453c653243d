//! A queue in pages of its own, because a tick may not wait for the program's allocator.

use system::page_vec::PageVec;

/// Like `VecDeque`, in a [`PageVec`].
#[derive(Debug)]
pub(in crate::sampler) struct PageQueue<T> {
    /// A ring, of a power of two of places.
    places: PageVec<Option<T>>,
    first: usize,
    length: usize,
}

impl<T> Default for PageQueue<T> {
    fn default() -> Self {
        PageQueue {
            places: PageVec::new(),
            first: 0,
            length: 0,
        }
    }
}

impl<T> PageQueue<T> {
    pub(in crate::sampler) fn len(&self) -> usize {
        self.length
    }

    /// Returns `false` and drops the value if there is no memory.
    pub(in crate::sampler) fn push_back(&mut self, value: T) -> bool {
        if !self.has_room() {
            return false;
        }
        let at = self.place(self.length);
        self.places[at] = Some(value);
        self.length += 1;
        true
    }

    /// Returns `false` and drops the value if there is no memory.
    pub(in crate::sampler) fn push_front(&mut self, value: T) -> bool {
        if !self.has_room() {
            return false;
        }
        self.first = self.place(self.places.len() - 1);
        self.places[self.first] = Some(value);
        self.length += 1;
        true
    }

    pub(in crate::sampler) fn pop_front(&mut self) -> Option<T> {
        let value = self.places.get_mut(self.first)?.take()?;
        self.first = self.place(1);
        self.length -= 1;
        Some(value)
    }

    pub(in crate::sampler) fn front_mut(&mut self) -> Option<&mut T> {
        self.places.get_mut(self.first)?.as_mut()
    }

    pub(in crate::sampler) fn front(&self) -> Option<&T> {
        self.places.get(self.first)?.as_ref()
    }

    pub(in crate::sampler) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.length).filter_map(|index| self.places[self.place(index)].as_ref())
    }

    pub(in crate::sampler) fn clear(&mut self) {
        while self.pop_front().is_some() {}
    }

    fn place(&self, index: usize) -> usize {
        (self.first + index) & (self.places.len() - 1)
    }

    /// Doubles the ring if it is full.
    fn has_room(&mut self) -> bool {
        let count = self.places.len();
        if self.length < count {
            return true;
        }
        let larger = (count * 2).max(64);
        while self.places.len() < larger {
            if !self.places.push(None) {
                self.places.truncate(count);
                return false;
            }
        }
        // What had been before `first` follows behind the old end.
        for index in 0..self.first {
            self.places.swap(index, count + index);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_deque_holds(steps in prop::collection::vec(0..5u8, 0..1_000)) {
            let mut expected = VecDeque::new();
            let mut queue = PageQueue::default();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        prop_assert!(queue.push_back(number));
                        expected.push_back(number);
                    }
                    2 => {
                        prop_assert!(queue.push_front(number));
                        expected.push_front(number);
                    }
                    _ => prop_assert_eq!(queue.pop_front(), expected.pop_front()),
                }
                prop_assert_eq!(queue.len(), expected.len());
                prop_assert_eq!(queue.front(), expected.front());
                prop_assert_eq!(queue.front_mut(), expected.front_mut());
                prop_assert!(queue.iter().eq(expected.iter()));
            }
            queue.clear();
            prop_assert_eq!(queue.len(), 0);
        }
    }
}
