//! Rows of the tables that are lists, and how they stand in columns.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use profiler_core::wire::v1;
use profiler_core::{
    Epoch, Frame, FrameId, FrameKind, NodeId, Outcome, TaskDetail, TaskId, TaskRecord, Ticks,
    Timestamp, WorkerId,
};

use super::detail::{self, labels_json, phases_json};
use super::segment::{Columns, ListColumn, ListKind, ListRow, Values};
use super::tier::Second;
use crate::ledger::TaskRow;
use crate::session::{Greeting, Session, SessionCell};
use crate::sync::lock;

/// A row of `frames`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FrameRow {
    pub(crate) id: FrameId,
    pub(crate) frame: Frame,
}

/// A row of `nodes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeRow {
    pub(crate) id: NodeId,
    pub(crate) parent: NodeId,
    pub(crate) frame: FrameId,
}

/// A row of `workers`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WorkerRow {
    /// From 1; 0 stands for all workers.
    pub(crate) number: u32,
    pub(crate) worker: WorkerId,
}

/// A row of `tasks` and of `running`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SealedTask {
    pub(crate) row: Arc<TaskRow>,
    /// The store's version that it came with: of several rows of one task the latest counts.
    pub(crate) version: u64,
}

/// A row of `sessions`: what is known of one life of one agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SessionRecord {
    pub(crate) worker: WorkerId,
    pub(crate) epoch: Epoch,
    pub(crate) greeting: Greeting,
    pub(crate) acked_seq: u64,
    pub(crate) stored_ns: u64,
    pub(crate) ticks: Ticks,
    pub(crate) account: Option<v1::LossAccount>,
    pub(crate) clock: Option<v1::Clock>,
    pub(crate) first_seen: Timestamp,
    pub(crate) last_seen: Timestamp,
}

impl SessionRecord {
    /// What a sealing keeps of a session.
    pub(crate) fn of(cell: &SessionCell) -> SessionRecord {
        let session = lock(&cell.state);
        SessionRecord {
            worker: cell.worker.clone(),
            epoch: cell.epoch,
            greeting: session.greeting.clone(),
            acked_seq: session.acked_seq,
            stored_ns: session.stored_ns,
            ticks: session.ticks,
            account: session.account,
            clock: session.clock,
            first_seen: session.first_seen,
            last_seen: session.last_seen,
        }
    }

    /// Makes a session what it was, but for what its agent said of itself, which this gives.
    pub(crate) fn restore(self, session: &mut Session) -> Greeting {
        let SessionRecord {
            worker: _,
            epoch: _,
            greeting,
            acked_seq,
            stored_ns,
            ticks,
            account,
            clock,
            first_seen,
            last_seen,
        } = self;
        session.acked_seq = acked_seq;
        session.stored_ns = stored_ns;
        session.ticks = ticks;
        session.account = account;
        session.clock = clock;
        session.first_seen = first_seen;
        session.last_seen = last_seen;
        greeting
    }
}

pub(super) const fn column(name: &'static str, kind: ListKind) -> ListColumn {
    ListColumn { name, kind }
}

pub(super) fn texts<R>(rows: &[R], text: impl Fn(&R) -> Arc<str>) -> Values {
    Values::Texts(rows.iter().map(text).collect())
}

pub(super) fn numbers32<R>(rows: &[R], number: impl Fn(&R) -> u32) -> Values {
    Values::Numbers32(rows.iter().map(number).collect())
}

pub(super) fn numbers64<R>(rows: &[R], number: impl Fn(&R) -> u64) -> Values {
    Values::Numbers64(rows.iter().map(|row| number(row).cast_signed()).collect())
}

pub(super) fn times<R>(rows: &[R], time: impl Fn(&R) -> Timestamp) -> Values {
    Values::Numbers64(rows.iter().map(|row| time(row).unix_ns()).collect())
}

pub(super) fn optionals64<R>(rows: &[R], number: impl Fn(&R) -> Option<i64>) -> Values {
    Values::Optionals64(rows.iter().map(number).collect())
}

/// Kinds of frames by the names that they have in files.
const FRAME_KINDS: [(FrameKind, &str); 9] = [
    (FrameKind::Task, "task"),
    (FrameKind::NoTask, "no_task"),
    (FrameKind::Agent, "agent"),
    (FrameKind::Truncated, "truncated"),
    (FrameKind::Overflow, "overflow"),
    (FrameKind::Function, "function"),
    (FrameKind::Unresolved, "unresolved"),
    (FrameKind::Phase, "phase"),
    (FrameKind::Thread, "thread"),
];

impl ListRow for FrameRow {
    const COLUMNS: &'static [ListColumn] = &[
        column("id", ListKind::Number32),
        column("kind", ListKind::Text),
        column("function", ListKind::Text),
        column("file", ListKind::Text),
        column("line", ListKind::Number32),
        column("module", ListKind::Text),
        column("build_id", ListKind::Text),
        column("offset", ListKind::Number64),
        column("inlined", ListKind::Flag),
    ];

    fn encode(rows: &[FrameRow]) -> Vec<Values> {
        let kind = |row: &FrameRow| {
            let found = FRAME_KINDS.iter().find(|(kind, _)| *kind == row.frame.kind);
            found.expect("every kind is in the list").1.into()
        };
        vec![
            numbers32(rows, |row| row.id.0),
            texts(rows, kind),
            texts(rows, |row| row.frame.function.clone()),
            texts(rows, |row| row.frame.file.clone()),
            numbers32(rows, |row| row.frame.line),
            texts(rows, |row| row.frame.module.clone()),
            texts(rows, |row| row.frame.build_id.clone()),
            numbers64(rows, |row| row.frame.offset),
            Values::Flags(rows.iter().map(|row| row.frame.inlined).collect()),
        ]
    }

    fn decode(mut columns: Columns) -> Result<Vec<FrameRow>, String> {
        let (ids, mut kinds) = (columns.numbers32(), columns.texts());
        let (mut functions, mut files) = (columns.texts(), columns.texts());
        let (mut lines, mut modules) = (columns.numbers32(), columns.texts());
        let (mut build_ids, mut offsets) = (columns.texts(), columns.numbers64());
        let mut inlined = columns.flags();
        let row = |id| {
            let kind = next(&mut kinds)?;
            let known = FRAME_KINDS.iter().find(|(_, name)| *name == &*kind);
            let frame = Frame {
                kind: known.ok_or_else(|| format!("{kind:?} is no kind of a frame"))?.0,
                function: next(&mut functions)?,
                file: next(&mut files)?,
                line: next(&mut lines)?,
                module: next(&mut modules)?,
                build_id: next(&mut build_ids)?,
                offset: next(&mut offsets)?.cast_unsigned(),
                inlined: next(&mut inlined)?,
            };
            Ok(FrameRow { id: FrameId(id), frame })
        };
        ids.map(row).collect()
    }

    fn place(&self) -> Range<u32> {
        self.id.0..self.id.0.saturating_add(1)
    }
}

/// The next value of a column that must not end before the others.
pub(super) fn next<T>(column: &mut std::vec::IntoIter<T>) -> Result<T, String> {
    column.next().ok_or_else(|| "a column ends too early".to_owned())
}

impl ListRow for NodeRow {
    const COLUMNS: &'static [ListColumn] = &[
        column("id", ListKind::Number32),
        column("parent", ListKind::Number32),
        column("frame", ListKind::Number32),
    ];

    fn encode(rows: &[NodeRow]) -> Vec<Values> {
        vec![
            numbers32(rows, |row| row.id.0),
            numbers32(rows, |row| row.parent.0),
            numbers32(rows, |row| row.frame.0),
        ]
    }

    fn decode(mut columns: Columns) -> Result<Vec<NodeRow>, String> {
        let ids = columns.numbers32();
        let (mut parents, mut frames) = (columns.numbers32(), columns.numbers32());
        let row = |id| {
            let (parent, frame) = (next(&mut parents)?, next(&mut frames)?);
            if parent >= id {
                return Err(format!("node {id} stands below node {parent}, which is not older"));
            }
            Ok(NodeRow { id: NodeId(id), parent: NodeId(parent), frame: FrameId(frame) })
        };
        ids.map(row).collect()
    }

    fn place(&self) -> Range<u32> {
        self.id.0..self.id.0.saturating_add(1)
    }
}

impl ListRow for WorkerRow {
    const COLUMNS: &'static [ListColumn] =
        &[column("number", ListKind::Number32), column("id", ListKind::Text)];

    fn encode(rows: &[WorkerRow]) -> Vec<Values> {
        vec![numbers32(rows, |row| row.number), texts(rows, |row| row.worker.0.clone())]
    }

    fn decode(mut columns: Columns) -> Result<Vec<WorkerRow>, String> {
        let (numbers, mut ids) = (columns.numbers32(), columns.texts());
        let row = |number| Ok(WorkerRow { number, worker: WorkerId(next(&mut ids)?) });
        numbers.map(row).collect()
    }

    fn place(&self) -> Range<u32> {
        self.number..self.number.saturating_add(1)
    }
}

impl ListRow for SealedTask {
    const COLUMNS: &'static [ListColumn] = &[
        column("worker", ListKind::Text),
        column("epoch", ListKind::Number64),
        column("id", ListKind::Number64),
        column("name", ListKind::Text),
        column("key", ListKind::KeyText),
        column("thread_id", ListKind::Number32),
        column("thread_name", ListKind::Text),
        column("parent", ListKind::OptionalNumber64),
        column("start", ListKind::Time),
        column("stop", ListKind::OptionalTime),
        column("outcome", ListKind::Text),
        column("cause", ListKind::Text),
        column("attempt", ListKind::Number32),
        column("result_bytes", ListKind::OptionalNumber64),
        column("type_name", ListKind::Text),
        column("labels", ListKind::Text),
        column("phases", ListKind::Text),
        column("version", ListKind::Number64),
    ];

    fn encode(rows: &[SealedTask]) -> Vec<Values> {
        fn detail(row: &SealedTask) -> Option<&TaskDetail> {
            row.row.record.detail.as_deref()
        }
        vec![
            texts(rows, |row| row.row.worker.0.clone()),
            numbers64(rows, |row| row.row.epoch.0),
            numbers64(rows, |row| row.row.record.id.0),
            texts(rows, |row| row.row.record.name.clone()),
            texts(rows, |row| row.row.record.key.clone()),
            numbers32(rows, |row| row.row.record.thread_id),
            texts(rows, |row| row.row.record.thread_name.clone()),
            optionals64(rows, |row| row.row.record.parent.map(|id| id.0.cast_signed())),
            times(rows, |row| row.row.record.start),
            optionals64(rows, |row| row.row.record.stop.map(Timestamp::unix_ns)),
            texts(rows, |row| row.row.record.outcome.name().into()),
            texts(rows, |row| row.row.record.cause.clone()),
            numbers32(rows, |row| detail(row).map_or(0, |detail| detail.attempt)),
            optionals64(rows, |row| detail(row)?.result_bytes.map(u64::cast_signed)),
            texts(rows, |row| detail(row).map_or_else(Arc::default, |it| it.type_name.clone())),
            texts(rows, |row| labels_json(detail(row))),
            texts(rows, |row| phases_json(detail(row))),
            numbers64(rows, |row| row.version),
        ]
    }

    fn decode(mut columns: Columns) -> Result<Vec<SealedTask>, String> {
        let (workers, mut epochs) = (columns.texts(), columns.numbers64());
        let (mut ids, mut names) = (columns.numbers64(), columns.texts());
        let (mut keys, mut thread_ids) = (columns.texts(), columns.numbers32());
        let (mut thread_names, mut parents) = (columns.texts(), columns.optionals64());
        let (mut starts, mut stops) = (columns.numbers64(), columns.optionals64());
        let (mut outcomes, mut causes) = (columns.texts(), columns.texts());
        let (mut attempts, mut results) = (columns.numbers32(), columns.optionals64());
        let (mut types, mut labels) = (columns.texts(), columns.texts());
        let (mut phases, mut versions) = (columns.texts(), columns.numbers64());
        let mut shared = detail::Texts::default();
        let row = |worker| {
            let detail = TaskDetail {
                attempt: next(&mut attempts)?,
                result_bytes: next(&mut results)?.map(i64::cast_unsigned),
                type_name: next(&mut types)?,
                labels: shared.labels(&next(&mut labels)?)?,
                phases: shared.phases(&next(&mut phases)?)?,
            };
            let outcome = next(&mut outcomes)?;
            let known = Outcome::ALL.into_iter().find(|known| known.name() == &*outcome);
            let record = TaskRecord {
                id: TaskId(next(&mut ids)?.cast_unsigned()),
                name: next(&mut names)?,
                key: next(&mut keys)?,
                thread_id: next(&mut thread_ids)?,
                thread_name: next(&mut thread_names)?,
                parent: next(&mut parents)?.map(|id| TaskId(id.cast_unsigned())),
                start: Timestamp::from_unix_ns(next(&mut starts)?),
                stop: next(&mut stops)?.map(Timestamp::from_unix_ns),
                outcome: known.ok_or_else(|| format!("{outcome:?} is no outcome"))?,
                cause: next(&mut causes)?,
                detail: (detail != TaskDetail::default()).then(|| Box::new(detail)),
            };
            let epoch = Epoch(next(&mut epochs)?.cast_unsigned());
            let row = Arc::new(TaskRow { worker: WorkerId(worker), epoch, record });
            Ok(SealedTask { row, version: next(&mut versions)?.cast_unsigned() })
        };
        workers.map(row).collect()
    }

    /// From the second of its start to the one after that of its stop.
    fn place(&self) -> Range<u32> {
        let record = &self.row.record;
        let start = Second::of(record.start).0;
        let stop = record.stop.map_or(start, |stop| Second::of(stop).0);
        start.min(stop)..start.max(stop).saturating_add(1)
    }
}

impl ListRow for SessionRecord {
    const COLUMNS: &'static [ListColumn] = &[
        column("worker", ListKind::Text),
        column("epoch", ListKind::Number64),
        column("host", ListKind::Text),
        column("pid", ListKind::Number32),
        column("agent_version", ListKind::Text),
        column("sampler_mode", ListKind::Text),
        column("interval_ns", ListKind::Number64),
        column("started_at", ListKind::Time),
        column("labels", ListKind::Text),
        column("acked_seq", ListKind::Number64),
        column("stored_ns", ListKind::Number64),
        column("ticks_made", ListKind::Number64),
        column("ticks_expected", ListKind::Number64),
        column("ticks_throttled", ListKind::Number64),
        column("accepted_ns", ListKind::OptionalNumber64),
        column("lost_refused_ns", ListKind::Number64),
        column("lost_by_collector_ns", ListKind::Number64),
        column("lost_queue_ns", ListKind::Number64),
        column("lost_tasks", ListKind::Number64),
        column("lost_telemetry", ListKind::Number64),
        column("aggregated_tasks", ListKind::Number64),
        column("clock_offset_ns", ListKind::OptionalSigned64),
        column("clock_error_ns", ListKind::Number64),
        column("first_seen", ListKind::Time),
        column("last_seen", ListKind::Time),
    ];

    fn encode(rows: &[SessionRecord]) -> Vec<Values> {
        let account = |row: &SessionRecord| row.account.unwrap_or_default();
        let labels = |row: &SessionRecord| {
            let text = serde_json::to_string(&row.greeting.labels);
            text.expect("a map of texts is JSON").into()
        };
        vec![
            texts(rows, |row| row.worker.0.clone()),
            numbers64(rows, |row| row.epoch.0),
            texts(rows, |row| row.greeting.host.as_str().into()),
            numbers32(rows, |row| row.greeting.pid),
            texts(rows, |row| row.greeting.agent_version.as_str().into()),
            texts(rows, |row| row.greeting.sampler_mode.as_str().into()),
            numbers64(rows, |row| row.greeting.interval_ns),
            times(rows, |row| row.greeting.started_at),
            texts(rows, labels),
            numbers64(rows, |row| row.acked_seq),
            numbers64(rows, |row| row.stored_ns),
            numbers64(rows, |row| row.ticks.made),
            numbers64(rows, |row| row.ticks.expected),
            numbers64(rows, |row| row.ticks.throttled),
            optionals64(rows, |row| row.account.map(|account| account.accepted_ns.cast_signed())),
            numbers64(rows, |row| account(row).lost_refused_ns),
            numbers64(rows, |row| account(row).lost_by_collector_ns),
            numbers64(rows, |row| account(row).lost_queue_ns),
            numbers64(rows, |row| account(row).lost_tasks),
            numbers64(rows, |row| account(row).lost_telemetry),
            numbers64(rows, |row| account(row).aggregated_tasks),
            optionals64(rows, |row| row.clock.map(|clock| clock.offset_ns)),
            numbers64(rows, |row| row.clock.map_or(0, |clock| clock.error_ns)),
            times(rows, |row| row.first_seen),
            times(rows, |row| row.last_seen),
        ]
    }

    fn decode(mut columns: Columns) -> Result<Vec<SessionRecord>, String> {
        let (workers, mut epochs) = (columns.texts(), columns.numbers64());
        let (mut hosts, mut pids) = (columns.texts(), columns.numbers32());
        let (mut agent_versions, mut sampler_modes) = (columns.texts(), columns.texts());
        let (mut intervals, mut starts) = (columns.numbers64(), columns.numbers64());
        let (mut labels, mut numbers) = (columns.texts(), Vec::new());
        numbers.extend((0..5).map(|_| columns.numbers64()));
        let mut accepted = columns.optionals64();
        numbers.extend((0..6).map(|_| columns.numbers64()));
        let mut clock_offsets = columns.optionals64();
        numbers.extend((0..3).map(|_| columns.numbers64()));
        let row = |worker| {
            let greeting = Greeting {
                labels: parse_labels(&next(&mut labels)?)?,
                host: next(&mut hosts)?.to_string(),
                pid: next(&mut pids)?,
                agent_version: next(&mut agent_versions)?.to_string(),
                sampler_mode: next(&mut sampler_modes)?.to_string(),
                interval_ns: next(&mut intervals)?.cast_unsigned(),
                started_at: Timestamp::from_unix_ns(next(&mut starts)?),
            };
            let mut number = |index: usize| next(&mut numbers[index]);
            let [acked_seq, stored_ns, made, expected, saved] =
                [number(0)?, number(1)?, number(2)?, number(3)?, number(4)?]
                    .map(i64::cast_unsigned);
            let [lost_refused_ns, lost_by_collector_ns, lost_queue_ns, lost_tasks] =
                [number(5)?, number(6)?, number(7)?, number(8)?].map(i64::cast_unsigned);
            let [lost_telemetry, aggregated_tasks] =
                [number(9)?, number(10)?].map(i64::cast_unsigned);
            let account = next(&mut accepted)?.map(|accepted_ns| v1::LossAccount {
                accepted_ns: accepted_ns.cast_unsigned(),
                lost_refused_ns,
                lost_by_collector_ns,
                lost_tasks,
                lost_queue_ns,
                lost_telemetry,
                aggregated_tasks,
            });
            let error_ns = number(11)?.cast_unsigned();
            Ok(SessionRecord {
                worker: WorkerId(worker),
                epoch: Epoch(next(&mut epochs)?.cast_unsigned()),
                greeting,
                acked_seq,
                stored_ns,
                ticks: Ticks { made, expected, throttled: saved },
                account,
                clock: next(&mut clock_offsets)?.map(|offset_ns| v1::Clock { offset_ns, error_ns }),
                first_seen: Timestamp::from_unix_ns(number(12)?),
                last_seen: Timestamp::from_unix_ns(number(13)?),
            })
        };
        workers.map(row).collect()
    }

    fn place(&self) -> Range<u32> {
        let [first, last] = [self.first_seen, self.last_seen].map(|time| Second::of(time).0);
        first.min(last)..first.max(last).saturating_add(1)
    }
}

fn parse_labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    serde_json::from_str(text).map_err(|error| format!("labels are not JSON: {error}"))
}
