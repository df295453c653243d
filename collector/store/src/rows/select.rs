//! Queries to the ledger, answered without its lock.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use profiler_core::{
    Epoch, Outcome, TaskId, TaskRecord, TaskTotals, TimeRange, Timestamp, WorkerId,
};

use super::{Names, Second, TaskRow};

/// Selects the tasks to keep. The default keeps all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TaskFilter {
    /// Names; empty keeps all.
    pub names: Names,
    /// Keys; empty keeps all.
    pub keys: Names,
    /// Ids of workers; empty keeps all.
    pub workers: Names,
    /// Outcomes; empty keeps all.
    pub outcomes: Vec<Outcome>,
    /// Types of results; empty keeps all.
    pub types: Names,
}

impl TaskFilter {
    /// Whether `row` is kept.
    pub fn keeps(&self, row: &TaskRow) -> bool {
        self.names.keeps(&row.record.name)
            && self.keys.keeps(&row.record.key)
            && self.workers.keeps(&row.worker.0)
            && self.keeps_outcome(row.record.outcome)
            && self.types.keeps(
                row.record
                    .detail
                    .as_ref()
                    .map_or("", |detail| &detail.type_name),
            )
    }

    /// Whether tasks without a row have a kept name and outcome. Sums record nothing else to select by.
    pub fn keeps_sum(&self, totals: &TaskTotals) -> bool {
        self.names.keeps(&totals.name) && self.keeps_outcome(totals.outcome)
    }

    /// Whether only rows can tell what is kept.
    pub fn is_by_row(&self) -> bool {
        !(self.workers.is_empty() && self.keys.is_empty() && self.types.is_empty())
    }

    pub fn keeps_outcome(&self, outcome: Outcome) -> bool {
        self.outcomes.is_empty() || self.outcomes.contains(&outcome)
    }
}

/// Whether a task started before the range's end, and runs or stopped at or after its start.
pub fn overlaps(row: &TaskRow, range: TimeRange) -> bool {
    row.record.start < range.stop() && row.record.stop.is_none_or(|stop| stop >= range.start())
}

/// Whether a task ended in those seconds, or runs and started before their end.
pub fn counts_in(row: &TaskRow, seconds: &Range<Second>) -> bool {
    match row.record.stop {
        Some(stop) => seconds.contains(&Second::of(stop)),
        None => Second::of(row.record.start) < seconds.end,
    }
}

/// The order of rows, and which are kept if there are too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TaskOrder {
    /// Those that started last first.
    #[default]
    Start,
    /// The longest first; running tasks by their time so far.
    Duration,
}

impl TaskOrder {
    /// The name in questions and answers.
    pub fn name(self) -> &'static str {
        match self {
            TaskOrder::Start => "start",
            TaskOrder::Duration => "duration",
        }
    }
}

/// Rows that answer a query.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// The rows in the order of the query.
    pub rows: Vec<Arc<TaskRow>>,
    /// How many rows there are; more than `rows` if the limit cut the oldest off.
    pub total: u64,
}

/// The rows of a selection while it is made, in memory for `limit` rows.
#[derive(Debug)]
pub struct NewestTasks {
    limit: usize,
    total: u64,
    /// The one that would go first is on top.
    newest: BinaryHeap<Newest>,
}

#[derive(PartialEq, Eq, Debug)]
struct Newest(Arc<TaskRow>);

/// The order of tasks: by start, the newest first; those of one start by their id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ByStart {
    start: Reverse<Timestamp>,
    id: TaskId,
}

impl ByStart {
    pub fn new(start: Timestamp, id: TaskId) -> ByStart {
        ByStart {
            start: Reverse(start),
            id,
        }
    }

    pub fn of(task: &TaskRecord) -> ByStart {
        ByStart::new(task.start, task.id)
    }
}

impl Newest {
    /// Two workers may have tasks of one start and id.
    fn rank(&self) -> (ByStart, Epoch, &WorkerId) {
        let Newest(row) = self;
        (ByStart::of(&row.record), row.epoch, &row.worker)
    }
}

impl Ord for Newest {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Newest {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl NewestTasks {
    pub fn new(limit: usize) -> NewestTasks {
        NewestTasks {
            limit,
            total: 0,
            newest: BinaryHeap::new(),
        }
    }

    /// Counts a row, and keeps it if it is among the newest.
    pub fn offer(&mut self, row: &Arc<TaskRow>) {
        self.count(1);
        if self.wants(ByStart::of(&row.record)) {
            self.keep(row.clone());
        }
    }

    /// Counts rows, of which those that are [wanted](NewestTasks::wants) must be
    /// [kept](NewestTasks::keep).
    pub fn count(&mut self, rows: u64) {
        self.total = self.total.saturating_add(rows);
    }

    /// The start of the oldest row that is kept, once there is no room for more.
    pub fn wanted_from(&self) -> Option<Timestamp> {
        self.last_kept().map(|record| record.start)
    }

    /// Whether a task may be among the newest. Of many that start at once only those with the lowest ids
    /// are.
    pub fn wants(&self, task: ByStart) -> bool {
        self.last_kept()
            .is_none_or(|last| task <= ByStart::of(last))
    }

    /// The row that goes when a better one is kept, once there is no room for more.
    fn last_kept(&self) -> Option<&TaskRecord> {
        let is_full = self.newest.len() >= self.limit;
        self.newest
            .peek()
            .filter(|_| is_full)
            .map(|Newest(row)| &row.record)
    }

    /// How many rows are kept at most.
    pub fn limit(&self) -> usize {
        self.limit
    }

    pub fn keep(&mut self, row: Arc<TaskRow>) {
        self.newest.push(Newest(row));
        if self.newest.len() > self.limit {
            self.newest.pop();
        }
    }

    pub fn done(self) -> Selection {
        let rows = self
            .newest
            .into_sorted_vec()
            .into_iter()
            .map(|Newest(row)| row);
        Selection {
            rows: rows.collect(),
            total: self.total,
        }
    }
}

/// The longest rows while they are selected, in memory for `limit` rows.
#[derive(Debug)]
pub struct LongestTasks {
    limit: usize,
    total: u64,
    /// Where running tasks end so far.
    now: Timestamp,
    /// The one that would go first is on top.
    longest: BinaryHeap<(Reverse<u64>, Newest)>,
}

impl LongestTasks {
    pub fn new(limit: usize, now: Timestamp) -> LongestTasks {
        LongestTasks {
            limit,
            total: 0,
            now,
            longest: BinaryHeap::new(),
        }
    }

    /// Counts a row, and keeps it if it is among the longest.
    pub fn offer(&mut self, row: &Arc<TaskRow>) {
        self.total = self.total.saturating_add(1);
        let duration_ns = row
            .duration_ns()
            .unwrap_or(self.now.since_ns(row.record.start));
        let shortest = self
            .longest
            .peek()
            .filter(|_| self.longest.len() >= self.limit);
        if shortest.is_some_and(|(Reverse(shortest_ns), _)| duration_ns < *shortest_ns) {
            return;
        }
        self.longest
            .push((Reverse(duration_ns), Newest(row.clone())));
        if self.longest.len() > self.limit {
            self.longest.pop();
        }
    }

    pub fn done(self) -> Selection {
        let rows = self
            .longest
            .into_sorted_vec()
            .into_iter()
            .map(|(_, Newest(row))| row);
        Selection {
            rows: rows.collect(),
            total: self.total,
        }
    }
}
