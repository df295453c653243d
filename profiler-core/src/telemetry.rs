//! Everything a worker reports besides samples and tasks: totals of tasks without rows, transfers,
//! resource samples, expected task counts, run markers.

use std::sync::Arc;

use crate::{Outcome, PhaseInterval, ResourceSample, TaskId, Timestamp};

/// Everything that one flush or cycle carries besides samples and tasks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Telemetry {
    /// Tasks that ended and have no row of their own.
    pub totals: Vec<TaskTotals>,
    /// Transfers that ended.
    pub transfers: Vec<TransferEvent>,
    /// Resource usage.
    pub resources: Vec<ResourceSample>,
    /// Expected task counts; the latest of a name wins.
    pub expected: Vec<ExpectedTasks>,
    /// Run markers; the latest of an id wins.
    pub runs: Vec<RunMarker>,
}

impl Telemetry {
    /// Whether it carries nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Number of entries of all kinds.
    #[must_use]
    pub fn count(&self) -> usize {
        let Telemetry {
            totals,
            transfers,
            resources,
            expected,
            runs,
        } = self;
        totals.len() + transfers.len() + resources.len() + expected.len() + runs.len()
    }

    /// Appends a later batch.
    pub fn append(&mut self, mut later: Telemetry) {
        self.totals.append(&mut later.totals);
        self.transfers.append(&mut later.transfers);
        self.resources.append(&mut later.resources);
        self.expected.append(&mut later.expected);
        self.runs.append(&mut later.runs);
    }
}

/// Tasks of one name that ended with the same outcome in the same second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskTotals {
    /// Name of the tasks.
    pub name: Arc<str>,
    /// Outcome of the tasks.
    pub outcome: Outcome,
    /// Start of the second in which they ended.
    pub second: Timestamp,
    /// Sum of their durations.
    pub duration_ns: u64,
    /// Histogram of their durations: [buckets](crate::bucket) in rising order with the number of
    /// tasks in each, never 0.
    pub buckets: Vec<(u32, u64)>,
    /// Sums by phase; `start_ns` is 0.
    pub phases: Vec<PhaseInterval>,
}

impl TaskTotals {
    /// Number of tasks.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets
            .iter()
            .fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

/// A transfer's id, unique within its epoch and never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TransferId(pub u64);

/// Direction of a transfer, as seen by the reporting worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// To the worker.
    Incoming,
    /// From the worker.
    Outgoing,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Direction; 2] = [Direction::Incoming, Direction::Outgoing];

    /// The direction's name in queries and exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Incoming => "incoming",
            Direction::Outgoing => "outgoing",
        }
    }
}

/// One transfer, as reported by one of its ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferEvent {
    /// Unique within the epoch.
    pub id: TransferId,
    /// Seen from the reporting worker.
    pub direction: Direction,
    /// The other end: a worker's id or any other name.
    pub peer: Arc<str>,
    /// Keys of the transferred values, at most
    /// [`TRANSFER_KEYS_MAX`](crate::limits::TRANSFER_KEYS_MAX).
    pub keys: Vec<Arc<str>>,
    /// Number of keys beyond those listed.
    pub more_keys: u64,
    /// Type of the transferred value; empty if not reported.
    pub type_name: Arc<str>,
    /// Uncompressed size.
    pub bytes: u64,
    /// Bytes on the wire, if known to differ from `bytes`.
    pub compressed_bytes: Option<u64>,
    /// Start of the transfer.
    pub start: Timestamp,
    /// End of the transfer.
    pub stop: Timestamp,
    /// The task that needed the transfer.
    pub task: Option<TaskId>,
    /// The operating system's id of the thread that started it.
    pub thread_id: u32,
    /// Outcome; never running or lost.
    pub outcome: Outcome,
    /// Cause of a failure; empty otherwise.
    pub cause: Arc<str>,
}

/// Number of tasks of one name that a worker expects to run in total.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpectedTasks {
    /// Name of the tasks.
    pub name: Arc<str>,
    /// Their number since `since`.
    pub total: u64,
    /// When the count was first reported.
    pub since: Timestamp,
}

/// A run's id, unique within its epoch and never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunId(pub u64);

/// A named time range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunMarker {
    /// Unique within the epoch.
    pub id: RunId,
    /// Its name, such as `nightly`.
    pub name: Arc<str>,
    /// Start of the run.
    pub start: Timestamp,
    /// End of the run; `None` while it is open.
    pub stop: Option<Timestamp>,
}
