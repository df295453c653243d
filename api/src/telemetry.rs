//! Transfers, resources and runs.

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

use crate::{Durations, TimeRange, Word};

/// Answer of `/api/v1/transfers`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct TransfersAnswer {
    /// The requested range.
    pub range: TimeRange,
    /// Number of transfers that match.
    pub total: u64,
    /// Whether that is more than are listed.
    pub truncated: bool,
    /// Files of the store that could not be read.
    pub corrupt_files: Vec<String>,
    /// The last to end first.
    pub transfers: Vec<Transfer>,
}

/// A transfer as one end of it reported it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Transfer {
    /// Id of the worker that reported it.
    pub worker: String,
    /// The worker's life, in hexadecimal.
    pub epoch: String,
    /// Number of the transfer, unique in the worker's life.
    pub id: u64,
    /// `incoming` or `outgoing`, as the worker sees it.
    #[cfg_attr(test, ts(type = "'incoming' | 'outgoing'"))]
    #[cfg_attr(test, schemars(extend("examples" = ["incoming", "outgoing"])))]
    pub direction: Word,
    /// The other end.
    pub peer: String,
    /// Keys of what was moved.
    pub keys: Vec<String>,
    /// Number of keys that are not listed.
    pub more_keys: u64,
    /// Type of what was moved.
    pub type_name: String,
    /// Its size in memory.
    pub bytes: u64,
    /// Its size on the wire.
    pub compressed_bytes: Option<u64>,
    /// When it started.
    pub start: String,
    /// When it started, since the Unix epoch.
    pub start_ns: i64,
    /// When it stopped.
    pub stop: String,
    /// When it stopped, since the Unix epoch.
    pub stop_ns: i64,
    /// Its length.
    pub duration_ns: u64,
    /// Bytes on the wire per second.
    pub bandwidth: Option<u64>,
    /// Number of the task that did it.
    pub task_id: Option<u64>,
    /// The system's id of the thread that did it.
    pub thread_id: u32,
    /// `ok`, `failed` or `cancelled`.
    pub outcome: Word,
    /// Why it ended that way.
    pub cause: String,
}

/// Answer of `/api/v1/transfers?summary=true`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct TransferSummaryAnswer {
    /// The range that was summed.
    pub range: TimeRange,
    /// Files of the store that could not be read.
    pub corrupt_files: Vec<String>,
    /// By worker, other end and direction.
    pub links: Vec<Link>,
    /// By type.
    pub types: Vec<TransferType>,
}

/// Transfers between two workers in one direction.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Link {
    /// Id of the worker that reported them.
    pub worker: String,
    /// The other end.
    pub peer: String,
    /// `incoming` or `outgoing`, as the worker sees it.
    #[cfg_attr(test, ts(type = "'incoming' | 'outgoing'"))]
    #[cfg_attr(test, schemars(extend("examples" = ["incoming", "outgoing"])))]
    pub direction: Word,
    /// Their sums.
    #[serde(flatten)]
    pub sums: LinkSums,
}

/// Transfers of one type.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct TransferType {
    /// The type.
    pub type_name: String,
    /// Their sums.
    #[serde(flatten)]
    pub sums: LinkSums,
}

/// Sums of transfers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct LinkSums {
    /// Number of transfers.
    pub count: u64,
    /// Those that failed.
    pub failed: u64,
    /// Their size in memory.
    pub bytes: u64,
    /// Their size on the wire.
    pub compressed_bytes: u64,
    /// Sum of their lengths.
    pub duration_ns: u64,
    /// Distribution of their speed.
    pub bandwidth: Option<Bandwidth>,
    /// Distribution of their lengths.
    pub durations: Option<Durations>,
}

/// A distribution of speeds, in bytes per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Bandwidth {
    /// All bytes by all time.
    pub mean: u64,
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
}

/// Answer of `/api/v1/resources`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct ResourcesAnswer {
    /// The requested range.
    pub range: TimeRange,
    /// Files of the store that could not be read.
    pub corrupt_files: Vec<String>,
    /// Time between two points.
    pub step_ns: u64,
    /// Whether times count from the start of each run.
    pub align: bool,
    /// By worker, run and measure.
    pub series: Vec<ResourceSeries>,
}

/// One measure of one worker.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct ResourceSeries {
    /// Id of the worker.
    pub worker: String,
    /// Name of its machine.
    pub host: String,
    /// The run that it is of.
    pub run: Option<String>,
    /// Name of the measure.
    pub measure: Word,
    /// Unit of its values.
    pub unit: Word,
    /// Whether the system counts it up, so that values are its growth.
    pub cumulative: bool,
    /// Time, mean, maximum and minimum; nanoseconds since the Unix epoch, or since the run's start.
    pub points: Vec<(i64, f64, f64, f64)>,
    /// The largest value.
    pub peak: f64,
}

/// Body of `POST /api/v1/runs` and `POST /api/v1/runs/stop`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct RunName {
    /// Name of the run.
    pub name: String,
}

/// Answer of `/api/v1/runs`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct RunsAnswer {
    /// The newest first.
    pub runs: Vec<Run>,
}

/// Body of `POST /api/v1/runs`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct RunStart {
    /// Name of the run.
    pub name: String,
}

/// Body of `POST /api/v1/runs/stop`: one of both.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct RunStop {
    /// Name of a run, of which the newest open one is stopped.
    pub name: Option<String>,
    /// Id of a run.
    pub id: Option<String>,
}

/// A named range of time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Run {
    /// Tells apart runs of one name.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Id of the worker that marked it; `None` if it was started through the API.
    pub worker: Option<String>,
    /// When it started.
    pub start: String,
    /// When it started, since the Unix epoch.
    pub start_ns: i64,
    /// When it stopped; `None` while it is open.
    pub stop: Option<String>,
    /// When it stopped, since the Unix epoch.
    pub stop_ns: Option<i64>,
    /// Its length, of an open run so far.
    pub duration_ns: u64,
    /// Whether it is open.
    pub open: bool,
    /// Whether it stopped because its worker is gone.
    pub lost: bool,
}
