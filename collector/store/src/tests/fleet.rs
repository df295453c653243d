//! A fleet whose data is sealed, and a slow, obvious model of the rows that its tables must have.

mod telemetry;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use profiler_core::{
    Direction, Epoch, ExpectedTasks, Frame, NodeId, Outcome, PhaseInterval, Resource,
    ResourceSample, RunId, RunMarker, State, TaskDetail, TaskId, TaskRecord, TaskTotals, Ticks,
    TimeRange, Timestamp, TransferEvent, TransferId, WorkerId,
};
use proptest::prelude::*;

use self::telemetry::{detail, phase, phases_of, sample_of, transfer_of};
use super::super::load::StoredState;
use super::super::segment::{self, ListRow, Scan};
use super::super::tables::{Tables, TaskScan};
use super::tree::TestTree;
use crate::lists::list_scan::RowScan;
use crate::packed::PackedWeights;
use crate::rows::{
    AgentInfo, Disconnect, DisconnectReason, ExpectedRow, LostTask, ResourceRow, RunRow,
    SessionRecord, StoredWindow, TaskRow, TelemetryBatch, TransferRow,
};
use crate::seal::SealBatch;
use crate::sums::table::{Column, Measure, SumTable, TableName};
use crate::sums::task_sums::task_nodes;
use crate::sums::tier::{Period, Tier};

pub(crate) const START_S: u32 = 1_700_000_000;

/// Node, state and nanoseconds.
type Counted = (u32, u8, u64);

/// The data of one sealing: windows as (second, worker, entries), tasks as (stop, worker, id,
/// name, milliseconds).
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub windows: Vec<(u32, u32, Vec<Counted>)>,
    pub tasks: Vec<(u32, u32, u64, u32, u32)>,
}

/// Mostly of one minute, sometimes days late.
pub(crate) fn batch() -> impl Strategy<Value = Batch> {
    let second = prop_oneof![8 => 172_800..172_860u32, 1 => 0..200_000u32];
    let entries = prop::collection::vec((0..40u32, 0..7u8, 1..1_000u64), 0..12);
    let windows = prop::collection::vec((second.clone(), 0..4u32, entries), 0..12);
    let task = (second, 0..4u32, 1..30u64, 0..6u32, 0..5_000u32);
    (windows, prop::collection::vec(task, 0..12))
        .prop_map(|(windows, tasks)| Batch { windows, tasks })
}

/// Windows, tasks and sums.
type SealedParts<'a> = (
    &'a [Arc<StoredWindow>],
    &'a [Arc<TaskRow>],
    &'a [Arc<TaskTotals>],
);

/// Key of a row: table, tier, period, task, worker, kind, node.
type Numbers = (SumTable, Tier, u32, u32, u32, u8, u32);

pub(crate) struct Fleet {
    pub(super) tree: TestTree,
    nodes: Vec<NodeId>,
    /// A thread of each node's task.
    threads: Vec<NodeId>,
    /// All sealed windows, and the latest row of each sealed task.
    windows: Vec<Arc<StoredWindow>>,
    tasks: Vec<Arc<TaskRow>>,
    totals: Vec<Arc<TaskTotals>>,
    sealings: u64,
    /// Number of windows, tasks and sums after each sealing.
    marks: Vec<(usize, usize, usize)>,
}

impl Fleet {
    pub(crate) fn new() -> Fleet {
        let mut tree = TestTree::new();
        let mut nodes = Vec::new();
        let mut threads = Vec::new();
        for index in 0..40 {
            let task = tree
                .symbols
                .intern(&Frame::task(&format!("task-{}", index % 4)));
            let mut node = tree.trie.insert(NodeId::ROOT, task).unwrap();
            let thread = tree.symbols.intern(&Frame::thread("pool", index));
            threads.push(tree.trie.insert(node, thread).unwrap());
            for depth in 0..index % 5 {
                let name = format!("function-{}", index * depth % 7);
                let frame = tree
                    .symbols
                    .intern(&Frame::function(&name, "src/a.rs", depth));
                node = tree.trie.insert(node, frame).unwrap();
            }
            nodes.push(node);
        }
        let (windows, tasks, totals) = Default::default();
        let sealings = 0;
        let marks = vec![(0, 0, 0)];
        Fleet {
            tree,
            nodes,
            threads,
            windows,
            tasks,
            totals,
            sealings,
            marks,
        }
    }

    fn windows(&self, batch: &Batch) -> Vec<Arc<StoredWindow>> {
        let window = |(second, worker, entries): &(u32, u32, Vec<(u32, u8, u64)>)| {
            let start = Timestamp::from_unix_ns(i64::from(START_S + second) * 1_000_000_000 + 7);
            let of = |nodes: &[NodeId]| {
                let entries = entries.iter().map(|(node, state, value)| {
                    (
                        nodes[*node as usize],
                        State::ALL[usize::from(*state)],
                        *value,
                    )
                });
                PackedWeights::of(entries, 1, |node| self.tree.task_of(node))
            };
            Arc::new(StoredWindow {
                worker: WorkerId(format!("worker-{worker}").into()),
                range: TimeRange::new(start, start.shifted(1_500_000_000)).unwrap(),
                samples: of(&self.nodes),
                epoch: Epoch(9),
                raw_start: start,
                clock_error_ns: 3,
                ticks: Ticks {
                    made: 95,
                    expected: 100,
                    throttled: 4,
                },
                threads: of(&self.threads),
            })
        };
        batch.windows.iter().map(window).collect()
    }

    fn tasks(batch: &Batch) -> Vec<Arc<TaskRow>> {
        let task = |(stop, worker, id, name, milliseconds): &(u32, u32, u64, u32, u32)| {
            let stop = Timestamp::from_unix_ns(i64::from(START_S + stop) * 1_000_000_000);
            let record = TaskRecord {
                id: TaskId(*id),
                name: format!("task-{name}").into(),
                key: format!("task-{name}-{id}").into(),
                thread_id: 12,
                thread_name: "pool-1".into(),
                parent: (id % 2 == 0).then_some(TaskId(id / 2)),
                start: stop.shifted(-i64::from(*milliseconds) * 1_000_000),
                stop: Some(stop),
                outcome: Outcome::ALL[1 + (*id % 5) as usize],
                cause: "".into(),
                detail: detail(*id, *milliseconds),
            };
            let worker = WorkerId(format!("worker-{worker}").into());
            Arc::new(TaskRow {
                worker,
                epoch: Epoch(9),
                record,
            })
        };
        batch.tasks.iter().map(task).collect()
    }

    /// Sums of three tasks for each fourth task.
    fn totals(batch: &Batch) -> Vec<Arc<TaskTotals>> {
        let rows = Fleet::tasks(batch)
            .into_iter()
            .filter(|row| row.record.id.0 % 4 == 1);
        rows.map(sum).collect()
    }

    fn session(&self) -> SessionRecord {
        SessionRecord {
            worker: WorkerId("worker-1".into()),
            epoch: Epoch(u64::MAX),
            agent: Arc::new(AgentInfo {
                labels: [("zone".to_owned(), "\"a\"\n".to_owned())].into(),
                host: "host".into(),
                pid: 77,
                ..AgentInfo::default()
            }),
            acked_seq: self.sealings,
            stored_ns: u64::MAX,
            ticks: Ticks {
                made: 1,
                expected: 2,
                throttled: 3,
            },
            account: (self.sealings % 2 == 1).then_some(profiler_core::wire::v1::LossAccount {
                accepted_ns: 1,
                lost_rejected_ns: 2,
                lost_by_collector_ns: 3,
                lost_tasks: 4,
                lost_queue_ns: 5,
                lost_telemetry: 6,
                aggregated_tasks: 7,
                lost_unseen_ns: 0,
            }),
            clock: (self.sealings % 3 == 1).then_some(profiler_core::wire::v1::Clock {
                offset_ns: -5,
                error_ns: 6,
            }),
            first_seen: Timestamp::from_unix_ns(5_000_000_000),
            last_seen: Timestamp::MAX,
            disconnect: (self.sealings % 2 == 1).then_some(Disconnect {
                at: Timestamp::from_unix_ns(6_000_000_000),
                reason: DisconnectReason::Silent,
            }),
        }
    }

    fn running(&self) -> Arc<TaskRow> {
        let batch = Batch {
            windows: Vec::new(),
            tasks: vec![(1, 1, self.sealings + 100, 2, 3)],
        };
        let mut row = TaskRow::clone(&Fleet::tasks(&batch)[0]);
        (row.record.stop, row.record.outcome) = (None, Outcome::Running);
        Arc::new(row)
    }

    fn lost_task(&self) -> LostTask {
        let worker = WorkerId("worker-1".into());
        let stop = Timestamp::from_unix_ns(5_000_000_000);
        LostTask {
            worker,
            epoch: Epoch(9),
            id: TaskId(self.sealings),
            stop,
        }
    }

    /// A transfer and a sample for each window; one row for each table that sealings replace.
    fn telemetry(&self, windows: &[Arc<StoredWindow>]) -> TelemetryBatch {
        TelemetryBatch {
            transfers: windows.iter().map(transfer_of).collect(),
            samples: windows.iter().map(sample_of).collect(),
            runs: vec![Arc::new(self.run())],
            expected: vec![self.expected()],
        }
    }

    fn run(&self) -> RunRow {
        let name = "nightly".into();
        let start = Timestamp::from_unix_ns(5_000_000_000);
        let run = RunMarker {
            id: RunId(self.sealings + 1),
            name,
            start,
            stop: None,
        };
        RunRow::marked(None, Epoch(0), run)
    }

    fn expected(&self) -> ExpectedRow {
        let worker = WorkerId("worker-1".into());
        let since = Timestamp::from_unix_ns(-1);
        let expected = ExpectedTasks {
            name: "task-1".into(),
            total: self.sealings,
            since,
        };
        ExpectedRow {
            worker,
            epoch: Epoch(9),
            expected,
        }
    }

    /// Tries to seal a batch. On success the model includes it.
    pub(crate) fn try_seal(
        &mut self,
        tables: &Tables,
        batch: &Batch,
    ) -> Result<(), super::super::error::StoreError> {
        let windows = self.windows(batch);
        let tasks = Fleet::tasks(batch);
        let totals = Fleet::totals(batch);
        self.sealings += 1;
        let task_nodes = task_nodes(&mut self.tree, &tasks, &totals);
        let batch = SealBatch {
            windows: &windows,
            tasks: &tasks,
            totals: &totals,
            task_nodes: &task_nodes,
            running: &[self.running()],
            lost_tasks: &[self.lost_task()],
            sessions: &[self.session()],
            telemetry: &self.telemetry(&windows),
            tree: &self.tree.unsealed(tables.sealed_tree()),
            wal_from: self.sealings,
        };
        let sealed = tables.seal(batch, &mut |_| {});
        if let Err(error) = sealed {
            self.sealings -= 1;
            return Err(error);
        }
        assert_eq!(tables.manifest().wal_from, self.sealings);
        self.note(windows, tasks, totals);
        Ok(())
    }

    fn note(
        &mut self,
        windows: Vec<Arc<StoredWindow>>,
        tasks: Vec<Arc<TaskRow>>,
        totals: Vec<Arc<TaskTotals>>,
    ) {
        self.windows.extend(windows);
        let mut latest = BTreeMap::new();
        tasks
            .into_iter()
            .for_each(|task| drop(latest.insert(task_key(&task), task)));
        self.tasks.extend(latest.into_values());
        self.totals.extend(totals);
        self.marks
            .push((self.windows.len(), self.tasks.len(), self.totals.len()));
    }

    /// Adds a batch to the model that an earlier fleet has sealed.
    pub(crate) fn pretend(&mut self, batch: &Batch) {
        let windows = self.windows(batch);
        let tasks = Fleet::tasks(batch);
        let totals = Fleet::totals(batch);
        task_nodes(&mut self.tree, &tasks, &totals);
        self.sealings += 1;
        self.note(windows, tasks, totals);
    }

    pub(crate) fn seal(&mut self, tables: &Tables, batch: &Batch) {
        self.try_seal(tables, batch).unwrap();
    }

    /// The data that the newest version must have.
    fn sealed(&self, tables: &Tables) -> SealedParts<'_> {
        let (windows, tasks, totals) = self.marks[tables.manifest().wal_from as usize];
        (
            &self.windows[..windows],
            &self.tasks[..tasks],
            &self.totals[..totals],
        )
    }

    /// The sums of all rows that the tables must have.
    fn model(&self, tables: &Tables) -> BTreeMap<Numbers, u64> {
        let (windows, tasks, totals) = self.sealed(tables);
        let mut sums = BTreeMap::new();
        let mut add = |key: Numbers, value: u64| *sums.entry(key).or_default() += value;
        let tree = &self.tree;
        let task_of = |node: NodeId| tree.task_of(node).0;
        for tier in Tier::ALL {
            for stored in windows {
                let second = u32::try_from(stored.range.start().second()).unwrap();
                let ts = second / tier.seconds();
                let worker = tables.worker_number(&stored.worker).unwrap().0;
                for (node, state, value) in stored.samples.entries() {
                    let task = task_of(node);
                    let kind = state as u8;
                    add(
                        (SumTable::Samples, tier, ts, task, worker, kind, node.0),
                        value,
                    );
                    add((SumTable::Totals, tier, ts, task, worker, kind, 0), value);
                    if tier > Tier::Second {
                        add(
                            (SumTable::SamplesAll, tier, ts, task, 0, kind, node.0),
                            value,
                        );
                    }
                }
                for (node, state, value) in stored.threads.entries() {
                    let task = task_of(node);
                    let kind = state as u8;
                    add(
                        (SumTable::Threads, tier, ts, task, worker, kind, node.0),
                        value,
                    );
                }
                let facts = [
                    (Measure::Windows, 1),
                    (Measure::SampledNs, 1_500_000_000),
                    (Measure::Ticks, 95),
                    (Measure::TicksExpected, 100),
                    (Measure::TicksThrottled, 4),
                ];
                for (measure, value) in facts {
                    add(
                        (SumTable::Cycles, tier, ts, 0, worker, measure as u8, 0),
                        value,
                    );
                }
            }
            for transfer in windows.iter().map(transfer_of) {
                let record = &transfer.record;
                let ts = u32::try_from(record.stop.second()).unwrap() / tier.seconds();
                let link = (record.peer.clone(), record.type_name.clone());
                let link = tables
                    .links()
                    .iter()
                    .position(|known| *known == link)
                    .unwrap();
                let worker = tables.worker_number(&transfer.worker).unwrap().0;
                let kind = u8::from(record.direction == Direction::Outgoing);
                let duration = record.stop.since_ns(record.start);
                let rate = record.bytes * 1_000_000_000 / duration;
                let facts = [
                    (0, 1),
                    (1, u64::from(record.outcome == Outcome::Failed)),
                    (2, record.bytes),
                    (3, record.compressed_bytes.unwrap_or(record.bytes)),
                    (4, duration),
                    (65_536 + profiler_core::bucket::bucket(duration), 1),
                    (131_072 + profiler_core::bucket::bucket(rate), 1),
                ];
                for (measure, value) in facts {
                    let link = u32::try_from(link + 1).unwrap();
                    add(
                        (
                            SumTable::TransferSums,
                            tier,
                            ts,
                            link,
                            worker,
                            kind,
                            measure,
                        ),
                        value,
                    );
                }
            }
            let node_of = |parent: NodeId, frame: &Frame<&str>| {
                let frame = tree.symbols.find(frame).unwrap();
                (1..tree.trie.node_count())
                    .find(|node: &u32| tree.trie.node(NodeId(*node)) == Some((parent, frame)))
                    .unwrap()
            };
            for sum in totals {
                let ts = u32::try_from(sum.second.second()).unwrap() / tier.seconds();
                let node = node_of(NodeId::ROOT, &Frame::task(&sum.name));
                let phase = node_of(NodeId(node), &Frame::phase("serialize"));
                let key = |sum_table, at| (sum_table, tier, ts, node, 0, Outcome::Ok as u8, at);
                add(key(SumTable::Durations, 7), 1);
                add(key(SumTable::Durations, 9_000), 2);
                add(key(SumTable::DurationSums, 0), sum.duration_ns);
                add(key(SumTable::Phases, node), 3);
                add(key(SumTable::Phases, phase), 2);
                add(key(SumTable::PhaseSums, phase), sum.duration_ns / 3);
                add(key(SumTable::PhaseSums, node), sum.duration_ns / 3);
            }
            for task in tasks {
                let record = &task.record;
                let second = u32::try_from(record.stop.unwrap().second()).unwrap();
                let node = node_of(NodeId::ROOT, &Frame::task(&record.name));
                let duration = task.duration_ns().unwrap();
                let key = |sum_table, bucket| {
                    let ts = second / tier.seconds();
                    (sum_table, tier, ts, node, 0, record.outcome as u8, bucket)
                };
                add(
                    key(SumTable::Durations, profiler_core::bucket::bucket(duration)),
                    1,
                );
                add(key(SumTable::DurationSums, 0), duration);
                for phase in phases_of(task)
                    .iter()
                    .filter(|phase| &*phase.name != "execute")
                {
                    let at = node_of(NodeId(node), &Frame::phase(&phase.name));
                    add(key(SumTable::Phases, at), phase.count.into());
                    add(key(SumTable::PhaseSums, at), phase.duration_ns);
                    let inside = if phase.start_ns < 0 {
                        0
                    } else {
                        phase.duration_ns
                    };
                    add(key(SumTable::PhaseSums, node), inside);
                }
            }
        }
        sums.retain(|_, value| *value > 0);
        sums
    }

    /// Checks that all tables have the sealed data, and no more.
    pub(crate) fn check(&self, tables: &Tables) {
        let mut sums = rows(tables);
        sums.retain(|_, value| *value > 0);
        assert_eq!(sums, self.model(tables));
        let (_, tasks, _) = self.sealed(tables);
        let latest: BTreeMap<_, _> = tasks
            .iter()
            .map(|task| (task_key(task), task.clone()))
            .collect();
        assert_eq!(latest_tasks(tables), latest);
        let expected_rows = |of: fn(&Arc<StoredWindow>) -> String| {
            let mut expected_rows: Vec<String> = self.sealed(tables).0.iter().map(of).collect();
            expected_rows.sort_unstable();
            expected_rows
        };
        let transfers = list::<Arc<TransferRow>>(tables, TableName::Transfers, ["start", "stop"]);
        assert_eq!(
            transfers,
            expected_rows(|stored| format!("{:?}", transfer_of(stored)))
        );
        let samples = list::<Arc<ResourceRow>>(tables, TableName::Resources, ["sampled_at"; 2]);
        assert_eq!(
            samples,
            expected_rows(|stored| format!("{:?}", sample_of(stored)))
        );
    }

    /// Checks the state that is loaded when a store is opened.
    pub(crate) fn check_loaded(&self, loaded: &StoredState) {
        let tree = &self.tree;
        let frames: Vec<_> = (0..tree.symbols.frame_count())
            .map(profiler_core::FrameId)
            .map(|id| tree.symbols.frame(id).map(Arc::<str>::from))
            .collect();
        assert_eq!(loaded.frames, frames);
        let nodes = (1..tree.trie.node_count()).map(|id| tree.trie.node(NodeId(id)).unwrap());
        assert_eq!(loaded.nodes, nodes.collect::<Vec<_>>());
        let workers: BTreeSet<_> = self.windows.iter().map(|stored| &stored.worker).collect();
        assert_eq!(loaded.workers.iter().collect::<BTreeSet<_>>(), workers);
        assert_eq!(loaded.workers.len(), workers.len());
        assert_eq!(loaded.sessions, [before(self.sealings).session()]);
        assert_eq!(loaded.running, [before(self.sealings).running()]);
        assert_eq!(loaded.lost_tasks, [before(self.sealings).lost_task()]);
        assert_eq!(loaded.runs, [before(self.sealings).run()]);
        assert_eq!(loaded.expected, [before(self.sealings).expected()]);
        assert_eq!(loaded.manifest.wal_from, self.sealings);
    }
}

fn before(sealings: u64) -> Fleet {
    Fleet {
        sealings,
        ..Fleet::new()
    }
}

fn sum(row: Arc<TaskRow>) -> Arc<TaskTotals> {
    let duration_ns = row.duration_ns().unwrap() * 3;
    Arc::new(TaskTotals {
        name: row.record.name.clone(),
        outcome: Outcome::Ok,
        second: row.record.stop.unwrap(),
        duration_ns,
        buckets: vec![(7, 1), (9_000, 2)],
        phases: vec![phase("serialize", 0, duration_ns / 3, 2)],
    })
}

/// All rows of a list in debug format, sorted.
fn list<R: ListRow + std::fmt::Debug>(
    tables: &Tables,
    table: TableName,
    columns: [&'static str; 2],
) -> Vec<String> {
    let scan = RowScan {
        columns,
        span_ns: i64::MIN..i64::MAX,
        worker: None,
    };
    let mut rows = Vec::new();
    for file in tables.manifest().files_of(table) {
        tables
            .list_rows(file, &scan, &mut |group: Vec<R>| {
                rows.extend(group.iter().map(|row| format!("{row:?}")));
                ControlFlow::Continue(())
            })
            .unwrap();
    }
    rows.sort_unstable();
    rows
}

type TaskKey = (WorkerId, Epoch, TaskId);

fn task_key(task: &TaskRow) -> TaskKey {
    (task.worker.clone(), task.epoch, task.record.id)
}

/// Sums of all rows of all sum tables.
pub(crate) fn rows(tables: &Tables) -> BTreeMap<Numbers, u64> {
    let mut sums = BTreeMap::new();
    for file in &tables.manifest().files {
        let TableName::Sums(sum_table, tier) = file.table else {
            continue;
        };
        let columns = [Column::Task, Column::Worker, Column::Kind, Column::Node];
        let scan = Scan {
            spans: None,
            periods: file.from..file.to,
            tasks: None,
            workers: None,
            columns: &columns,
            sums_only: false,
        };
        let mut visit = |batch: &segment::Batch| {
            for index in 0..batch.row_count() {
                let row = batch.row(tier, index);
                let fields = row.key.fields(tier);
                assert!((file.from..file.to).contains(&fields.ts));
                let Period(ts) = fields.ts;
                let key = (
                    sum_table,
                    tier,
                    ts,
                    fields.task.0,
                    fields.worker.0,
                    fields.kind,
                    fields.node,
                );
                *sums.entry(key).or_default() += row.value;
            }
            ControlFlow::Continue(())
        };
        tables.scan(file, &scan, &mut visit).unwrap();
    }
    sums
}

/// The latest row of each task in `tasks`.
fn latest_tasks(tables: &Tables) -> BTreeMap<TaskKey, Arc<TaskRow>> {
    let mut latest: BTreeMap<TaskKey, (u64, Arc<TaskRow>)> = BTreeMap::new();
    for file in tables.manifest().files_of(TableName::Tasks) {
        let mut visit = |tasks: Vec<_>| {
            for crate::lists::SealedTask { row, version } in tasks {
                let known = latest
                    .get(&task_key(&row))
                    .is_some_and(|known| known.0 > version);
                if !known {
                    latest.insert(task_key(&row), (version, row));
                }
            }
            ControlFlow::Continue(())
        };
        tables
            .tasks(file, &TaskScan::default(), &mut visit)
            .unwrap();
    }
    latest
        .into_iter()
        .map(|(key, (_, row))| (key, row))
        .collect()
}
