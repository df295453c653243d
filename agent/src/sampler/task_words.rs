//! Finds the threads that have begun or ended a task since they were last looked at. The task word of
//! a thread lies in memory that it shares with the agent, so this sees even those that ran for less
//! than a clock interrupt, at the price of reading a word.

use super::thread_table::ThreadTable;
use system::page_vec::PageVec;

/// Most words that are read in ten milliseconds; with more threads each is read less often.
const WORDS: u64 = 256;
const WORDS_NS: u64 = 10_000_000;

/// Reads the task words of all threads in turn.
#[derive(Debug, Default)]
pub(super) struct TaskWords {
    next: usize,
}

impl TaskWords {
    /// Adds the threads whose task has changed to `changed`. `passed_ns` is the time since the last call.
    pub(super) fn find_changed(
        &mut self,
        threads: &ThreadTable,
        passed_ns: u64,
        changed: &mut PageVec<u32>,
    ) {
        let threads = threads.as_slice();
        let words = WORDS.saturating_mul(1 + passed_ns / WORDS_NS);
        let words = usize::try_from(words).unwrap_or(usize::MAX);
        for _ in 0..threads.len().min(words) {
            self.next = (self.next + 1) % threads.len();
            let thread = &threads[self.next];
            if thread.cell.is_some() && thread.task_word() != thread.seen_task_word {
                changed.push(thread.id);
            }
        }
    }
}
