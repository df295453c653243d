//! Changes of tasks that threads have noted: each divides a thread's time between two looks.

use super::*;
use crate::registry::Change;

impl ThreadProbe {
    /// Counts a thread's time until each change of its task that it has noted, in the task that it left. The
    /// thread is seen `now`, and has waited for a processor for `waited_ns` since it was last seen. A young
    /// thread has its own account.
    pub(super) fn count_until_changes(&mut self, thread: &mut Thread, now: Moment, waited_ns: u64) {
        let Some(cell) = thread.cell.as_ref().filter(|_| thread.early.is_none()) else {
            return;
        };
        let mut waited_ns = waited_ns;
        for change in cell.changes.take() {
            waited_ns -= self.count_until_change(thread, change, now, waited_ns);
        }
    }

    /// Returns how long the thread has waited for a processor before the change.
    fn count_until_change(
        &mut self,
        thread: &mut Thread,
        change: Change,
        now: Moment,
        waited_ns: u64,
    ) -> u64 {
        let Change { at_ns, usage, word } = change;
        let at = Moment { ns: at_ns, cpu_ns: usage.cpu_ns };
        if at.ns <= thread.time.accounted_to_ns() {
            return 0;
        }
        // Since the change it has waited whenever it did not run, as far as the kernel has seen it wait.
        // A tick may last, so that it was changed after the tick began.
        let since_ns = now.ns.saturating_sub(at.ns);
        let off_cpu_ns = since_ns.saturating_sub(now.cpu_ns.saturating_sub(at.cpu_ns));
        let waited_before_ns = waited_ns.saturating_sub(off_cpu_ns);
        let woken_ns = at.ns.saturating_sub(thread.time.ran_ns(at.cpu_ns) + waited_before_ns);
        self.assume_idle(thread, woken_ns);
        self.count_idle(thread);
        thread.time.advance(at.ns, at.cpu_ns);
        thread.time.add_run_delay(waited_before_ns);
        let before = std::mem::replace(&mut thread.observation, LastObservation::Ready);
        let has_blocked = thread.usage.is_none_or(|before| usage.blocks > before.blocks);
        match before {
            LastObservation::Blocked(blocked) => {
                self.count_wake_delay(thread, blocked.attribution, waited_before_ns);
            }
            LastObservation::Ready if has_blocked => {}
            LastObservation::Ready => {
                let off_cpu_ns = thread.time.unattributed_off_cpu_ns();
                thread.time.add_run_delay(off_cpu_ns);
            }
        }
        let left = std::mem::replace(&mut thread.seen_task_word, word);
        self.attribute_running(thread, left);
        self.attribute_off_cpu(thread, left, true);
        thread.known_off_cpu_ns = 0;
        thread.usage = Some(usage);
        if let Some(cell) = thread.cell.as_ref().filter(|_| word == 0) {
            cell.set_left(at.cpu_ns);
        }
        waited_before_ns
    }

    /// Counts a part of the time off the processor of a thread that has ended as waiting for one: all of it if
    /// it has not blocked since it noted a change of its task, otherwise as long as recent waits of the
    /// program were for its turns.
    pub(super) fn estimate_waits_of_ended(&self, thread: &mut Thread) {
        let ended = thread.cell.as_ref().and_then(|cell| cell.early.ended_usage());
        let (Some(ended), Some(before)) = (ended, thread.usage) else { return };
        let off_cpu_ns = thread.time.unattributed_off_cpu_ns();
        let waited_ns = match ended.blocks.saturating_sub(before.blocks) {
            0 => off_cpu_ns,
            blocks => {
                let preemptions = ended.preemptions.saturating_sub(before.preemptions);
                self.waits.of_turns(blocks + preemptions).min(off_cpu_ns)
            }
        };
        thread.time.add_run_delay(waited_ns);
    }
}
