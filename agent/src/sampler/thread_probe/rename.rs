//! Threads that change their names.

use super::*;

/// Ticks between two names that are read: 25 in a second, which takes a thousandth of a processor.
const TICKS: u32 = 4;

/// The thread whose name is read next.
#[derive(Debug, Default)]
pub(super) struct NameTurn {
    /// In the table of threads.
    index: usize,
    ticks: u32,
}

impl ThreadProbe {
    /// Reads the name of one thread again, of all in turn.
    pub(super) fn look_at_name(&mut self, threads: &mut ThreadTable) {
        let turn = &mut self.name_turn;
        turn.ticks += 1;
        if turn.ticks < TICKS || threads.len() == 0 {
            return;
        }
        turn.ticks = 0;
        turn.index = (turn.index + 1) % threads.len();
        let Some(thread) = threads.at_mut(turn.index) else {
            return;
        };
        let name = process::thread_name(thread.id);
        let is_other = thread
            .kernel_name
            .is_some_and(|before| !name.is_empty() && before != name);
        if !is_other {
            return;
        }
        thread.rename(name);
        if thread.own_task.is_some() {
            thread.own_task = self
                .thread_frames
                .task_of(&mut self.addresses, name, thread.id);
        }
    }
}
