//! Ended tasks of a range, wherever they are: rows in memory or in tables, sums of tasks without rows,
//! tables of sums.

use std::ops::Range;
use std::sync::Arc;

use profiler_core::bucket::bucket_middle_ns;
use profiler_core::{Outcome, TimeRange, Timestamp};

use crate::Queries;
use crate::QueryError;
use crate::table_reader::{Cancel, TableReader};
use crate::tasks::counts_sum;
use crate::tasks::ended_tasks::scan_ended;
use base::sync::read;
use state::CollectorState;
use state::ledger::{TaskFilter, TaskSnapshot, bucket, counts_in};
use store::rows::TaskRow;
use store::{Coverage, Plan, Second, SumTable, Tier};

/// Tasks of one name that ended in one period with one outcome; a name may come several times.
pub(crate) struct EndedGroup<'a> {
    pub(crate) name: &'a Arc<str>,
    /// When the period begins; of a single task, when it ended.
    pub(crate) at: Timestamp,
    pub(crate) outcome: Outcome,
    /// Their durations: buckets with their counts.
    pub(crate) counts: &'a [(u32, u64)],
}

impl EndedGroup<'_> {
    /// The number of tasks.
    pub(crate) fn count(&self) -> u64 {
        self.counts
            .iter()
            .fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The sum of their durations, to a thousandth.
    pub(crate) fn weight_ns(&self) -> u64 {
        self.counts
            .iter()
            .map(|(bucket, count): &(u32, u64)| bucket_middle_ns(*bucket).saturating_mul(*count))
            .fold(0, u64::saturating_add)
    }

    /// Whether they failed, in the sense of a task whose result is missing.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(
            self.outcome,
            Outcome::Failed | Outcome::Panicked | Outcome::Lost
        )
    }

    /// Whether a worker reported the end, so that the durations are true.
    pub(crate) fn is_timed(&self) -> bool {
        self.outcome != Outcome::Lost
    }
}

/// The ended tasks of a range that a filter keeps. They can be visited several times.
pub(crate) struct EndedTasks<'a> {
    state: &'a CollectorState,
    filter: &'a TaskFilter,
    by_row: bool,
    stored: TableReader<'a>,
    snapshot: TaskSnapshot,
}

impl<'a> EndedTasks<'a> {
    /// Those of the seconds of `range`, in periods of `coarsest` at most.
    pub(crate) fn of(
        state: &'a CollectorState,
        range: TimeRange,
        filter: &'a TaskFilter,
        coarsest: Tier,
        cancel: &'a Cancel,
    ) -> EndedTasks<'a> {
        let by_row = Queries(state).counts_rows(filter);
        let (stored, snapshot) = TableReader::of(
            state,
            cancel,
            range,
            |state: &CollectorState, seconds: Range<Second>| {
                let taken = TimeRange::new(seconds.start.start(), seconds.end.start());
                read(&state.ledger).snapshot(taken.unwrap_or(range))
            },
            |coverage: &Coverage, seconds| {
                if by_row {
                    Plan {
                        pieces: Vec::new(),
                        seconds,
                    }
                } else {
                    coverage.plan_in(seconds, coarsest)
                }
            },
        );
        EndedTasks {
            state,
            filter,
            by_row,
            stored,
            snapshot,
        }
    }

    /// The range that is covered: more than the requested one if the tables no longer have its seconds.
    pub(crate) fn range(&self, asked: TimeRange) -> TimeRange {
        self.stored.range(asked)
    }

    /// Visits all of them in the fewest periods, however long.
    pub(crate) fn each_in_any_period(
        &mut self,
        visit: impl FnMut(EndedGroup<'_>),
    ) -> Result<(), QueryError> {
        if self.by_row {
            return self.each(visit);
        }
        let plan = self.stored.plan.clone();
        self.stored.coarsen();
        let visited = self.each(visit);
        self.stored.plan = plan;
        visited
    }

    /// Visits all of them.
    pub(crate) fn each(&mut self, mut visit: impl FnMut(EndedGroup<'_>)) -> Result<(), QueryError> {
        let EndedTasks {
            filter,
            stored,
            snapshot,
            ..
        } = self;
        let seconds = stored.plan.seconds.clone();
        let mut visit_row = |row: &Arc<TaskRow>| {
            if let Some(stop) = row.record.stop
                && counts_in(row, &seconds)
                && filter.keeps(row)
            {
                let counts = [(bucket(row.duration_ns().unwrap_or(0)), 1)];
                let outcome = row.record.outcome;
                visit(EndedGroup {
                    name: &row.record.name,
                    at: stop,
                    outcome,
                    counts: &counts,
                });
            }
        };
        snapshot.rows().for_each(&mut visit_row);
        if self.by_row {
            return stored.scan_tasks(&seconds, filter, visit_row);
        }
        for sum in snapshot.sums.iter().filter(|sum| counts_sum(sum, &seconds)) {
            if filter.keeps_sum(sum) {
                visit(EndedGroup {
                    name: &sum.name,
                    at: sum.second,
                    outcome: sum.outcome,
                    counts: &sum.buckets,
                });
            }
        }
        let tops = Queries(self.state).tops_named(filter);
        let mut counts = Vec::new();
        scan_ended(stored, SumTable::Durations, &tops, filter, |top, ended| {
            for (at, rows) in ended.periods() {
                counts.clear();
                counts.extend(rows);
                let name = &tops[top].name;
                visit(EndedGroup {
                    name,
                    at,
                    outcome: ended.outcome,
                    counts: &counts,
                });
            }
        })
    }

    /// Names of the files that are missing.
    pub(crate) fn damaged(self) -> Vec<String> {
        self.stored.damaged()
    }
}
