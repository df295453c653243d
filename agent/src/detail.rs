//! Details and phases of tasks on their way to the ledger and to an observer, with names by number.

use std::cmp::Reverse;
use std::sync::Arc;

use profiler_core::limits::TASK_PHASES_MAX;
use profiler_core::{PhaseInterval, TaskDetail, Timestamp};

use crate::registry::{self, NameId};
use crate::threads::ThreadIdentity;

/// Rare details of tasks: labels, the result, the cause of a failure, and another thread at the
/// start. Kept apart so that rows stay small.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detail {
    /// The thread on which it started, if it ended on another.
    pub(crate) started_on: Option<Arc<ThreadIdentity>>,
    pub(crate) cause: Option<Arc<str>>,
    pub(crate) attempt: u32,
    pub(crate) result_bytes: Option<u64>,
    pub(crate) type_name: NameId,
    pub(crate) labels: Vec<(NameId, Arc<str>)>,
}

impl Detail {
    /// Sets the size and type of the result; values that are not given stay.
    pub(crate) fn set_result(&mut self, bytes: Option<u64>, type_name: NameId) {
        self.result_bytes = bytes.or(self.result_bytes);
        if type_name != NameId::NONE {
            self.type_name = type_name;
        }
    }
}

/// The detail of a record; `None` if it is empty.
pub(crate) fn task_detail(
    detail: Option<&Detail>,
    phases: Vec<PhaseInterval>,
) -> Option<Box<TaskDetail>> {
    let none = Detail::default();
    let Detail {
        attempt,
        result_bytes,
        type_name,
        labels,
        ..
    } = detail.unwrap_or(&none);
    let label = |(key, value): &(NameId, Arc<str>)| (registry::name(*key), value.clone());
    let has_detail = *attempt > 0
        || result_bytes.is_some()
        || *type_name != NameId::NONE
        || !labels.is_empty()
        || !phases.is_empty();
    has_detail.then(|| {
        Box::new(TaskDetail {
            attempt: *attempt,
            result_bytes: *result_bytes,
            type_name: registry::name(*type_name),
            labels: labels.iter().map(label).collect(),
            phases,
        })
    })
}

/// Most phases of a task that are summed under their own names; more are `[overflow]`.
const SUMS_MAX: usize = 16;
/// Most intervals of a task that are listed individually.
const LISTED_MAX: usize = TASK_PHASES_MAX - SUMS_MAX;

/// The phases that a task was in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Phases {
    /// In the order of their ends.
    listed: Vec<Interval>,
    sums: Vec<PhaseSum>,
}

/// One stay in a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Interval {
    pub(crate) phase: NameId,
    pub(crate) start: Timestamp,
    pub(crate) stop: Timestamp,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct PhaseSum {
    phase: NameId,
    start: Timestamp,
    duration_ns: u64,
    count: u32,
}

impl Phases {
    pub(crate) fn add(&mut self, interval: Interval) {
        if self.listed.len() < LISTED_MAX {
            self.listed.push(interval);
        } else {
            add_to_sums(&mut self.sums, interval);
        }
    }

    /// The phases of a record: in the order of their starts, without overlaps, and within the
    /// task's time (except queueing before its start).
    pub(crate) fn intervals(
        &self,
        start: Timestamp,
        stop: Option<Timestamp>,
    ) -> Vec<PhaseInterval> {
        let mut pieces = without_overlaps(
            self.listed
                .iter()
                .map(|interval: &Interval| {
                    let end = stop.map_or(interval.stop, |stop| stop.min(interval.stop));
                    Interval {
                        start: interval.start.min(end),
                        stop: end,
                        ..*interval
                    }
                })
                .collect(),
        );
        let mut sums = self.sums.clone();
        for piece in pieces.drain(LISTED_MAX.min(pieces.len())..) {
            add_to_sums(&mut sums, piece);
        }
        let listed = pieces.iter().map(|piece| PhaseSum {
            phase: piece.phase,
            start: piece.start,
            duration_ns: piece.stop.since_ns(piece.start),
            count: 1,
        });
        let interval = |sum: PhaseSum| PhaseInterval {
            name: registry::name(sum.phase),
            start_ns: sum.start.unix_ns().saturating_sub(start.unix_ns()),
            duration_ns: sum.duration_ns,
            count: sum.count,
        };
        let mut all: Vec<PhaseInterval> = listed.chain(sums).map(interval).collect();
        all.sort_by_key(|interval| interval.start_ns);
        all
    }
}

fn add_to_sums(sums: &mut Vec<PhaseSum>, interval: Interval) {
    let Interval { phase, start, stop } = interval;
    let place = sums.iter().position(|sum| sum.phase == phase).or_else(|| {
        let full = sums.len() >= SUMS_MAX;
        full.then_some(SUMS_MAX - 1)
    });
    let duration_ns = stop.since_ns(start);
    let Some(place) = place else {
        sums.push(PhaseSum {
            phase,
            start,
            duration_ns,
            count: 1,
        });
        return;
    };
    let sum = &mut sums[place];
    if sum.phase != phase {
        sum.phase = NameId::OVERFLOW;
    }
    sum.start = sum.start.min(start);
    sum.duration_ns = sum.duration_ns.saturating_add(duration_ns);
    sum.count = sum.count.saturating_add(1);
}

/// Removes overlaps, such as those of several threads or joined futures: the interval that began
/// last has the time while it lasts, and the one before continues after it.
fn without_overlaps(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_by_key(|interval| (interval.start, Reverse(interval.stop)));
    let mut pieces = Vec::with_capacity(intervals.len());
    // Each interval interrupts those before it.
    let mut under_way: Vec<Interval> = Vec::new();
    let mut assigned_to = Timestamp::from_unix_ns(i64::MIN);
    for next in intervals.into_iter().map(Some).chain([None]) {
        let until = next.map_or(Timestamp::from_unix_ns(i64::MAX), |next| next.start);
        while let Some(last) = under_way.last() {
            let start = last.start.max(assigned_to);
            let stop = last.stop.min(until);
            if start < stop || last.start == last.stop {
                pieces.push(Interval {
                    start,
                    stop,
                    ..*last
                });
                assigned_to = stop;
            }
            if last.stop > until {
                break;
            }
            under_way.pop();
        }
        under_way.extend(next);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(nanoseconds: i64) -> Timestamp {
        Timestamp::from_unix_ns(nanoseconds)
    }

    fn phases(intervals: &[(u32, i64, i64)]) -> Phases {
        let mut phases = Phases::default();
        for (phase, start, stop) in intervals {
            phases.add(Interval {
                phase: NameId(*phase),
                start: at(*start),
                stop: at(*stop),
            });
        }
        phases
    }

    fn check(intervals: &[(u32, i64, i64)], expected: &[(&str, i64, u64)]) {
        let found = phases(intervals).intervals(at(100), Some(at(200)));
        let got: Vec<_> = found
            .iter()
            .map(|it| (&*it.name, it.start_ns, it.duration_ns))
            .collect();
        assert_eq!(got, expected, "{intervals:?}");
    }

    /// Phase 2 is queue, 3 transfer, 4 disk-read.
    #[test]
    fn intervals_lie_in_the_task_and_do_not_overlap() {
        check(&[], &[]);
        check(
            &[(2, 60, 100), (3, 110, 120)],
            &[("queue", -40, 40), ("transfer", 10, 10)],
        );
        check(&[(3, 190, 230)], &[("transfer", 90, 10)]);
        check(&[(3, 150, 150)], &[("transfer", 50, 0)]);
        // The inner guard ends first; the outer phase continues.
        let nested = [
            ("transfer", 10, 10),
            ("disk-read", 20, 10),
            ("transfer", 30, 20),
        ];
        check(&[(4, 120, 130), (3, 110, 150)], &nested);
        // Joined futures.
        check(
            &[(3, 110, 130), (4, 120, 150)],
            &[("transfer", 10, 10), ("disk-read", 20, 30)],
        );
        check(&[(3, 110, 130), (4, 110, 130)], &[("disk-read", 10, 20)]);
    }

    #[test]
    fn past_the_limit_intervals_are_summed_by_phase() {
        let many: Vec<_> = (0..100)
            .map(|n| (3 + n % 2, i64::from(n), i64::from(n) + 1))
            .collect();
        let intervals = phases(&many).intervals(at(0), None);
        assert_eq!(intervals.len(), LISTED_MAX + 2);
        let sums: Vec<_> = intervals.iter().filter(|it| it.count > 1).collect();
        assert_eq!(
            sums.iter().map(|sum| sum.count).sum::<u32>(),
            100 - LISTED_MAX as u32
        );
        assert_eq!((sums[0].start_ns, sums[0].duration_ns), (48, 26));
        let names: Vec<_> = (0..200).map(|n| (n, 0, 1)).collect();
        let intervals = phases(&names).intervals(at(0), None);
        assert!(intervals.len() <= TASK_PHASES_MAX);
        assert_eq!(intervals.iter().map(|it| it.count).sum::<u32>(), 152 + 1);
    }

    proptest! {
        /// Compares with a model that finds, for each nanosecond, the interval that began last.
        #[test]
        fn every_moment_has_the_phase_that_began_last(
            all in prop::collection::vec((2..9u32, 0..40i64, 1..30i64), 0..20),
        ) {
            let mut all: Vec<_> = all.iter().map(|(phase, start, len)| (*phase, *start, start + len)).collect();
            all.sort_by_key(|(_, start, stop)| (*start, Reverse(*stop)));
            let got = phases(&all).intervals(at(0), None);
            prop_assert!(got.is_sorted_by(|a, b| a.start_ns + a.duration_ns as i64 <= b.start_ns));
            for moment in 0..80 {
                let holds = |it: &&PhaseInterval| {
                    (it.start_ns..it.start_ns + it.duration_ns as i64).contains(&moment)
                };
                let of_model = all.iter().rfind(|(_, start, stop)| (*start..*stop).contains(&moment)).map(|(phase, ..)| registry::name(NameId(*phase)));
                prop_assert_eq!(got.iter().find(holds).map(|it| it.name.clone()), of_model);
            }
        }
    }
}
