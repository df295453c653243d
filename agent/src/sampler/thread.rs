//! What the sampler remembers of each thread between two ticks, and the account of its time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use profiler_core::{State, Weight};

use super::addresses::{AddressFrame, Top};
use super::budget::{Place, ThreadFrame};
use super::files::ThreadFiles;
use super::live::LastSeen;
use super::sys::request::Request;
use super::sys::slots::StackSpan;
use super::wait::WaitSite;
use crate::registry::{NameId, TaskContext, ThreadCell};

/// A thread of this process.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) id: u32,
    /// It has ended; another one may have its id by now.
    pub(super) gone: bool,
    pub(super) of_agent: bool,
    pub(super) cell: Option<Arc<ThreadCell>>,
    pub(super) time: TimeAccount,
    /// When it was first seen.
    since_ns: u64,
    /// What it is counted as, once that was needed.
    pub(super) frame: Option<ThreadFrame>,
    pub(super) seen: Seen,
    /// Up to when it is known to have stayed where it was seen blocked; 0 unless that is to be counted.
    pub(super) idle_to_ns: u64,
    /// How it was last counted.
    pub(super) last: Option<LastSeen>,
    pub(super) request: Option<Request>,
    /// Up to when it is not asked, because it does not take the signal.
    pub(super) deaf_until_ns: u64,
    /// Its own stack, once it is known.
    pub(super) span: StackSpan,
    /// Samples to come before its stack is looked for again.
    pub(super) span_after: u32,
    pub(super) files: ThreadFiles,
    /// Whether it shares its processor, so that it must be asked each time it loses it.
    pub(super) contended: bool,
}

/// How a thread was last seen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen {
    /// Not yet, or on a processor, or ready for one.
    Ready,
    Blocked {
        site: WaitSite,
        state: State,
        place: Place,
        task_word: u64,
        /// Ticks since the site was last verified.
        ticks: u32,
    },
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
            seen: Seen::Ready,
            idle_to_ns: 0,
            last: None,
            request: None,
            deaf_until_ns: 0,
            span: StackSpan::default(),
            span_after: 0,
            files: ThreadFiles::default(),
            contended: false,
        }
    }

    /// For how long it has been known.
    pub(super) fn age_ns(&self) -> u64 {
        self.time.reckoned_to_ns().saturating_sub(self.since_ns)
    }

    /// The task word now; 0 without a cell.
    pub(super) fn task_word(&self) -> u64 {
        self.cell.as_ref().map_or(0, |cell| cell.task_word().load(Ordering::Acquire))
    }

    /// The first levels of a sample taken under `task_word`: the task, and the phase if it is in one.
    pub(super) fn top(&self, task_word: u64) -> Top {
        let TaskContext { task, phase } = TaskContext::from_word(task_word);
        match task {
            _ if self.of_agent => Top { first: AddressFrame::Agent, phase: NameId::NONE },
            NameId::NONE => Top { first: AddressFrame::NoTask, phase },
            name => Top { first: AddressFrame::Task(name), phase },
        }
    }
}

/// A thread's time: what of it is counted, and what is owed to the next sight of the thread.
///
/// The kernel says to the nanosecond how long a thread was on a processor, whenever it is asked; only
/// *where* that time went needs a sample. So time on a processor (and waiting for one) is owed to the
/// next sample of the running thread, and the rest to the next sight of the blocked one. No matter
/// how rarely either comes, the sums by state stay true.
#[derive(Debug)]
pub(super) struct TimeAccount {
    /// Up to when its time is counted or owed.
    reckoned_to_ns: u64,
    /// CPU time up to which it is counted or owed.
    cpu_ns: u64,
    /// Time ready without a processor, up to which it is known.
    delay_ns: u64,
    /// Such time that is known but was already taken for waiting; waiting to come pays for it.
    delay_due_ns: u64,
    owed: Owed,
    /// Up to when samples of the running thread have said where it was.
    sampled_to_ns: u64,
    /// Since when time of running is owed, and time off the processors.
    running_since_ns: u64,
    off_since_ns: u64,
    carry: Weight,
}

/// Time whose stack is not known yet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Owed {
    cpu_ns: u64,
    runnable_ns: u64,
    /// Neither on a processor nor, as far as is known, waiting for one.
    off_ns: u64,
}

impl TimeAccount {
    pub(super) fn new(since_ns: u64) -> Self {
        TimeAccount {
            reckoned_to_ns: since_ns,
            cpu_ns: 0,
            delay_ns: 0,
            delay_due_ns: 0,
            owed: Owed::default(),
            sampled_to_ns: since_ns,
            running_since_ns: since_ns,
            off_since_ns: since_ns,
            carry: Weight::ZERO,
        }
    }

    /// CPU time since the thread was last found to have run.
    pub(super) fn ran_ns(&self, cpu_ns: u64) -> u64 {
        cpu_ns.saturating_sub(self.cpu_ns)
    }

    /// CPU time up to which it is counted or owed.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// Up to when the thread's time is counted or owed.
    pub(super) fn reckoned_to_ns(&self) -> u64 {
        self.reckoned_to_ns
    }

    /// Takes in the time up to `now_ns`, as the thread's CPU clock tells it.
    pub(super) fn advance(&mut self, now_ns: u64, cpu_ns: u64) {
        let elapsed = now_ns.saturating_sub(self.reckoned_to_ns);
        // The clock was read a little after `now`: what is too much counts at the next tick.
        let ran = self.ran_ns(cpu_ns).min(elapsed);
        self.cpu_ns += ran;
        self.owe(elapsed, ran);
    }

    /// Takes in the time up to `now_ns`, in which the thread has not run.
    pub(super) fn advance_idle(&mut self, now_ns: u64) {
        self.owe(now_ns.saturating_sub(self.reckoned_to_ns), 0);
    }

    fn owe(&mut self, elapsed_ns: u64, ran_ns: u64) {
        let Owed { cpu_ns, runnable_ns, off_ns } = &mut self.owed;
        if *cpu_ns + *runnable_ns == 0 {
            self.running_since_ns = self.reckoned_to_ns;
        }
        if *off_ns == 0 {
            self.off_since_ns = self.reckoned_to_ns;
        }
        self.reckoned_to_ns += elapsed_ns;
        let off = elapsed_ns - ran_ns;
        let delayed = self.delay_due_ns.min(off);
        self.delay_due_ns -= delayed;
        *cpu_ns += ran_ns;
        *runnable_ns += delayed;
        *off_ns += off - delayed;
    }

    /// Starts over at `now_ns`: what was before is nobody's.
    pub(super) fn forgive(&mut self, now_ns: u64, cpu_ns: u64) {
        *self = TimeAccount { cpu_ns, carry: self.carry, ..TimeAccount::new(now_ns) };
    }

    /// The thread's time is known to have been spent ready for `delay_ns` since it began. Time that
    /// was taken for waiting becomes `runnable`. Gives how much is new.
    pub(super) fn know_delay(&mut self, delay_ns: u64) -> u64 {
        let new = delay_ns.saturating_sub(self.delay_ns);
        self.delay_due_ns += new;
        self.delay_ns += new;
        let delayed = self.delay_due_ns.min(self.owed.off_ns);
        self.delay_due_ns -= delayed;
        self.owed.off_ns -= delayed;
        self.owed.runnable_ns += delayed;
        new
    }

    /// Whether the thread has run and it is not known where.
    pub(super) fn owes_running(&self) -> bool {
        self.owed.cpu_ns > 0
    }

    /// For how long time of running has been owed.
    pub(super) fn running_owed_for_ns(&self) -> u64 {
        let owed = self.owed.cpu_ns + self.owed.runnable_ns > 0;
        if owed { self.reckoned_to_ns - self.running_since_ns } else { 0 }
    }

    /// For how long time off the processors has been owed.
    pub(super) fn off_owed_for_ns(&self) -> u64 {
        if self.owed.off_ns > 0 { self.reckoned_to_ns - self.off_since_ns } else { 0 }
    }

    /// The part of what is owed of running that lies before the moment of a sample, in whole quanta;
    /// the rest is owed to the next one. A sample speaks for the time before it: a thread that lost
    /// its processor shows where, when it gets one again, before it goes on.
    pub(super) fn take_sampled(&mut self, sampled_at_ns: u64, quantum_ns: u64) -> Weight {
        let until = sampled_at_ns.clamp(self.sampled_to_ns, self.reckoned_to_ns);
        let part = until - self.sampled_to_ns;
        let whole = (self.reckoned_to_ns - self.sampled_to_ns).max(1);
        self.sampled_to_ns = until;
        let part_of = |sum: &mut u64| {
            let taken = u128::from(*sum) * u128::from(part) / u128::from(whole);
            let taken = u64::try_from(taken).unwrap_or(*sum);
            *sum -= taken;
            taken
        };
        let mut weight = Weight::of(State::Cpu, part_of(&mut self.owed.cpu_ns));
        weight += Weight::of(State::Runnable, part_of(&mut self.owed.runnable_ns));
        self.running_since_ns = until;
        self.quantise(weight, quantum_ns)
    }

    /// All that is owed of running, in whole quanta.
    pub(super) fn take_running(&mut self, quantum_ns: u64) -> Weight {
        self.take_sampled(self.reckoned_to_ns, quantum_ns)
    }

    /// What is owed to a sight of the blocked thread, in whole quanta.
    pub(super) fn take_off(&mut self, state: State, quantum_ns: u64) -> Weight {
        let off_ns = std::mem::take(&mut self.owed.off_ns);
        self.quantise(Weight::of(state, off_ns), quantum_ns)
    }

    /// The whole quanta of `weight` and of what was carried; the rest is carried on, by state.
    fn quantise(&mut self, weight: Weight, quantum_ns: u64) -> Weight {
        let sum = self.carry + weight;
        let mut whole = Weight::ZERO;
        for state in State::ALL {
            // Most are 0, and a division takes long.
            if sum.get(state) == 0 {
                continue;
            }
            let rest = sum.get(state) % quantum_ns;
            *whole.get_mut(state) = sum.get(state) - rest;
            *self.carry.get_mut(state) = rest;
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUANTUM: u64 = 1_000_000;

    proptest! {
        #[test]
        fn all_time_is_counted_or_owed_and_each_state_is_exact(
            steps in prop::collection::vec(
                (0..30_000_000u64, 0..=10u64, 0..=10u64, 0..5u8), 0..60),
        ) {
            let mut time = TimeAccount::new(500);
            let (mut now, mut cpu, mut delay) = (500, 0, 0);
            let mut sum = Weight::ZERO;
            for (step, ran, waited, sight) in steps {
                now += step;
                let on = step / 10 * ran;
                cpu += on;
                delay += (step - on) / 10 * waited;
                time.advance(now, cpu);
                match sight {
                    0 => {}
                    1 => sum += time.take_off(State::Lock, QUANTUM),
                    2 => {
                        time.know_delay(delay);
                        sum += time.take_running(QUANTUM);
                    }
                    3 => sum += time.take_sampled(now - step / 3, QUANTUM),
                    _ => sum += time.take_running(QUANTUM),
                }
            }
            let owed = time.owed;
            let all = sum + time.carry;
            let total = all.total_ns() + owed.cpu_ns + owed.runnable_ns + owed.off_ns;
            prop_assert_eq!(total, now - 500, "nothing vanishes, nothing is made");
            prop_assert_eq!(all.get(State::Cpu) + owed.cpu_ns, cpu, "as the kernel counted");
            let runnable = all.get(State::Runnable) + owed.runnable_ns;
            prop_assert_eq!(runnable + time.delay_due_ns, time.delay_ns);
            prop_assert!(State::ALL.iter().all(|state| sum.get(*state).is_multiple_of(QUANTUM)));
        }
    }

    #[test]
    fn delay_that_was_taken_for_waiting_is_paid_back_by_waiting_to_come() {
        let mut time = TimeAccount::new(0);
        time.advance(100, 40);
        assert_eq!(time.take_off(State::Lock, 1).total_ns(), 60);
        time.know_delay(25);
        assert_eq!(time.take_running(1), Weight::of(State::Cpu, 40));
        time.advance(120, 40);
        assert_eq!(time.take_off(State::Lock, 1), Weight::ZERO);
        time.advance(130, 40);
        assert_eq!(time.take_running(1), Weight::of(State::Runnable, 25));
        assert_eq!(time.take_off(State::Lock, 1).total_ns(), 5);
    }

    #[test]
    fn a_clock_that_is_ahead_of_now_counts_at_the_next_tick() {
        let mut time = TimeAccount::new(0);
        time.advance(100, 104);
        assert_eq!(time.take_running(1), Weight::of(State::Cpu, 100));
        time.advance(200, 104);
        assert_eq!(time.take_running(1), Weight::of(State::Cpu, 4));
    }

    #[test]
    fn a_sample_speaks_for_the_time_before_it() {
        let mut time = TimeAccount::new(0);
        time.advance(100, 80);
        time.know_delay(20);
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
    fn time_that_was_switched_off_is_nobodys() {
        let mut time = TimeAccount::new(0);
        time.advance(100, 60);
        time.forgive(1_000, 700);
        time.advance(1_010, 705);
        assert_eq!((time.running_owed_for_ns(), time.off_owed_for_ns()), (10, 10));
        assert_eq!(time.take_running(1), Weight::of(State::Cpu, 5));
        assert_eq!((time.running_owed_for_ns(), time.off_owed_for_ns()), (0, 10));
    }
}
