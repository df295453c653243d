//! Sealing: one batch of received data becomes rows of all tables, in one version.
//!
//! A batch is written in every tier at once, so nothing is rolled up later, and late data lands in its
//! true periods everywhere.

pub(crate) mod seal_buffer;
pub(crate) mod seal_telemetry;
pub(crate) mod seal_windows;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::hash::KeyedMap;
use profiler_core::{Epoch, NodeId, TaskId, TaskTotals, WorkerId};

use crate::error::StoreError;
use crate::lists::{FrameRow, NodeRow, SealedTask};
use crate::manifest::{FileEntry, Manifest};
use crate::rows::{LostTask, SessionRecord, StoredWindow, TaskRow, TelemetryBatch};
use crate::segment::{Compression, ListRow, ListWriter, SameRowTier, SegmentWriter};
use crate::sums::row::{Fields, Key, Row, sort_and_sum, sum_neighbors};
use crate::sums::table::{SumTable, TableName};
use crate::sums::task_sums::{DurationRows, TaskNodes};
use crate::sums::tier::{Period, Second, Tier};
use crate::tables::{OnPublish, Tables};
use base::sync::{lock, read};

/// Bytes of row groups at which a file ends, with those of coarser tiers that have the same rows. Until then all of
/// them are in memory.
const SEALED_FILE_BYTES: usize = 8 << 20;

/// Seconds of stops in one file of `tasks`.
pub(crate) const TASKS_FILE_SECONDS: u32 = 86_400;

/// The data of one sealing.
#[derive(Clone, Copy)]
pub struct SealBatch<'a> {
    pub windows: &'a [Arc<StoredWindow>],
    /// Ended tasks. Of several rows of a task the last counts.
    pub tasks: &'a [Arc<TaskRow>],
    /// Ended tasks without rows.
    pub totals: &'a [Arc<TaskTotals>],
    /// The nodes of the names and phases of `tasks` and `totals`.
    pub task_nodes: &'a TaskNodes,
    /// All running tasks.
    pub running: &'a [Arc<TaskRow>],
    /// All tasks that were sealed as lost.
    pub lost_tasks: &'a [LostTask],
    /// All known sessions.
    pub sessions: &'a [SessionRecord],
    pub telemetry: &'a TelemetryBatch,
    /// The rest of the tree to which all nodes belong.
    pub tree: &'a UnsealedTree,
    /// The first file of the log that is needed after this sealing.
    pub wal_from: u64,
}

/// Number of ids of frames and nodes of a tree, which only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeSize {
    pub frames: u32,
    /// Includes the root.
    pub nodes: u32,
}

/// All frames and nodes of the tree past [`Tables::sealed_tree`], in rising order of ids.
#[derive(Default, Debug)]
pub struct UnsealedTree {
    pub frames: Vec<FrameRow>,
    pub nodes: Vec<NodeRow>,
}

impl Tables {
    /// How much of the tree is in tables.
    pub fn sealed_tree(&self) -> TreeSize {
        let sealed = lock(&self.sealed);
        TreeSize {
            frames: sealed.frames,
            nodes: sealed.nodes.max(1),
        }
    }

    /// Seals a batch. If this fails, the tables have nothing of it, and it may be retried. `on_publish`
    /// is called with the new version before the next one can be published: there the readers' view
    /// switches to the version and drops what was sealed.
    pub fn seal(
        &self,
        batch: SealBatch<'_>,
        on_publish: &mut OnPublish<'_>,
    ) -> Result<Arc<Manifest>, StoreError> {
        let mut sealed = lock(&self.sealed);
        let tasks = latest(batch.tasks);
        let mut files = Vec::new();
        let UnsealedTree { frames, nodes } = batch.tree;
        debug_assert!(frames.first().is_none_or(|row| row.id.0 == sealed.frames));
        debug_assert!(
            nodes
                .first()
                .is_none_or(|row| row.id.0 == sealed.nodes.max(1))
        );
        self.put_list(TableName::Frames, frames.iter().cloned(), &mut files)?;
        self.put_list(TableName::Nodes, nodes.iter().copied(), &mut files)?;
        self.seal_windows(batch.windows, &mut sealed.buffer, &mut files)?;
        let durations = DurationRows::of(
            tasks.iter().map(|row| &**row),
            batch.totals.iter().map(|totals| &**totals),
            batch.task_nodes,
        );
        self.put_tiers(SumTable::Durations, durations.counts, &mut files)?;
        self.put_tiers(SumTable::DurationSums, durations.sums, &mut files)?;
        self.put_tiers(SumTable::Phases, durations.phases, &mut files)?;
        self.put_tiers(SumTable::PhaseSums, durations.phase_sums, &mut files)?;
        // The number of the next version, or a smaller one: enough to order the rows of a task.
        let version = self.manifest().version + 1;
        let with_version = |row: &Arc<TaskRow>| SealedTask {
            row: row.clone(),
            version,
        };
        self.seal_tasks(tasks.iter().map(with_version), &mut files)?;
        self.put_list(
            TableName::Running,
            batch.running.iter().map(with_version),
            &mut files,
        )?;
        self.put_list(
            TableName::LostTasks,
            batch.lost_tasks.iter().cloned(),
            &mut files,
        )?;
        self.put_list(
            TableName::Sessions,
            batch.sessions.iter().cloned(),
            &mut files,
        )?;
        let links_end = self.seal_telemetry(batch.telemetry, &sealed, &mut files)?;
        let workers = read(&self.workers).rows_from(sealed.workers);
        let workers_end = sealed.workers + workers.len();
        self.put_list(TableName::Workers, workers, &mut files)?;

        let now = Second::first_from(self.clock.now());
        let ends = batch.windows.iter().map(|window| window.end());
        let windows_to = ends.filter(|end| *end <= now).max().unwrap_or_default();
        let published = self.publish(
            |manifest| {
                manifest.files.retain(|file| !file.table.is_replaced());
                manifest.files.append(&mut files);
                manifest.wal_from = batch.wal_from;
                manifest.windows_to = manifest.windows_to.max(windows_to);
                true
            },
            on_publish,
        )?;
        sealed.workers = workers_end;
        sealed.links = links_end;
        sealed.frames = frames.last().map_or(sealed.frames, |row| row.id.0 + 1);
        sealed.nodes = nodes.last().map_or(sealed.nodes.max(1), |row| row.id.0 + 1);
        Ok(published.expect("a sealing always makes a version"))
    }

    pub(crate) fn put_list<R: ListRow>(
        &self,
        table: TableName,
        rows: impl IntoIterator<Item = R>,
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        let mut writer = ListWriter::new(table);
        rows.into_iter().for_each(|row| writer.push(row));
        if let Some(file) = writer.finish() {
            files.push(self.put(table, 0, file)?);
        }
        Ok(())
    }

    /// Writes rows of seconds in every tier.
    pub(crate) fn put_tiers(
        &self,
        sum_table: SumTable,
        mut rows: Vec<Row>,
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        sort_and_sum(&mut rows);
        let seconds = rows
            .iter()
            .map(|row| Second(row.key.fields(Tier::Second).ts.0));
        let span = seconds.clone().min().zip(seconds.max());
        let mut tier = Tier::Second;
        loop {
            let same_row_tiers = same_row_tiers(span, tier);
            let mut writer = TierWriter::new(self, sum_table, tier, &same_row_tiers);
            rows.iter()
                .try_for_each(|row| writer.push(row.key.fields(tier), row.value))?;
            files.append(&mut writer.finish()?);
            let coarser = tier.coarser().filter(|_| same_row_tiers.is_empty());
            let Some(coarser) = coarser else {
                return Ok(());
            };
            roll_up(&mut rows, tier, coarser);
            tier = coarser;
        }
    }

    fn seal_tasks(
        &self,
        tasks: impl Iterator<Item = SealedTask>,
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        let mut days: BTreeMap<u32, Vec<SealedTask>> = BTreeMap::new();
        for task in tasks {
            days.entry(day_of_stop(&task)).or_default().push(task);
        }
        for mut tasks in days.into_values() {
            tasks.sort_by(compare_tasks);
            self.put_list(TableName::Tasks, tasks, files)?;
        }
        Ok(())
    }
}

/// Writes the rows of a table and tier, in order, and starts a new file where a partition ends; also the
/// files of coarser tiers with the same rows.
pub(crate) struct TierWriter<'a> {
    tables: &'a Tables,
    sum_table: SumTable,
    tier: Tier,
    same_row_tiers: &'a [SameRowTier],
    writer: SegmentWriter,
    /// The partition of the last row.
    partition: Option<u32>,
    files: Vec<FileEntry>,
}

impl<'a> TierWriter<'a> {
    pub(crate) fn new(
        tables: &'a Tables,
        sum_table: SumTable,
        tier: Tier,
        same_row_tiers: &'a [SameRowTier],
    ) -> TierWriter<'a> {
        TierWriter {
            tables,
            sum_table,
            tier,
            same_row_tiers,
            writer: SegmentWriter::with_tiers(sum_table, tier, same_row_tiers, Compression::Sealed),
            partition: None,
            files: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, fields: Fields, value: u64) -> Result<(), StoreError> {
        self.push_nodes(fields, &[(NodeId(fields.node), value)])
    }

    /// As [`SegmentWriter::push_nodes`].
    pub(crate) fn push_nodes(
        &mut self,
        fields: Fields,
        sums: &[(NodeId, u64)],
    ) -> Result<(), StoreError> {
        let partition = fields.ts.0 / self.tier.periods_in_file();
        let is_other = self
            .partition
            .replace(partition)
            .is_some_and(|last| last != partition);
        if is_other || self.writer.bytes_of_all() > SEALED_FILE_BYTES {
            let next = SegmentWriter::with_tiers(
                self.sum_table,
                self.tier,
                self.same_row_tiers,
                Compression::Sealed,
            );
            let full = std::mem::replace(&mut self.writer, next);
            self.put(full)?;
        }
        self.writer.push_nodes(fields, sums);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<Vec<FileEntry>, StoreError> {
        let empty = SegmentWriter::new(self.sum_table, self.tier, Compression::Sealed);
        let last = std::mem::replace(&mut self.writer, empty);
        self.put(last)?;
        Ok(self.files)
    }

    fn put(&mut self, writer: SegmentWriter) -> Result<(), StoreError> {
        for (tier, file) in writer.finish_all() {
            let table = TableName::Sums(self.sum_table, tier);
            self.files.push(self.tables.put(table, 0, file)?);
        }
        Ok(())
    }
}

/// The UTC day of a row of `tasks`, each of which has its own files.
fn day_of_stop(task: &SealedTask) -> u32 {
    let record = &task.row.record;
    Second::of(record.stop.unwrap_or(record.start)).0 / TASKS_FILE_SECONDS
}

/// The order of rows in `tasks`: by name, then by stop.
pub(crate) fn compare_tasks(a: &SealedTask, b: &SealedTask) -> Ordering {
    let order = |task: &SealedTask| {
        let TaskRow { epoch, record, .. } = &*task.row;
        (record.stop, *epoch, record.id, task.version)
    };
    let names = a.row.record.name.cmp(&b.row.record.name);
    names
        .then_with(|| order(a).cmp(&order(b)))
        .then_with(|| a.row.worker.cmp(&b.row.worker))
}

/// The last row of each task.
fn latest(tasks: &[Arc<TaskRow>]) -> Vec<Arc<TaskRow>> {
    let mut rows: KeyedMap<(&WorkerId, Epoch, TaskId), &Arc<TaskRow>> = KeyedMap::default();
    for task in tasks {
        rows.insert((&task.worker, task.epoch, task.record.id), task);
    }
    rows.into_values().cloned().collect()
}

/// The tiers coarser than `tier` whose rows differ from those of `tier` in `ts` alone, because one
/// period of `tier` contains all `seconds` (first and last). None if there are several such periods.
pub(crate) fn same_row_tiers(seconds: Option<(Second, Second)>, tier: Tier) -> Vec<SameRowTier> {
    let Some((first, last)) = seconds else {
        return Vec::new();
    };
    // Not every table has seconds.
    if tier == Tier::Second || tier.period(first) != tier.period(last) {
        return Vec::new();
    }
    let coarser = std::iter::successors(tier.coarser(), |tier| tier.coarser());
    coarser
        .map(|tier| SameRowTier {
            tier,
            period: tier.period(first),
        })
        .collect()
}

/// Changes rows of one tier to rows of a coarser one.
fn roll_up(rows: &mut Vec<Row>, from: Tier, to: Tier) {
    for row in rows.iter_mut() {
        let mut fields = row.key.fields(from);
        fields.ts = Period(fields.ts.0 / (to.seconds() / from.seconds()));
        row.key = Key::new(to, fields);
    }
    // The rows of a task that become one period are adjacent, so sorting each such part makes most sums
    // neighbors. Sorting all rows at once took most of the time of a sealing.
    for part in rows.chunk_by_mut(|a, b| a.key.of_task() == b.key.of_task()) {
        part.sort_unstable_by_key(|row| row.key);
    }
    sum_neighbors(rows);
    sort_and_sum(rows);
}
