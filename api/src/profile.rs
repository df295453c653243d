//! Where time went: profiles, timelines, time by thread.

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

use crate::{TimeRange, Word};

/// Answer of `/api/v1/profile` as JSON, without its last member `profile`: the profile itself is as
/// documented at `flamegraph::ProfileJson` and `flamegraph::ProfileColumns`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct ProfileAnswer {
    /// The range of the answer: larger than requested where detail is no longer retained.
    pub range: TimeRange,
    /// The query's parameters.
    pub filter: Filter,
    /// Kind of the nodes: `function` or `line`.
    pub by: Word,
    /// Workers with samples in the range, by id; the first 1,000.
    pub workers: Vec<String>,
    /// Number of all of them.
    pub worker_count: usize,
    /// How well the range was sampled.
    #[serde(flatten)]
    pub sampling: Sampling,
    /// Thread time of the profile.
    pub totals: Totals,
    /// Thread time that the request hides.
    pub hidden: Hidden,
    /// Functions that are folded into their callers.
    pub folded: usize,
    /// Number of groups that are summed in `[other]`.
    #[serde(default)]
    pub others: usize,
    /// Whether there is no time in it.
    pub empty: bool,
    /// The span of all retained samples.
    pub data: Option<TimeRange>,
    /// Files of the store that could not be read.
    pub corrupt_files: Vec<String>,
    /// Time in functions without a name.
    pub unnamed: Unnamed,
}

/// Own time in functions that have no name, because neither their agent nor the collector has symbols.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Unnamed {
    /// All of it.
    pub total_ns: u64,
    /// Whether names are being looked up: a later answer has more.
    pub pending: bool,
    /// By module, those with the most time first; at most 20.
    pub modules: Vec<UnnamedModule>,
}

/// A module without symbols.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct UnnamedModule {
    /// Path of the executable or library.
    pub module: String,
    /// Its build id, in hexadecimal; empty if it has none.
    pub build_id: String,
    /// Own time in it.
    pub own_ns: u64,
    /// `pending`, `no_file`, `no_function`, `no_segments`, `unusable` or `no_build_id`.
    pub reason: Word,
    /// The same in words, with what to do.
    pub help: String,
}

/// Thread time of the selected tasks, phases, workers and threads that a profile does not show. Each time
/// is hidden for the first reason that applies, so the sums and the profile's totals add up to the whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Hidden {
    /// Outside of tasks.
    pub outside_ns: u64,
    /// In states that were not selected.
    pub states: Totals,
    /// By `focus` and `hide`.
    pub functions_ns: u64,
    /// Not below the zoomed node.
    pub zoom_ns: u64,
    /// Sum of all.
    pub total_ns: u64,
}

/// Restrictions of a query. Empty lists restrict nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Filter {
    /// Names of tasks.
    pub tasks: Vec<String>,
    /// Ids of workers.
    pub workers: Vec<String>,
    /// States of threads.
    #[cfg_attr(test, ts(type = "State[]"))]
    pub states: Vec<Word>,
    /// Selected threads: `program`, `agent` or `all`.
    pub threads: Word,
}

/// How well a range was sampled.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Sampling {
    /// Cycles of workers, each of about a second.
    pub worker_seconds: u64,
    /// Their total length.
    pub sampled_ns: u64,
    /// Ticks taken; each probes all threads.
    pub ticks: u64,
    /// Ticks due by the interval.
    pub ticks_expected: u64,
    /// Ticks skipped by agents to stay within their CPU limit.
    pub ticks_throttled: u64,
    /// Ticks neither taken nor throttled.
    pub ticks_missed: u64,
    /// Ticks per second and worker; `None` if nothing was sampled.
    pub achieved_rate_hz: Option<f64>,
    /// Share of the expected ticks that was taken; `None` if none was expected.
    pub achieved_share: Option<f64>,
}

/// Thread time by state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Totals {
    /// Running on a CPU.
    pub cpu_ns: u64,
    /// Ready, waiting for a CPU.
    pub runnable_ns: u64,
    /// Waiting for a lock or another thread.
    pub lock_ns: u64,
    /// Waiting for the lock of an interpreter, such as CPython's GIL.
    #[serde(default)]
    pub interpreter_ns: u64,
    /// Sleeping.
    pub sleep_ns: u64,
    /// Waiting for the network.
    pub network_ns: u64,
    /// Waiting for a file.
    pub disk_ns: u64,
    /// Waiting for anything else.
    pub other_ns: u64,
    /// Sum of `lock_ns` to `other_ns`.
    pub wait_ns: u64,
    /// Sum of all states.
    pub total_ns: u64,
}

/// Answer of `/api/v1/timeline`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct TimelineAnswer {
    /// The range of the answer.
    pub range: TimeRange,
    /// The query's parameters.
    pub filter: Filter,
    /// Start of the first step, since the Unix epoch.
    pub first_ns: i64,
    /// Length of a step.
    pub step_ns: u64,
    /// Number of steps.
    pub steps: u64,
    /// The heaviest first.
    pub series: Vec<Series>,
    /// Number of series that are summed in the last one.
    pub others: usize,
    /// How well the range was sampled.
    #[serde(flatten)]
    pub sampling: Sampling,
    /// The span of all retained samples.
    pub data: Option<TimeRange>,
    /// Files of the store that could not be read.
    pub corrupt_files: Vec<String>,
}

/// Time of a task or other group, step by step. A kind of waiting that is 0 throughout is absent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Series {
    /// `task`, `no_task`, `agent`, `overflow`, `group`, or `other` for the sum of several.
    pub kind: Word,
    /// Name of the task or group.
    pub name: String,
    /// Sums of all steps.
    pub totals: Totals,
    /// Running on a CPU, by step.
    pub cpu_ns: Vec<u64>,
    /// Ready, waiting for a CPU, by step.
    pub runnable_ns: Vec<u64>,
    /// Waiting for a lock or another thread, by step.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub lock_ns: Option<Vec<u64>>,
    /// Waiting for the lock of an interpreter, by step.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub interpreter_ns: Option<Vec<u64>>,
    /// Sleeping, by step.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub sleep_ns: Option<Vec<u64>>,
    /// Waiting for the network, by step.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub network_ns: Option<Vec<u64>>,
    /// Waiting for a file, by step.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub disk_ns: Option<Vec<u64>>,
    /// Waiting for anything else, by step.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub other_ns: Option<Vec<u64>>,
    /// Waiting of all kinds, by step.
    pub wait_ns: Vec<u64>,
}

/// Answer of `/api/v1/thread-time`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct ThreadTimeAnswer {
    /// The range of the answer.
    pub range: TimeRange,
    /// Files of the store that could not be read.
    pub corrupt_files: Vec<String>,
    /// How long the worker that was sampled longest was sampled: the most that a thread can have.
    pub elapsed_ns: u64,
    /// By worker, the longest first.
    pub threads: Vec<ThreadTime>,
}

/// Time of a thread, or of all threads of a worker.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct ThreadTime {
    /// Id of the worker.
    pub worker: String,
    /// Name of the thread; `None` for a whole worker.
    pub thread: Option<String>,
    /// The system's id of the thread; `None` where several threads are summed.
    pub thread_id: Option<u32>,
    /// Sum of the parts.
    pub total_ns: u64,
    /// Where it went.
    pub parts: Vec<ThreadTimePart>,
}

/// Time in one state of one phase of a task.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct ThreadTimePart {
    /// Name of the task; `None` outside any.
    pub task: Option<String>,
    /// Phase of the task; `None` outside any task.
    pub phase: Option<String>,
    /// State of the thread.
    #[cfg_attr(test, ts(type = "State"))]
    pub state: Word,
    /// Thread time.
    pub time_ns: u64,
}
