//! Compares the time that the sampler counts with what the kernel shows: CPU time with the CPU clock of the
//! process, thread time with the number of threads over time. What is missing is reported as lost, also
//! while the sampler itself gets no processor.

use std::ops::{Add, AddAssign, Sub};

use profiler_core::{State, Weight};

use crate::registry::Moment;

/// Most clocks of threads that are read in a cycle, on average: a check of many threads waits for as many
/// cycles as it takes.
const CLOCKS_PER_CYCLE: usize = 256;

/// A difference is reported from this on, and from this part of the time since the last check on.
const REPORTED_MIN_NS: i64 = 20_000_000;
const REPORTED_PART: i64 = 100;

/// Time of threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Times {
    /// On a processor.
    pub(super) cpu_ns: i64,
    /// In all states.
    pub(super) all_ns: i64,
}

/// The kernel's side of a check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// The CPU clock of the process before and after the threads' clocks were read.
    pub(super) cpu_before_ns: u64,
    pub(super) cpu_after_ns: u64,
    /// Thread time that is not in the sums yet, because the threads are not known yet.
    pub(super) unknown_ns: u64,
}

/// A difference that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Difference {
    /// Time that was not counted.
    pub(crate) missing_ns: u64,
    /// CPU time that was counted and that the process has not used.
    pub(crate) excess_ns: u64,
}

/// The state of the comparison.
#[derive(Debug, Default)]
pub(super) struct Audit {
    /// Whether missing CPU time is counted by the caller and not lost: all threads are in one task.
    counts_cpu: bool,
    /// The difference of the kernel's times and the sampler's when the comparison began.
    base: Option<Times>,
    /// The least time of all threads since then.
    least_ns: i64,
    last_count: Option<ThreadCount>,
    cycles_since_check: usize,
    /// The differences of the last check, and what was shown then.
    last_missing: Times,
    last_shown: Times,
    /// Differences that were reported so far.
    reported: Times,
    reported_excess_ns: i64,
    /// Differences that were found and not sent yet.
    found: Difference,
}

/// The number of threads at a tick.
#[derive(Clone, Copy, Debug)]
struct ThreadCount {
    at_ns: u64,
    threads: u64,
}

impl Times {
    pub(super) fn of(weight: Weight) -> Times {
        Times {
            cpu_ns: signed(weight.get(State::Cpu)),
            all_ns: signed(weight.total_ns()),
        }
    }

    /// Time of a thread from one moment to another.
    pub(super) fn between(from: Moment, to: Moment) -> Times {
        Times {
            cpu_ns: signed(to.cpu_ns) - signed(from.cpu_ns),
            all_ns: signed(to.ns) - signed(from.ns),
        }
    }

    /// Time off the processor.
    pub(super) fn off_cpu_ns(self) -> u64 {
        u64::try_from(self.all_ns - self.cpu_ns).unwrap_or(0)
    }
}

impl Add for Times {
    type Output = Times;

    fn add(self, other: Times) -> Times {
        Times {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            all_ns: self.all_ns + other.all_ns,
        }
    }
}

impl AddAssign for Times {
    fn add_assign(&mut self, other: Times) {
        *self = *self + other;
    }
}

impl Sub for Times {
    type Output = Times;

    fn sub(self, other: Times) -> Times {
        Times {
            cpu_ns: self.cpu_ns - other.cpu_ns,
            all_ns: self.all_ns - other.all_ns,
        }
    }
}

impl Audit {
    pub(super) fn new(counts_cpu: bool) -> Audit {
        Audit {
            counts_cpu,
            ..Audit::default()
        }
    }

    /// Sampling begins again: earlier time is not compared.
    pub(super) fn restart(&mut self) {
        *self = Audit {
            counts_cpu: self.counts_cpu,
            found: self.found,
            ..Audit::default()
        };
    }

    pub(super) fn has_begun(&self) -> bool {
        self.base.is_some()
    }

    /// At a tick the process has `threads`. It is assumed that between two ticks it has had as many as at the
    /// one with fewer of them: threads that end and start between two ticks are one thread to it.
    pub(super) fn pass(&mut self, at_ns: u64, threads: u64) {
        if let Some(last) = self.last_count {
            let both = last.threads.min(threads);
            self.least_ns += signed(both.saturating_mul(at_ns.saturating_sub(last.at_ns)));
        }
        self.last_count = Some(ThreadCount { at_ns, threads });
    }

    /// A cycle ends; returns whether its time is to be checked, with a process of `threads`.
    pub(super) fn is_due(&mut self, threads: usize) -> bool {
        self.cycles_since_check += 1;
        !self.has_begun() || self.cycles_since_check > threads / CLOCKS_PER_CYCLE
    }

    /// Compares. `counted` is all time that was counted or will be. A difference is reported once it was
    /// found twice, because time of threads that have just started or ended may still be counted; at the
    /// `last` check at once. Returns CPU time that the caller counts instead, if that is wanted.
    pub(super) fn check(&mut self, counted: Times, shown: Shown, last: bool) -> u64 {
        self.cycles_since_check = 0;
        let now = Times {
            cpu_ns: signed(shown.cpu_before_ns),
            all_ns: self.least_ns,
        };
        let Some(base) = self.base else {
            self.base = Some(now - counted);
            self.last_shown = now;
            return 0;
        };
        let difference = now - counted - base - self.reported;
        let missing = Times {
            cpu_ns: difference.cpu_ns,
            all_ns: difference.all_ns - signed(shown.unknown_ns),
        };
        let passed = now - self.last_shown;
        let before = if last { missing } else { self.last_missing };
        self.last_missing = missing;
        self.last_shown = now;
        let new = Times {
            cpu_ns: above_noise(missing.cpu_ns.min(before.cpu_ns), passed.cpu_ns),
            all_ns: above_noise(missing.all_ns.min(before.all_ns), passed.all_ns),
        };
        let counted_cpu_ns = if self.counts_cpu { new.cpu_ns } else { 0 };
        let left = Times {
            cpu_ns: new.cpu_ns - counted_cpu_ns,
            all_ns: (new.all_ns - counted_cpu_ns).max(0),
        };
        self.reported += left;
        self.last_missing = self.last_missing - new;
        // CPU time is a part of thread time.
        self.found.missing_ns += left.cpu_ns.max(left.all_ns).unsigned_abs();
        let while_read_ns = signed(shown.cpu_after_ns) - signed(shown.cpu_before_ns);
        let excess_ns = -difference.cpu_ns - while_read_ns - self.reported_excess_ns;
        let excess_ns = above_noise(excess_ns, passed.cpu_ns);
        self.reported_excess_ns += excess_ns;
        self.found.excess_ns += excess_ns.unsigned_abs();
        counted_cpu_ns.unsigned_abs()
    }

    /// Differences that were found and not sent yet.
    pub(super) fn found(&self) -> Difference {
        self.found
    }

    pub(super) fn set_sent(&mut self) {
        self.found = Difference::default();
    }
}

/// `difference_ns` if it is to be reported when `passed_ns` have passed; otherwise 0.
fn above_noise(difference_ns: i64, passed_ns: i64) -> i64 {
    let least_ns = REPORTED_MIN_NS.max(passed_ns / REPORTED_PART);
    if difference_ns >= least_ns {
        difference_ns
    } else {
        0
    }
}

fn signed(nanoseconds: u64) -> i64 {
    i64::try_from(nanoseconds).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// An audit of a process with `threads` after `checks` seconds; of each second all but `missing` is counted.
    fn found(checks: u64, threads: u64, missing: Times, last: bool) -> Difference {
        let mut audit = Audit::default();
        for second in 0..=checks {
            audit.pass(second * SECOND, threads);
            let cpu_ns = second * SECOND;
            let shown = Shown {
                cpu_before_ns: cpu_ns,
                cpu_after_ns: cpu_ns,
                unknown_ns: 0,
            };
            let second = signed(second);
            let counted = Times {
                cpu_ns: signed(cpu_ns) - missing.cpu_ns * second,
                all_ns: (signed(threads * SECOND) - missing.all_ns) * second,
            };
            audit.check(counted, shown, last);
        }
        audit.found()
    }

    #[test]
    fn nothing_is_found_where_nothing_is_missing() {
        assert_eq!(found(5, 3, Times::default(), false), Difference::default());
    }

    #[test]
    fn missing_time_is_reported_once() {
        let missing = Times {
            cpu_ns: 300_000_000,
            all_ns: 900_000_000,
        };
        assert_eq!(
            found(1, 3, missing, false).missing_ns,
            0,
            "it may still be counted"
        );
        assert_eq!(found(1, 3, missing, true).missing_ns, 900_000_000);
        assert_eq!(found(4, 3, missing, true).missing_ns, 3_600_000_000);
        assert_eq!(
            found(4, 3, missing, false).missing_ns,
            2_700_000_000,
            "the last may still be"
        );
    }

    #[test]
    fn missing_cpu_time_is_counted_by_the_caller_if_that_is_wanted() {
        let mut audit = Audit::new(true);
        let mut counted = Times::default();
        let mut found_ns = 0;
        for second in 0..5 {
            audit.pass(second * SECOND, 1);
            let shown = Shown {
                cpu_before_ns: second * SECOND,
                cpu_after_ns: second * SECOND,
                unknown_ns: 0,
            };
            // One thread that sleeps is known, and short ones use a processor.
            counted.all_ns = signed(second * SECOND + found_ns);
            let new_ns = audit.check(counted, shown, second == 4);
            found_ns += new_ns;
            counted.cpu_ns += signed(new_ns);
        }
        assert_eq!(found_ns, 4 * SECOND);
        assert_eq!(audit.found(), Difference::default());
    }

    #[test]
    fn differences_below_the_noise_add_up() {
        let missing = Times {
            cpu_ns: 0,
            all_ns: 15_000_000,
        };
        assert_eq!(found(1, 3, missing, true).missing_ns, 0);
        assert_eq!(found(4, 3, missing, true).missing_ns, 60_000_000);
    }

    #[test]
    fn cpu_time_that_nobody_used_is_excess() {
        let missing = Times {
            cpu_ns: -50_000_000,
            all_ns: 0,
        };
        let expected = Difference {
            missing_ns: 0,
            excess_ns: 100_000_000,
        };
        assert_eq!(found(2, 3, missing, false), expected);
    }

    #[test]
    fn threads_that_start_or_end_between_two_ticks_are_not_missing() {
        let mut audit = Audit::default();
        let shown = Shown {
            cpu_before_ns: 0,
            cpu_after_ns: 0,
            unknown_ns: 0,
        };
        audit.pass(0, 1);
        audit.check(Times::default(), shown, true);
        audit.pass(SECOND, 1_000);
        audit.pass(2 * SECOND, 1);
        let counted = Times {
            cpu_ns: 0,
            all_ns: signed(2 * SECOND),
        };
        audit.check(counted, shown, true);
        assert_eq!(audit.found(), Difference::default());
    }
}
