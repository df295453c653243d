//! Counts and durations of the tasks of one name.

use profiler_core::{Outcome, TaskTotals};

use super::phases::PhaseTotals;
use super::{DurationHistogram, bucket};
use store::rows::{OF_SEVERAL, TaskRow};

/// Number of tasks by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OutcomeCounts([u64; Outcome::ALL.len()]);

impl OutcomeCounts {
    /// The number of tasks that ended as `outcome`.
    pub fn get(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize]
    }

    /// Adds tasks that ended as `outcome`.
    pub fn add(&mut self, outcome: Outcome, count: u64) {
        let sum = &mut self.0[outcome as usize];
        *sum = sum.saturating_add(count);
    }

    /// Subtracts tasks that ended as `outcome`.
    pub fn subtract(&mut self, outcome: Outcome, count: u64) {
        let sum = &mut self.0[outcome as usize];
        *sum = sum.saturating_sub(count);
    }
}

/// All tasks of one name.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NameTotal {
    /// How they ended.
    pub outcomes: OutcomeCounts,
    /// Of the tasks whose worker reported the end, so not of lost ones.
    pub durations: DurationHistogram,
    /// Their phases other than execution.
    pub phases: PhaseTotals,
    /// Tasks without rows.
    pub aggregated: u64,
}

impl NameTotal {
    /// Counts a task.
    pub fn count(&mut self, row: &TaskRow) {
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

    /// Counts tasks without rows.
    pub fn count_sum(&mut self, totals: &TaskTotals) {
        self.count_in_buckets(totals.outcome, totals.buckets.iter().copied());
        self.add_to_total(totals.outcome, totals.duration_ns);
        self.phases.count(&totals.phases, OF_SEVERAL);
        self.aggregated = self.aggregated.saturating_add(totals.count());
    }

    /// Adds another total.
    pub fn absorb(&mut self, other: NameTotal) {
        for outcome in Outcome::ALL {
            self.outcomes.add(outcome, other.outcomes.get(outcome));
        }
        self.durations.absorb(other.durations);
        self.phases.absorb(other.phases);
        self.aggregated = self.aggregated.saturating_add(other.aggregated);
    }

    /// Counts ended tasks by bucket, as in the tables `durations_*`.
    pub fn count_in_buckets(
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

    /// Adds time of ended tasks, as in the tables `duration_sums_*`.
    pub fn add_to_total(&mut self, outcome: Outcome, nanoseconds: u64) {
        if outcome != Outcome::Lost {
            self.durations.add_to_total(nanoseconds);
        }
    }
}
