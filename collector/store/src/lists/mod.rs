//! Rows of the lists of the tree, workers, tasks and sessions, and their columns.

pub(crate) mod links;
pub(crate) mod list_scan;
pub(crate) mod names;
pub(crate) mod newest_tasks;
pub(crate) mod task_json;
pub(crate) mod telemetry_lists;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use profiler_core::wire::v1;
use profiler_core::{
    Epoch, Frame, FrameId, FrameKind, NodeId, Outcome, TaskDetail, TaskId, TaskRecord, Ticks,
    Timestamp, WorkerId,
};

use self::task_json::{labels_json, phases_json};
use crate::rows::{AgentInfo, Disconnect, DisconnectReason, SessionRecord, TaskRow};
use crate::segment::list_table;
use crate::sums::tier::Second;

/// A row of `frames`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameRow {
    pub id: FrameId,
    pub frame: Frame,
}

/// A row of `nodes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeRow {
    pub id: NodeId,
    pub parent: NodeId,
    pub frame: FrameId,
}

/// A row of `workers`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WorkerRow {
    /// From 1; 0 stands for all workers.
    pub number: u32,
    pub worker: WorkerId,
}

/// A row of `tasks` and of `running`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SealedTask {
    pub row: Arc<TaskRow>,
    /// The store's version at its sealing: of several rows of a task the latest counts.
    pub version: u64,
}

/// Kinds of frames and their names in files.
const FRAME_KINDS: [(FrameKind, &str); 10] = [
    (FrameKind::Task, "task"),
    (FrameKind::NoTask, "no_task"),
    (FrameKind::Agent, "agent"),
    (FrameKind::Truncated, "truncated"),
    (FrameKind::NoStack, "no_stack"),
    (FrameKind::Overflow, "overflow"),
    (FrameKind::Function, "function"),
    (FrameKind::Unresolved, "unresolved"),
    (FrameKind::Phase, "phase"),
    (FrameKind::Thread, "thread"),
];

pub(crate) fn kind_name(kind: FrameKind) -> &'static str {
    let found = FRAME_KINDS.iter().find(|(known, _)| *known == kind);
    found.expect("every kind is in the list").1
}

fn kind_of(name: &str) -> Result<FrameKind, String> {
    let found = FRAME_KINDS.iter().find(|(_, known)| *known == name);
    found
        .map(|(kind, _)| *kind)
        .ok_or_else(|| format!("{name:?} is no kind of frame"))
}

pub(crate) fn outcome_of(name: &str) -> Result<Outcome, String> {
    let found = Outcome::ALL.into_iter().find(|known| known.name() == name);
    found.ok_or_else(|| format!("{name:?} is no outcome"))
}

fn disconnect_reason_of(name: &str) -> Result<DisconnectReason, String> {
    let found = DisconnectReason::ALL
        .into_iter()
        .find(|known| known.name() == name);
    found.ok_or_else(|| format!("{name:?} is no reason of a disconnect"))
}

fn labels_of(json: &str) -> Result<BTreeMap<String, String>, String> {
    serde_json::from_str(json).map_err(|error| format!("labels are not JSON: {error}"))
}

/// The span of a row with an id.
pub(crate) fn id_span(id: u32) -> Range<u32> {
    id..id.saturating_add(1)
}

/// From the second of `start` to the one after that of `stop`.
pub(crate) fn time_span(start: Timestamp, stop: Timestamp) -> Range<u32> {
    let start = Second::of(start).0;
    let stop = Second::of(stop).0;
    start.min(stop)..start.max(stop).saturating_add(1)
}

list_table! {
    FrameRow, |row| {
        id: Number32 = row.id.0,
        kind: Text = kind_name(row.frame.kind).into(),
        function: Text = row.frame.function.clone(),
        file: Text = row.frame.file.clone(),
        line: Number32 = row.frame.line,
        module: Text = row.frame.module.clone(),
        build_id: Text = row.frame.build_id.clone(),
        offset: Number64 = row.frame.offset,
        inlined: Flag = row.frame.inlined,
    } => {
        let kind = kind_of(&kind)?;
        let frame = Frame { kind, function, file, line, module, build_id, offset, inlined };
        FrameRow { id: FrameId(id), frame }
    }
    span id_span(row.id.0)
}

list_table! {
    NodeRow, |row| {
        id: Number32 = row.id.0,
        parent: Number32 = row.parent.0,
        frame: Number32 = row.frame.0,
    } => {
        if parent >= id {
            return Err(format!("node {id} has the parent {parent}, which is not older"));
        }
        NodeRow { id: NodeId(id), parent: NodeId(parent), frame: FrameId(frame) }
    }
    span id_span(row.id.0)
}

list_table! {
    WorkerRow, |row| {
        number: Number32 = row.number,
        id: Text = row.worker.0.clone(),
    } => {
        WorkerRow { number, worker: WorkerId(id) }
    }
    span id_span(row.number)
}

fn detail_of(task: &SealedTask) -> Option<&TaskDetail> {
    task.row.record.detail.as_deref()
}

list_table! {
    SealedTask, |task| {
        worker: Text = task.row.worker.0.clone(),
        epoch: Number64 = task.row.epoch.0,
        id: Number64 = task.row.record.id.0,
        name: Text = task.row.record.name.clone(),
        key: KeyText = task.row.record.key.clone(),
        thread_id: Number32 = task.row.record.thread_id,
        thread_name: Text = task.row.record.thread_name.clone(),
        parent: OptionalNumber64 = task.row.record.parent.map(|parent| parent.0),
        start: Time = task.row.record.start,
        stop: OptionalTime = task.row.record.stop,
        outcome: Text = task.row.record.outcome.name().into(),
        cause: Text = task.row.record.cause.clone(),
        attempt: Number32 = detail_of(task).map_or(0, |detail| detail.attempt),
        result_bytes: OptionalNumber64 = detail_of(task).and_then(|detail| detail.result_bytes),
        type_name: Text =
            detail_of(task).map_or_else(Arc::default, |detail| detail.type_name.clone()),
        labels: Text = labels_json(detail_of(task)),
        phases: Text = phases_json(detail_of(task)),
        version: Number64 = task.version,
    } with texts = task_json::SharedTexts::default() => {
        let labels = texts.labels(&labels)?;
        let phases = texts.phases(&phases)?;
        let detail = TaskDetail { attempt, result_bytes, type_name, labels, phases };
        let record = TaskRecord {
            id: TaskId(id),
            name,
            key,
            thread_id,
            thread_name,
            parent: parent.map(TaskId),
            start,
            stop,
            outcome: outcome_of(&outcome)?,
            cause,
            detail: (detail != TaskDetail::default()).then(|| Box::new(detail)),
        };
        let row = TaskRow { worker: WorkerId(worker), epoch: Epoch(epoch), record };
        SealedTask { row: Arc::new(row), version }
    }
    span time_span(task.row.record.start, task.row.record.stop.unwrap_or(task.row.record.start))
}

fn account_of(session: &SessionRecord) -> v1::LossAccount {
    session.account.unwrap_or_default()
}

list_table! {
    SessionRecord, |session| {
        worker: Text = session.worker.0.clone(),
        epoch: Number64 = session.epoch.0,
        host: Text = session.agent.host.as_str().into(),
        pid: Number32 = session.agent.pid,
        agent_version: Text = session.agent.agent_version.as_str().into(),
        sampler_mode: Text = session.agent.sampler_mode.as_str().into(),
        interval_ns: Number64 = session.agent.interval_ns,
        started_at: Time = session.agent.started_at,
        labels: Text = {
            let json = serde_json::to_string(&session.agent.labels);
            json.expect("a map of texts is JSON").into()
        },
        acked_seq: Number64 = session.acked_seq,
        stored_ns: Number64 = session.stored_ns,
        ticks_made: Number64 = session.ticks.made,
        ticks_expected: Number64 = session.ticks.expected,
        ticks_throttled: Number64 = session.ticks.throttled,
        accepted_ns: OptionalNumber64 = session.account.map(|account| account.accepted_ns),
        lost_refused_ns: Number64 = account_of(session).lost_rejected_ns,
        lost_by_collector_ns: Number64 = account_of(session).lost_by_collector_ns,
        lost_queue_ns: Number64 = account_of(session).lost_queue_ns,
        lost_tasks: Number64 = account_of(session).lost_tasks,
        lost_telemetry: Number64 = account_of(session).lost_telemetry,
        aggregated_tasks: Number64 = account_of(session).aggregated_tasks,
        clock_offset_ns: OptionalSigned64 = session.clock.map(|clock| clock.offset_ns),
        clock_error_ns: Number64 = session.clock.map_or(0, |clock| clock.error_ns),
        first_seen: Time = session.first_seen,
        last_seen: Time = session.last_seen,
        disconnect: Text =
            session.disconnect.map_or("", |disconnect| disconnect.reason.name()).into(),
        disconnected_at: OptionalTime = session.disconnect.map(|disconnect| disconnect.at),
    } => {
        let agent = AgentInfo {
            labels: labels_of(&labels)?,
            host: host.to_string(),
            pid,
            agent_version: agent_version.to_string(),
            sampler_mode: sampler_mode.to_string(),
            interval_ns,
            started_at,
        };
        let account = accepted_ns.map(|accepted_ns| v1::LossAccount {
            accepted_ns,
            lost_rejected_ns: lost_refused_ns,
            lost_by_collector_ns,
            lost_tasks,
            lost_queue_ns,
            lost_telemetry,
            aggregated_tasks,
            // Not kept: `lost_queue_ns` has it.
            lost_unseen_ns: 0,
        });
        let clock = clock_offset_ns
            .map(|offset_ns| v1::Clock { offset_ns, error_ns: clock_error_ns });
        SessionRecord {
            worker: WorkerId(worker),
            epoch: Epoch(epoch),
            agent: Arc::new(agent),
            acked_seq,
            stored_ns,
            ticks: Ticks { made: ticks_made, expected: ticks_expected, throttled: ticks_throttled },
            account,
            clock,
            first_seen,
            last_seen,
            disconnect: match disconnected_at {
                Some(at) => Some(Disconnect { at, reason: disconnect_reason_of(&disconnect)? }),
                None => None,
            },
        }
    }
    span time_span(session.first_seen, session.last_seen)
}
