//! Finds the threads that have begun or ended a task since they were last checked. The task word of
//! a thread lies in memory that it shares with the agent, so this sees even those that ran for less
//! than a clock interrupt, at the price of reading a word.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::thread::Thread;
use crate::registry::ThreadCell;

/// Most words that are read in a tick; with more threads each is read less often.
const WORDS_PER_TICK: usize = 128;

/// The task words of all threads that have one.
#[derive(Debug, Default)]
pub(super) struct TaskWords {
    watched: Vec<Watched>,
    next: usize,
}

#[derive(Debug)]
struct Watched {
    id: u32,
    cell: Arc<ThreadCell>,
    word: u64,
}

impl TaskWords {
    /// Watches the threads that have a cell.
    pub(super) fn watch(&mut self, threads: &[Thread]) {
        let watched = threads.iter().filter_map(|thread| {
            let cell = Arc::clone(thread.cell.as_ref()?);
            Some(Watched { id: thread.id, cell, word: thread.seen_task_word })
        });
        self.watched = watched.collect();
    }

    /// The threads whose word has changed since it was last read here.
    pub(super) fn changed(&mut self) -> Vec<u32> {
        let count = self.watched.len();
        let mut changed = Vec::new();
        for _ in 0..count.min(WORDS_PER_TICK) {
            self.next = (self.next + 1) % count;
            let watched = &mut self.watched[self.next];
            let word = watched.cell.task_word().load(Ordering::Relaxed);
            if word != watched.word {
                watched.word = word;
                changed.push(watched.id);
            }
        }
        changed
    }
}
