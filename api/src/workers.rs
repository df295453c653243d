//! Workers, their settings, and what their threads do now.

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

use crate::{TimeRange, Word};

/// Answer of `/api/v1/workers`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct WorkersAnswer {
    /// By the collector's clock.
    pub now: String,
    /// By the collector's clock, since the Unix epoch.
    pub now_ns: i64,
    /// Whether flushes are accepted.
    pub ingest: IngestStatus,
    /// By id, or those that need attention first.
    pub workers: Vec<WorkerEpochs>,
    /// Number of further workers, after the last one that is listed.
    pub omitted: u64,
    /// All these workers, listed or not.
    pub counts: WorkerCounts,
    /// The services whose profiles are pushed or scraped, those with most series first, at most 1,000.
    #[serde(default)]
    pub services: Vec<Service>,
    /// Quotas that were met since the collector started, those with the most refusals first.
    pub quotas: Vec<QuotaUse>,
    /// Pushes of foreign profilers since the collector started, by source.
    pub pushes: Vec<PushCounts>,
    /// The services that the collector scrapes, by name.
    pub scrapes: Vec<Scrape>,
    /// The servers to which the collector forwards.
    pub forwards: Vec<Forward>,
    /// The stores that the server reads, by name; empty if it is a collector itself.
    pub stores: Vec<Store>,
    /// Data that the collector retains.
    pub retained: Retained,
}

/// Number of workers, by the state of their newest life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct WorkerCounts {
    /// Those with a connected agent.
    pub connected: u64,
    /// Those whose agent may come back.
    pub away: u64,
    /// The others.
    pub gone: u64,
    /// Of all these, those that need attention: what `sort=attention` lists first.
    pub need_attention: u64,
}

/// The series of a service: workers without an agent whose label `service_name` is the same.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Service {
    /// The value of the label; empty if series have none.
    pub name: String,
    /// Number of series.
    pub series: u64,
    /// Of these, the ones that were pushed lately.
    pub connected: u64,
    /// When the newest push came.
    pub last_seen: String,
}

/// Answer of `/api/v1/workers/names`: what menus offer.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct WorkerNamesAnswer {
    /// By id.
    pub workers: Vec<WorkerName>,
    /// Number of further workers with the text.
    pub omitted: u64,
    /// Those that most workers have first.
    pub labels: Vec<LabelCount>,
    /// Number of further labels with the text.
    pub labels_omitted: u64,
}

/// A worker in a menu.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct WorkerName {
    /// Its id.
    pub worker: String,
    /// The machine of its latest agent.
    pub host: String,
}

/// A label in a menu.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct LabelCount {
    /// `KEY=VALUE`.
    pub label: String,
    /// Number of workers whose latest agent has it.
    pub workers: u64,
}

/// The store of a collector, as another server reads it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Store {
    /// Of its collector.
    pub name: String,
    /// When it was last found to be as it is in answers; `None` if it was never read.
    pub read_at: Option<String>,
    /// Why a part of it is missing from answers; `None` if nothing is.
    pub incomplete: Option<String>,
    /// How far the clock of its collector is ahead of that of the store's server, in nanoseconds; `None` until the
    /// collector has sealed data while this server reads its store.
    pub clock_ahead_ns: Option<i64>,
    /// Warning about that difference, if it is large.
    pub clock_warning: Option<String>,
}

/// How often an identity met one of its quotas.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct QuotaUse {
    /// An address, `token 3f9a2c01`, `user 1000` or `certificate of w-1`.
    pub identity: String,
    /// Name of the quota, such as `bytes_per_second`.
    pub quota: Word,
    /// Its value; `None` if it is a fair share of what all identities use.
    pub value: Option<u64>,
    /// Streams and requests that were refused or ended, and dictionaries and tasks that lost detail.
    pub refused: u64,
    /// Messages that had to wait.
    pub delayed: u64,
    /// When that was last.
    pub last: String,
}

/// Outcomes of pushes by foreign profilers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct PushCounts {
    /// The protocol: `pyroscope` or `otlp`; `scrape` if the collector fetched them.
    pub source: Word,
    /// Series of which something came in the last minutes.
    pub series: u64,
    /// Requests that were stored.
    pub stored: u64,
    /// Time in them.
    pub stored_ns: u64,
    /// Requests without samples.
    pub empty: u64,
    /// Requests whose profiles do not measure time, which are dropped.
    pub without_time: u64,
    /// Requests that were refused.
    pub rejected: u64,
    /// Why the last one was.
    pub last_rejection: Option<String>,
}

/// A service that the collector scrapes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Scrape {
    /// Its name. Its worker is `scrape:NAME`.
    pub name: String,
    /// Its address, without a password.
    pub url: String,
    /// Length of each profile.
    pub every_ns: u64,
    /// Profiles that were stored.
    pub stored: u64,
    /// When the last one was stored.
    pub stored_at: Option<String>,
    /// Attempts without a profile.
    pub failed: u64,
    /// Why there is none since the last one.
    pub failure: Option<String>,
}

/// A server to which the collector forwards, and the outcome: accepted is the sum of sent, waiting and lost.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Forward {
    /// Its address, without a password.
    pub url: String,
    /// `pyroscope` or `otlp` for profiles, `otlp_traces` for tasks.
    pub protocol: Word,
    /// Unit of the counts: `ns` of thread time, or `tasks`.
    pub unit: Word,
    /// Everything that was to be sent.
    pub accepted: u64,
    /// Accepted by the server.
    pub sent: u64,
    /// In the queue.
    pub waiting: u64,
    /// Size of the queue.
    pub waiting_bytes: u64,
    /// Found no room in the queue.
    pub lost_queue: u64,
    /// Rejected by the server.
    pub lost_rejected: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// When the server accepted the last message.
    pub sent_at: Option<String>,
    /// Why the last attempt failed, or why the server rejected a part of it.
    pub failure: Option<String>,
}

/// Whether flushes are accepted; all but `open` is `None` if they are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct IngestStatus {
    /// Whether flushes are accepted.
    pub open: bool,
    /// `disk_full`, `behind` or `log_failed`.
    pub cause: Option<Word>,
    /// The cause in words.
    pub reason: Option<String>,
    /// Since when.
    pub since: Option<String>,
    /// Since when, since the Unix epoch.
    pub since_ns: Option<i64>,
    /// Folder of the full disk.
    pub folder: Option<String>,
    /// Free room of that disk.
    pub free_bytes: Option<u64>,
    /// Size of that disk.
    pub disk_bytes: Option<u64>,
    /// Free room below which nothing is accepted.
    pub needed_bytes: Option<u64>,
}

/// A worker that has reported.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct WorkerEpochs {
    /// Its id.
    pub worker: String,
    /// Lives of its agent, the newest last.
    pub epochs: Vec<Epoch>,
}

/// One life of a worker's agent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Epoch {
    /// Its number, in hexadecimal.
    pub epoch: String,
    /// Labels of the worker.
    #[cfg_attr(test, ts(type = "Record<string, string>"))]
    pub labels: BTreeMap<String, String>,
    /// Name of the machine.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Version of the agent.
    pub agent_version: String,
    /// How the sampler works there, and why it is degraded; `None` if not yet reported.
    pub sampler_mode: Option<String>,
    /// Threads that block the sampler's signal and so have no stacks while they run.
    pub signal_blocked_threads: u32,
    /// When the first of them was noticed; `None` if there are none.
    pub signal_blocked_since: Option<String>,
    /// Time between two samples.
    pub interval_ns: u64,
    /// Whether threads are sampled.
    pub enabled: bool,
    /// States whose time is recorded.
    #[cfg_attr(test, ts(type = "State[]"))]
    pub states: Vec<Word>,
    /// Whether the agent has yet to apply the desired settings.
    pub settings_pending: bool,
    /// When the agent started, by its own clock.
    pub started_at: String,
    /// `connected`, `away` or `gone`.
    #[cfg_attr(test, ts(type = "'connected' | 'away' | 'gone'"))]
    #[cfg_attr(test, schemars(extend("examples" = ["connected", "away", "gone"])))]
    pub state: Word,
    /// Whether it is connected.
    pub connected: bool,
    /// When it connected first.
    pub first_seen: String,
    /// When it was last heard of.
    pub last_seen: String,
    /// How its stream ended; `None` while it is connected.
    pub disconnect: Option<Disconnect>,
    /// Its clock compared with the collector's; `None` before its first flush.
    pub clock: Option<Clock>,
    /// How far the end of its last data was ahead of the collector's clock: its clock is; 0 below 2 s.
    pub data_ahead_ns: u64,
    /// Ticks taken.
    pub ticks: u64,
    /// Ticks due by the interval.
    pub ticks_expected: u64,
    /// Ticks skipped to stay within the CPU limit.
    pub ticks_throttled: u64,
    /// Number of the last acknowledged flush.
    pub acked_seq: u64,
    /// Sampled data, against stored and lost data.
    pub account: LossAccount,
    /// Messages that were rejected, whole or in part, since the collector started.
    pub rejected: u64,
    /// Why the last one was.
    pub last_rejection: Option<String>,
    /// Tasks that run.
    pub running_tasks: usize,
}

/// How the stream of an agent ended.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Disconnect {
    /// `clean`, `crashed` (the connection closed without a clean disconnect), `silent` (messages
    /// stopped), `rejected` (by the collector) or `unknown` (the collector was restarted).
    #[cfg_attr(
        test,
        ts(type = "'clean' | 'crashed' | 'silent' | 'rejected' | 'unknown'")
    )]
    #[cfg_attr(test, schemars(extend("examples" = ["clean", "crashed", "silent", "rejected", "unknown"])))]
    pub reason: Word,
    /// The reason in words.
    pub cause: Word,
    /// Recommended action; `None` if there is none.
    pub next_step: Option<String>,
    /// When the stream ended.
    pub at: String,
    /// When the stream ended, since the Unix epoch.
    pub at_ns: i64,
}

/// A worker's clock compared with the collector's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Clock {
    /// How far it is off.
    pub offset_ns: i64,
    /// How far the offset may be wrong.
    pub error_ns: u64,
}

/// Data that an agent sampled, against the data that the collector stored and that either counted as lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct LossAccount {
    /// Thread time that the agent sampled.
    pub accepted_ns: u64,
    /// Thread time that the collector stored.
    pub stored_ns: u64,
    /// Thread time of rejected flushes.
    pub lost_rejected_ns: u64,
    /// Thread time of flushes that the collector acknowledged in a life whose data it no longer has.
    pub lost_by_collector_ns: u64,
    /// Thread time that the agent lost: its queue had no room for it, or its sampler did not count it.
    pub lost_queue_ns: u64,
    /// Thread time in `lost_queue_ns` that the sampler did not count, since the collector started.
    pub lost_unseen_ns: u64,
    /// Records of tasks that were lost.
    pub lost_tasks: u64,
    /// Transfers and resource samples that were lost.
    pub lost_telemetry: u64,
    /// Tasks that came as sums, without rows.
    pub aggregated_tasks: u64,
    /// `accepted_ns` − `stored_ns` − what was lost.
    pub unaccounted_ns: i128,
    /// Whether that is 0.
    pub balanced: bool,
}

/// Data that the collector retains.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Retained {
    /// The span of all samples.
    pub data: Option<TimeRange>,
    /// Windows in memory that are in no table yet.
    pub unsealed_windows: usize,
    /// Their size.
    pub unsealed_bytes: usize,
    /// Files of tables.
    pub files: usize,
    /// Their size.
    pub file_bytes: u64,
    /// Nodes of the tree of stacks.
    pub nodes: u32,
    /// Tasks in memory.
    pub task_rows: usize,
    /// Tasks that are in sums only.
    pub task_rows_aggregated: u64,
}

/// Body of `PUT /api/v1/workers/settings`: `None` changes nothing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct SettingsChange {
    /// Time between two samples, 1 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<f64>,
    /// Whether threads are sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// States whose time is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub states: Option<Vec<String>>,
}

/// Answer of `PUT /api/v1/workers/settings`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct SettingsAnswer {
    /// The workers that were to change.
    pub workers: Vec<WorkerSettings>,
}

/// Settings of a worker.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct WorkerSettings {
    /// Id of the worker.
    pub worker: String,
    /// Its life, in hexadecimal; `None` if it is not connected.
    pub epoch: Option<String>,
    /// Whether it is connected.
    pub connected: bool,
    /// Whether its agent confirmed the settings.
    pub applied: bool,
    /// Time between two samples.
    pub interval_ns: Option<u64>,
    /// Whether threads are sampled.
    pub enabled: Option<bool>,
    /// States whose time is recorded.
    #[cfg_attr(test, ts(type = "State[] | null"))]
    pub states: Option<Vec<Word>>,
}

/// Answer of `/api/v1/thread-dump`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct ThreadDumpAnswer {
    /// By the collector's clock.
    pub now: String,
    /// By the collector's clock, since the Unix epoch.
    pub now_ns: i64,
    /// The workers that were asked.
    pub workers: Vec<WorkerThreads>,
}

/// The threads of one worker.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct WorkerThreads {
    /// Id of the worker.
    pub worker: String,
    /// Its life, in hexadecimal; `None` if it is not connected.
    pub epoch: Option<String>,
    /// Whether its agent responded.
    pub responded: bool,
    /// Why not.
    pub reason: Option<String>,
    /// Threads that are not listed, because there are too many.
    pub omitted: u64,
    /// Running threads first, then the largest groups.
    pub groups: Vec<ThreadGroup>,
}

/// Threads with the same stack in the same state.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct ThreadGroup {
    /// `task`, `no_task`, `agent`, `overflow`, or `not_seen` for threads that are too young.
    pub kind: Word,
    /// Name of the task that they run.
    pub task: Option<String>,
    /// Their state; `None` if not seen yet.
    #[cfg_attr(test, ts(type = "State | null"))]
    pub state: Option<Word>,
    /// The innermost function first.
    pub stack: Vec<StackFrame>,
    /// The threads.
    pub threads: Vec<ThreadSnapshot>,
}

/// A call on a stack.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct StackFrame {
    /// Name of the function.
    pub name: String,
    /// Path of the program or library that has it; empty if unknown.
    #[serde(default)]
    pub module: String,
    /// Path of its source file; empty if unknown.
    pub file: String,
    /// Line in that file; 0 if unknown.
    pub line: u32,
    /// Whether the compiler put it into its caller.
    pub inlined: bool,
    /// Whether it says nothing about the program: how threads start, and how calls pass through the
    /// language and runtimes.
    #[serde(default)]
    pub plumbing: bool,
}

/// A thread as last observed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct ThreadSnapshot {
    /// The system's id.
    pub id: u32,
    /// Its name; empty if it has ended.
    pub name: String,
    /// For how long it has been observed blocked there; 0 if it runs.
    pub blocked_ns: u64,
    /// Age of the observation.
    pub age_ns: u64,
}
