//! The ledger: what every task did, from when to when, and how it ended.
//!
//! Rows are upserted by (worker, epoch, id); a later record replaces the earlier one. The ledger
//! has the rows that are in no table: running tasks; lost ones, which the collector ended for their
//! worker and whose true end may still arrive; and ended ones until they are sealed. Ended rows are
//! indexed by their stop, in chunks of a second that readers share: a query clones the pointers
//! of the chunks under a short lock and reads them without it. A chunk has few rows, because the next
//! insert copies one that is being read.

mod durations;
mod phases;
mod snapshot;
mod taken;
mod totals;
mod totals_without_rows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use profiler_core::hash::{KeyedMap, KeyedSet};
use profiler_core::limits::bounded;
use profiler_core::{
    Epoch, Outcome, TaskId, TaskRecord, TaskTotals, TimeRange, Timestamp, WorkerId,
};

use base::limits::{
    AHEAD_MAX, OPEN_TASKS_BYTES_MAX, WORKER_OPEN_TASKS_BYTES_MAX, WORKER_ROWS_MAX, nanoseconds,
};
use shares::Account;
use store::Manifest;
use store::rows::{ByStart, LostTask, TaskRow};

use self::snapshot::{Chunk, ChunkKey, RowPosition};
use self::totals_without_rows::Sums;
pub use durations::{DurationHistogram, bucket, bucket_middle_ns};
pub use phases::PhaseTotal;
pub use snapshot::TaskSnapshot;
pub use store::rows::{
    EXECUTE, LongestTasks, NewestTasks, Selection, TaskFilter, TaskOrder, counts_in, overlaps,
};
pub use taken::{LedgerBatch, TakenRows};
pub use totals::{NameTotal, OutcomeCounts};

/// Most distinct short texts (names of threads, causes) that rows share.
const TEXTS_MAX: usize = 10_000;

/// Most lost tasks whose true end may still arrive. Further ones are sealed as lost.
const LOST_MAX: usize = 100_000;

/// Memory of a running or lost row without its texts: the row and its places in two maps.
const OPEN_ROW_BYTES: usize = 512;

/// Longest key, cause and name of a thread of a shortened row, in bytes.
const SHORT_TEXT_BYTES: usize = 64 + '…'.len_utf8();

/// How long the true end of a lost task may still arrive: longer than a live agent stays away.
const LOST_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Most tasks remembered as sealed as lost, so that a true end that arrives later does not count
/// them again.
const LOST_TASKS_MAX: usize = 200_000;

/// How long they are remembered: as long as rows of tasks are kept.
const LOST_TASKS_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Identifies a task of the fleet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct TaskKey {
    worker: WorkerId,
    epoch: Epoch,
    id: TaskId,
}

impl TaskKey {
    fn of(row: &TaskRow) -> TaskKey {
        TaskKey {
            worker: row.worker.clone(),
            epoch: row.epoch,
            id: row.record.id,
        }
    }
}

/// The running tasks of one life.
#[derive(Debug, Default)]
struct RunningTasks {
    rows: usize,
    bytes: usize,
    /// The identity whose quota they count for; `None` after a restart, until all of them ended.
    owner: Option<Arc<Account>>,
}

/// Memory of a running or lost row, in bytes.
fn open_row_bytes(row: &TaskRow) -> usize {
    OPEN_ROW_BYTES + row.record.thread_name.len() + row.text_bytes()
}

/// Cuts the texts of a running row, and drops its details. The end of the task has them again.
fn shorten(record: &mut TaskRecord) {
    record.detail = None;
    for text in [&mut record.key, &mut record.cause, &mut record.thread_name] {
        if text.len() > SHORT_TEXT_BYTES {
            *text = bounded(text, SHORT_TEXT_BYTES).into();
        }
    }
}

/// The record of all tasks. See the module's documentation.
#[derive(Debug)]
pub struct Ledger {
    /// Its table `tasks` has the ended rows that are not here.
    manifest: Arc<Manifest>,
    running: BTreeMap<TaskKey, Arc<TaskRow>>,
    /// Running tasks of each life.
    running_of: KeyedMap<(WorkerId, Epoch), RunningTasks>,
    /// Tasks that the collector ended for their worker.
    lost: BTreeMap<TaskKey, Arc<TaskRow>>,
    /// Tasks that were sealed as lost, with their stops. Later records of them are ignored.
    sealed_lost: KeyedMap<TaskKey, Timestamp>,
    /// Names of `running` and `lost`, with the number of rows.
    open_names: KeyedMap<Arc<str>, u32>,
    /// Names of `ended`, and of rows that were there since the last sealing.
    ended_names: KeyedSet<Arc<str>>,
    sealing_names: KeyedSet<Arc<str>>,
    ended: BTreeMap<ChunkKey, Arc<Chunk>>,
    /// The position of each row of `ended`.
    places: KeyedMap<TaskKey, RowPosition>,
    /// Rows being written to tables. Readers find them here until [`Ledger::sealed`]. They are
    /// never replaced, because a task ends once.
    sealing: Vec<BTreeMap<ChunkKey, Arc<Chunk>>>,
    sealing_rows: usize,
    /// Bytes of details: of running and lost rows, of ended rows, of rows being written.
    open_bytes: usize,
    ended_bytes: usize,
    sealing_bytes: usize,
    /// Tasks without rows.
    sums: Sums,
    texts: KeyedSet<Arc<str>>,
    arrivals: u64,
    open_bytes_max: usize,
    running_bytes_of_max: usize,
    running_max: usize,
    running_of_max: usize,
    aggregated: u64,
}

impl Ledger {
    /// A ledger that lacks nothing compared with the tables of `manifest`, for at most
    /// `running_max` running tasks.
    pub fn new(manifest: Arc<Manifest>, running_max: usize) -> Ledger {
        Ledger {
            manifest,
            running: BTreeMap::new(),
            running_of: KeyedMap::default(),
            lost: BTreeMap::new(),
            sealed_lost: KeyedMap::default(),
            open_names: KeyedMap::default(),
            ended_names: KeyedSet::default(),
            sealing_names: KeyedSet::default(),
            ended: BTreeMap::new(),
            places: KeyedMap::default(),
            sealing: Vec::new(),
            sealing_rows: 0,
            open_bytes: 0,
            ended_bytes: 0,
            sealing_bytes: 0,
            sums: Sums::default(),
            texts: KeyedSet::default(),
            arrivals: 0,
            running_max,
            open_bytes_max: OPEN_TASKS_BYTES_MAX,
            running_bytes_of_max: WORKER_OPEN_TASKS_BYTES_MAX,
            running_of_max: WORKER_ROWS_MAX,
            aggregated: 0,
        }
    }

    /// Restores [`LedgerBatch::open`] and [`LedgerBatch::lost_tasks`] after a restart at `now`. Lost
    /// tasks that an earlier version ended in the far future end sooner.
    pub fn restore(
        &mut self,
        open: impl IntoIterator<Item = TaskRow>,
        lost_tasks: impl IntoIterator<Item = LostTask>,
        now: Timestamp,
    ) {
        let lost_tasks = lost_tasks.into_iter().take(LOST_TASKS_MAX);
        self.sealed_lost.extend(lost_tasks.map(
            |LostTask {
                 worker,
                 epoch,
                 id,
                 stop,
             }| (TaskKey { worker, epoch, id }, stop),
        ));
        for mut row in open {
            match row.record.outcome {
                Outcome::Lost => {
                    let stop = row.record.stop.unwrap_or(now);
                    end_lost(&mut row.record, stop.min(now));
                    self.insert_lost(TaskKey::of(&row), Arc::new(row));
                }
                _ => self.upsert(row),
            }
        }
    }

    /// Like [`Ledger::upsert_of`], without an account that is charged.
    pub fn upsert(&mut self, row: TaskRow) {
        self.upsert_of(None, row);
    }

    /// Inserts or replaces a row of an identity. A task that is in the tables as lost stays lost: it is
    /// counted there, and counts are never taken back.
    pub fn upsert_of(&mut self, owner: Option<&Arc<Account>>, mut row: TaskRow) {
        let TaskRecord {
            thread_name,
            cause,
            key,
            ..
        } = &mut row.record;
        for text in [thread_name, cause] {
            self.share(text);
        }
        if key.is_empty() {
            self.share(key);
        }
        let key = TaskKey::of(&row);
        if self.sealed_lost.contains_key(&key) {
            return;
        }
        for known in [self.remove_running(&key), self.lost.remove(&key)]
            .into_iter()
            .flatten()
        {
            self.forget_open(&known.record.name);
            self.open_bytes -= open_row_bytes(&known);
        }
        self.remove_ended(&key);
        match row.record.stop {
            Some(stop) => self.insert_ended(key, row, stop),
            None => {
                let owner_is_half_full = owner.is_some_and(|owner| owner.is_half_full_of_tasks());
                if owner_is_half_full || self.is_half_full(&key) {
                    shorten(&mut row.record);
                }
                let bytes = open_row_bytes(&row);
                let owner_has_room = owner.is_none_or(|owner| owner.has_room_for_task(bytes));
                if !owner_has_room || !self.has_room(&key, bytes) {
                    // The end has the whole record, so only the running task is not visible.
                    self.aggregated += 1;
                    return;
                }
                self.open_bytes += bytes;
                self.note_open(&row.record.name);
                self.insert_running(owner, key, row);
            }
        }
    }

    /// Adds everything that another store has in memory. No task is in two stores.
    pub fn add_all(&mut self, other: &Ledger) {
        for (key, row) in &other.running {
            self.open_bytes += open_row_bytes(row);
            self.note_open(&row.record.name);
            self.insert_running(None, key.clone(), TaskRow::clone(row));
        }
        for (key, row) in &other.lost {
            self.insert_lost(key.clone(), row.clone());
        }
        let chunks = other
            .sealing
            .iter()
            .chain([&other.ended])
            .flat_map(BTreeMap::values);
        for ((stop, _), row) in chunks.flat_map(|chunk| &chunk.rows) {
            self.insert_ended(TaskKey::of(row), TaskRow::clone(row), *stop);
        }
        let names = other.ended_names.iter().chain(&other.sealing_names);
        self.ended_names.extend(names.cloned());
        self.sums.add_all(&other.sums);
        self.aggregated += other.aggregated;
    }

    /// Counts ended tasks that have no rows.
    pub fn count(&mut self, totals: TaskTotals) {
        if !self.ended_names.contains(&totals.name) {
            self.ended_names.insert(totals.name.clone());
        }
        self.sums.add(totals);
    }

    /// Ends the running tasks of a worker's life as [`Outcome::Lost`] at `last_seen`, or where they
    /// started if that is later. Returns their number.
    pub fn end_as_lost(&mut self, worker: &WorkerId, epoch: Epoch, last_seen: Timestamp) -> usize {
        let keys = keys_of(worker, epoch);
        let keys: Vec<TaskKey> = self
            .running
            .range(keys)
            .map(|(key, _)| key.clone())
            .collect();
        for key in &keys {
            let row = self.remove_running(key).expect("the key was found there");
            let mut row = Arc::unwrap_or_clone(row);
            let stop = end_lost(&mut row.record, last_seen);
            if self.lost.len() < LOST_MAX {
                self.lost.insert(key.clone(), Arc::new(row));
            } else {
                self.forget_open(&row.record.name);
                self.open_bytes -= open_row_bytes(&row);
                self.insert_ended(key.clone(), row, stop);
            }
        }
        keys.len()
    }

    /// Forgets the running tasks of a worker's life, which continue at another collector, and those that
    /// counted as lost before that was known.
    pub fn forget_open_tasks(&mut self, worker: &WorkerId, epoch: Epoch) {
        self.resume_lost(worker, epoch);
        let keys = keys_of(worker, epoch);
        let keys: Vec<TaskKey> = self
            .running
            .range(keys)
            .map(|(key, _)| key.clone())
            .collect();
        for key in &keys {
            let row = self.remove_running(key).expect("the key was found there");
            self.forget_open(&row.record.name);
            self.open_bytes -= open_row_bytes(&row);
        }
    }

    /// Reverts [`Ledger::end_as_lost`] for a worker that reconnected.
    pub fn resume_lost(&mut self, worker: &WorkerId, epoch: Epoch) {
        let keys = keys_of(worker, epoch);
        let keys: Vec<TaskKey> = self.lost.range(keys).map(|(key, _)| key.clone()).collect();
        for key in keys {
            let row = self.lost.remove(&key).expect("the key was found there");
            let mut row = Arc::unwrap_or_clone(row);
            row.record.stop = None;
            row.record.outcome = Outcome::Running;
            self.insert_running(None, key, row);
        }
    }

    /// Snapshot for a query about `range`. Clones an `Arc` per running task and per second with an
    /// end, so that the lock is short.
    pub fn snapshot(&self, range: TimeRange) -> TaskSnapshot {
        let open = self.running.values().chain(self.lost.values());
        let parts = self.sealing.iter().chain([&self.ended]);
        // A chunk is a whole second, for queries that count whole seconds.
        let first = ChunkKey::first_of(range.start());
        let later = parts.flat_map(|chunks| chunks.range(first..));
        let chunks = later.filter(|(_, chunk)| chunk.start_min < range.stop());
        TaskSnapshot {
            manifest: self.manifest.clone(),
            open: open.filter(|row| overlaps(row, range)).cloned().collect(),
            chunks: chunks.map(|(_, chunk)| chunk.clone()).collect(),
            sums: self.sums.of(range),
            aggregated: self.aggregated,
        }
    }

    /// Rows to be written to tables: all ended rows, and lost ones whose true end is no longer
    /// awaited. They stay here until [`Ledger::sealed`]; if the write fails, the next call returns
    /// them again.
    pub fn take_for_sealing(&mut self, now: Timestamp) -> TakenRows {
        let final_before = now.shifted(-nanoseconds(LOST_KEPT));
        let is_final = |row: &Arc<TaskRow>| row.record.stop.is_some_and(|stop| stop < final_before);
        let lost: Vec<TaskKey> = self
            .lost
            .iter()
            .filter(|(_, row)| is_final(row))
            .map(|(key, _)| key.clone())
            .collect();
        for key in lost {
            let row = self.lost.remove(&key).expect("the key was found there");
            let stop = row.record.stop.expect("a lost task has a stop");
            self.forget_open(&row.record.name);
            self.open_bytes -= open_row_bytes(&row);
            self.insert_ended(key, Arc::unwrap_or_clone(row), stop);
        }
        self.remember_lost(now);
        self.sealing_rows += self.places.len();
        self.sealing_bytes += std::mem::take(&mut self.ended_bytes);
        self.sealing_names.extend(self.ended_names.drain());
        self.sealing.push(std::mem::take(&mut self.ended));
        TakenRows {
            chunks: self
                .sealing
                .iter()
                .flat_map(BTreeMap::values)
                .cloned()
                .collect(),
            open: self
                .running
                .values()
                .chain(self.lost.values())
                .cloned()
                .collect(),
            lost_tasks: self.lost_tasks(),
            totals: self.sums.take_for_sealing(),
            places: std::mem::take(&mut self.places),
        }
    }

    /// Makes `manifest`, which has the rows last taken, the version of readers. Returns these rows,
    /// to be dropped without the lock.
    #[must_use = "to be dropped when the lock is free again"]
    pub fn sealed(&mut self, manifest: Arc<Manifest>) -> impl Sized + use<> {
        self.manifest = manifest;
        self.sealing_rows = 0;
        self.sealing_bytes = 0;
        let names = std::mem::take(&mut self.sealing_names);
        (std::mem::take(&mut self.sealing), self.sums.sealed(), names)
    }

    /// Replaces the version by one whose tables hold the same, or less by expired data.
    pub fn set_manifest(&mut self, manifest: Arc<Manifest>) {
        self.manifest = manifest;
    }

    /// The number of running tasks of a worker's life.
    pub fn running_count(&self, worker: &WorkerId, epoch: Epoch) -> usize {
        self.running_of
            .get(&(worker.clone(), epoch))
            .map_or(0, |tasks| tasks.rows)
    }

    /// Whether that task is running.
    pub fn is_running(&self, worker: &WorkerId, epoch: Epoch, id: TaskId) -> bool {
        self.running.contains_key(&TaskKey {
            worker: worker.clone(),
            epoch,
            id,
        })
    }

    /// The running tasks of a worker's life.
    pub fn running_of(&self, worker: &WorkerId, epoch: Epoch) -> Vec<Arc<TaskRow>> {
        self.running
            .range(keys_of(worker, epoch))
            .map(|(_, row)| row.clone())
            .collect()
    }

    /// Names of all tasks in the ledger.
    pub fn names(&self) -> BTreeSet<Arc<str>> {
        let ended = self.ended_names.iter().chain(&self.sealing_names);
        self.open_names.keys().chain(ended).cloned().collect()
    }

    /// Whether the ledger has a task of that name, in constant time.
    pub fn knows_name(&self, name: &str) -> bool {
        let has_ended = self.ended_names.contains(name) || self.sealing_names.contains(name);
        has_ended || self.open_names.contains_key(name)
    }

    /// The number of rows: running, lost and ended.
    pub fn row_count(&self) -> usize {
        self.running.len() + self.lost.len() + self.places.len() + self.sealing_rows
    }

    /// Memory of the ended rows and sums, roughly, in bytes: what a sealing frees.
    pub fn ended_bytes(&self) -> usize {
        /// A row with a key and a name of its own, and its places in two maps.
        const ROW_BYTES: usize = size_of::<TaskRow>() + 256;
        let text_bytes = self.ended_bytes + self.sealing_bytes;
        (self.places.len() + self.sealing_rows) * ROW_BYTES + text_bytes + self.sums.bytes()
    }

    /// The number of running rows dropped for lack of room.
    pub fn aggregated(&self) -> u64 {
        self.aggregated
    }

    /// Remembers the rows that are sealed as lost, up to the limit.
    fn remember_lost(&mut self, now: Timestamp) {
        let kept_from = now.shifted(-nanoseconds(LOST_TASKS_KEPT));
        self.sealed_lost.retain(|_, stop| *stop >= kept_from);
        let rows = self
            .ended
            .values()
            .flat_map(|chunk| chunk.rows.values())
            .filter(|row: &&Arc<TaskRow>| row.record.outcome == Outcome::Lost);
        let room = LOST_TASKS_MAX.saturating_sub(self.sealed_lost.len());
        let lost_tasks = rows.filter_map(|row| Some((TaskKey::of(row), row.record.stop?)));
        self.sealed_lost.extend(lost_tasks.take(room));
    }

    fn lost_tasks(&self) -> Vec<LostTask> {
        let lost_tasks = self.sealed_lost.iter().map(|(key, stop)| {
            let TaskKey { worker, epoch, id } = key.clone();
            LostTask {
                worker,
                epoch,
                id,
                stop: *stop,
            }
        });
        lost_tasks.collect()
    }

    fn running_tasks_of(&self, key: &TaskKey) -> Option<&RunningTasks> {
        self.running_of.get(&(key.worker.clone(), key.epoch))
    }

    fn has_room(&self, key: &TaskKey, bytes: usize) -> bool {
        self.running.len() < self.running_max
            && self.open_bytes + bytes <= self.open_bytes_max
            && self.running_tasks_of(key).is_none_or(|of_life| {
                of_life.rows < self.running_of_max
                    && of_life.bytes + bytes <= self.running_bytes_of_max
            })
    }

    /// Whether half of the memory of running tasks is taken, of all or of this life.
    fn is_half_full(&self, key: &TaskKey) -> bool {
        self.open_bytes > self.open_bytes_max / 2
            || self
                .running_tasks_of(key)
                .is_some_and(|of_life| of_life.bytes > self.running_bytes_of_max / 2)
    }

    fn insert_running(&mut self, owner: Option<&Arc<Account>>, key: TaskKey, row: TaskRow) {
        let life = self
            .running_of
            .entry((key.worker.clone(), key.epoch))
            .or_default();
        if life.rows == 0 {
            life.owner = owner.cloned();
        }
        let bytes = open_row_bytes(&row);
        life.rows += 1;
        life.bytes += bytes;
        life.owner.iter().for_each(|owner| owner.add_task(bytes));
        self.running.insert(key, Arc::new(row));
    }

    /// Inserts a lost row that was not running here.
    fn insert_lost(&mut self, key: TaskKey, row: Arc<TaskRow>) {
        self.note_open(&row.record.name);
        self.open_bytes += open_row_bytes(&row);
        self.lost.insert(key, row);
    }

    fn remove_running(&mut self, key: &TaskKey) -> Option<Arc<TaskRow>> {
        let row = self.running.remove(key)?;
        let life = (key.worker.clone(), key.epoch);
        let tasks = self
            .running_of
            .get_mut(&life)
            .expect("a life with a row is counted");
        let bytes = open_row_bytes(&row);
        tasks.rows -= 1;
        tasks.bytes -= bytes;
        tasks
            .owner
            .iter()
            .for_each(|owner| owner.remove_task(bytes));
        if tasks.rows == 0 {
            self.running_of.remove(&life);
        }
        Some(row)
    }

    fn note_open(&mut self, name: &Arc<str>) {
        *self.open_names.entry(name.clone()).or_default() += 1;
    }

    fn forget_open(&mut self, name: &Arc<str>) {
        let count = self
            .open_names
            .get_mut(name)
            .expect("the name of an open row is noted");
        *count -= 1;
        if *count == 0 {
            self.open_names.remove(name);
        }
    }

    fn insert_ended(&mut self, key: TaskKey, row: TaskRow, stop: Timestamp) {
        self.arrivals += 1;
        let place = (stop, self.arrivals);
        if !self.ended_names.contains(&row.record.name) {
            self.ended_names.insert(row.record.name.clone());
        }
        self.places.insert(key, place);
        self.ended_bytes += row.text_bytes();
        let newest = ByStart::of(&row.record);
        let chunk = self.ended.entry(ChunkKey::of(place)).or_insert_with(|| {
            Arc::new(Chunk {
                rows: BTreeMap::new(),
                start_min: Timestamp::MAX,
                newest,
            })
        });
        // Copies the chunk only while a query reads it.
        let chunk = Arc::make_mut(chunk);
        chunk.start_min = chunk.start_min.min(row.record.start);
        chunk.newest = chunk.newest.min(newest);
        chunk.rows.insert(place, Arc::new(row));
    }

    fn remove_ended(&mut self, key: &TaskKey) {
        let Some(place) = self.places.remove(key) else {
            return;
        };
        let chunk_key = ChunkKey::of(place);
        let chunk = self
            .ended
            .get_mut(&chunk_key)
            .expect("a place leads to a chunk");
        if let Some(row) = Arc::make_mut(chunk).rows.remove(&place) {
            self.ended_bytes -= row.text_bytes();
        }
        if chunk.rows.is_empty() {
            self.ended.remove(&chunk_key);
        }
    }

    /// Replaces `text` by the copy that other rows share, if there is one.
    fn share(&mut self, text: &mut Arc<str>) {
        if let Some(held) = self.texts.get(&**text) {
            *text = held.clone();
        } else if self.texts.len() < TEXTS_MAX {
            self.texts.insert(text.clone());
        }
    }
}

/// Ends a task as [`Outcome::Lost`] at `last_seen`, or where it started if that is later, but at most
/// [`AHEAD_MAX`] later: a row of the far future would outlive all others. Returns the end.
pub fn end_lost(record: &mut TaskRecord, last_seen: Timestamp) -> Timestamp {
    let latest = last_seen.shifted(nanoseconds(AHEAD_MAX));
    record.start = record.start.min(latest);
    let stop = last_seen.max(record.start);
    record.stop = Some(stop);
    record.outcome = Outcome::Lost;
    stop
}

fn keys_of(worker: &WorkerId, epoch: Epoch) -> std::ops::RangeInclusive<TaskKey> {
    let key = |id| TaskKey {
        worker: worker.clone(),
        epoch,
        id: TaskId(id),
    };
    key(0)..=key(u64::MAX)
}

#[cfg(test)]
mod tests;
