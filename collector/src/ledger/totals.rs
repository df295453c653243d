//! Counts and durations of the tasks of one name.

use std::sync::Arc;

use profiler_core::{NodeId, Outcome, PhaseInterval, TaskTotals};
use rustc_hash::FxHashMap;

use super::phases::{OF_SEVERAL, PhaseTotals, elsewhere, inside_ns};
use super::{Durations, bucket};
use crate::rows::TaskRow;
use crate::store::{Fields, Key, Row, Second, Tier, WorkerNumber, sort_and_sum};

/// How many tasks ended in which way.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct OutcomeCounts([u64; Outcome::ALL.len()]);

impl OutcomeCounts {
    /// How many ended as `outcome`.
    pub(crate) fn get(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize]
    }

    /// Counts so many more that ended as `outcome`.
    pub(crate) fn add(&mut self, outcome: Outcome, count: u64) {
        let sum = &mut self.0[outcome as usize];
        *sum = sum.saturating_add(count);
    }
}

/// All tasks of one name.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct NameTotal {
    /// How they ended.
    pub(crate) outcomes: OutcomeCounts,
    /// How long they took: those whose worker said when they ended, so not the lost ones.
    pub(crate) durations: Durations,
    /// What those did beside executing.
    pub(crate) phases: PhaseTotals,
    /// Tasks of which there is no row.
    pub(crate) aggregated: u64,
}

impl NameTotal {
    /// Counts a task.
    pub(crate) fn count(&mut self, row: &TaskRow) {
        let outcome = row.record.outcome;
        match row.duration_ns() {
            Some(duration_ns) => {
                self.count_in_buckets(outcome, [(bucket(duration_ns), 1)].into_iter());
                self.add_to_total(outcome, duration_ns);
                if let Some(detail) = &row.record.detail
                    && outcome != Outcome::Lost
                {
                    self.phases.count(&detail.phases, duration_ns);
                }
            }
            None => self.outcomes.add(outcome, 1),
        }
    }

    /// Counts tasks of which there is no row.
    pub(crate) fn count_sum(&mut self, totals: &TaskTotals) {
        self.count_in_buckets(totals.outcome, totals.buckets.iter().copied());
        self.add_to_total(totals.outcome, totals.duration_ns);
        self.phases.count(&totals.phases, OF_SEVERAL);
        self.aggregated = self.aggregated.saturating_add(totals.count());
    }

    /// Counts what another total has counted.
    pub(crate) fn absorb(&mut self, other: NameTotal) {
        for outcome in Outcome::ALL {
            self.outcomes.add(outcome, other.outcomes.get(outcome));
        }
        self.durations.absorb(other.durations);
        self.phases.absorb(other.phases);
        self.aggregated = self.aggregated.saturating_add(other.aggregated);
    }

    /// Counts ended tasks, by bucket as they stand in `durations_*`.
    pub(crate) fn count_in_buckets(
        &mut self,
        outcome: Outcome,
        counts: impl Iterator<Item = (u32, u64)> + Clone,
    ) {
        let count = match outcome {
            Outcome::Lost => counts.fold(0, |sum: u64, (_, count)| sum.saturating_add(count)),
            _ => self.durations.add_to_buckets(counts),
        };
        self.outcomes.add(outcome, count);
    }

    /// Adds time of ended tasks, as it stands in `duration_sums_*`.
    pub(crate) fn add_to_total(&mut self, outcome: Outcome, nanoseconds: u64) {
        if outcome != Outcome::Lost {
            self.durations.add_to_total(nanoseconds);
        }
    }
}

/// Rows of the counting tables that tell of ended tasks, of seconds, sorted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct DurationRows {
    /// Of `durations`: by name, outcome and [`bucket`].
    pub(crate) counts: Vec<Row>,
    /// Of `duration_sums`: by name and outcome.
    pub(crate) sums: Vec<Row>,
    /// Of `phases`: by name, outcome and phase; at the task's own node, tasks without rows.
    pub(crate) phases: Vec<Row>,
    /// Of `phase_sums`: by name, outcome and phase; at the task's own node, what the phases took of the
    /// durations.
    pub(crate) phase_sums: Vec<Row>,
}

/// The first-level nodes of tasks, by name.
pub(crate) type TaskNodes = FxHashMap<Arc<str>, TaskNode>;

/// A task's first-level node, and those of its phases below.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TaskNode {
    pub(crate) node: NodeId,
    pub(crate) phases: FxHashMap<Arc<str>, NodeId>,
}

/// Tasks that ended alike, in one second.
struct Ended<'a> {
    task: &'a TaskNode,
    second: Second,
    outcome: Outcome,
    duration_ns: u64,
    phases: &'a [PhaseInterval],
}

impl DurationRows {
    /// Counts ended tasks to the seconds in which they stopped; rows that still run count nothing.
    /// `nodes` has all names and phases.
    pub(crate) fn of<'a>(
        rows: impl IntoIterator<Item = &'a TaskRow>,
        totals: impl IntoIterator<Item = &'a TaskTotals>,
        nodes: &TaskNodes,
    ) -> DurationRows {
        let mut all = DurationRows::default();
        for row in rows {
            let (Some(stop), Some(duration_ns)) = (row.record.stop, row.duration_ns()) else {
                continue;
            };
            let ended = Ended {
                task: &nodes[&row.record.name],
                second: Second::of(stop),
                outcome: row.record.outcome,
                duration_ns,
                phases: row.record.detail.as_ref().map_or(&[], |detail| &detail.phases),
            };
            all.counts.push(ended.row(bucket(duration_ns), 1));
            all.count(&ended, inside_ns(ended.phases, duration_ns));
        }
        for sum in totals {
            let ended = Ended {
                task: &nodes[&sum.name],
                second: Second::of(sum.second),
                outcome: sum.outcome,
                duration_ns: sum.duration_ns,
                phases: &sum.phases,
            };
            let counts = sum.buckets.iter().map(|(bucket, count)| ended.row(*bucket, *count));
            all.counts.extend(counts);
            all.count(&ended, inside_ns(ended.phases, OF_SEVERAL));
            all.phases.push(ended.row(ended.task.node.0, sum.count()));
        }
        for rows in [&mut all.phases, &mut all.phase_sums] {
            rows.retain(|row| row.value > 0);
        }
        for rows in [&mut all.counts, &mut all.sums, &mut all.phases, &mut all.phase_sums] {
            sort_and_sum(rows);
        }
        all
    }

    fn count(&mut self, ended: &Ended<'_>, inside_ns: u64) {
        self.sums.push(ended.row(0, ended.duration_ns));
        for phase in elsewhere(ended.phases) {
            let node = ended.task.phases[&phase.name].0;
            self.phases.push(ended.row(node, phase.count.into()));
            self.phase_sums.push(ended.row(node, phase.duration_ns));
        }
        self.phase_sums.push(ended.row(ended.task.node.0, inside_ns));
    }
}

impl Ended<'_> {
    fn row(&self, node: u32, value: u64) -> Row {
        let (ts, kind) = (Tier::Second.period(self.second), self.outcome as u8);
        let (task, worker) = (self.task.node, WorkerNumber::ALL);
        Row { key: Key::new(Tier::Second, Fields { ts, task, worker, kind, node }), value }
    }
}
