//! Records of the log, in the collector's terms (its nodes, its clock). They are protobuf messages; the
//! meaning of a tag never changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::hash::KeyedMap;
use profiler_core::wire::{
    WireError, decode_detail, decode_telemetry, encode_detail, encode_telemetry, v1,
};
use profiler_core::{Epoch, NodeId, Outcome, TaskId, TaskRecord, Telemetry, Timestamp, WorkerId};
use prost::Message as _;

use super::telemetry::{LoggedRun, LoggedTelemetry};
use super::window::LoggedWindow;
use crate::rows::{AgentInfo, CheckedFlush};

/// An invalid record in a valid frame.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    #[error("a record of the unknown kind {0}")]
    Kind(u8),
    #[error("the record cannot be decoded: {0}")]
    Decode(#[from] prost::DecodeError),
    #[error("the record is invalid: {0}")]
    Wire(#[from] WireError),
    #[error("the record's {what} {value} is unknown")]
    Unknown { what: &'static str, value: u64 },
}

/// Any record of the log.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    TreeDelta(TreeDelta),
    Flush(Box<Flush>),
    Hello(Hello),
    Run(LoggedRun),
    Owner(OwnerMark),
}

impl Record {
    pub fn decode(kind: u8, payload: &[u8]) -> Result<Record, RecordError> {
        Ok(match kind {
            TreeDelta::KIND => Record::TreeDelta(TreeDelta::decode(payload)?),
            Flush::KIND => Record::Flush(Box::new(Flush::decode(payload)?)),
            Hello::KIND => Record::Hello(Hello::decode(payload)?),
            LoggedRun::KIND => Record::Run(LoggedRun::decode(payload)?),
            OwnerMark::KIND => Record::Owner(OwnerMark::decode(payload)?),
            other => return Err(RecordError::Kind(other)),
        })
    }
}

/// The beginning of a life of a collector, in a bucket: it keeps earlier lives out of the log.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OwnerMark {
    /// No two lives have the same.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
}

impl OwnerMark {
    pub const KIND: u8 = 5;
}

/// Frames and nodes added to the collector's tree since the last delta in the log. Later records refer
/// to them.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TreeDelta {
    /// Strings of the frames, which refer to them by index plus 1; 0 is the empty string.
    #[prost(string, repeated, tag = "1")]
    pub strings: Vec<String>,
    #[prost(uint32, tag = "2")]
    pub frame_base: u32,
    #[prost(message, repeated, tag = "3")]
    pub frames: Vec<LoggedFrame>,
    #[prost(uint32, tag = "4")]
    pub node_base: u32,
    /// For node n: n - parent, so always at least 1.
    #[prost(uint32, repeated, tag = "5")]
    pub node_parent_gaps: Vec<u32>,
    /// Frames of the collector's tree.
    #[prost(uint32, repeated, tag = "6")]
    pub node_frames: Vec<u32>,
}

impl TreeDelta {
    pub const KIND: u8 = 1;
}

/// A frame, with its strings by index plus 1.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LoggedFrame {
    /// 0 task, 1 no task, 2 agent, 3 truncated, 4 overflow, 5 function, 6 unresolved, 7 phase,
    /// 8 thread, 9 no stack.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    #[prost(uint32, tag = "2")]
    pub function: u32,
    #[prost(uint32, tag = "3")]
    pub file: u32,
    #[prost(uint32, tag = "4")]
    pub line: u32,
    #[prost(uint32, tag = "5")]
    pub module: u32,
    #[prost(uint32, tag = "6")]
    pub build_id: u32,
    #[prost(uint64, tag = "7")]
    pub offset: u64,
    #[prost(bool, tag = "8")]
    pub inlined: bool,
}

/// A validated flush. Times are the collector's, except the raw start.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Flush {
    #[prost(string, tag = "1")]
    pub worker: String,
    #[prost(fixed64, tag = "2")]
    pub epoch: u64,
    #[prost(uint64, tag = "3")]
    pub seq: u64,
    #[prost(sint64, tag = "4")]
    pub received_at_ns: i64,
    #[prost(message, optional, tag = "5")]
    pub clock: Option<v1::Clock>,
    #[prost(message, optional, tag = "6")]
    pub account: Option<v1::LossAccount>,
    #[prost(message, optional, tag = "7")]
    pub window: Option<LoggedWindow>,
    /// Strings of the record. Names of tasks refer to them by index; details by index plus 1, where 0 is
    /// the empty string.
    #[prost(string, repeated, tag = "9")]
    pub names: Vec<String>,
    #[prost(message, repeated, tag = "10")]
    pub tasks: Vec<LoggedTask>,
    /// Sums of tasks without rows; their strings by index plus 1.
    #[prost(message, repeated, tag = "11")]
    pub totals: Vec<v1::TaskTotals>,
    #[prost(message, optional, tag = "20")]
    pub telemetry: Option<LoggedTelemetry>,
}

/// A task.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LoggedTask {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Index in the flush's names.
    #[prost(uint32, tag = "2")]
    pub name: u32,
    #[prost(string, tag = "3")]
    pub key: String,
    #[prost(uint32, tag = "4")]
    pub thread_id: u32,
    #[prost(string, tag = "5")]
    pub thread_name: String,
    #[prost(uint64, optional, tag = "6")]
    pub parent_id: Option<u64>,
    #[prost(sint64, tag = "7")]
    pub start_ns: i64,
    /// `None` while the task runs.
    #[prost(sint64, optional, tag = "8")]
    pub stop_ns: Option<i64>,
    /// Index in [`Outcome::ALL`].
    #[prost(uint32, tag = "9")]
    pub outcome: u32,
    #[prost(string, tag = "10")]
    pub cause: String,
    /// The details, in the later fields of a task on the wire; strings by index plus 1.
    #[prost(message, optional, tag = "11")]
    pub detail: Option<v1::Task>,
}

/// The strings of a record that is being built.
#[derive(Default)]
pub(super) struct Strings {
    pub(super) strings: Vec<String>,
    indexes: KeyedMap<String, u32>,
}

impl Strings {
    /// The index of a string, which is added if it is new.
    pub(super) fn intern(&mut self, text: &str) -> u32 {
        if let Some(index) = self.indexes.get(text) {
            return *index;
        }
        let index = u32::try_from(self.strings.len()).expect("the strings of a flush are limited");
        self.strings.push(text.to_owned());
        self.indexes.insert(text.to_owned(), index);
        index
    }

    /// The index plus 1; 0 for the empty string.
    fn intern_optional(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            0
        } else {
            self.intern(text) + 1
        }
    }
}

/// The string for a number of [`Strings::intern_optional`].
fn optional_string(strings: &[Arc<str>], number: u32) -> Option<Arc<str>> {
    match number.checked_sub(1) {
        Some(index) => strings.get(index as usize).cloned(),
        None => Some(Arc::default()),
    }
}

impl Flush {
    pub const KIND: u8 = 2;

    /// The record of a flush of a worker's life.
    pub fn of(
        worker: &WorkerId,
        epoch: Epoch,
        received_at: Timestamp,
        checked: &CheckedFlush,
    ) -> Flush {
        let mut names = Strings::default();
        let tasks = checked
            .tasks
            .iter()
            .map(|task| LoggedTask::of(task, &mut names))
            .collect();
        let totals = Telemetry {
            totals: checked.totals.clone(),
            ..Telemetry::default()
        };
        let mut encoded = v1::Flush::default();
        encode_telemetry(&totals, &mut encoded, &mut |text| {
            names.intern_optional(text)
        });
        Flush {
            worker: worker.to_string(),
            epoch: epoch.0,
            seq: checked.seq,
            received_at_ns: received_at.unix_ns(),
            clock: Some(checked.clock),
            account: Some(checked.account),
            window: checked.window.as_ref().map(LoggedWindow::of),
            names: names.strings,
            tasks,
            totals: encoded.totals,
            telemetry: LoggedTelemetry::of(&checked.telemetry),
        }
    }

    /// The greatest node id in the record.
    pub fn last_node(&self) -> Result<NodeId, RecordError> {
        let entries = self
            .window
            .as_ref()
            .map(LoggedWindow::entries)
            .transpose()?;
        let nodes = entries.iter().flatten().flatten().map(|(node, _, _)| *node);
        Ok(nodes.max().unwrap_or(NodeId::ROOT))
    }

    /// The validated flush. `task_of` returns the first-level node above a node; it is called for nodes up
    /// to [`Flush::last_node`].
    pub fn checked(
        self,
        worker: &WorkerId,
        task_of: impl Fn(NodeId) -> NodeId,
    ) -> Result<CheckedFlush, RecordError> {
        let clock = self.clock.ok_or(WireError::Missing {
            what: "the flush's clock",
        })?;
        let account = self.account.ok_or(WireError::Missing {
            what: "the flush's account",
        })?;
        let window = self
            .window
            .map(|window: LoggedWindow| {
                window.stored(worker, Epoch(self.epoch), clock.error_ns, &task_of)
            })
            .transpose()?;
        let names: Vec<Arc<str>> = self.names.into_iter().map(Into::into).collect();
        let tasks = self
            .tasks
            .into_iter()
            .map(|task| task.record(&names))
            .collect::<Result<_, _>>()?;
        let totals = v1::Flush {
            totals: self.totals,
            ..v1::Flush::default()
        };
        let totals = decode_telemetry(&totals, &|index| optional_string(&names, index))?.totals;
        let telemetry = self
            .telemetry
            .map_or(Ok(Telemetry::default()), LoggedTelemetry::into_telemetry)?;
        Ok(CheckedFlush {
            seq: self.seq,
            window,
            tasks,
            telemetry,
            totals,
            account,
            clock,
        })
    }
}

impl LoggedTask {
    fn of(task: &TaskRecord, names: &mut Strings) -> LoggedTask {
        let detail = task.detail.as_deref();
        LoggedTask {
            id: task.id.0,
            name: names.intern(&task.name),
            key: task.key.to_string(),
            thread_id: task.thread_id,
            thread_name: task.thread_name.to_string(),
            parent_id: task.parent.map(|parent| parent.0),
            start_ns: task.start.unix_ns(),
            stop_ns: task.stop.map(Timestamp::unix_ns),
            outcome: task.outcome as u32,
            cause: task.cause.to_string(),
            detail: detail
                .map(|detail| encode_detail(detail, &mut |text| names.intern_optional(text))),
        }
    }

    fn record(self, names: &[Arc<str>]) -> Result<TaskRecord, RecordError> {
        let name = names.get(self.name as usize);
        let outcome = Outcome::ALL.get(self.outcome as usize);
        let detail = self
            .detail
            .as_ref()
            .map(|detail| decode_detail(detail, &|index| optional_string(names, index)));
        Ok(TaskRecord {
            id: TaskId(self.id),
            name: name.ok_or(unknown("name of a task", self.name))?.clone(),
            key: self.key.into(),
            thread_id: self.thread_id,
            thread_name: self.thread_name.into(),
            parent: self.parent_id.map(TaskId),
            start: Timestamp::from_unix_ns(self.start_ns),
            stop: self.stop_ns.map(Timestamp::from_unix_ns),
            outcome: *outcome.ok_or(unknown("outcome", self.outcome))?,
            cause: self.cause.into(),
            detail: detail.transpose()?.flatten(),
        })
    }
}

fn unknown(what: &'static str, value: u32) -> RecordError {
    RecordError::Unknown {
        what,
        value: value.into(),
    }
}

/// An agent's description of itself at the start of its stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hello {
    #[prost(string, tag = "1")]
    pub worker: String,
    #[prost(fixed64, tag = "2")]
    pub epoch: u64,
    #[prost(sint64, tag = "3")]
    pub received_at_ns: i64,
    #[prost(btree_map = "string, string", tag = "4")]
    pub labels: BTreeMap<String, String>,
    #[prost(string, tag = "5")]
    pub host: String,
    #[prost(uint32, tag = "6")]
    pub pid: u32,
    #[prost(string, tag = "7")]
    pub agent_version: String,
    #[prost(string, tag = "8")]
    pub sampler_mode: String,
    #[prost(uint64, tag = "9")]
    pub interval_ns: u64,
    /// By the agent's clock.
    #[prost(sint64, tag = "10")]
    pub started_at_ns: i64,
    /// The stream has ended, and the agent ships to another collector: what is open continues there.
    #[prost(bool, tag = "11")]
    pub moved: bool,
    /// The agent has said Goodbye: its life is over.
    #[prost(bool, tag = "12")]
    pub ended: bool,
}

impl Hello {
    pub const KIND: u8 = 3;

    pub fn of(worker: &WorkerId, epoch: Epoch, received_at: Timestamp, agent: &AgentInfo) -> Hello {
        let AgentInfo {
            labels,
            host,
            pid,
            agent_version,
            sampler_mode,
            interval_ns,
            started_at,
        } = agent.clone();
        Hello {
            worker: worker.to_string(),
            epoch: epoch.0,
            received_at_ns: received_at.unix_ns(),
            labels,
            host,
            pid,
            agent_version,
            sampler_mode,
            interval_ns,
            started_at_ns: started_at.unix_ns(),
            moved: false,
            ended: false,
        }
    }

    pub fn agent(self) -> AgentInfo {
        AgentInfo {
            labels: self.labels,
            host: self.host,
            pid: self.pid,
            agent_version: self.agent_version,
            sampler_mode: self.sampler_mode,
            interval_ns: self.interval_ns,
            started_at: Timestamp::from_unix_ns(self.started_at_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::{
        Direction, ExpectedTasks, PhaseInterval, Resource, ResourceSample, RunId, RunMarker, State,
        TaskDetail, TaskTotals, Ticks, TimeRange, TransferEvent, TransferId,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::packed::PackedWeights;
    use crate::rows::StoredWindow;

    fn task() -> impl Strategy<Value = TaskRecord> {
        let times = (any::<i64>(), prop::option::of(any::<i64>()));
        let rest = (
            any::<u64>(),
            any::<u32>(),
            prop::option::of(any::<u64>()),
            detail(),
        );
        let outcome = prop::sample::select(&Outcome::ALL[..]);
        (text(), text(), text(), times, rest, outcome).prop_map(
            |(name, key, cause, (start, stop), (id, thread_id, parent, detail), outcome)| {
                TaskRecord {
                    id: TaskId(id),
                    name,
                    key: key.clone(),
                    thread_id,
                    thread_name: key,
                    parent: parent.map(TaskId),
                    start: Timestamp::from_unix_ns(start),
                    stop: stop.map(Timestamp::from_unix_ns),
                    outcome,
                    cause,
                    detail,
                }
            },
        )
    }

    fn text() -> impl Strategy<Value = Arc<str>> {
        "[a-c]{0,3}".prop_map(|text: String| Arc::<str>::from(text))
    }

    fn detail() -> impl Strategy<Value = Option<Box<TaskDetail>>> {
        let phase = (text(), -9..9i64, 0..99u64, 1..9u32).prop_map(
            |(name, start_ns, duration_ns, count)| PhaseInterval {
                name,
                start_ns,
                duration_ns,
                count,
            },
        );
        let phases = prop::collection::vec(phase, 0..4);
        let labels = prop::collection::vec((text(), text()), 0..3);
        (
            0..3u32,
            prop::option::of(any::<u64>()),
            text(),
            labels,
            phases,
        )
            .prop_map(|(attempt, result_bytes, type_name, labels, phases)| {
                let detail = TaskDetail {
                    attempt,
                    result_bytes,
                    type_name,
                    labels,
                    phases,
                };
                (detail != TaskDetail::default()).then(|| Box::new(detail))
            })
    }

    fn totals() -> impl Strategy<Value = TaskTotals> {
        let buckets = prop::collection::btree_map(0..50_000u32, 1..u64::MAX, 1..4);
        (task(), detail(), buckets, any::<u64>()).prop_map(
            |(task, detail, buckets, duration_ns)| TaskTotals {
                name: task.name,
                outcome: Outcome::Failed,
                second: task.start,
                duration_ns,
                buckets: buckets.into_iter().collect(),
                phases: detail.unwrap_or_default().phases,
            },
        )
    }

    fn task_of(node: NodeId) -> NodeId {
        NodeId(node.0 / 100 * 100)
    }

    fn window() -> impl Strategy<Value = StoredWindow> {
        let entry = (
            1..90_000u32,
            prop::sample::select(&State::ALL[..]),
            1..1_000u64,
        );
        let entries = prop::collection::vec(entry, 0..20);
        (
            entries,
            any::<i64>(),
            1..5_000u64,
            1..2_000_000u64,
            any::<[u64; 3]>(),
        )
            .prop_map(
                |(entries, start, length, quantum_ns, [made, expected, saved])| {
                    let start_ns = start.saturating_sub(5_000);
                    let start = Timestamp::from_unix_ns(start_ns);
                    let raw_start = Timestamp::from_unix_ns(start_ns / 3);
                    let stop = start.shifted(length.cast_signed());
                    let entries = entries
                        .into_iter()
                        .map(|(node, state, quanta)| (NodeId(node), state, quanta * quantum_ns));
                    let samples = PackedWeights::of(entries, quantum_ns, task_of);
                    let range = TimeRange::new(start, stop).unwrap_or(TimeRange::ALL);
                    StoredWindow {
                        worker: WorkerId("w".into()),
                        range,
                        samples: samples.clone(),
                        epoch: Epoch(made),
                        raw_start,
                        clock_error_ns: saved,
                        ticks: Ticks {
                            made,
                            expected,
                            throttled: saved,
                        },
                        threads: samples,
                    }
                },
            )
    }

    fn telemetry() -> impl Strategy<Value = Telemetry> {
        let at = Timestamp::from_unix_ns;
        let transfer = (
            task(),
            any::<u64>(),
            prop::option::of(any::<u64>()),
            0..2usize,
        )
            .prop_map(
                move |(task, bytes, compressed_bytes, direction)| TransferEvent {
                    id: TransferId(task.id.0.max(1)),
                    direction: Direction::ALL[direction],
                    peer: task.name,
                    keys: vec![task.key.clone(); direction],
                    more_keys: bytes,
                    type_name: task.cause.clone(),
                    bytes,
                    compressed_bytes,
                    start: task.start,
                    stop: task.start.shifted(i64::try_from(bytes >> 2).unwrap()),
                    task: task.parent.filter(|parent| parent.0 > 0),
                    thread_id: task.thread_id,
                    outcome: Outcome::Failed,
                    cause: task.cause,
                },
            );
        let sample = (any::<i64>(), any::<u64>()).prop_map(move |(time, value)| ResourceSample {
            at: at(time),
            period_ns: value,
            values: vec![(Resource::ProcessCpu, value), (Resource::Threads, 7)],
        });
        let run = (task(), any::<bool>()).prop_map(move |(task, is_open)| RunMarker {
            id: RunId(task.id.0.max(1)),
            name: task.name,
            start: task.start,
            stop: (!is_open).then(|| task.start.shifted(5).max(at(1))),
        });
        let expected = (task(), any::<u64>()).prop_map(|(task, total)| ExpectedTasks {
            name: task.name,
            total,
            since: task.start,
        });
        let parts = (
            prop::collection::vec(transfer, 0..4),
            prop::collection::vec(sample, 0..4),
            prop::collection::vec(run, 0..3),
            prop::collection::vec(expected, 0..3),
        );
        parts.prop_map(|(transfers, resources, runs, expected)| Telemetry {
            transfers,
            resources,
            runs,
            expected,
            ..Telemetry::default()
        })
    }

    proptest! {
        #[test]
        fn a_flush_is_read_back(
            window in prop::option::of(window()), tasks in prop::collection::vec(task(), 0..9),
            totals in prop::collection::vec(totals(), 0..3),
            seq in any::<u64>(), offset_ns in any::<i64>(), accepted_ns in any::<u64>(),
            telemetry in telemetry(),
        ) {
            let epoch = window.as_ref().map_or(Epoch(0), |window| window.epoch);
            let error_ns = window.as_ref().map_or(0, |window| window.clock_error_ns);
            let last = window.iter().flat_map(|window| window.samples.entries()).map(|(node, _, _)| node).max().unwrap_or(NodeId::ROOT);
            let checked = CheckedFlush {
                seq,
                window,
                tasks,
                telemetry,
                totals,
                account: v1::LossAccount { accepted_ns, ..Default::default() },
                clock: v1::Clock { offset_ns, error_ns },
            };
            let worker = WorkerId("w".into());
            let record = Flush::of(&worker, epoch, Timestamp::from_unix_ns(5), &checked);
            let bytes = record.encode_to_vec();
            let Ok(Record::Flush(back)) = Record::decode(Flush::KIND, &bytes) else { panic!() };
            prop_assert_eq!(&*back, &record);
            prop_assert_eq!(back.last_node(), Ok(last));
            prop_assert_eq!(back.checked(&worker, task_of), Ok(checked));
        }

        #[test]
        fn any_bytes_are_a_record_or_rejected(
            kind in 0..5u8, bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(Record::Flush(flush)) = Record::decode(kind, &bytes) {
                let _ = flush.last_node();
                let _ = flush.checked(&WorkerId("w".into()), task_of);
            }
        }
    }

    #[test]
    fn an_unknown_kind_is_rejected() {
        assert_eq!(Record::decode(9, &[]), Err(RecordError::Kind(9)));
    }
}
