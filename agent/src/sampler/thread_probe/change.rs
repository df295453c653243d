//! Changes of tasks that threads have noted: each divides a thread's time between two looks.

use super::*;
use crate::registry::Change;
use crate::sampler::audit::Times;

/// If looks are closer than this, the samples before and after a change divide the time between them.
pub(super) const LOOKS_APART_NS: u64 = 50_000_000;
/// A thread that does not measure itself notes its changes for this long, however close looks are: of a short
/// recording these samples would be too few.
const NEW_NS: u64 = 500_000_000;

impl ThreadProbe {
    /// Counts a thread's time until each change of its task that it has noted, in the task that it left. The
    /// thread is seen `now`, and has waited for processors for `delay` since it began, if that is known. A
    /// young thread has its own account. `sample` is one that is not counted yet.
    pub(super) fn count_until_changes(
        &mut self,
        thread: &mut Thread,
        now: Moment,
        delay: Option<RunDelay>,
        sample: Option<LastSample>,
    ) {
        let Some(cell) = thread.cell.as_ref().filter(|_| thread.early.is_none()) else {
            return;
        };
        let passed_ns = now.ns.saturating_sub(thread.time.accounted_to_ns());
        let is_wanted = passed_ns >= LOOKS_APART_NS || thread.age_ns() < NEW_NS;
        for change in cell.changes.take(is_wanted) {
            // A sample tells where the thread was until it left the sample's task.
            thread.last_sample = sample
                .filter(|sample: &LastSample| sample.task_word == thread.seen_task_word)
                .or(thread.last_sample);
            self.count_until_change(thread, change, now, delay);
        }
    }

    fn count_until_change(
        &mut self,
        thread: &mut Thread,
        change: Change,
        now: Moment,
        delay: Option<RunDelay>,
    ) {
        let Change { at_ns, usage, word } = change;
        let at = Moment {
            ns: at_ns,
            cpu_ns: usage.cpu_ns,
        };
        let accounted_ns = thread.time.accounted_to_ns();
        if at.ns <= accounted_ns {
            return;
        }
        let turns = usage.turns().saturating_sub(thread.turns);
        let off_cpu_ns = (at.ns - accounted_ns).saturating_sub(thread.time.ran_ns(at.cpu_ns))
            + thread.time.unattributed_off_cpu_ns();
        let before = std::mem::replace(&mut thread.observation, LastObservation::Ready);
        let has_blocked = matches!(before, LastObservation::Blocked(_))
            || thread
                .usage
                .is_none_or(|before| usage.blocks > before.blocks);
        let waited_ns = if has_blocked {
            let off_cpu_after_ns = Times::between(at, now).off_cpu_ns();
            self.waits_before(thread, turns, off_cpu_after_ns, delay)
                .min(off_cpu_ns)
        } else {
            off_cpu_ns
        };
        thread.observation = before;
        self.assume_idle(
            thread,
            at.ns
                .saturating_sub(thread.time.ran_ns(at.cpu_ns) + waited_ns),
        );
        self.count_idle(thread);
        thread.observation = LastObservation::Ready;
        thread.time.advance(at.ns, at.cpu_ns);
        thread.time.add_run_delay(waited_ns);
        thread.turns += turns;
        thread.known_off_cpu_ns = thread.time.unattributed_off_cpu_ns();
        if let LastObservation::Blocked(blocked) = before {
            self.count_wake_delay(thread, blocked.attribution, waited_ns);
        }
        let left = std::mem::replace(&mut thread.seen_task_word, word);
        self.attribute_running(thread, left);
        self.attribute_off_cpu(thread, left, true);
        thread.known_off_cpu_ns = 0;
        thread.usage = Some(usage);
        thread.changed_ns = at.ns;
        if let Some(cell) = thread.cell.as_ref().filter(|_| word == 0) {
            cell.set_left(at.cpu_ns);
        }
    }

    /// How long a thread waited for a processor in its first `turns` turns since it was last seen: each turn as
    /// long as its others, and at least what does not fit into the time off the processor after them.
    fn waits_before(
        &self,
        thread: &Thread,
        turns: u64,
        off_cpu_after_ns: u64,
        delay: Option<RunDelay>,
    ) -> u64 {
        let Some(delay) = delay else {
            return self.mean_wait_ns(thread) * turns;
        };
        let waited_ns = thread.time.new_delay_ns(delay.ns);
        let all_turns = delay.turns.saturating_sub(thread.turns).max(turns).max(1);
        let part = u128::from(waited_ns) * u128::from(turns) / u128::from(all_turns);
        let part_ns = u64::try_from(part).unwrap_or(waited_ns);
        part_ns.max(waited_ns.saturating_sub(off_cpu_after_ns))
    }

    /// How long the thread waits before a turn, on average; as long as others, if it has had none in its tasks.
    pub(super) fn mean_wait_ns(&self, thread: &Thread) -> u64 {
        let turns = thread.turns.saturating_sub(thread.turns_before);
        let waited_ns = thread.time.delay_in_tasks_ns();
        waited_ns
            .checked_div(turns)
            .unwrap_or_else(|| self.waits.mean_ns())
    }

    /// Counts the time off the processor of a thread that has ended as waiting for one, if it has not blocked
    /// since it noted a change of its task.
    pub(super) fn count_waits_of_ended(&self, thread: &mut Thread) {
        let ended = thread
            .cell
            .as_ref()
            .and_then(|cell| cell.early.ended_usage());
        let (Some(ended), Some(before)) = (ended, thread.usage) else {
            return;
        };
        if ended.blocks == before.blocks {
            let off_cpu_ns = thread.time.unattributed_off_cpu_ns();
            thread.time.add_run_delay(off_cpu_ns);
        }
    }
}
