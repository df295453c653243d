//! Sealing: one batch of what was received becomes rows of all tables, in one version.
//!
//! Each batch is whole in every tier, so nothing is ever rolled up later, and what comes late lands
//! in its true periods everywhere.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use profiler_core::{Epoch, Frame, FrameId, NodeId, PhaseInterval, TaskId, TaskTotals, WorkerId};
use rustc_hash::FxHashMap;

use super::error::StoreError;
use super::lists::{FrameRow, NodeRow, SealedTask};
use super::manifest::{FileEntry, Manifest};
use super::row::{Fields, Key, Row, sort_and_sum, sum_neighbours};
use super::segment::{Effort, ListRow, ListWriter, SegmentWriter};
use super::table::{Counting, TableName};
use super::tables::{Sealed, Swap, Tables};
use super::tier::{Period, Second, Tier};
use crate::ledger::{DurationRows, TaskNode, TaskNodes};
use crate::rows::{LostTask, SessionRecord, StoredWindow, TaskRow, TelemetryBatch};
use crate::sync::{lock, read, write};
use crate::tree::Tree;

/// Nodes and frames that are copied under one lock of the tree.
const GROWTH_AT_ONCE: u32 = 4_096;

/// Bytes of its row groups at which a file ends: it is in memory, with its twins, until then.
const SEALED_FILE_BYTES: usize = 8 << 20;

/// Seconds of stops in one file of `tasks`.
pub(super) const TASKS_FILE_SECONDS: u32 = 86_400;

/// What becomes part of the tables.
#[derive(Clone, Copy)]
pub(crate) struct Sealing<'a> {
    pub(crate) windows: &'a [Arc<StoredWindow>],
    /// That ended; a later row of a task replaces an earlier one.
    pub(crate) tasks: &'a [Arc<TaskRow>],
    /// That ended and have no rows.
    pub(crate) totals: &'a [Arc<TaskTotals>],
    /// All that run now.
    pub(crate) running: &'a [Arc<TaskRow>],
    /// All that are in tables as lost, whatever is told of them.
    pub(crate) settled: &'a [LostTask],
    /// All that are known now.
    pub(crate) sessions: &'a [SessionRecord],
    /// What was told beside samples and tasks.
    pub(crate) records: &'a TelemetryBatch,
    /// What the windows' nodes are of. Names of tasks that were never sampled are added to it.
    pub(crate) tree: &'a RwLock<Tree>,
    /// First file of the log that is needed once this is sealed.
    pub(crate) wal_from: u64,
}

impl Tables {
    /// As [`Tables::seal_and`], without a reader.
    #[cfg(test)]
    pub(crate) fn seal(&self, batch: Sealing<'_>) -> Result<Arc<Manifest>, StoreError> {
        self.seal_and(batch, &mut |_| {})
    }

    /// Seals a batch. Nothing of it is in the tables if this fails, and it may be tried again. `swap` sees the new version before another can be made: there a reader's
    /// view takes it and drops what was sealed.
    pub(crate) fn seal_and(
        &self,
        batch: Sealing<'_>,
        swap: &mut Swap<'_>,
    ) -> Result<Arc<Manifest>, StoreError> {
        let mut sealed = lock(&self.sealed);
        let tasks = latest(batch.tasks);
        let names = task_nodes(batch.tree, &tasks, batch.totals);
        let mut files = Vec::new();
        let Growth { frames, nodes, frames_end, nodes_end } = sealed.growth(batch.tree);
        self.put_list(TableName::Frames, frames, &mut files)?;
        self.put_list(TableName::Nodes, nodes, &mut files)?;
        self.seal_windows(batch.windows, &mut sealed.parts, &mut files)?;
        self.seal_durations((&tasks, batch.totals), &names, &mut files)?;
        // The next version's number, or a later one: enough to tell which row is the later.
        let version = self.manifest().version + 1;
        let list = |rows: &[Arc<TaskRow>]| {
            rows.iter().map(|row| SealedTask { row: row.clone(), version }).collect::<Vec<_>>()
        };
        self.seal_tasks(list(&tasks), &mut files)?;
        self.put_list(TableName::Running, list(batch.running), &mut files)?;
        self.put_list(TableName::Settled, batch.settled.to_vec(), &mut files)?;
        self.put_list(TableName::Sessions, batch.sessions.to_vec(), &mut files)?;
        let links_end = self.seal_records(batch.records, &sealed, &mut files)?;
        let workers = read(&self.workers).rows_from(sealed.workers);
        let workers_end = sealed.workers + workers.len();
        self.put_list(TableName::Workers, workers, &mut files)?;

        let published = self.publish(
            |manifest| {
                manifest.files.retain(|file| !file.table.is_replaced());
                manifest.files.append(&mut files);
                manifest.wal_from = batch.wal_from;
                true
            },
            swap,
        )?;
        (sealed.workers, sealed.frames, sealed.nodes) = (workers_end, frames_end, nodes_end);
        sealed.links = links_end;
        Ok(published.expect("a sealing always changes the version"))
    }

    pub(super) fn put_list<R: ListRow>(
        &self,
        table: TableName,
        rows: Vec<R>,
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        let mut writer = ListWriter::new(table);
        rows.into_iter().for_each(|row| writer.push(row));
        if let Some(written) = writer.finish() {
            files.push(self.put(table, 0, written)?);
        }
        Ok(())
    }

    /// Writes rows of seconds in every tier.
    pub(super) fn put_tiers(
        &self,
        counting: Counting,
        mut rows: Vec<Row>,
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        sort_and_sum(&mut rows);
        let seconds = rows.iter().map(|row| Second(row.key.fields(Tier::Second).ts.0));
        let seconds = (seconds.clone().min(), seconds.max());
        let mut tier = Tier::Second;
        loop {
            let twins = twins(seconds, tier);
            let mut writer = TierWriter::new(self, (counting, tier), &twins);
            rows.iter().try_for_each(|row| writer.push(row.key.fields(tier), row.value))?;
            files.append(&mut writer.finish()?);
            let Some(coarser) = tier.coarser().filter(|_| twins.is_empty()) else { return Ok(()) };
            roll_up(&mut rows, tier, coarser);
            tier = coarser;
        }
    }

    fn seal_durations(
        &self,
        (tasks, totals): (&[Arc<TaskRow>], &[Arc<TaskTotals>]),
        names: &TaskNodes,
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        let rows = tasks.iter().map(|row| &**row);
        let totals = totals.iter().map(|totals| &**totals);
        let DurationRows { counts, sums, phases, phase_sums } =
            DurationRows::of(rows, totals, names);
        self.put_tiers(Counting::Durations, counts, files)?;
        self.put_tiers(Counting::DurationSums, sums, files)?;
        self.put_tiers(Counting::Phases, phases, files)?;
        self.put_tiers(Counting::PhaseSums, phase_sums, files)
    }

    fn seal_tasks(
        &self,
        tasks: Vec<SealedTask>,
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

/// Writes the rows of a table and tier, in order, cut where a file ends; and those of its twins.
pub(super) struct TierWriter<'a> {
    tables: &'a Tables,
    counting: Counting,
    tier: Tier,
    /// Coarser tiers of which one period each holds all rows.
    twins: &'a [(Tier, Period)],
    writer: SegmentWriter,
    /// Of the last row: which file it belongs to.
    partition: Option<u32>,
    files: Vec<FileEntry>,
}

impl<'a> TierWriter<'a> {
    pub(super) fn new(
        tables: &'a Tables,
        (counting, tier): (Counting, Tier),
        twins: &'a [(Tier, Period)],
    ) -> TierWriter<'a> {
        let writer = new_file((counting, tier), twins);
        TierWriter { tables, counting, tier, twins, writer, partition: None, files: Vec::new() }
    }

    pub(super) fn push(&mut self, fields: Fields, value: u64) -> Result<(), StoreError> {
        self.push_nodes(fields, &[(NodeId(fields.node), value)])
    }

    /// As [`SegmentWriter::push_nodes`].
    pub(super) fn push_nodes(
        &mut self,
        fields: Fields,
        sums: &[(NodeId, u64)],
    ) -> Result<(), StoreError> {
        let partition = fields.ts.0 / self.tier.periods_in_file();
        let is_other = self.partition.replace(partition).is_some_and(|last| last != partition);
        if is_other || self.writer.bytes() > SEALED_FILE_BYTES {
            self.end_file()?;
        }
        self.writer.push_nodes(fields, sums);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Vec<FileEntry>, StoreError> {
        self.end_file()?;
        Ok(self.files)
    }

    fn end_file(&mut self) -> Result<(), StoreError> {
        let ended =
            std::mem::replace(&mut self.writer, new_file((self.counting, self.tier), self.twins));
        for (tier, written) in ended.finish_all() {
            self.files.push(self.tables.put(
                TableName::Counting(self.counting, tier),
                0,
                written,
            )?);
        }
        Ok(())
    }
}

fn new_file((counting, tier): (Counting, Tier), twins: &[(Tier, Period)]) -> SegmentWriter {
    SegmentWriter::new((counting, tier), Effort::Sealed).with_twins(twins, Effort::Sealed)
}

/// Which file of `tasks` a row belongs to.
fn day_of_stop(task: &SealedTask) -> u32 {
    let record = &task.row.record;
    Second::of(record.stop.unwrap_or(record.start)).0 / TASKS_FILE_SECONDS
}

/// The order of rows in `tasks`: by name, then by stop.
pub(super) fn compare_tasks(a: &SealedTask, b: &SealedTask) -> Ordering {
    let order = |task: &SealedTask| {
        let TaskRow { epoch, record, .. } = &*task.row;
        (record.stop, *epoch, record.id, task.version)
    };
    let (name_a, name_b) = (&a.row.record.name, &b.row.record.name);
    let workers = || a.row.worker.cmp(&b.row.worker);
    name_a.cmp(name_b).then_with(|| order(a).cmp(&order(b))).then_with(workers)
}

/// The last row of each task.
fn latest(tasks: &[Arc<TaskRow>]) -> Vec<Arc<TaskRow>> {
    let mut rows: FxHashMap<(&WorkerId, Epoch, TaskId), &Arc<TaskRow>> = FxHashMap::default();
    for task in tasks {
        rows.insert((&task.worker, task.epoch, task.record.id), task);
    }
    rows.into_values().cloned().collect()
}

/// The nodes of the tasks' names and phases; new ones where they were never sampled.
fn task_nodes(
    tree: &RwLock<Tree>,
    tasks: &[Arc<TaskRow>],
    totals: &[Arc<TaskTotals>],
) -> TaskNodes {
    fn phases(task: &TaskRow) -> &[PhaseInterval] {
        task.record.detail.as_ref().map_or(&[], |detail| &detail.phases)
    }
    let rows = tasks.iter().map(|task| (&task.record.name, phases(task)));
    let sums = totals.iter().map(|totals| (&totals.name, &totals.phases[..]));
    let mut nodes = TaskNodes::default();
    let mut tree = write(tree);
    // It stands for nodes whose file is lost: so it must be in a table.
    tree.symbols.intern(&Frame::overflow());
    for (name, phases) in rows.chain(sums) {
        if !nodes.contains_key(name) {
            let node = tree.task_node(name);
            nodes.insert(name.clone(), TaskNode { node, phases: FxHashMap::default() });
        }
        let task = nodes.get_mut(name).expect("it was put there");
        for phase in phases {
            if !task.phases.contains_key(&phase.name) {
                let node = tree.phase_node(task.node, &phase.name);
                task.phases.insert(phase.name.clone(), node);
            }
        }
    }
    nodes
}

/// The tiers coarser than `tier`, and the one period of each that holds all of what is in one period
/// of `tier`: from the first to the last second. None if that is more than one.
pub(super) fn twins(
    (first, last): (Option<Second>, Option<Second>),
    tier: Tier,
) -> Vec<(Tier, Period)> {
    let (Some(first), Some(last)) = (first, last) else { return Vec::new() };
    // Not every table has seconds.
    if tier == Tier::Second || tier.period(first) != tier.period(last) {
        return Vec::new();
    }
    let coarser = std::iter::successors(tier.coarser(), |tier| tier.coarser());
    coarser.map(|tier| (tier, tier.period(first))).collect()
}

/// Makes rows of one tier those of the next coarser one.
fn roll_up(rows: &mut Vec<Row>, from: Tier, to: Tier) {
    for row in rows.iter_mut() {
        let mut fields = row.key.fields(from);
        fields.ts = Period(fields.ts.0 / (to.seconds() / from.seconds()));
        row.key = Key::new(to, fields);
    }
    // What of a task becomes one period stood together, so most sums are made of neighbours; to sort
    // all at once took most of the time of a sealing.
    for part in rows.chunk_by_mut(|a, b| a.key.of_task() == b.key.of_task()) {
        part.sort_unstable_by_key(|row| row.key);
    }
    sum_neighbours(rows);
    sort_and_sum(rows);
}

impl Sealed {
    /// What the tree has and the tables have not, copied in pieces so that its lock is never held
    /// for long.
    fn growth(&self, tree: &RwLock<Tree>) -> Growth {
        let (first_node, mut frames_end) = (self.nodes.max(1), self.frames);
        let (mut frames, mut nodes) = (Vec::new(), Vec::new());
        let mut next_node = first_node;
        // Nodes first: their frames are older, so they are there when frames are copied.
        loop {
            let tree = read(tree);
            let end = tree.node_count().min(next_node.saturating_add(GROWTH_AT_ONCE));
            if end <= next_node {
                break;
            }
            for id in (next_node..end).map(NodeId) {
                let (parent, frame) = tree.trie.node(id).expect("only node 0 is the root");
                nodes.push(NodeRow { id, parent, frame });
            }
            next_node = end;
        }
        loop {
            let tree = read(tree);
            let end = tree.symbols.frame_count().min(frames_end.saturating_add(GROWTH_AT_ONCE));
            if end <= frames_end {
                break;
            }
            let ids = (frames_end..end).map(FrameId);
            frames.extend(ids.map(|id| FrameRow { id, frame: frame_of(&tree, id) }));
            frames_end = end;
        }
        Growth { frames, nodes, frames_end, nodes_end: next_node }
    }
}

/// What the tree has and the tables have not.
struct Growth {
    frames: Vec<FrameRow>,
    nodes: Vec<NodeRow>,
    frames_end: u32,
    nodes_end: u32,
}

/// A frame with the tree's own texts.
fn frame_of(tree: &Tree, id: FrameId) -> Frame {
    let Frame { kind, function, file, line, module, build_id, offset, inlined } =
        *tree.symbols.frame_ids(id);
    let text = |id| tree.string(id).clone();
    let (function, file) = (text(function), text(file));
    let (module, build_id) = (text(module), text(build_id));
    Frame { kind, function, file, line, module, build_id, offset, inlined }
}
