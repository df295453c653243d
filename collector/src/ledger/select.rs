//! Questions to the ledger, answered without its lock.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::{Outcome, TimeRange};

use super::{Chunk, NameTotal, TaskRow};

/// Which tasks to keep. The default keeps all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TaskFilter {
    /// Names; empty keeps all.
    pub names: Vec<String>,
    /// Ids of workers; empty keeps all.
    pub workers: Vec<String>,
    /// Outcomes; empty keeps all.
    pub outcomes: Vec<Outcome>,
}

impl TaskFilter {
    /// Whether `row` is kept.
    #[must_use]
    pub fn keeps(&self, row: &TaskRow) -> bool {
        let among = |kept: &[String], text: &str| kept.is_empty() || kept.iter().any(|k| k == text);
        among(&self.names, &row.record.name)
            && among(&self.workers, &row.worker.0)
            && (self.outcomes.is_empty() || self.outcomes.contains(&row.record.outcome))
    }
}

/// The rows of the ledger, as they were at one moment, among which are all that overlap a range.
#[derive(Debug)]
pub struct Snapshot {
    range: TimeRange,
    running: Vec<Arc<TaskRow>>,
    chunks: Vec<Arc<Chunk>>,
    thinned: u64,
}

/// Rows that answer a question.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// The rows, those that started last first.
    pub rows: Vec<Arc<TaskRow>>,
    /// How many rows there are; more than `rows` if the limit cut the oldest off.
    pub total: u64,
}

impl Snapshot {
    pub(super) fn new(
        range: TimeRange,
        running: Vec<Arc<TaskRow>>,
        chunks: Vec<Arc<Chunk>>,
        thinned: u64,
    ) -> Snapshot {
        Snapshot { range, running, chunks, thinned }
    }

    /// Rows that the ledger had dropped to make room, over its whole life.
    #[must_use]
    pub fn thinned(&self) -> u64 {
        self.thinned
    }

    /// The rows that overlap the range (start before its stop; running, or stop not before its
    /// start) and that `filter` keeps, at most `limit`: those that started last.
    #[must_use]
    pub fn select(&self, filter: &TaskFilter, limit: usize) -> Selection {
        let mut rows: Vec<_> = self.overlapping(filter).cloned().collect();
        let total = rows.len() as u64;
        if rows.len() > limit {
            rows.select_nth_unstable_by(limit, newest_first);
            rows.truncate(limit);
        }
        rows.sort_unstable_by(newest_first);
        Selection { rows, total }
    }

    /// Counts and durations by name of the rows that overlap the range and that `filter` keeps;
    /// running ones count as [`Outcome::Running`].
    #[must_use]
    pub fn summarize(&self, filter: &TaskFilter) -> BTreeMap<Arc<str>, NameTotal> {
        let mut totals: BTreeMap<Arc<str>, NameTotal> = BTreeMap::new();
        for row in self.overlapping(filter) {
            match totals.get_mut(&row.record.name) {
                Some(total) => total.count(row),
                None => totals.entry(row.record.name.clone()).or_default().count(row),
            }
        }
        totals
    }

    fn overlapping<'a>(&'a self, filter: &'a TaskFilter) -> impl Iterator<Item = &'a Arc<TaskRow>> {
        let finished = self.chunks.iter().flat_map(|chunk| chunk.rows.values());
        self.running.iter().chain(finished).filter(|row| {
            row.record.start < self.range.stop()
                && row.record.stop.is_none_or(|stop| stop >= self.range.start())
                && filter.keeps(row)
        })
    }
}

fn newest_first(a: &Arc<TaskRow>, b: &Arc<TaskRow>) -> Ordering {
    let which = |row: &TaskRow| (row.epoch, row.record.id);
    let by_start = b.record.start.cmp(&a.record.start);
    by_start.then_with(|| a.worker.cmp(&b.worker)).then_with(|| which(a).cmp(&which(b)))
}
