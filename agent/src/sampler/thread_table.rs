//! The threads of this process that the sampler knows, by id.

use super::pages::page_map::PageMap;
use super::thread::Thread;
use system::page_vec::PageVec;

/// All known threads. Finding, adding and removing one takes the same time however many there are.
#[derive(Debug, Default)]
pub(super) struct ThreadTable {
    threads: PageVec<Thread>,
    /// By id: where in `threads`.
    index: PageMap<u32, usize>,
}

impl ThreadTable {
    pub(super) fn len(&self) -> usize {
        self.threads.len()
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.index.contains_key(&id)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Thread> {
        let at = *self.index.get(&id)?;
        self.threads.get_mut(at)
    }

    /// The thread at a place of the table; threads change their places when others are removed.
    pub(super) fn at_mut(&mut self, at: usize) -> Option<&mut Thread> {
        self.threads.get_mut(at)
    }

    /// Adds a thread. If its id is known, the known thread stays. `None` if there is no memory.
    pub(super) fn insert(&mut self, thread: Thread) -> Option<&mut Thread> {
        let id = thread.id;
        let at = self.index.get(&id).copied().unwrap_or(self.threads.len());
        if at == self.threads.len() {
            let is_added = self.index.insert(id, at) && self.threads.push(thread);
            if !is_added {
                self.index.remove(&id);
                return None;
            }
        }
        self.threads.get_mut(at)
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<Thread> {
        let at = self.index.remove(&id)?;
        let removed = self.threads.swap_remove(at);
        if let Some(moved) = self.threads.get(at) {
            self.index.insert(moved.id, at);
        }
        Some(removed)
    }

    /// Removes all threads.
    pub(super) fn take_all(&mut self) -> PageVec<Thread> {
        self.index.clear();
        std::mem::take(&mut self.threads)
    }

    pub(super) fn as_slice(&self) -> &[Thread] {
        &self.threads
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Thread> {
        self.threads.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_found_after_others_were_removed() {
        let mut table = ThreadTable::default();
        for id in [7, 3, 9, 4] {
            table.insert(Thread::new(id, u64::from(id)));
        }
        assert_eq!(table.remove(3).map(|thread| thread.id), Some(3));
        assert_eq!(table.remove(3).map(|thread| thread.id), None);
        assert_eq!(
            table
                .insert(Thread::new(9, 0))
                .unwrap()
                .time
                .accounted_to_ns(),
            9,
            "it is known"
        );
        for id in [7, 9, 4] {
            assert_eq!(table.get_mut(id).map(|thread| thread.id), Some(id));
        }
        assert_eq!((table.len(), table.contains(3)), (3, false));
        assert_eq!(table.take_all().len(), 3);
        assert!(!table.contains(7));
    }
}
