//! The ledger: what every task did, from when to when, and how it ended.
//!
//! Rows are upserted by (worker, epoch, id); a later record replaces the earlier one. Running tasks
//! stand apart; finished ones are indexed by their stop, in chunks of a second that readers share:
//! a question takes the chunks under a short lock and reads them without it. Past the limit on rows
//! the oldest finished ones go and are counted as thinned; [`Totals`] by name stay exact.

mod durations;
mod select;
mod totals;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use profiler_core::{Epoch, Outcome, TaskId, TaskRecord, TimeRange, Timestamp, WorkerId};
use rustc_hash::{FxHashMap, FxHashSet};

pub use durations::{Durations, Spread};
pub use select::{Selection, Snapshot, TaskFilter};
pub use totals::{NameTotal, OutcomeCounts, Totals};

/// Most distinct short texts (names of threads, causes) that rows share.
const TEXTS_MAX: usize = 10_000;

/// Most lost tasks that are remembered when their rows are thinned. Past it, one whose true end is
/// told after all is counted by both.
const LOST_MAX: usize = 1_000_000;

/// One task of the fleet. Times are the collector's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskRow {
    /// Whose task it is.
    pub worker: WorkerId,
    /// In which of the worker's lives.
    pub epoch: Epoch,
    /// What it did.
    pub record: TaskRecord,
}

impl TaskRow {
    /// Nanoseconds from start to stop; `None` while it runs.
    #[must_use]
    pub fn duration_ns(&self) -> Option<u64> {
        Some(self.record.stop?.since_ns(self.record.start))
    }

    fn key(&self) -> TaskKey {
        TaskKey { worker: self.worker.clone(), epoch: self.epoch, id: self.record.id }
    }
}

/// Which task of the fleet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct TaskKey {
    worker: WorkerId,
    epoch: Epoch,
    id: TaskId,
}

/// Where a finished row stands: its stop, then its arrival.
type Place = (Timestamp, u64);

/// Finished rows whose stops lie in one second.
#[derive(Clone, Debug)]
struct Chunk {
    rows: BTreeMap<Place, Arc<TaskRow>>,
    /// No row here started earlier.
    start_min: Timestamp,
}

/// The record of all tasks. See the module's documentation.
#[derive(Debug)]
pub struct Ledger {
    running: BTreeMap<TaskKey, Arc<TaskRow>>,
    chunks: BTreeMap<i64, Arc<Chunk>>,
    places: FxHashMap<TaskKey, Place>,
    /// Tasks that we ended for their worker, with their names; also those thinned since.
    lost: BTreeMap<TaskKey, Arc<str>>,
    totals: Totals,
    texts: FxHashSet<Arc<str>>,
    arrivals: u64,
    rows_max: usize,
    thinned: u64,
}

impl Ledger {
    /// An empty ledger for at most `rows_max` rows and totals of `names_max` names.
    #[must_use]
    pub fn new(rows_max: usize, names_max: usize) -> Ledger {
        Ledger {
            running: BTreeMap::new(),
            chunks: BTreeMap::new(),
            places: FxHashMap::default(),
            lost: BTreeMap::new(),
            totals: Totals::new(names_max),
            texts: FxHashSet::default(),
            arrivals: 0,
            rows_max,
            thinned: 0,
        }
    }

    /// Puts in a row, in place of what was known of the same task.
    pub fn upsert(&mut self, mut row: TaskRow) {
        let TaskRecord { thread_name, cause, key, .. } = &mut row.record;
        for text in [thread_name, cause] {
            self.share(text);
        }
        if key.is_empty() {
            self.share(key);
        }
        let key = row.key();
        self.forget(&key);
        match row.record.stop {
            None => {
                self.running.insert(key.clone(), Arc::new(row));
            }
            Some(stop) => self.insert_finished(key.clone(), row, stop),
        }
        self.thin(&key);
    }

    /// Ends the running tasks of a worker's life as [`Outcome::Lost`], at `last_seen`, or where
    /// they started if that is later. Returns how many.
    pub fn end_as_lost(&mut self, worker: &WorkerId, epoch: Epoch, last_seen: Timestamp) -> usize {
        let keys = keys_of(worker, epoch);
        let keys: Vec<TaskKey> = self.running.range(keys).map(|(key, _)| key.clone()).collect();
        for key in &keys {
            let row = self.running.remove(key).expect("the key was found there");
            let mut row = Arc::unwrap_or_clone(row);
            let stop = last_seen.max(row.record.start);
            row.record.stop = Some(stop);
            row.record.outcome = Outcome::Lost;
            self.insert_finished(key.clone(), row, stop);
        }
        keys.len()
    }

    /// Takes back [`Ledger::end_as_lost`]: the worker is there again, so its tasks still run.
    pub fn run_again(&mut self, worker: &WorkerId, epoch: Epoch) {
        let keys = keys_of(worker, epoch);
        let keys: Vec<TaskKey> = self.lost.range(keys).map(|(key, _)| key.clone()).collect();
        for key in keys {
            // A thinned row stays counted as lost until its true end is told.
            if let Some(row) = self.remove_finished(&key) {
                self.uncount_lost(&key);
                let mut row = Arc::unwrap_or_clone(row);
                row.record.stop = None;
                row.record.outcome = Outcome::Running;
                self.running.insert(key, Arc::new(row));
            }
        }
    }

    /// What a question about `range` has to look at. Costs one count of an `Arc` for each running
    /// task and each second with an end; the lock around this is short.
    #[must_use]
    pub fn snapshot(&self, range: TimeRange) -> Snapshot {
        let running = self.running.values();
        let running = running.filter(|row| row.record.start < range.stop()).cloned().collect();
        let later = self.chunks.range(range.start().second()..);
        let chunks = later
            .filter(|(_, chunk)| chunk.start_min < range.stop())
            .map(|(_, chunk)| chunk.clone())
            .collect();
        Snapshot::new(range, running, chunks, self.thinned)
    }

    /// Counts and durations by name, over all tasks that ever ended.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Running tasks by name.
    #[must_use]
    pub fn running_by_name(&self) -> BTreeMap<Arc<str>, u64> {
        let mut counts = BTreeMap::new();
        for row in self.running.values() {
            *counts.entry(row.record.name.clone()).or_default() += 1;
        }
        counts
    }

    /// Running tasks of a worker's life.
    #[must_use]
    pub fn running_count(&self, worker: &WorkerId, epoch: Epoch) -> usize {
        self.running.range(keys_of(worker, epoch)).count()
    }

    /// Whether a task of that name ended or runs.
    #[must_use]
    pub fn knows_name(&self, name: &str) -> bool {
        self.totals.contains(name) || self.running.values().any(|row| *row.record.name == *name)
    }

    /// Names of all tasks that ended, and of those that run.
    #[must_use]
    pub fn names(&self) -> BTreeSet<Arc<str>> {
        let running = self.running.values().map(|row| row.record.name.clone());
        self.totals.names().cloned().chain(running).collect()
    }

    /// Rows, running and finished.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.running.len() + self.places.len()
    }

    /// Rows that had to go to make room.
    #[must_use]
    pub fn thinned(&self) -> u64 {
        self.thinned
    }

    fn insert_finished(&mut self, key: TaskKey, row: TaskRow, stop: Timestamp) {
        self.totals.count(&row);
        if row.record.outcome == Outcome::Lost {
            self.lost.insert(key.clone(), row.record.name.clone());
        }
        self.arrivals += 1;
        let place = (stop, self.arrivals);
        self.places.insert(key, place);
        let chunk = self.chunks.entry(stop.second()).or_insert_with(|| {
            Arc::new(Chunk { rows: BTreeMap::new(), start_min: Timestamp::MAX })
        });
        // Copies the chunk only while a question reads it.
        let chunk = Arc::make_mut(chunk);
        chunk.start_min = chunk.start_min.min(row.record.start);
        chunk.rows.insert(place, Arc::new(row));
    }

    /// Takes out what is known of a task, its part of the totals too.
    fn forget(&mut self, key: &TaskKey) {
        self.running.remove(key);
        match self.remove_finished(key) {
            Some(row) if row.record.outcome != Outcome::Lost => self.totals.uncount(&row),
            _ => self.uncount_lost(key),
        }
    }

    fn uncount_lost(&mut self, key: &TaskKey) {
        if let Some(name) = self.lost.remove(key) {
            self.totals.uncount_lost(&name);
        }
    }

    fn remove_finished(&mut self, key: &TaskKey) -> Option<Arc<TaskRow>> {
        let place = self.places.remove(key)?;
        let second = place.0.second();
        let chunk = self.chunks.get_mut(&second).expect("a place leads to a chunk");
        let row = Arc::make_mut(chunk).rows.remove(&place);
        if chunk.rows.is_empty() {
            self.chunks.remove(&second);
        }
        row
    }

    /// Makes room for `newest`, which goes itself if nothing is finished.
    fn thin(&mut self, newest: &TaskKey) {
        while self.row_count() > self.rows_max {
            self.thinned += 1;
            let Some(first) = self.chunks.values().next() else {
                self.running.remove(newest);
                return;
            };
            let oldest = first.rows.values().next().expect("no chunk is empty").key();
            self.remove_finished(&oldest);
            if self.lost.len() > LOST_MAX {
                self.lost.remove(&oldest);
            }
        }
    }

    /// Replaces `text` by the copy that other rows have, if there is one.
    fn share(&mut self, text: &mut Arc<str>) {
        if let Some(held) = self.texts.get(&**text) {
            *text = held.clone();
        } else if self.texts.len() < TEXTS_MAX {
            self.texts.insert(text.clone());
        }
    }
}

fn keys_of(worker: &WorkerId, epoch: Epoch) -> std::ops::RangeInclusive<TaskKey> {
    let key = |id| TaskKey { worker: worker.clone(), epoch, id: TaskId(id) };
    key(0)..=key(u64::MAX)
}

#[cfg(test)]
mod tests;
