//! What the frames of the log mean: records in the collector's own terms (its nodes, its clock).
//! They are protobuf messages; a tag once used keeps its meaning.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use profiler_core::wire::{WireError, decode_cycle, encode_cycle, v1};
use profiler_core::{Epoch, Outcome, TaskId, TaskRecord, Ticks, Timestamp, Window, WorkerId};
use prost::Message as _;

use crate::hot::StoredWindow;
use crate::session::{Checked, Greeting};

/// Why the bytes of a good frame are no record.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RecordError {
    #[error("a record of the unknown kind {0}")]
    Kind(u8),
    #[error("the record cannot be decoded: {0}")]
    Decode(#[from] prost::DecodeError),
    #[error("the record is wrong: {0}")]
    Wire(#[from] WireError),
    #[error("the record's {what} {value} is unknown")]
    Unknown { what: &'static str, value: u64 },
}

/// Anything that the log holds.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Record {
    Growth(Growth),
    Flush(Box<Flush>),
    Hello(Hello),
}

impl Record {
    pub(crate) fn decode(kind: u8, payload: &[u8]) -> Result<Record, RecordError> {
        Ok(match kind {
            Growth::KIND => Record::Growth(Growth::decode(payload)?),
            Flush::KIND => Record::Flush(Box::new(Flush::decode(payload)?)),
            Hello::KIND => Record::Hello(Hello::decode(payload)?),
            other => return Err(RecordError::Kind(other)),
        })
    }
}

/// Frames and nodes that the collector's tree got since the last growth in the log. What comes after
/// in the log refers to them.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Growth {
    /// Texts of the frames, by their place here plus 1; 0 is the empty text.
    #[prost(string, repeated, tag = "1")]
    pub(crate) strings: Vec<String>,
    #[prost(uint32, tag = "2")]
    pub(crate) frame_base: u32,
    #[prost(message, repeated, tag = "3")]
    pub(crate) frames: Vec<GrownFrame>,
    #[prost(uint32, tag = "4")]
    pub(crate) node_base: u32,
    /// For node n: n - parent, so always at least 1.
    #[prost(uint32, repeated, tag = "5")]
    pub(crate) node_parent_gaps: Vec<u32>,
    /// Frames of the collector's tree.
    #[prost(uint32, repeated, tag = "6")]
    pub(crate) node_frames: Vec<u32>,
}

impl Growth {
    pub(crate) const KIND: u8 = 1;
}

/// A frame, its texts by their place in the record.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GrownFrame {
    /// 0 task, 1 no task, 2 agent, 3 truncated, 4 overflow, 5 function, 6 unresolved.
    #[prost(uint32, tag = "1")]
    pub(crate) kind: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) function: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) file: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) line: u32,
    #[prost(uint32, tag = "5")]
    pub(crate) module: u32,
    #[prost(uint32, tag = "6")]
    pub(crate) build_id: u32,
    #[prost(uint64, tag = "7")]
    pub(crate) offset: u64,
    #[prost(bool, tag = "8")]
    pub(crate) inlined: bool,
}

/// A flush that was checked. Times are the collector's, but for the raw start.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Flush {
    #[prost(string, tag = "1")]
    pub(crate) worker: String,
    #[prost(fixed64, tag = "2")]
    pub(crate) epoch: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) seq: u64,
    #[prost(sint64, tag = "4")]
    pub(crate) received_at_ns: i64,
    #[prost(message, optional, tag = "5")]
    pub(crate) clock: Option<v1::Clock>,
    #[prost(message, optional, tag = "6")]
    pub(crate) account: Option<v1::Account>,
    /// By the collector's clock and nodes.
    #[prost(message, optional, tag = "7")]
    pub(crate) cycle: Option<v1::Cycle>,
    /// The cycle's start by the agent's clock.
    #[prost(sint64, tag = "8")]
    pub(crate) raw_start_ns: i64,
    /// Names of the tasks.
    #[prost(string, repeated, tag = "9")]
    pub(crate) names: Vec<String>,
    #[prost(message, repeated, tag = "10")]
    pub(crate) tasks: Vec<LoggedTask>,
}

/// A row of the ledger.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LoggedTask {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// Place among the record's names.
    #[prost(uint32, tag = "2")]
    pub(crate) name: u32,
    #[prost(string, tag = "3")]
    pub(crate) key: String,
    #[prost(uint32, tag = "4")]
    pub(crate) thread_id: u32,
    #[prost(string, tag = "5")]
    pub(crate) thread_name: String,
    #[prost(uint64, optional, tag = "6")]
    pub(crate) parent_id: Option<u64>,
    #[prost(sint64, tag = "7")]
    pub(crate) start_ns: i64,
    /// Nothing while it runs.
    #[prost(sint64, optional, tag = "8")]
    pub(crate) stop_ns: Option<i64>,
    /// Place in [`Outcome::ALL`].
    #[prost(uint32, tag = "9")]
    pub(crate) outcome: u32,
    #[prost(string, tag = "10")]
    pub(crate) cause: String,
}

impl Flush {
    pub(crate) const KIND: u8 = 2;

    /// What is logged of a flush of that worker's life.
    pub(crate) fn of(
        worker: &WorkerId,
        epoch: Epoch,
        received_at: Timestamp,
        checked: &Checked,
    ) -> Flush {
        let stored = checked.window.as_ref();
        let cycle = stored.map(|stored| v1::Cycle {
            ticks: stored.ticks.made,
            ticks_expected: stored.ticks.expected,
            ticks_saved: stored.ticks.saved,
            ..encode_cycle(&stored.window.delta, stored.window.range, checked.quantum_ns)
        });
        let mut names = Vec::new();
        let mut known = HashMap::new();
        let tasks = checked.tasks.iter().map(|task| {
            let name = known.entry(&task.name).or_insert_with(|| {
                names.push(task.name.to_string());
                u32::try_from(names.len() - 1).expect("the tasks of a flush are limited")
            });
            LoggedTask::of(task, *name)
        });
        let tasks = tasks.collect();
        Flush {
            worker: worker.to_string(),
            epoch: epoch.0,
            seq: checked.seq,
            received_at_ns: received_at.unix_ns(),
            clock: Some(checked.clock),
            account: Some(checked.account),
            cycle,
            raw_start_ns: stored.map_or(0, |stored| stored.raw_start.unix_ns()),
            names,
            tasks,
        }
    }

    /// The flush as it was checked. Whether its nodes are in the tree is the caller's to see.
    pub(crate) fn checked(self, worker: &WorkerId) -> Result<Checked, RecordError> {
        let clock = self.clock.ok_or(WireError::Missing { what: "the flush's clock" })?;
        let account = self.account.ok_or(WireError::Missing { what: "the flush's account" })?;
        let window = match &self.cycle {
            None => None,
            Some(cycle) => {
                let (range, delta) = decode_cycle(cycle, u32::MAX)?;
                Some(StoredWindow {
                    window: Window { worker: worker.clone(), range, delta },
                    epoch: Epoch(self.epoch),
                    raw_start: Timestamp::from_unix_ns(self.raw_start_ns),
                    clock_error_ns: clock.error_ns,
                    ticks: Ticks {
                        made: cycle.ticks,
                        expected: cycle.ticks_expected,
                        saved: cycle.ticks_saved,
                    },
                })
            }
        };
        let quantum_ns = self.cycle.map_or(1, |cycle| cycle.quantum_ns);
        let names: Vec<Arc<str>> = self.names.into_iter().map(Into::into).collect();
        let tasks = self.tasks.into_iter().map(|task| task.record(&names));
        let tasks = tasks.collect::<Result<_, _>>()?;
        Ok(Checked { seq: self.seq, window, quantum_ns, tasks, account, clock })
    }
}

impl LoggedTask {
    fn of(task: &TaskRecord, name: u32) -> LoggedTask {
        LoggedTask {
            id: task.id.0,
            name,
            key: task.key.to_string(),
            thread_id: task.thread_id,
            thread_name: task.thread_name.to_string(),
            parent_id: task.parent.map(|parent| parent.0),
            start_ns: task.start.unix_ns(),
            stop_ns: task.stop.map(Timestamp::unix_ns),
            outcome: task.outcome as u32,
            cause: task.cause.to_string(),
        }
    }

    fn record(self, names: &[Arc<str>]) -> Result<TaskRecord, RecordError> {
        let unknown = |what, value: u32| RecordError::Unknown { what, value: value.into() };
        let name = names.get(self.name as usize);
        let outcome = Outcome::ALL.get(self.outcome as usize);
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
        })
    }
}

/// What an agent said of itself when its stream began.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Hello {
    #[prost(string, tag = "1")]
    pub(crate) worker: String,
    #[prost(fixed64, tag = "2")]
    pub(crate) epoch: u64,
    #[prost(sint64, tag = "3")]
    pub(crate) received_at_ns: i64,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(crate) labels: BTreeMap<String, String>,
    #[prost(string, tag = "5")]
    pub(crate) host: String,
    #[prost(uint32, tag = "6")]
    pub(crate) pid: u32,
    #[prost(string, tag = "7")]
    pub(crate) agent_version: String,
    #[prost(string, tag = "8")]
    pub(crate) sampler_mode: String,
    #[prost(uint64, tag = "9")]
    pub(crate) interval_ns: u64,
    /// By the agent's clock.
    #[prost(sint64, tag = "10")]
    pub(crate) started_at_ns: i64,
}

impl Hello {
    pub(crate) const KIND: u8 = 3;

    pub(crate) fn of(
        worker: &WorkerId,
        epoch: Epoch,
        received_at: Timestamp,
        greeting: &Greeting,
    ) -> Hello {
        let Greeting { labels, host, pid, agent_version, sampler_mode, interval_ns, started_at } =
            greeting.clone();
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
        }
    }

    pub(crate) fn greeting(self) -> Greeting {
        Greeting {
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
    use profiler_core::{Delta, NodeId, State, TimeRange};
    use proptest::prelude::*;

    use super::*;

    fn task() -> impl Strategy<Value = TaskRecord> {
        let text = || "[a-c]{0,3}".prop_map(|text: String| Arc::<str>::from(text));
        let times = (any::<i64>(), prop::option::of(any::<i64>()));
        let rest = (any::<u64>(), any::<u32>(), prop::option::of(any::<u64>()));
        let outcome = prop::sample::select(&Outcome::ALL[..]);
        (text(), text(), text(), times, rest, outcome).prop_map(
            |(name, key, cause, (start, stop), (id, thread_id, parent), outcome)| TaskRecord {
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
            },
        )
    }

    fn window() -> impl Strategy<Value = (StoredWindow, u64)> {
        let entry = (1..90_000u32, prop::sample::select(&State::ALL[..]), 1..1_000u64);
        let entries = prop::collection::vec(entry, 0..20);
        (entries, any::<i64>(), 1..5_000u64, 1..2_000_000u64, any::<[u64; 3]>()).prop_map(
            |(entries, start, length, quantum_ns, [made, expected, saved])| {
                let start = start.saturating_sub(5_000);
                let (start, raw_start) =
                    (Timestamp::from_unix_ns(start), Timestamp::from_unix_ns(start / 3));
                let stop = start.shifted(length.cast_signed());
                let delta: Delta = entries
                    .into_iter()
                    .map(|(node, state, quanta)| (NodeId(node), state, quanta * quantum_ns))
                    .collect();
                let range = TimeRange::new(start, stop).unwrap_or(TimeRange::ALL);
                let window = StoredWindow {
                    window: Window { worker: WorkerId("w".into()), range, delta },
                    epoch: Epoch(made),
                    raw_start,
                    clock_error_ns: saved,
                    ticks: Ticks { made, expected, saved },
                };
                (window, quantum_ns)
            },
        )
    }

    proptest! {
        #[test]
        fn a_flush_is_read_back_as_it_was_checked(
            window in prop::option::of(window()), tasks in prop::collection::vec(task(), 0..9),
            seq in any::<u64>(), offset_ns in any::<i64>(), accepted_ns in any::<u64>(),
        ) {
            let quantum_ns = window.as_ref().map_or(1, |(_, quantum_ns)| *quantum_ns);
            let epoch = window.as_ref().map_or(Epoch(0), |(window, _)| window.epoch);
            let error_ns = window.as_ref().map_or(0, |(window, _)| window.clock_error_ns);
            let checked = Checked {
                seq,
                window: window.map(|(window, _)| window),
                quantum_ns,
                tasks,
                account: v1::Account { accepted_ns, ..Default::default() },
                clock: v1::Clock { offset_ns, error_ns },
            };
            let worker = WorkerId("w".into());
            let record = Flush::of(&worker, epoch, Timestamp::from_unix_ns(5), &checked);
            let bytes = record.encode_to_vec();
            let Ok(Record::Flush(back)) = Record::decode(Flush::KIND, &bytes) else { panic!() };
            prop_assert_eq!(&*back, &record);
            prop_assert_eq!(back.checked(&worker), Ok(checked));
        }

        #[test]
        fn any_bytes_are_a_record_or_refused(
            kind in 0..5u8, bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(Record::Flush(flush)) = Record::decode(kind, &bytes) {
                let _ = flush.checked(&WorkerId("w".into()));
            }
        }
    }

    #[test]
    fn an_unknown_kind_is_refused() {
        assert_eq!(Record::decode(9, &[]), Err(RecordError::Kind(9)));
    }
}
