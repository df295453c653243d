//! Accounting of a thread's time by state.

use std::ops::Range;

use profiler_core::{State, Weight};

use super::audit::Times;
use crate::registry::Moment;

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
    /// Time that was counted as `runnable` before the kernel reported it.
    delay_ahead_ns: u64,
    /// All time off the processor until `accounted_to_ns`, with or without a run delay, since the thread
    /// began its first task; and the run delay then.
    all_off_cpu_ns: u64,
    delay_before_ns: u64,
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
    /// Waiting for a processor after being woken; attributed together with the time before.
    woken_ns: u64,
}

/// A part of the time since the last sample.
#[derive(Clone, Copy)]
struct PartBefore {
    until_ns: u64,
    part_ns: u64,
    whole_ns: u64,
}

impl PartBefore {
    fn of(self, sum_ns: u64) -> u64 {
        let part = u128::from(sum_ns) * u128::from(self.part_ns) / u128::from(self.whole_ns);
        u64::try_from(part).unwrap_or(sum_ns)
    }
}

impl TimeAccount {
    pub(super) fn new(since_ns: u64) -> Self {
        TimeAccount {
            accounted_to_ns: since_ns,
            cpu_ns: 0,
            delay_ns: 0,
            delay_due_ns: 0,
            delay_ahead_ns: 0,
            all_off_cpu_ns: 0,
            delay_before_ns: 0,
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

    /// Time until `until` that is not counted yet.
    pub(super) fn uncounted(&self, until: Moment) -> Times {
        let Unattributed {
            cpu_ns,
            runnable_ns,
            off_cpu_ns,
            woken_ns,
        } = self.unattributed;
        let unattributed = Weight::of(State::Cpu, cpu_ns)
            + Weight::of(State::Other, runnable_ns + off_cpu_ns + woken_ns);
        let accounted = Moment {
            ns: self.accounted_to_ns,
            cpu_ns: self.cpu_ns,
        };
        Times::between(accounted, until) + Times::of(unattributed) + self.remainders()
    }

    /// Remainders below a quantum.
    pub(super) fn remainders(&self) -> Times {
        Times::of(self.remainder)
    }

    /// CPU time that is counted or unattributed.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// Until when the thread's time is counted or unattributed.
    pub(super) fn accounted_to_ns(&self) -> u64 {
        self.accounted_to_ns
    }

    /// When a sample was taken whose time is not known, and after which there are `later` ones: it and they divide the time
    /// since the last sample into equal parts.
    pub(super) fn unsampled_part_ns(&self, later: u64) -> u64 {
        let part_ns = (self.accounted_to_ns - self.sampled_to_ns) / (later + 2);
        self.sampled_to_ns + part_ns
    }

    /// Adds the time until `now_ns`, in which the thread's CPU clock advanced to `cpu_ns`.
    pub(super) fn advance(&mut self, now_ns: u64, cpu_ns: u64) {
        let elapsed = now_ns.saturating_sub(self.accounted_to_ns);
        // The clock was read a little after `now`; the excess counts at the next tick.
        let ran = self.ran_ns(cpu_ns).min(elapsed);
        self.cpu_ns += ran;
        self.add(elapsed, ran);
    }

    /// Adds the time until `now_ns`, when the thread ended. Its clock cannot be read any more, so
    /// the time counts as it was last seen to pass.
    pub(super) fn advance_ended(&mut self, now_ns: u64, was_running: bool) {
        let elapsed = now_ns.saturating_sub(self.accounted_to_ns);
        self.add(elapsed, if was_running { elapsed } else { 0 });
    }

    /// Adds the time until `now_ns`, when the thread ended, of which it ran for at most `ran_ns` and was ready for the
    /// rest. Returns how long it ran.
    #[cfg(feature = "outside")]
    pub(super) fn advance_ended_after(&mut self, now_ns: u64, ran_ns: u64) -> u64 {
        let elapsed = now_ns.saturating_sub(self.accounted_to_ns);
        let ran = ran_ns.min(elapsed);
        self.cpu_ns += ran;
        self.delay_due_ns += elapsed - ran;
        self.add(elapsed, ran);
        ran
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
        self.all_off_cpu_ns += off_cpu;
        let delayed = self.delay_due_ns.min(off_cpu);
        self.delay_due_ns -= delayed;
        sums.cpu_ns += ran_ns;
        sums.runnable_ns += delayed;
        sums.off_cpu_ns += off_cpu - delayed;
    }

    /// Starts over at `now_ns`; earlier time is not counted.
    pub(super) fn reset(&mut self, now_ns: u64, cpu_ns: u64) {
        *self = TimeAccount {
            cpu_ns,
            remainder: self.remainder,
            ..TimeAccount::new(now_ns)
        };
    }

    /// Waits for a processor until now, `delay_ns` since the thread began, were before this account.
    #[cfg(feature = "outside")]
    pub(super) fn begin_at_delay(&mut self, delay_ns: u64) {
        self.delay_ns = delay_ns;
        self.delay_before_ns = delay_ns;
    }

    /// Continues at `now`. Unattributed time is not counted, because the thread has measured it itself.
    pub(super) fn restart(&mut self, now: Moment) {
        let TimeAccount {
            delay_ns,
            all_off_cpu_ns,
            delay_before_ns,
            remainder,
            ..
        } = *self;
        *self = TimeAccount {
            cpu_ns: now.cpu_ns,
            delay_ns,
            all_off_cpu_ns,
            delay_before_ns,
            remainder,
            ..TimeAccount::new(now.ns)
        };
    }

    /// The thread begins its first task: how it waited before tells nothing about later.
    pub(super) fn begin_tasks(&mut self) {
        self.all_off_cpu_ns = 0;
        self.delay_before_ns = self.delay_ns;
    }

    /// How long the thread has waited for processors in its tasks, as far as the kernel reported it.
    pub(super) fn delay_in_tasks_ns(&self) -> u64 {
        self.delay_ns - self.delay_before_ns
    }

    /// The time off the processor since the thread began its first task is counted elsewhere.
    pub(super) fn set_off_cpu_in_tasks(&mut self, ns: u64) {
        self.all_off_cpu_ns = ns;
    }

    /// Waits of `ns` in the time that is added next were reported before.
    pub(super) fn expect_run_delay(&mut self, ns: u64) {
        self.delay_due_ns = ns;
    }

    /// Waits of `ns`, which the kernel has not reported, are counted elsewhere.
    pub(super) fn set_delay_ahead(&mut self, ns: u64) {
        self.delay_ahead_ns = ns;
    }

    /// Sets the thread's run delay since it began. Unattributed time off the processor becomes
    /// `runnable`. Returns by how much the delay rose.
    pub(super) fn set_run_delay(&mut self, delay_ns: u64) -> u64 {
        let new = delay_ns.saturating_sub(self.delay_ns);
        let known = self.delay_ahead_ns.min(new);
        self.delay_ahead_ns -= known;
        self.delay_due_ns += new - known;
        self.delay_ns += new;
        let delayed = self.delay_due_ns.min(self.unattributed.off_cpu_ns);
        self.delay_due_ns -= delayed;
        self.unattributed.off_cpu_ns -= delayed;
        self.unattributed.runnable_ns += delayed;
        new
    }

    /// Adds a part of the run delay that is not in the account yet.
    pub(super) fn add_run_delay(&mut self, delay_ns: u64) {
        self.set_run_delay(self.delay_ns + delay_ns);
    }

    /// Run delay that is not in the account yet, of `delay_ns` since the thread began.
    pub(super) fn new_delay_ns(&self, delay_ns: u64) -> u64 {
        delay_ns.saturating_sub(self.delay_ns)
    }

    /// CPU time that is not attributed to a stack yet.
    pub(super) fn unattributed_cpu_ns(&self) -> u64 {
        self.unattributed.cpu_ns
    }

    /// Time off the processor that is not attributed to a stack yet.
    pub(super) fn unattributed_off_cpu_ns(&self) -> u64 {
        self.unattributed.off_cpu_ns
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
        let before = self.part_before(sampled_at_ns);
        let cpu_ns = before.of(self.unattributed.cpu_ns);
        self.take_before(before, cpu_ns, quantum_ns)
    }

    /// The same for a sample that has the thread's CPU clock: a share of the elapsed time would leave a part of the time
    /// before a long sleep to the first sample after it.
    #[cfg(feature = "outside")]
    pub(super) fn take_sampled_by_clock(&mut self, sampled: Moment, quantum_ns: u64) -> Weight {
        let before = self.part_before(sampled.ns);
        let after_ns = self.cpu_ns.saturating_sub(sampled.cpu_ns);
        let cpu_ns = self.unattributed.cpu_ns.saturating_sub(after_ns);
        self.take_before(before, cpu_ns, quantum_ns)
    }

    /// The part of the time since the last sample that is before `moment_ns`.
    fn part_before(&self, moment_ns: u64) -> PartBefore {
        let until_ns = moment_ns.clamp(self.sampled_to_ns, self.accounted_to_ns);
        PartBefore {
            until_ns,
            part_ns: until_ns - self.sampled_to_ns,
            whole_ns: (self.accounted_to_ns - self.sampled_to_ns).max(1),
        }
    }

    fn take_before(&mut self, before: PartBefore, cpu_ns: u64, quantum_ns: u64) -> Weight {
        let runnable_ns = before.of(self.unattributed.runnable_ns);
        self.unattributed.cpu_ns -= cpu_ns;
        self.unattributed.runnable_ns -= runnable_ns;
        self.sampled_to_ns = before.until_ns;
        self.running_since_ns = before.until_ns;
        let mut weight = Weight::of(State::Cpu, cpu_ns);
        weight += Weight::of(State::Runnable, runnable_ns);
        self.quantize(weight, quantum_ns)
    }

    /// Takes all unattributed time of running, in whole quanta.
    pub(super) fn take_running(&mut self, quantum_ns: u64) -> Weight {
        self.take_sampled(self.accounted_to_ns, quantum_ns)
    }

    /// Takes up to `nanoseconds` of the unattributed CPU time, in whole quanta.
    pub(super) fn take_cpu(&mut self, nanoseconds: u64, quantum_ns: u64) -> Weight {
        let taken = nanoseconds.min(self.unattributed.cpu_ns);
        self.unattributed.cpu_ns -= taken;
        self.quantize(Weight::of(State::Cpu, taken), quantum_ns)
    }

    /// Takes up to `nanoseconds` of the unattributed time of waiting for a processor, in whole quanta.
    /// Returns also how much was there.
    pub(super) fn take_runnable(&mut self, nanoseconds: u64, quantum_ns: u64) -> (Weight, u64) {
        let taken = nanoseconds.min(self.unattributed.runnable_ns);
        self.unattributed.runnable_ns -= taken;
        (
            self.quantize(Weight::of(State::Runnable, taken), quantum_ns),
            taken,
        )
    }

    /// Up to `nanoseconds` of the unattributed time of waiting for a processor came after the thread
    /// had been woken: it belongs to the place where it blocks, once that is seen.
    pub(super) fn set_woken(&mut self, nanoseconds: u64) {
        let moved = nanoseconds.min(self.unattributed.runnable_ns);
        self.unattributed.runnable_ns -= moved;
        self.unattributed.woken_ns += moved;
    }

    /// Takes the unattributed time off the processor, in whole quanta.
    pub(super) fn take_off_cpu(&mut self, state: State, quantum_ns: u64) -> Weight {
        let off_cpu_ns = std::mem::take(&mut self.unattributed.off_cpu_ns);
        let woken_ns = std::mem::take(&mut self.unattributed.woken_ns);
        let weight = Weight::of(state, off_cpu_ns) + Weight::of(State::Runnable, woken_ns);
        self.quantize(weight, quantum_ns)
    }

    /// Takes the unattributed time off the processor in which the whole process was stopped: the thread did not wait
    /// for a processor then.
    pub(super) fn take_stopped(&mut self, stop: &Range<u64>, quantum_ns: u64) -> Weight {
        let start_ns = stop.start.max(self.off_cpu_since_ns);
        let stop_ns = stop.end.min(self.accounted_to_ns);
        let stopped_ns = stop_ns.saturating_sub(start_ns);
        let taken = stopped_ns.min(self.unattributed.off_cpu_ns);
        if taken == 0 {
            return Weight::ZERO;
        }
        self.unattributed.off_cpu_ns -= taken;
        self.all_off_cpu_ns = self.all_off_cpu_ns.saturating_sub(taken);
        self.quantize(Weight::of(State::Other, taken), quantum_ns)
    }

    /// Takes the unattributed time off the processor of a thread that waits for one, before the kernel reports that:
    /// it counts a wait when it has ended.
    pub(super) fn take_off_cpu_as_delay(&mut self, quantum_ns: u64) -> Weight {
        let delayed = self.likely_delay_ns(0);
        self.delay_ahead_ns += delayed;
        self.take_delayed(delayed, quantum_ns)
    }

    /// The same if all of that time is known to be such a wait.
    #[cfg(feature = "outside")]
    pub(super) fn take_all_off_cpu_as_delay(&mut self, quantum_ns: u64) -> Weight {
        let delayed = self.unattributed.off_cpu_ns;
        self.delay_ahead_ns += delayed;
        self.take_delayed(delayed, quantum_ns)
    }

    /// Takes the unattributed time off the processor of a thread that ended after its run delay was
    /// last read, when `known_ns` of that time were not run delay.
    pub(super) fn take_off_cpu_of_ended(&mut self, known_ns: u64, quantum_ns: u64) -> Weight {
        let delayed = self.likely_delay_ns(known_ns);
        self.take_delayed(delayed, quantum_ns)
    }

    /// How much of the unattributed time off the processor the kernel will report as run delay. Of the time after
    /// `known_ns` it is the same part as of the time before; all of it if nothing is known of that: the thread was not
    /// seen blocked.
    fn likely_delay_ns(&self, known_ns: u64) -> u64 {
        let since_read = self.unattributed.off_cpu_ns.saturating_sub(known_ns);
        let before = self.all_off_cpu_ns - since_read.min(self.all_off_cpu_ns);
        if before == 0 {
            return since_read;
        }
        let delay_ns = (self.delay_in_tasks_ns() + self.delay_ahead_ns).min(before);
        let delayed = u128::from(since_read) * u128::from(delay_ns) / u128::from(before);
        u64::try_from(delayed).unwrap_or(since_read)
    }

    /// Takes the unattributed time off the processor, of which `delayed_ns` were run delay.
    fn take_delayed(&mut self, delayed_ns: u64, quantum_ns: u64) -> Weight {
        self.unattributed.off_cpu_ns -= delayed_ns;
        let runnable = self.quantize(Weight::of(State::Runnable, delayed_ns), quantum_ns);
        runnable + self.take_off_cpu(State::Other, quantum_ns)
    }

    /// Takes the remainders of the states that are `wanted`.
    pub(super) fn take_remainder(&mut self, wanted: impl Fn(State) -> bool) -> Weight {
        let mut taken = Weight::ZERO;
        for state in State::ALL.into_iter().filter(|state| wanted(*state)) {
            *taken.get_mut(state) = std::mem::take(self.remainder.get_mut(state));
        }
        taken
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
                    3 => {
                        time.set_woken(step / 4);
                        sum += time.take_sampled(now - step / 3, QUANTUM);
                    }
                    _ => sum += time.take_running(QUANTUM),
                }
            }
            let rest = time.unattributed;
            let all = sum + time.remainder;
            let waiting = rest.runnable_ns + rest.woken_ns;
            let total = all.total_ns() + rest.cpu_ns + waiting + rest.off_cpu_ns;
            prop_assert_eq!(total, now - 500, "no time is lost or invented");
            prop_assert_eq!(all.get(State::Cpu) + rest.cpu_ns, cpu, "as the kernel counted");
            let runnable = all.get(State::Runnable) + waiting;
            prop_assert_eq!(runnable + time.delay_due_ns, time.delay_ns);
            prop_assert!(State::ALL.iter().all(|state| sum.get(*state).is_multiple_of(QUANTUM)));
        }
    }

    #[test]
    fn of_the_time_after_the_last_report_an_ended_thread_waited_for_a_processor_as_before() {
        let mut time = TimeAccount::new(0);
        time.advance(80, 0);
        time.set_run_delay(20);
        let known_ns = time.unattributed_off_cpu_ns();
        time.advance_ended(120, false);
        let off_cpu = time.take_off_cpu_of_ended(known_ns, 1);
        assert_eq!(off_cpu.get(State::Runnable), 10, "a quarter of 40");
        assert_eq!(off_cpu.get(State::Other), 60 + 30);
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

    /// Bursts of 16 ms and sleeps of 20 ms, sampled after each 9 ms of CPU time.
    #[cfg(feature = "outside")]
    #[test]
    fn samples_by_the_clock_have_equal_weights_however_a_thread_sleeps() {
        const MS: u64 = 1_000_000;
        let mut time = TimeAccount::new(0);
        let mut weights = Vec::new();
        let mut next_cpu_ms = 9;
        for tick in 1..200 {
            let now_ms = 10 * tick;
            let cpu_ms = now_ms / 36 * 16 + (now_ms % 36).min(16);
            time.advance(now_ms * MS, cpu_ms * MS);
            while next_cpu_ms <= cpu_ms {
                let at_ms = next_cpu_ms / 16 * 36 + next_cpu_ms % 16;
                let sampled = Moment {
                    ns: at_ms * MS,
                    cpu_ns: next_cpu_ms * MS,
                };
                weights.push(time.take_sampled_by_clock(sampled, 1));
                next_cpu_ms += 9;
            }
        }
        assert!(weights.len() > 90);
        for weight in weights {
            assert_eq!(weight, Weight::of(State::Cpu, 9 * MS));
        }
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
        assert_eq!(
            time.take_sampled(10, 1),
            Weight::ZERO,
            "an earlier one comes too late"
        );
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
            (
                time.running_unattributed_for_ns(),
                time.off_cpu_unattributed_for_ns()
            ),
            (10, 10)
        );
        assert_eq!(time.take_running(1), Weight::of(State::Cpu, 5));
        assert_eq!(
            (
                time.running_unattributed_for_ns(),
                time.off_cpu_unattributed_for_ns()
            ),
            (0, 10)
        );
    }

    #[test]
    fn time_of_a_stop_is_no_wait_for_a_processor() {
        let mut time = TimeAccount::new(1_000);
        // Stopped from 2,000 to 8,000; it waited for a processor before.
        time.advance(9_000, 500);
        let weight = time.take_stopped(&(2_000..8_000), 1);
        assert_eq!(weight, Weight::of(State::Other, 6_000));
        assert_eq!(
            time.take_off_cpu_as_delay(1),
            Weight::of(State::Runnable, 1_500)
        );
        // None of it is there twice, and later time is not of that stop.
        time.advance(12_000, 600);
        assert_eq!(time.take_stopped(&(2_000..8_000), 1), Weight::ZERO);
        assert_eq!(
            time.take_off_cpu_as_delay(1),
            Weight::of(State::Runnable, 2_900)
        );
    }
}
