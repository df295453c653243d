//! Counts and durations of the tasks of one name.

use std::sync::Arc;

use profiler_core::{NodeId, Outcome};
use rustc_hash::FxHashMap;

use super::{Durations, TaskRow, bucket};
use crate::store::{Fields, Key, Row, Second, Tier, WorkerNumber, sort_and_sum};

/// How many tasks ended in which way.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OutcomeCounts([u64; Outcome::ALL.len()]);

impl OutcomeCounts {
    /// How many ended as `outcome`.
    #[must_use]
    pub fn get(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize]
    }

    /// Counts so many more that ended as `outcome`.
    pub fn add(&mut self, outcome: Outcome, count: u64) {
        let sum = &mut self.0[outcome as usize];
        *sum = sum.saturating_add(count);
    }
}

/// All tasks of one name.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NameTotal {
    /// How they ended.
    pub outcomes: OutcomeCounts,
    /// How long they took: those whose worker said when they ended, so not the lost ones.
    pub durations: Durations,
}

impl NameTotal {
    /// Counts a task.
    pub fn count(&mut self, row: &TaskRow) {
        let outcome = row.record.outcome;
        match row.duration_ns() {
            Some(duration_ns) => {
                self.count_in_bucket(outcome, bucket(duration_ns), 1);
                self.add_to_total(outcome, duration_ns);
            }
            None => self.outcomes.add(outcome, 1),
        }
    }

    /// Counts what another total has counted.
    pub(crate) fn absorb(&mut self, other: NameTotal) {
        for outcome in Outcome::ALL {
            self.outcomes.add(outcome, other.outcomes.get(outcome));
        }
        self.durations.absorb(other.durations);
    }

    /// Counts ended tasks, as they stand in `durations_*`.
    pub(crate) fn count_in_bucket(&mut self, outcome: Outcome, bucket: u32, count: u64) {
        self.outcomes.add(outcome, count);
        if outcome != Outcome::Lost {
            self.durations.add_to_bucket(bucket, count);
        }
    }

    /// Adds time of ended tasks, as it stands in `duration_sums_*`.
    pub(crate) fn add_to_total(&mut self, outcome: Outcome, nanoseconds: u64) {
        if outcome != Outcome::Lost {
            self.durations.add_to_total(nanoseconds);
        }
    }
}

/// Rows of the counting tables of durations, of seconds, sorted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct DurationRows {
    /// Of `durations`: by name, outcome and [`bucket`].
    pub(crate) counts: Vec<Row>,
    /// Of `duration_sums`: by name and outcome.
    pub(crate) sums: Vec<Row>,
}

impl DurationRows {
    /// Counts ended tasks to the seconds in which they stopped; rows that still run count nothing.
    /// `node_of` gives the first-level node of a task's name and is asked once for each.
    pub(crate) fn of<'a>(
        rows: impl IntoIterator<Item = &'a TaskRow>,
        mut node_of: impl FnMut(&str) -> NodeId,
    ) -> DurationRows {
        let mut nodes: FxHashMap<Arc<str>, NodeId> = FxHashMap::default();
        let mut all = DurationRows::default();
        for row in rows {
            let (Some(stop), Some(duration_ns)) = (row.record.stop, row.duration_ns()) else {
                continue;
            };
            let task = match nodes.get(&row.record.name) {
                Some(node) => *node,
                None => *nodes.entry(row.record.name.clone()).or_insert(node_of(&row.record.name)),
            };
            let key = |node| {
                let (ts, kind) = (Tier::Second.period(Second::of(stop)), row.record.outcome as u8);
                Key::new(Tier::Second, Fields { ts, task, worker: WorkerNumber::ALL, kind, node })
            };
            all.counts.push(Row { key: key(bucket(duration_ns)), value: 1 });
            all.sums.push(Row { key: key(0), value: duration_ns });
        }
        sort_and_sum(&mut all.counts);
        sort_and_sum(&mut all.sums);
        all
    }
}
