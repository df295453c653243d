//! Finds the threads that have begun or ended a task since they were last looked at. The task word of
//! a thread lies in memory that it shares with the agent, so this sees even those that ran for less
//! than a clock interrupt, at the price of reading a word.

use super::thread_table::ThreadTable;
use crate::sys::page_vec::PageVec;

/// Most words that are read in a tick; with more threads each is read less often.
const WORDS_PER_TICK: usize = 256;

/// Reads the task words of all threads in turn.
#[derive(Debug, Default)]
pub(super) struct TaskWords {
    next: usize,
}

impl TaskWords {
    /// Adds the threads whose task has changed to `changed`.
    pub(super) fn find_changed(&mut self, threads: &ThreadTable, changed: &mut PageVec<u32>) {
        let threads = threads.as_slice();
        for _ in 0..threads.len().min(WORDS_PER_TICK) {
            self.next = (self.next + 1) % threads.len();
            let thread = &threads[self.next];
            if thread.cell.is_some() && thread.task_word() != thread.seen_task_word {
                changed.push(thread.id);
            }
        }
    }
}
