//! Attributing a thread's time to the stacks at which it was seen.

use super::*;
use crate::sampler::addresses::TaskLevels;
use crate::sampler::thread::{LastCounted, LeftTask};

/// Samples before and after a change of task normally divide the thread's time. If none of it was counted
/// for this long, it belongs to the task that the thread left.
const CHANGE_UNSAMPLED_NS: u64 = 100_000_000;
/// Time that is unattributed for longer than this is counted where the thread was last seen.
const UNATTRIBUTED_MAX_NS: u64 = 1_000_000_000;
/// CPU time that no clock interrupt has seen, so far only by chance: it waits longer for a sample.
const UNSAMPLED_CPU_MAX_NS: u64 = 100_000_000;
const UNSAMPLED_MAX_NS: u64 = 10_000_000_000;
/// The same for a thread that waits for a processor: among a thousand of these an agent within its limit
/// samples each every five seconds on average.
const UNSAMPLED_READY_MAX_NS: u64 = 30_000_000_000;

/// Changes since a thread's run delay was last read.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewDelay {
    /// Time of waiting for a processor.
    pub(super) ns: u64,
    /// How often it got one.
    turns: u64,
    /// Time off the processor that the kernel has not reported as a wait for one, as far as it is
    /// unattributed: the thread was blocked, or it waits for a processor now.
    unreported_ns: u64,
}

impl ThreadProbe {
    /// Counts all unattributed time of a thread where it was last seen. Remainders below a quantum are
    /// kept for the next thread that ends in the same task.
    pub(super) fn attribute_all(&mut self, thread: &mut Thread) {
        self.count_idle(thread);
        if let Some(left) = thread.left_task() {
            self.attribute_left(thread, left);
        }
        let task_word = thread.charged_task_word();
        self.attribute_running(thread, task_word);
        self.attribute_off_cpu(thread, task_word, true);
        self.settle_early(thread);
    }

    /// Counts the CPU time of a thread that has ended from before it was seen to leave its last task.
    fn attribute_left(&mut self, thread: &mut Thread, left: LeftTask) {
        let is_sampled_last = thread
            .last_sample
            .is_some_and(|last| last.task_word == left.word);
        if left.uncounted_cpu_ns == 0 && !is_sampled_last {
            return;
        }
        if let Some(attribution) = self.attribution_of_running(thread, left.word) {
            let weight = thread
                .time
                .take_cpu(left.uncounted_cpu_ns, self.quantum_of(thread));
            self.add(thread, attribution, weight);
            self.add_remainder(thread, attribution, |state| state == State::Cpu);
        }
    }

    /// Adds the thread's remainders below a quantum, of the states that are `wanted`, to those of the
    /// task that `attribution` is in.
    fn add_remainder(
        &mut self,
        thread: &mut Thread,
        attribution: Attribution,
        wanted: impl Fn(State) -> bool,
    ) {
        let remainder = thread.time.take_remainder(wanted);
        let level = self.level_at(attribution);
        for state in State::ALL
            .into_iter()
            .filter(|state| remainder.get(*state) > 0)
        {
            let time = Share {
                attribution,
                state,
                part: remainder.get(state),
            };
            self.remainders
                .add(&mut self.addresses, self.quantum_ns, level, time);
        }
    }

    /// Reads how long the thread has waited for a processor. Returns what is new; `None` if the kernel
    /// does not count it.
    pub(super) fn update_run_delay(&mut self, thread: &mut Thread) -> Option<NewDelay> {
        let total = self.files.run_delay(thread.id, &mut thread.files)?;
        Some(self.set_run_delay(thread, total))
    }

    /// Sets how long the thread has waited for a processor. Returns what is new.
    pub(super) fn set_run_delay(&mut self, thread: &mut Thread, total: RunDelay) -> NewDelay {
        let turns = total.turns.saturating_sub(thread.turns);
        thread.turns = total.turns;
        let ns = thread.time.set_run_delay(total.ns);
        self.waits.add(ns, turns);
        let off_cpu_ns = thread.time.unattributed_off_cpu_ns();
        let unreported_ns = off_cpu_ns.saturating_sub(thread.known_off_cpu_ns);
        thread.known_off_cpu_ns = off_cpu_ns;
        NewDelay {
            ns,
            turns,
            unreported_ns,
        }
    }

    /// Counts time for which a thread waited for a processor after it was woken: where it had been
    /// blocked. Part of it may have been counted as blocked there, before the kernel reported it;
    /// that much follows when the thread is off its processor again.
    pub(super) fn count_wake_delay(
        &mut self,
        thread: &mut Thread,
        at: Attribution,
        nanoseconds: u64,
    ) {
        let (weight, taken) = thread
            .time
            .take_runnable(nanoseconds, self.quantum_of(thread));
        self.add(thread, at, weight);
        let ns = nanoseconds - taken;
        thread.owed = (ns > 0).then_some(OwedDelay {
            attribution: at,
            ns,
        });
    }

    /// Splits the new run delay of a thread that was seen at `before` and has run since. If it got
    /// a processor once, it had been woken. If more often, it had been woken at least once and lost
    /// its processor at least once, and each of the two counts for half of the turns.
    pub(super) fn split_run_delay(
        &mut self,
        thread: &mut Thread,
        before: &LastObservation,
        delayed: NewDelay,
    ) {
        if let Some(owed) = thread.owed.take() {
            self.count_wake_delay(thread, owed.attribution, owed.ns);
        }
        let woken = if delayed.turns > 1 {
            delayed.ns / 2
        } else {
            delayed.ns
        };
        match before {
            LastObservation::Blocked(at) => self.count_wake_delay(thread, at.attribution, woken),
            LastObservation::Ready if delayed.unreported_ns <= OFF_CPU_MIN_NS => {}
            // The kernel reports this wait when it has ended. Until then it looks like a block.
            LastObservation::Ready if self.waits_for_processor(thread) => {
                thread.known_off_cpu_ns -= delayed.unreported_ns;
            }
            // It blocked and was woken unseen.
            LastObservation::Ready => thread.time.set_woken(woken),
        }
    }

    /// Counts unattributed time off the processor at `attribution`.
    pub(super) fn count_blocked(
        &mut self,
        thread: &mut Thread,
        attribution: Attribution,
        state: State,
    ) {
        let weight = thread.time.take_off_cpu(state, self.quantum_of(thread));
        self.count(thread, attribution, state, weight);
    }

    pub(super) fn count(
        &mut self,
        thread: &mut Thread,
        attribution: Attribution,
        state: State,
        weight: Weight,
    ) {
        self.add(thread, attribution, weight);
        thread.set_counted(attribution, state);
    }

    /// Where the stack that was unwound last is counted, for a thread under `task_word`.
    pub(super) fn attribution(&mut self, thread: &mut Thread, task_word: u64) -> Attribution {
        let levels = thread.levels(task_word);
        let node = self.addresses.node_of(&levels, &self.stack);
        self.thread_frames
            .attribution(&mut self.addresses, node, &levels, thread)
    }

    /// Counts time that has been unattributed for too long, or waits for a sample that will never
    /// come.
    pub(in crate::sampler) fn attribute_overdue(&mut self, thread: &mut Thread, now: u64) {
        let can_answer = self.samples_running()
            && thread.request.is_some()
            && thread.signal_blocked_until_ns <= now;
        if !can_answer && matches!(thread.observation, LastObservation::Ready) {
            // No sample will come that updates it.
            self.update_run_delay(thread);
        }
        let waits_ns = thread.time.running_unattributed_for_ns();
        let ran_ns = thread.time.unattributed_cpu_ns();
        let unsampled_max_ns = match thread.observation {
            LastObservation::Ready => UNSAMPLED_READY_MAX_NS,
            LastObservation::Blocked(_) => UNSAMPLED_MAX_NS,
        };
        let is_overdue = waits_ns > unsampled_max_ns
            || (waits_ns > UNATTRIBUTED_MAX_NS && ran_ns > UNSAMPLED_CPU_MAX_NS);
        if waits_ns > 0 && (!can_answer || is_overdue) {
            self.attribute_running(thread, thread.charged_task_word());
        }
        let can_be_read = self.mode.samples_blocked();
        let max_ns = if can_be_read { UNATTRIBUTED_MAX_NS } else { 0 };
        if thread.time.off_cpu_unattributed_for_ns() > max_ns {
            self.attribute_off_cpu(thread, thread.charged_task_word(), can_be_read);
        }
    }

    /// The thread was seen under `task_word`. Among many threads that wait for a processor its last
    /// sample may be old: then its time since that belongs to the task that it has left, and not to
    /// that of its next sample.
    pub(in crate::sampler) fn set_task(&mut self, thread: &mut Thread, task_word: u64) {
        let left = std::mem::replace(&mut thread.seen_task_word, task_word);
        if left == task_word {
            return;
        }
        let cell = thread.cell.as_ref().filter(|_| task_word == 0);
        if let Some(cell) = cell.filter(|cell| cell.left_cpu_ns().is_none()) {
            cell.set_left(thread.time.cpu_ns());
        }
        if thread.uncounted_for_ns() > CHANGE_UNSAMPLED_NS {
            self.attribute_running(thread, left);
            self.attribute_off_cpu(thread, left, true);
        }
    }

    /// Counts time of running in a task without a sample of its own: where the thread was sampled
    /// shortly before in the same task, or before the task ended, or without a stack. Never where it
    /// was blocked: it did not run there.
    pub(super) fn attribute_running(&mut self, thread: &mut Thread, task_word: u64) {
        let Some(attribution) = self.attribution_of_running(thread, task_word) else {
            // Its own account has this time, and only stacks divide it.
            return;
        };
        let weight = thread.time.take_running(self.quantum_of(thread));
        self.add(thread, attribution, weight);
        self.add_remainder(thread, attribution, |state| {
            matches!(state, State::Cpu | State::Runnable)
        });
        if matches!(thread.observation, LastObservation::Ready) {
            thread.set_counted(attribution, State::Cpu);
        }
    }

    /// Where time of running in a task is counted without a sample of its own; `None` if the thread
    /// measures itself and was not sampled there.
    fn attribution_of_running(
        &mut self,
        thread: &mut Thread,
        task_word: u64,
    ) -> Option<Attribution> {
        let since = thread
            .time
            .accounted_to_ns()
            .saturating_sub(UNATTRIBUTED_MAX_NS);
        let has_ended = thread.gone || thread.seen_task_word != task_word;
        match thread.last_sample.filter(|last: &LastSample| {
            last.task_word == task_word && (has_ended || last.at_ns >= since)
        }) {
            Some(last) => Some(last.attribution),
            None if thread.early.is_some() => None,
            None => {
                let reason = self.no_stack_reason(thread, self.samples_running());
                Some(self.without_stack_below(thread, &thread.levels(task_word), reason))
            }
        }
    }

    pub(super) fn without_stack_below(
        &mut self,
        thread: &mut Thread,
        levels: &TaskLevels,
        reason: NoStack,
    ) -> Attribution {
        let node = self.addresses.node_without_stack(levels, reason);
        self.thread_frames
            .attribution(&mut self.addresses, node, levels, thread)
    }

    /// Why a thread has no stack, if `can_be_seen` tells whether the mode allows one.
    pub(super) fn no_stack_reason(&self, thread: &Thread, can_be_seen: bool) -> NoStack {
        match () {
            () if !can_be_seen => NoStack::SamplerMode,
            () if thread.signal_blocked_since_ns > 0 => NoStack::SignalBlocked,
            () if thread.gone => NoStack::ShortThread,
            () => NoStack::NotSampled,
        }
    }

    /// Counts time off the processor where the thread was last seen, if that is wanted and known, or
    /// without a stack.
    pub(super) fn attribute_off_cpu(
        &mut self,
        thread: &mut Thread,
        task_word: u64,
        where_last_seen: bool,
    ) {
        let level = self.level_of(&thread.levels(task_word));
        let is_in_task = |last: &LastCounted| self.level_at(last.attribution) == level;
        let last = thread.last.filter(|_| where_last_seen);
        let attribution = match last.filter(is_in_task) {
            Some(last) => last.attribution,
            None if thread.early.is_some() => return,
            None => {
                let reason = self.no_stack_reason(thread, self.mode.samples_blocked());
                self.without_stack_below(thread, &thread.levels(task_word), reason)
            }
        };
        if matches!(thread.observation, LastObservation::Ready) {
            self.count_stopped(thread, task_word);
        }
        let weight = match thread.observation {
            LastObservation::Blocked(at) => {
                thread.time.take_off_cpu(at.state, self.quantum_of(thread))
            }
            // Its run delay can not be read any more.
            LastObservation::Ready if where_last_seen && thread.gone => {
                let known_ns = thread.known_off_cpu_ns;
                thread
                    .time
                    .take_off_cpu_of_ended(known_ns, self.quantum_of(thread))
            }
            LastObservation::Ready if where_last_seen => self.take_off_cpu_of_ready(thread),
            LastObservation::Ready => thread
                .time
                .take_off_cpu(State::Other, self.quantum_of(thread)),
        };
        self.add(thread, attribution, weight);
        self.add_remainder(thread, attribution, |state| state != State::Cpu);
    }

    /// Counts the time in which the whole process was stopped while the thread was ready. Nobody saw where it was then:
    /// neither where it was last sampled nor where it is now.
    pub(super) fn count_stopped(&mut self, thread: &mut Thread, task_word: u64) {
        let quantum_ns = self.quantum_of(thread);
        let weight = thread.time.take_stopped(&self.stop, quantum_ns);
        if weight == Weight::ZERO {
            return;
        }
        let levels = thread.levels(task_word);
        let attribution = self.without_stack_below(thread, &levels, NoStack::NotSampled);
        self.add(thread, attribution, weight);
    }

    /// Takes the time off the processor of a thread that was ready when it was last seen.
    fn take_off_cpu_of_ready(&mut self, thread: &mut Thread) -> Weight {
        let quantum_ns = self.quantum_of(thread);
        match self.files.activity(thread.id, &mut thread.files) {
            // The kernel has counted its waits for a processor, which have ended.
            Ok(Activity::Blocked(site)) => {
                self.update_run_delay(thread);
                thread.time.take_off_cpu(site.state(), quantum_ns)
            }
            // It waits for a processor, and the kernel counts that when the wait has ended; or the
            // hypervisor took the processor.
            _ => thread.time.take_off_cpu_as_delay(quantum_ns),
        }
    }
}
