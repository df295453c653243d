//! Events, and the stream that tells pages of new data.

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

use crate::{Disconnect, IngestStatus, Run, Task, Word};

/// Answer of `/api/v1/events/recent`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct EventsAnswer {
    /// The newest first.
    pub events: Vec<FleetEvent>,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct FleetEvent {
    /// Its number, from 1 in each life of the collector.
    pub id: u64,
    /// Such as `task_ended` or `worker_gone`.
    pub kind: Word,
    /// When the collector learned of it.
    pub at: String,
    /// When the collector learned of it, since the Unix epoch.
    pub at_ns: i64,
    /// Its subject.
    #[cfg_attr(test, ts(type = "Record<string, unknown>"))]
    pub data: Subject,
}

/// Subject of an event: the payload of `/api/v1/events`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(untagged)]
pub enum Subject {
    /// A task that started or ended.
    Task(Box<Task>),
    /// A worker that connected or left.
    Worker(Box<WorkerIdentity>),
    /// A run that started or stopped.
    Run(Box<Run>),
    /// A file of the store that was found corrupt.
    CorruptFile(CorruptFile),
    /// Ingestion that stopped or resumed.
    IngestStatus(Box<IngestStatus>),
}

/// A life of a worker.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct WorkerIdentity {
    /// Id of the worker.
    pub worker: String,
    /// Its life, in hexadecimal.
    pub epoch: String,
    /// Name of the machine.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Labels of the worker.
    pub labels: BTreeMap<String, String>,
    /// When it was last heard of.
    pub last_seen: String,
    /// How its stream ended; `None` if it is connected.
    pub disconnect: Option<Disconnect>,
    /// Number of further pushed series of which the same is true, in answers about recent events.
    #[serde(default)]
    pub others: u64,
    /// Some of them.
    #[serde(default)]
    pub other_workers: Vec<String>,
}

/// A file of the store that was found corrupt.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CorruptFile {
    /// Path of the file in the store.
    pub name: String,
    /// The problem found.
    pub reason: String,
}

/// Payload of the event `update` of `/api/v1/updates`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Update {
    /// By the collector's clock, since the Unix epoch.
    pub now_ns: i64,
    /// End of the samples, since the Unix epoch.
    pub data_to_ns: Option<i64>,
    /// Flushes accepted since the collector started: changes with any new data.
    pub flushes: u64,
    /// Why ingestion stopped; `None` if it has not.
    pub ingest_stopped: Option<String>,
}
