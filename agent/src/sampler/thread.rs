//! What the sampler remembers of each thread between two ticks, and the account of its time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use profiler_core::{FrameId, State, Weight};

use super::addresses::{AddressFrame, Attribution, TaskLevels};
use super::files::ThreadFiles;
use super::sys::request::Request;
use super::sys::slots::StackSpan;
use super::wait::WaitSite;
use crate::registry::{NameId, TaskContext, ThreadCell};

/// A thread of this process.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) id: u32,
    /// It has ended; another thread may have its id by now.
    pub(super) gone: bool,
    pub(super) of_agent: bool,
    pub(super) cell: Option<Arc<ThreadCell>>,
    pub(super) time: TimeAccount,
    /// When it was first seen.
    since_ns: u64,
    /// What it is counted as, once that was needed.
    pub(super) frame: Option<ThreadFrame>,
    pub(super) observation: LastObservation,
    /// Until when it is known to have stayed where it was seen blocked; 0 if that time is counted.
    pub(super) idle_to_ns: u64,
    pub(super) last: Option<LastCounted>,
    pub(super) request: Option<Request>,
    /// It is not asked before this time, because it blocks the signal.
    pub(super) signal_blocked_until_ns: u64,
    /// Its own stack, once it is known.
    pub(super) span: StackSpan,
    /// Samples until its stack is looked up again.
    pub(super) span_after: u32,
    pub(super) files: ThreadFiles,
    /// Whether it shares its processor, so that it must be asked each time it loses it.
    pub(super) contended: bool,
}

/// The state in which a thread was last observed.
#[derive(Clone, Copy, Debug)]
pub(super) enum LastObservation {
    /// Not observed yet, or on a processor, or ready for one.
    Ready,
    Blocked(BlockedAt),
}

/// Where and how a thread was observed blocked.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockedAt {
    pub(super) site: WaitSite,
    pub(super) state: State,
    pub(super) attribution: Attribution,
    pub(super) task_word: u64,
    /// Ticks since the site was last verified.
    pub(super) ticks: u32,
}

/// What a thread is counted as.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadFrame {
    pub(super) frame: FrameId,
    /// Whether its name was read after it was no longer young. Threads name themselves; a name that
    /// is read earlier is that of the thread's creator.
    pub(super) is_final: bool,
}

/// How a thread was last counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastCounted {
    pub(crate) attribution: Attribution,
    pub(crate) state: State,
    /// Until when it was counted so.
    pub(super) at_ns: u64,
    /// Since when, without running in between.
    pub(super) since_ns: u64,
    /// Its CPU clock when its stack was read.
    cpu_ns: u64,
}

impl Thread {
    /// A thread first seen now; its time counts from `since_ns`.
    pub(super) fn new(id: u32, since_ns: u64) -> Self {
        Thread {
            id,
            gone: false,
            of_agent: false,
            cell: None,
            time: TimeAccount::new(since_ns),
            since_ns,
            frame: None,
            observation: LastObservation::Ready,
            idle_to_ns: 0,
            last: None,
            request: None,
            signal_blocked_until_ns: 0,
            span: StackSpan::default(),
            span_after: 0,
            files: ThreadFiles::default(),
            contended: false,
        }
    }

    /// How long it has been known.
    pub(super) fn age_ns(&self) -> u64 {
        self.time.accounted_to_ns().saturating_sub(self.since_ns)
    }

    /// The current task word; 0 without a cell.
    pub(super) fn task_word(&self) -> u64 {
        self.cell.as_ref().map_or(0, |cell| cell.task_word().load(Ordering::Acquire))
    }

    /// The first levels of a sample taken under `task_word`: the task, and the phase if it is in
    /// one.
    pub(super) fn levels(&self, task_word: u64) -> TaskLevels {
        let TaskContext { task, phase } = TaskContext::from_word(task_word);
        match task {
            _ if self.of_agent => TaskLevels { first: AddressFrame::Agent, phase: NameId::NONE },
            NameId::NONE => TaskLevels { first: AddressFrame::NoTask, phase },
            name => TaskLevels { first: AddressFrame::Task(name), phase },
        }
    }

    /// Records how the thread was counted until now.
    pub(super) fn set_counted(&mut self, attribution: Attribution, state: State) {
        let at_ns = self.time.accounted_to_ns();
        let cpu_ns = self.time.cpu_ns();
        let stayed = |last: &LastCounted| {
            last.attribution.node == attribution.node
                && state.is_wait()
                && last.state == state
                && last.cpu_ns == cpu_ns
        };
        let since_ns = self.last.filter(stayed).map_or(at_ns, |last| last.since_ns);
        self.last = Some(LastCounted { attribution, state, at_ns, since_ns, cpu_ns });
    }
}

/// A thread's time: the part that is counted, and the part that is not attributed to a stack yet.
///
/// The kernel knows to the nanosecond how long a thread was on a processor; only *where* that time
/// went needs a sample. Time on a processor (and waiting for one) is attributed by the next sample
/// of the running thread, the rest by the next observation of the blocked one. However rare these
/// are, the sums by state stay exact.
#[derive(Debug)]
pub(super) struct TimeAccount {
    /// Until when its time is counted or unattributed.
    accounted_to_ns: u64,
    /// CPU time that is counted or unattributed.
    cpu_ns: u64,
    /// Time ready without a processor (run delay), as far as the kernel reported it.
    delay_ns: u64,
    /// Run delay that was already counted as waiting; it is taken from later time off the
    /// processor.
    delay_due_ns: u64,
    unattributed: Unattributed,
    /// Until when samples of the running thread have said where it was.
    sampled_to_ns: u64,
    /// Since when there has been unattributed time of running, and time off the processor.
    running_since_ns: u64,
    off_cpu_since_ns: u64,
    /// Remainders below a quantum, by state.
    remainder: Weight,
}

/// Time whose stack is not known yet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Unattributed {
    cpu_ns: u64,
    runnable_ns: u64,
    /// Neither on a processor nor known to be waiting for one.
    off_cpu_ns: u64,
}

impl TimeAccount {
    pub(super) fn new(since_ns: u64) -> Self {
        TimeAccount {
            accounted_to_ns: since_ns,
            cpu_ns: 0,
            delay_ns: 0,
            delay_due_ns: 0,
            unattributed: Unattributed::default(),
            sampled_to_ns: since_ns,
            running_since_ns: since_ns,
            off_cpu_since_ns: since_ns,
            remainder: Weight::ZERO,
        }
    }

    /// CPU time that is not in the account yet.
    pub(super) fn ran_ns(&self, cpu_ns: u64) -> u64 {
        cpu_ns.saturating_sub(self.cpu_ns)
    }

    /// CPU time that is counted or unattributed.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// Until when the thread's time is counted or unattributed.
    pub(super) fn accounted_to_ns(&self) -> u64 {
        self.accounted_to_ns
    }

    /// Adds the time until `now_ns`, in which the thread's CPU clock advanced to `cpu_ns`.
    pub(super) fn advance(&mut self, now_ns: u64, cpu_ns: u64) {
        let elapsed = now_ns.saturating_sub(self.accounted_to_ns);
        // The clock was read a little after `now`; the excess counts at the next tick.
        let ran = self.ran_ns(cpu_ns).min(elapsed);
        self.cpu_ns += ran;
        self.add(elapsed, ran);
    }

    /// Adds the time until `now_ns`, in which the thread has not run.
    pub(super) fn advance_idle(&mut self, now_ns: u64) {
        self.add(now_ns.saturating_sub(self.accounted_to_ns), 0);
    }

    fn add(&mut self, elapsed_ns: u64, ran_ns: u64) {
        let sums = &mut self.unattributed;
        if sums.cpu_ns + sums.runnable_ns == 0 {
            self.running_since_ns = self.accounted_to_ns;
        }
        if sums.off_cpu_ns == 0 {
            self.off_cpu_since_ns = self.accounted_to_ns;
        }
        self.accounted_to_ns += elapsed_ns;
        let off_cpu = elapsed_ns - ran_ns;
        let delayed = self.delay_due_ns.min(off_cpu);
        self.delay_due_ns -= delayed;
        sums.cpu_ns += ran_ns;
        sums.runnable_ns += delayed;
        sums.off_cpu_ns += off_cpu - delayed;
    }

    /// Starts over at `now_ns`; earlier time is not counted.
    pub(super) fn reset(&mut self, now_ns: u64, cpu_ns: u64) {
        *self = TimeAccount { cpu_ns, remainder: self.remainder, ..TimeAccount::new(now_ns) };
    }

    /// Sets the thread's run delay since it began. Unattributed time off the processor becomes
    /// `runnable`. Returns by how much the delay rose.
    pub(super) fn set_run_delay(&mut self, delay_ns: u64) -> u64 {
        let new = delay_ns.saturating_sub(self.delay_ns);
        self.delay_due_ns += new;
        self.delay_ns += new;
        let delayed = self.delay_due_ns.min(self.unattributed.off_cpu_ns);
        self.delay_due_ns -= delayed;
        self.unattributed.off_cpu_ns -= delayed;
        self.unattributed.runnable_ns += delayed;
        new
    }

    /// Whether the thread has run since it was last sampled.
    pub(super) fn has_unattributed_cpu(&self) -> bool {
        self.unattributed.cpu_ns > 0
    }

    /// How long time of running has been unattributed.
    pub(super) fn running_unattributed_for_ns(&self) -> u64 {
        if self.unattributed.cpu_ns + self.unattributed.runnable_ns > 0 {
            self.accounted_to_ns - self.running_since_ns
        } else {
            0
        }
    }

    /// How long time off the processor has been unattributed.
    pub(super) fn off_cpu_unattributed_for_ns(&self) -> u64 {
        if self.unattributed.off_cpu_ns > 0 {
            self.accounted_to_ns - self.off_cpu_since_ns
        } else {
            0
        }
    }

    /// Takes the unattributed time of running before the moment of a sample, in whole quanta; the
    /// rest is left for the next sample. A sample stands for the time before it: a thread that lost
    /// its processor shows where when it gets one again, before it goes on.
    pub(super) fn take_sampled(&mut self, sampled_at_ns: u64, quantum_ns: u64) -> Weight {
        let until = sampled_at_ns.clamp(self.sampled_to_ns, self.accounted_to_ns);
        let part = until - self.sampled_to_ns;
        let whole = (self.accounted_to_ns - self.sampled_to_ns).max(1);
        self.sampled_to_ns = until;
        let part_of = |sum: &mut u64| {
            let taken = u128::from(*sum) * u128::from(part) / u128::from(whole);
            let taken = u64::try_from(taken).unwrap_or(*sum);
            *sum -= taken;
            taken
        };
        let mut weight = Weight::of(State::Cpu, part_of(&mut self.unattributed.cpu_ns));
        weight += Weight::of(State::Runnable, part_of(&mut self.unattributed.runnable_ns));
        self.running_since_ns = until;
        self.quantize(weight, quantum_ns)
    }

    /// Takes all unattributed time of running, in whole quanta.
    pub(super) fn take_running(&mut self, quantum_ns: u64) -> Weight {
        self.take_sampled(self.accounted_to_ns, quantum_ns)
    }

    /// Takes the unattributed time off the processor, in whole quanta.
    pub(super) fn take_off_cpu(&mut self, state: State, quantum_ns: u64) -> Weight {
        let off_cpu_ns = std::mem::take(&mut self.unattributed.off_cpu_ns);
        self.quantize(Weight::of(state, off_cpu_ns), quantum_ns)
    }

    /// The whole quanta of `weight` and of the remainder so far; keeps the new remainder, by state.
    fn quantize(&mut self, weight: Weight, quantum_ns: u64) -> Weight {
        let sum = self.remainder + weight;
        let mut whole = Weight::ZERO;
        for state in State::ALL {
            // Most are 0, and a division is slow.
            if sum.get(state) == 0 {
                continue;
            }
            let rest = sum.get(state) % quantum_ns;
            *whole.get_mut(state) = sum.get(state) - rest;
            *self.remainder.get_mut(state) = rest;
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::NodeId;
    use proptest::prelude::*;

    use super::*;

    const QUANTUM: u64 = 1_000_000;

    proptest! {
        #[test]
        fn all_time_is_counted_or_unattributed_and_each_state_is_exact(
            steps in prop::collection::vec(
                (0..30_000_000u64, 0..=10u64, 0..=10u64, 0..5u8), 0..60),
        ) {
            let mut time = TimeAccount::new(500);
            let mut now = 500;
            let mut cpu = 0;
            let mut delay = 0;
            let mut sum = Weight::ZERO;
            for (step, ran, waited, event) in steps {
                now += step;
                let on = step / 10 * ran;
                cpu += on;
                delay += (step - on) / 10 * waited;
                time.advance(now, cpu);
                match event {
                    0 => {}
                    1 => sum += time.take_off_cpu(State::Lock, QUANTUM),
                    2 => {
                        time.set_run_delay(delay);
                        sum += time.take_running(QUANTUM);
                    }
                    3 => sum += time.take_sampled(now - step / 3, QUANTUM),
                    _ => sum += time.take_running(QUANTUM),
                }
            }
            let rest = time.unattributed;
            let all = sum + time.remainder;
            let total = all.total_ns() + rest.cpu_ns + rest.runnable_ns + rest.off_cpu_ns;
            prop_assert_eq!(total, now - 500, "no time is lost or invented");
            prop_assert_eq!(all.get(State::Cpu) + rest.cpu_ns, cpu, "as the kernel counted");
            let runnable = all.get(State::Runnable) + rest.runnable_ns;
            prop_assert_eq!(runnable + time.delay_due_ns, time.delay_ns);
            prop_assert!(State::ALL.iter().all(|state| sum.get(*state).is_multiple_of(QUANTUM)));
        }
    }

    #[test]
    fn run_delay_that_was_counted_as_waiting_is_taken_from_later_waiting() {
        let mut time = TimeAccount::new(0);
        time.advance(100, 40);
        assert_eq!(time.take_off_cpu(State::Lock, 1).total_ns(), 60);
        time.set_run_delay(25);
        assert_eq!(time.take_running(1), Weight::of(State::Cpu, 40));
        time.advance(120, 40);
        assert_eq!(time.take_off_cpu(State::Lock, 1), Weight::ZERO);
        time.advance(130, 40);
        assert_eq!(time.take_running(1), Weight::of(State::Runnable, 25));
        assert_eq!(time.take_off_cpu(State::Lock, 1).total_ns(), 5);
    }

    #[test]
    fn cpu_time_past_the_tick_counts_at_the_next_one() {
        let mut time = TimeAccount::new(0);
        time.advance(100, 104);
        assert_eq!(time.take_running(1), Weight::of(State::Cpu, 100));
        time.advance(200, 104);
        assert_eq!(time.take_running(1), Weight::of(State::Cpu, 4));
    }

    #[test]
    fn a_sample_stands_for_the_time_before_it() {
        let mut time = TimeAccount::new(0);
        time.advance(100, 80);
        time.set_run_delay(20);
        let weight =
            |cpu, runnable| Weight::of(State::Cpu, cpu) + Weight::of(State::Runnable, runnable);
        assert_eq!(time.take_sampled(25, 1), weight(20, 5));
        assert_eq!(time.take_sampled(25, 1), Weight::ZERO);
        assert_eq!(time.take_sampled(10, 1), Weight::ZERO, "an earlier one comes too late");
        assert_eq!(time.take_sampled(50, 1), weight(20, 5));
        time.advance(120, 100);
        assert_eq!(time.take_sampled(900, 1), weight(60, 10));
    }

    #[test]
    fn time_before_a_reset_is_not_counted() {
        let mut time = TimeAccount::new(0);
        time.advance(100, 60);
        time.reset(1_000, 700);
        time.advance(1_010, 705);
        assert_eq!(
            (time.running_unattributed_for_ns(), time.off_cpu_unattributed_for_ns()),
            (10, 10)
        );
        assert_eq!(time.take_running(1), Weight::of(State::Cpu, 5));
        assert_eq!(
            (time.running_unattributed_for_ns(), time.off_cpu_unattributed_for_ns()),
            (0, 10)
        );
    }

    #[test]
    fn a_thread_is_blocked_since_it_last_ran() {
        let mut thread = Thread::new(1, 0);
        let mut count = |cpu_ns, node, state, at_ns| {
            thread.time.advance(at_ns, cpu_ns);
            thread.set_counted(Attribution { node: NodeId(node), thread: NodeId(9) }, state);
            thread.last.map(|last| last.since_ns)
        };
        assert_eq!(count(5, 1, State::Lock, 10), Some(10));
        assert_eq!(count(5, 1, State::Lock, 20), Some(10));
        assert_eq!(count(6, 1, State::Lock, 30), Some(30), "it ran and came back");
        assert_eq!(count(6, 2, State::Lock, 40), Some(40));
        assert_eq!(count(6, 2, State::Cpu, 50), Some(50));
        assert_eq!(count(6, 2, State::Cpu, 60), Some(60), "a running thread is never blocked");
    }
}
