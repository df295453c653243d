//! How much thread time an agent may still ship: at most what the threads that it has shown can have spent.
//!
//! One message with more would bury the time of all other workers. In any period, a worker has at most its
//! number of threads times the period, and [`CYCLE_LATE_MAX`] of each thread from before.

use profiler_core::wire::Translation;
use profiler_core::{TimeRange, Timestamp};

use base::limits::{
    CYCLE_LATE_MAX, CYCLE_THREADS_MAX, THREADS_PER_SHOWN_MAX, THREADS_UNSHOWN_MAX, nanoseconds,
};

/// Thread time that is left to one life of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadTimeLeft {
    /// Most threads so far.
    threads: u64,
    /// Latest end of its cycles, by the collector's clock; `None` before the first one.
    covered_until: Option<Timestamp>,
    /// When a session whose earlier cycles are not known was first seen.
    first_seen: Option<Timestamp>,
    /// In samples, and in the time by thread. A flush may have one without the other.
    left: ThreadTime,
}

/// Thread time of a flush, counted twice by the agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadTime {
    pub samples_ns: u64,
    pub by_thread_ns: u64,
}

/// A cycle that is to be counted.
#[derive(Clone, Copy, Debug)]
pub struct CountedCycle {
    /// By the collector's clock.
    pub range: TimeRange,
    pub received_at: Timestamp,
    /// Most threads that the worker has, by [`threads_max`].
    pub threads: u64,
    pub time: ThreadTime,
}

/// Most threads that the worker of a translation has. Those that it counts together by name have no ids. An
/// agent counts threads together where there are hundreds, or where its tree is full of other nodes.
pub(super) fn threads_max(translation: &Translation) -> u64 {
    let shown = translation.threads();
    let by_id = shown.count() as u64;
    let together = if shown.has_counted_together() {
        by_id * THREADS_PER_SHOWN_MAX + u64::from(translation.marks().nodes)
    } else {
        0
    };
    CYCLE_THREADS_MAX.min(THREADS_UNSHOWN_MAX + by_id + together)
}

impl ThreadTimeLeft {
    /// Of a session whose earlier cycles are known by their number only: its next one may have the time of a
    /// worker that was stopped since it was first seen.
    pub fn since(first_seen: Timestamp) -> ThreadTimeLeft {
        ThreadTimeLeft {
            first_seen: Some(first_seen),
            ..ThreadTimeLeft::default()
        }
    }

    /// The thread time after a cycle.
    ///
    /// # Errors
    /// The time that was left before it, in nanoseconds, if it has more.
    pub fn after(self, cycle: CountedCycle) -> Result<ThreadTimeLeft, u64> {
        let CountedCycle {
            range,
            received_at,
            threads,
            time,
        } = cycle;
        let late_ns = nanoseconds(CYCLE_LATE_MAX).unsigned_abs();
        let more_threads = threads.saturating_sub(self.threads);
        let threads = threads.max(self.threads);
        // Times after the receipt are not covered yet, and a clock that is set back covers them again.
        let begin = self
            .first_seen
            .map_or(range.start(), |first| first.min(range.start()));
        let covered_before = self.covered_until.unwrap_or(begin).min(received_at);
        let stop = range.stop().min(received_at);
        let covered_ns = stop.since_ns(covered_before);
        // A cycle that was divided covers its time in the first part, and all parts need it.
        let kept_max_ns = threads.saturating_mul(late_ns.saturating_add(range.length_ns()));
        let with_covered = |left_ns: u64| {
            left_ns
                .saturating_add(more_threads.saturating_mul(late_ns))
                .min(kept_max_ns)
                .saturating_add(threads.saturating_mul(covered_ns))
        };
        let samples_ns = with_covered(self.left.samples_ns);
        let by_thread_ns = with_covered(self.left.by_thread_ns);
        Ok(ThreadTimeLeft {
            threads,
            covered_until: Some(covered_before.max(stop)),
            first_seen: None,
            left: ThreadTime {
                samples_ns: samples_ns.checked_sub(time.samples_ns).ok_or(samples_ns)?,
                by_thread_ns: by_thread_ns
                    .checked_sub(time.by_thread_ns)
                    .ok_or(by_thread_ns)?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::at;

    const SECOND_NS: u64 = 1_000_000_000;
    const LATE_S: u64 = CYCLE_LATE_MAX.as_secs();

    fn cycle(threads: u64, range_ms: [i64; 2], weight_ms: u64) -> CountedCycle {
        let [start, stop] = range_ms.map(|ms| at(0).shifted(ms * 1_000_000));
        CountedCycle {
            range: TimeRange::new(start, stop).unwrap(),
            received_at: stop,
            threads,
            time: ThreadTime {
                samples_ns: weight_ms * 1_000_000,
                by_thread_ns: weight_ms * 1_000_000,
            },
        }
    }

    /// A second of a process: how many threads it has, and how long the agent does not count them.
    #[derive(Clone, Copy, Debug)]
    struct Second {
        threads: u64,
        lag_s: u64,
        stopped_s: i64,
        merged: bool,
        parts: u64,
        restarts: bool,
        clock_error_ms: i64,
    }

    fn seconds() -> impl Strategy<Value = Vec<Second>> {
        let parts = (
            1_u64..5_000,
            prop_oneof![8 => Just(0), 1 => 0..LATE_S - 2],
            prop_oneof![20 => Just(0), 1 => 0_i64..10_000],
            any::<bool>(),
            1_u64..4,
            prop::bool::weighted(0.05),
            -900_i64..900,
        );
        let second = parts.prop_map(
            |(threads, lag_s, stopped_s, merged, parts, restarts, clock_error_ms)| Second {
                threads,
                lag_s,
                stopped_s,
                merged,
                parts,
                restarts,
                clock_error_ms,
            },
        );
        prop::collection::vec(second, 1..60)
    }

    proptest! {
        /// Threads start and end, are counted late, are stopped; cycles wait for a collector, are merged and divided;
        /// the collector restarts, and clocks differ.
        #[test]
        fn no_cycle_of_a_process_is_refused(
            seconds in seconds(),
            waited_ms in prop_oneof![Just(0_i64), 0..9_000_000_i64],
        ) {
            let mut left = ThreadTimeLeft::default();
            let mut shown = 0;
            let mut now_ms = 0;
            let mut cycle_start_ms = 0;
            let mut uncounted_ms = 0;
            let mut counts_at = 0;
            for (index, second) in seconds.iter().enumerate() {
                shown = shown.max(second.threads);
                now_ms += 1_000 + second.stopped_s * 1_000;
                uncounted_ms += second.threads * (1_000 + second.stopped_s.unsigned_abs() * 1_000);
                // A stop ends the lag: all threads are counted when the process goes on.
                counts_at = counts_at.max(index as u64 + second.lag_s.min(LATE_S / 2));
                if second.merged && second.stopped_s == 0 {
                    continue;
                }
                let is_late = (index as u64) < counts_at && second.stopped_s == 0;
                let counted_ms = if is_late { 0 } else { uncounted_ms };
                uncounted_ms -= counted_ms;
                if second.restarts {
                    left = ThreadTimeLeft::since(at(0).shifted(waited_ms * 1_000_000));
                }
                let error_ms = second.clock_error_ms;
                for part in 0..second.parts {
                    let part_ms = counted_ms / second.parts
                        + if part == 0 { counted_ms % second.parts } else { 0 };
                    let mut part = cycle(shown, [cycle_start_ms + error_ms, now_ms + error_ms], part_ms);
                    part.received_at = at(0).shifted((now_ms + waited_ms) * 1_000_000);
                    left = left.after(part).map_err(|limit_ns| {
                        TestCaseError::fail(format!("{part:?}: {limit_ns} are left of {left:?}"))
                    })?;
                }
                cycle_start_ms = now_ms;
            }
        }

        /// Whatever an agent says of its cycles.
        #[test]
        fn accepted_time_is_that_of_the_shown_threads(
            cycles in prop::collection::vec(
                (1_u64..50, -10_000_i64..100_000, 1_i64..3_000, 0_u64..10_000_000, 0_i64..2_000),
                1..100,
            ),
        ) {
            let mut left = ThreadTimeLeft::default();
            let mut now_ms = 100_000;
            let mut accepted_ms = 0;
            let mut first_ms = i64::MAX;
            let mut longest_ms = 0;
            let mut threads_max = 0;
            for (threads, start_ms, length_ms, weight_ms, pause_ms) in cycles {
                now_ms += pause_ms;
                let mut cycle = cycle(threads, [start_ms, start_ms + length_ms], weight_ms);
                cycle.received_at = at(0).shifted(now_ms * 1_000_000);
                if let Ok(after) = left.after(cycle) {
                    left = after;
                    accepted_ms += weight_ms;
                    first_ms = first_ms.min(start_ms);
                    longest_ms = longest_ms.max(length_ms);
                    threads_max = threads_max.max(threads);
                }
            }
            let covered_ms = (now_ms - first_ms.min(now_ms) + longest_ms).unsigned_abs();
            prop_assert!(accepted_ms <= threads_max * (covered_ms + LATE_S * 1_000));
        }
    }

    /// A clock that is set back costs one cycle's time, and one that is ahead gains none.
    #[test]
    fn time_is_covered_once_by_the_collectors_clock() {
        let mut left = ThreadTimeLeft::default();
        let all_s = 10 * (LATE_S + 1);
        left = left.after(cycle(10, [0, 1_000], all_s * 1_000)).unwrap();
        let more = cycle(10, [0, 1_000], 1);
        assert_eq!(left.after(more), Err(0));
        let ahead = CountedCycle {
            received_at: at(1),
            ..cycle(10, [3_000_000, 3_001_000], 1)
        };
        assert_eq!(left.after(ahead), Err(0));
        let next = cycle(10, [1_000, 2_000], 10_000);
        left = left.after(next).unwrap();
        assert_eq!(left.left, ThreadTime::default());
        let back = left.after(cycle(10, [-5_000, -4_000], 0)).unwrap();
        let after = back.after(cycle(10, [-4_000, -3_000], 10_001));
        assert_eq!(after, Err(10 * SECOND_NS));
    }
}
