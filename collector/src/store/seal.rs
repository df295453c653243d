//! Sealing: one batch of what was received becomes rows of all tables, in one version.
//!
//! Each batch is whole in every tier, so nothing is ever rolled up later, and what comes late lands
//! in its true periods everywhere.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use profiler_core::{
    Delta, Epoch, Frame, FrameId, NodeId, PhaseInterval, TaskId, TaskTotals, WorkerId,
};
use rustc_hash::FxHashMap;

use super::error::StoreError;
use super::lists::{FrameRow, NodeRow, SealedTask, SessionRecord};
use super::manifest::{FileEntry, Manifest};
use super::row::{
    Fields, Key, Row, TierRows, WorkerNumber, over_workers, sort_and_sum, sum_neighbours,
    without_nodes,
};
use super::segment::{Effort, ListRow, ListWriter, SegmentWriter};
use super::table::{Counting, Measure, TableName};
use super::tables::{Sealed, Swap, Tables};
use super::tier::{Period, Second, Tier};
use crate::hot::StoredWindow;
use crate::ledger::{DurationRows, SettledTask, TaskNode, TaskNodes, TaskRow};
use crate::records::RecordSealing;
use crate::sync::{lock, read, write};
use crate::tree::Tree;

/// Nodes and frames that are copied under one lock of the tree.
const GROWTH_AT_ONCE: u32 = 4_096;

/// Rows of seconds that are sorted at once, about: what comes in until a sealing is due fits, and
/// where sealing fell behind, its memory does not grow with what waits.
const SEAL_ROWS_MAX: usize = 3 << 20;

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
    pub(crate) settled: &'a [SettledTask],
    /// All that are known now.
    pub(crate) sessions: &'a [SessionRecord],
    /// What was told beside samples and tasks.
    pub(crate) records: &'a RecordSealing,
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
        for windows in slices(batch.windows, SEAL_ROWS_MAX) {
            self.seal_windows(windows, &mut sealed, &mut files)?;
        }
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

    /// Writes the rows of a table and tier, which are in order, cut where a file ends; and those of
    /// `twins`, coarser tiers of which one period each holds all rows.
    fn put_rows(
        &self,
        (counting, tier): (Counting, Tier),
        twins: &[(Tier, Period)],
        rows: impl Iterator<Item = Row>,
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        let begin = || {
            SegmentWriter::new((counting, tier), Effort::Sealed).with_twins(twins, Effort::Sealed)
        };
        let mut put = |writer: SegmentWriter| {
            for (tier, written) in writer.finish_all() {
                files.push(self.put(TableName::Counting(counting, tier), 0, written)?);
            }
            Ok::<_, StoreError>(())
        };
        let (mut writer, mut last) = (begin(), None);
        for row in rows {
            let partition = row.key.fields(tier).ts.0 / tier.periods_in_file();
            if last.replace(partition).is_some_and(|last| last != partition) {
                put(std::mem::replace(&mut writer, begin()))?;
            }
            writer.push(row);
        }
        put(writer)
    }

    fn seal_windows(
        &self,
        windows: &[Arc<StoredWindow>],
        sealed: &mut Sealed,
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        let workers = &self.number_workers(windows)?;
        let number = move |stored: &StoredWindow| workers[&stored.window.worker];
        let numbered = || windows.iter().map(move |stored| (stored, number(stored)));
        let tasks = &sealed.tasks;
        let rows = || {
            numbered().flat_map(move |(stored, worker)| {
                delta_rows((stored.second(), worker), &stored.window.delta, tasks)
            })
        };
        let count = windows.iter().map(|stored| stored.window.delta.entries().len()).sum();
        let seconds = windows.iter().map(|stored| stored.second());
        let seconds = (seconds.clone().min(), seconds.max());
        let mut rows = TierRows::of((rows, count), &mut sealed.row_buffers);
        let mut tier = Tier::Second;
        loop {
            let twins = twins(seconds, tier);
            self.put_rows((Counting::Samples, tier), &twins, rows.iter(), files)?;
            let totals = without_nodes(rows.iter()).into_iter();
            self.put_rows((Counting::Totals, tier), &twins, totals, files)?;
            if Counting::SamplesAll.has(tier) {
                let all = over_workers(rows.iter()).into_iter();
                self.put_rows((Counting::SamplesAll, tier), &twins, all, files)?;
            }
            let Some(coarser) = tier.coarser().filter(|_| twins.is_empty()) else { break };
            rows.roll_up(tier, coarser);
            tier = coarser;
        }
        let cycles = numbered().flat_map(|(stored, worker)| cycle_rows(stored, worker));
        self.put_tiers(Counting::Cycles, cycles.collect(), files)?;
        let threads = numbered().flat_map(|(stored, worker)| {
            delta_rows((stored.second(), worker), &stored.threads, &sealed.tasks)
        });
        self.put_tiers(Counting::Threads, threads.collect(), files)
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
            self.put_rows((counting, tier), &twins, rows.iter().copied(), files)?;
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

    /// The numbers of the windows' workers; new ones where they have none.
    fn number_workers(
        &self,
        windows: &[Arc<StoredWindow>],
    ) -> Result<FxHashMap<WorkerId, WorkerNumber>, StoreError> {
        let mut workers = write(&self.workers);
        let mut numbers = FxHashMap::default();
        for stored in windows {
            let worker = &stored.window.worker;
            if !numbers.contains_key(worker) {
                numbers.insert(worker.clone(), workers.give(worker)?);
            }
        }
        Ok(numbers)
    }
}

/// The windows one after the other, each part of at most `rows_max` rows, or of one window.
fn slices(
    mut windows: &[Arc<StoredWindow>],
    rows_max: usize,
) -> impl Iterator<Item = &[Arc<StoredWindow>]> {
    std::iter::from_fn(move || {
        let mut rows = 0;
        let fits = |stored: &Arc<StoredWindow>| {
            rows += stored.window.delta.entries().len() + stored.threads.entries().len();
            rows <= rows_max
        };
        let count = windows.iter().map(fits).take_while(|fits| *fits).count().max(1);
        let (slice, rest) = windows.split_at_checked(count)?;
        windows = rest;
        Some(slice)
    })
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
fn twins((first, last): (Option<Second>, Option<Second>), tier: Tier) -> Vec<(Tier, Period)> {
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

fn cycle_rows(stored: &StoredWindow, worker: WorkerNumber) -> impl Iterator<Item = Row> {
    let ts = Period(Second::of(stored.window.range.start()).0);
    let ticks = stored.ticks;
    let length_ns = stored.window.range.length_ns();
    let rows = Measure::ALL.into_iter().map(move |measure| {
        let value = match measure {
            Measure::Windows => 1,
            Measure::SampledNs => length_ns,
            Measure::Ticks => ticks.made,
            Measure::TicksExpected => ticks.expected,
            Measure::TicksSaved => ticks.saved,
        };
        let fields = Fields { ts, task: NodeId::ROOT, worker, kind: measure as u8, node: 0 };
        Row { key: Key::new(Tier::Second, fields), value }
    });
    rows.filter(|row| row.value > 0)
}

/// What a window has counted, of the second to which it counts.
fn delta_rows<'a>(
    (second, worker): (Second, WorkerNumber),
    delta: &'a Delta,
    tasks: &'a [u32],
) -> impl Iterator<Item = Row> + 'a {
    delta.entries().iter().map(move |(node, state, value)| {
        let (ts, task) = (Period(second.0), NodeId(tasks[node.index()]));
        let fields = Fields { ts, task, worker, kind: *state as u8, node: node.0 };
        Row { key: Key::new(Tier::Second, fields), value: *value }
    })
}

impl Sealed {
    /// Notes the first-level nodes of the next nodes, by their parents.
    pub(super) fn note_nodes(&mut self, parents: impl Iterator<Item = NodeId>) {
        if self.tasks.is_empty() {
            self.tasks.push(NodeId::ROOT.0);
        }
        for parent in parents {
            let id = u32::try_from(self.tasks.len()).expect("ids have 32 bits");
            let above = self.tasks[parent.index()];
            self.tasks.push(if parent == NodeId::ROOT { id } else { above });
        }
    }

    /// What the tree has and the tables have not, copied in pieces so that its lock is never held
    /// for long.
    fn growth(&mut self, tree: &RwLock<Tree>) -> Growth {
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
        // A sealing that failed noted some of them.
        self.tasks.truncate(first_node as usize);
        self.note_nodes(nodes.iter().map(|node| node.parent));
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

#[cfg(test)]
mod tests {
    use profiler_core::{State, Ticks, Timestamp, Window};

    use super::*;
    use crate::testing::range;

    #[test]
    fn windows_are_sealed_in_parts_of_so_many_rows_or_one_by_one() {
        let check = |rows: &[u32], expected: &[usize]| {
            let windows: Vec<_> = rows.iter().map(|rows| Arc::new(window(*rows))).collect();
            let counts: Vec<usize> = slices(&windows, 4).map(<[_]>::len).collect();
            assert_eq!(counts, expected, "{rows:?}");
        };
        check(&[], &[]);
        check(&[1], &[1]);
        check(&[2, 2, 1], &[2, 1]);
        check(&[0, 4, 0, 1, 3, 4], &[3, 2, 1]);
        check(&[9, 1, 9, 9], &[1, 1, 1, 1]);
    }

    fn window(rows: u32) -> StoredWindow {
        let delta = (1..=rows).map(|node| (NodeId(node), State::Cpu, 1)).collect();
        let worker = WorkerId("w".into());
        StoredWindow {
            window: Window { worker, range: range(0, 1), delta },
            threads: profiler_core::Delta::default(),
            epoch: Epoch(1),
            raw_start: Timestamp::default(),
            clock_error_ns: 0,
            ticks: Ticks::default(),
        }
    }
}
