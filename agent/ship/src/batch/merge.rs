//! Merging telemetry, and the sums of tasks that have no rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::limits::TASK_PHASES_MAX;
use profiler_core::{Frame, PhaseInterval, RunId, TaskTotals, Telemetry};
use rustc_hash::FxHashSet;

/// Appends later records. Of an expected name and of a run, the later record stays.
pub fn merge_telemetry(earlier: &mut Telemetry, later: Telemetry) {
    let expected: FxHashSet<&str> = later.expected.iter().map(|new| &*new.name).collect();
    earlier
        .expected
        .retain(|known| !expected.contains(&*known.name));
    let runs: FxHashSet<RunId> = later.runs.iter().map(|new| new.id).collect();
    earlier.runs.retain(|known| !runs.contains(&known.id));
    earlier.append(later);
}

/// Adds `later` to `totals`, by name, outcome and second, and sorts the result in that order.
pub fn merge_totals(totals: &mut Vec<TaskTotals>, later: Vec<TaskTotals>) {
    if later.is_empty() {
        return;
    }
    merge_by(totals, later, |totals| totals.second.unix_ns());
}

/// Merges sums that differ only by their second, under the earliest: less detail, the same totals.
pub fn coarsen_totals(totals: &mut Vec<TaskTotals>) {
    merge_by(totals, Vec::new(), |_| 0);
}

fn merge_by(
    totals: &mut Vec<TaskTotals>,
    later: Vec<TaskTotals>,
    second: impl Fn(&TaskTotals) -> i64,
) {
    let mut sums: BTreeMap<(Arc<str>, usize, i64), TaskTotals> = BTreeMap::new();
    for next in totals.drain(..).chain(later) {
        let key = (next.name.clone(), next.outcome as usize, second(&next));
        match sums.get_mut(&key) {
            Some(sum) => add(sum, next),
            None => {
                sums.insert(key, next);
            }
        }
    }
    totals.extend(sums.into_values());
}

/// Adds a task's phase to the sums of several tasks, of which there are at most
/// [`TASK_PHASES_MAX`].
pub fn add_to_totals(totals: &mut Vec<PhaseInterval>, phase: &PhaseInterval) {
    let mut place = totals.iter().position(|sum| sum.name == phase.name);
    if place.is_none() && totals.len() >= TASK_PHASES_MAX {
        place = Some(TASK_PHASES_MAX - 1);
        totals[TASK_PHASES_MAX - 1].name = Frame::overflow().label().into();
    }
    match place {
        Some(place) => {
            let sum = &mut totals[place];
            sum.duration_ns = sum.duration_ns.saturating_add(phase.duration_ns);
            sum.count = sum.count.saturating_add(phase.count);
        }
        None => totals.push(PhaseInterval {
            start_ns: 0,
            ..phase.clone()
        }),
    }
}

fn add(sum: &mut TaskTotals, next: TaskTotals) {
    sum.second = sum.second.min(next.second);
    sum.duration_ns = sum.duration_ns.saturating_add(next.duration_ns);
    let mut buckets: BTreeMap<u32, u64> = sum.buckets.drain(..).collect();
    for (bucket, count) in next.buckets {
        let all = buckets.entry(bucket).or_default();
        *all = all.saturating_add(count);
    }
    sum.buckets.extend(buckets);
    next.phases
        .iter()
        .for_each(|phase| add_to_totals(&mut sum.phases, phase));
}

#[cfg(test)]
mod tests {
    use profiler_core::{ExpectedTasks, Outcome, PhaseInterval, RunMarker, Timestamp};
    use proptest::prelude::*;

    use super::*;

    const LATEST: Timestamp = Timestamp::from_unix_ns(i64::MIN);

    fn expected(name: &str, total: u64) -> ExpectedTasks {
        ExpectedTasks {
            name: name.into(),
            total,
            since: LATEST,
        }
    }

    fn run(id: u64, stop: Option<i64>) -> RunMarker {
        let stop = stop.map(Timestamp::from_unix_ns);
        RunMarker {
            id: RunId(id),
            name: "nightly".into(),
            start: LATEST,
            stop,
        }
    }

    #[test]
    fn the_latest_record_of_a_name_and_of_a_run_stays() {
        let mut earlier = Telemetry {
            expected: vec![expected("load", 1), expected("sort", 2)],
            runs: vec![run(1, None), run(2, None)],
            ..Telemetry::default()
        };
        let later = Telemetry {
            expected: vec![expected("load", 9)],
            runs: vec![run(1, Some(7))],
            ..Telemetry::default()
        };
        merge_telemetry(&mut earlier, later);
        assert_eq!(earlier.expected, [expected("sort", 2), expected("load", 9)]);
        assert_eq!(earlier.runs, [run(2, None), run(1, Some(7))]);
    }

    fn totals() -> impl Strategy<Value = Vec<TaskTotals>> {
        let one = (
            0..3usize,
            1..3usize,
            0..3i64,
            prop::collection::vec((0..5u32, 1..4u64), 1..4),
        )
            .prop_map(|(name, outcome, second, counts)| {
                let mut buckets = BTreeMap::new();
                counts
                    .iter()
                    .for_each(|(bucket, count)| *buckets.entry(*bucket).or_insert(0) += count);
                TaskTotals {
                    name: ["load", "sum", "store"][name].into(),
                    outcome: Outcome::ALL[outcome],
                    second: Timestamp::from_unix_ns(second * 1_000_000_000),
                    duration_ns: counts.len() as u64,
                    buckets: buckets.into_iter().collect(),
                    phases: vec![PhaseInterval {
                        name: ["transfer", "disk-read"][name % 2].into(),
                        start_ns: 0,
                        duration_ns: 5,
                        count: 1,
                    }],
                }
            });
        prop::collection::vec(one, 0..8)
    }

    fn sums(totals: &[TaskTotals]) -> (u64, u64, u64) {
        let phases = totals.iter().flat_map(|totals| &totals.phases);
        let durations = totals.iter().map(|totals| totals.duration_ns);
        let tasks = totals.iter().map(TaskTotals::count);
        (
            tasks.sum(),
            durations.sum(),
            phases.map(|phase| phase.duration_ns).sum(),
        )
    }

    proptest! {
        #[test]
        fn merging_and_coarsening_keep_every_sum(a in totals(), b in totals()) {
            let both = sums(&[a.clone(), b.clone()].concat());
            let mut merged = a.clone();
            merge_totals(&mut merged, b.clone());
            prop_assert_eq!(sums(&merged), both);
            let mut other = b;
            merge_totals(&mut other, a);
            let key = |it: &TaskTotals| (it.name.clone(), it.outcome as usize, it.second);
            let buckets = |all: &[TaskTotals]| {
                let mut all: Vec<_> = all.iter().map(|it| (key(it), it.buckets.clone())).collect();
                all.sort();
                all
            };
            coarsen_totals(&mut merged);
            prop_assert!(merged.is_sorted_by_key(|it| (it.name.clone(), it.outcome as usize)));
            prop_assert!(merged.iter().all(|it| it.buckets.is_sorted_by(|a, b| a.0 < b.0)));
            prop_assert_eq!(sums(&merged), both);
            coarsen_totals(&mut other);
            prop_assert_eq!(buckets(&merged), buckets(&other));
        }
    }
}
