//! Sums of tasks that have no rows, where they wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::TaskTotals;

use crate::detail::add_to_totals;

/// Adds `later` to `totals`, by name, outcome and second; both are in that order after it.
pub(crate) fn merge(totals: &mut Vec<TaskTotals>, later: Vec<TaskTotals>) {
    if later.is_empty() {
        return;
    }
    merge_by(totals, later, |totals| totals.second.unix_ns());
}

/// Adds up what differs by the second alone, under the first of them: less detail, the same sums.
pub(crate) fn coarsen(totals: &mut Vec<TaskTotals>) {
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

fn add(sum: &mut TaskTotals, next: TaskTotals) {
    sum.second = sum.second.min(next.second);
    sum.duration_ns = sum.duration_ns.saturating_add(next.duration_ns);
    let mut buckets: BTreeMap<u32, u64> = sum.buckets.drain(..).collect();
    for (bucket, count) in next.buckets {
        let all = buckets.entry(bucket).or_default();
        *all = all.saturating_add(count);
    }
    sum.buckets.extend(buckets);
    next.phases.iter().for_each(|phase| add_to_totals(&mut sum.phases, phase));
}

/// What an outbox needs to know of them.
#[cfg(feature = "ship")]
pub(crate) mod shipped {
    use profiler_core::TaskTotals;

    /// Most bytes of a sum on the wire beside its buckets and phases: four numbers and their tags.
    const TOTALS_BYTES_MAX: usize = 48;
    /// Most bytes of a bucket and of a phase on the wire.
    const BUCKET_BYTES_MAX: usize = 14;
    const PHASE_BYTES_MAX: usize = 40;

    /// How many tasks `totals` stand for.
    pub(crate) fn count(totals: &[TaskTotals]) -> u64 {
        totals.iter().fold(0, |sum, totals| sum.saturating_add(totals.count()))
    }

    /// Memory that a sum takes, in bytes.
    pub(crate) fn bytes(totals: &TaskTotals) -> usize {
        let TaskTotals { name, buckets, phases, .. } = totals;
        size_of_val(totals) + name.len() + size_of_val(&buckets[..]) + size_of_val(&phases[..])
    }

    /// Most bytes that a sum takes on the wire.
    pub(crate) fn wire_bytes_max(totals: &TaskTotals) -> usize {
        let TaskTotals { buckets, phases, .. } = totals;
        TOTALS_BYTES_MAX + buckets.len() * BUCKET_BYTES_MAX + phases.len() * PHASE_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::{Outcome, PhaseInterval, Timestamp};
    use proptest::prelude::*;

    use super::*;

    fn totals() -> impl Strategy<Value = Vec<TaskTotals>> {
        let one = (0..3usize, 1..3usize, 0..3i64, prop::collection::vec((0..5u32, 1..4u64), 1..4));
        let one = one.prop_map(|(name, outcome, second, counts)| {
            let mut buckets = BTreeMap::new();
            counts.iter().for_each(|(bucket, count)| *buckets.entry(*bucket).or_insert(0) += count);
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
        (tasks.sum(), durations.sum(), phases.map(|phase| phase.duration_ns).sum())
    }

    proptest! {
        #[test]
        fn merging_and_coarsening_keep_every_sum(a in totals(), b in totals()) {
            let ((tasks, durations, phases), more) = (sums(&a), sums(&b));
            let both = (tasks + more.0, durations + more.1, phases + more.2);
            let mut merged = a.clone();
            merge(&mut merged, b.clone());
            prop_assert_eq!(sums(&merged), both);
            let mut other = b;
            merge(&mut other, a);
            let key = |it: &TaskTotals| (it.name.clone(), it.outcome as usize, it.second);
            let buckets = |all: &[TaskTotals]| {
                let mut all: Vec<_> = all.iter().map(|it| (key(it), it.buckets.clone())).collect();
                all.sort();
                all
            };
            coarsen(&mut merged);
            prop_assert!(merged.is_sorted_by_key(|it| (it.name.clone(), it.outcome as usize)));
            prop_assert!(merged.iter().all(|it| it.buckets.is_sorted_by(|a, b| a.0 < b.0)));
            prop_assert_eq!(sums(&merged), both);
            coarsen(&mut other);
            prop_assert_eq!(buckets(&merged), buckets(&other));
        }
    }
}
