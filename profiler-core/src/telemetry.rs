//! What a worker tells beside samples and tasks: sums of tasks without rows, transfers, what it
//! expects, named runs.

use std::sync::Arc;

use crate::{Outcome, PhaseInterval, ResourceSample, TaskId, Timestamp};

/// All that one flush or cycle tells beside samples and tasks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Telemetry {
    /// Tasks that ended and of which no row is kept.
    pub totals: Vec<TaskTotals>,
    /// Transfers that ended.
    pub transfers: Vec<TransferEvent>,
    /// What was used.
    pub resources: Vec<ResourceSample>,
    /// What is still to come; the latest of a name holds.
    pub expected: Vec<ExpectedTasks>,
    /// Named periods; the latest of an id holds.
    pub runs: Vec<RunMarker>,
}

impl Telemetry {
    /// Whether nothing is told.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// How many records there are, of all kinds.
    #[must_use]
    pub fn count(&self) -> usize {
        let Telemetry { totals, transfers, resources, expected, runs } = self;
        totals.len() + transfers.len() + resources.len() + expected.len() + runs.len()
    }

    /// Appends what was told later.
    pub fn append(&mut self, mut later: Telemetry) {
        self.totals.append(&mut later.totals);
        self.transfers.append(&mut later.transfers);
        self.resources.append(&mut later.resources);
        self.expected.append(&mut later.expected);
        self.runs.append(&mut later.runs);
    }
}

/// Tasks of one name that ended alike in one second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskTotals {
    /// Their name.
    pub name: Arc<str>,
    /// How they ended.
    pub outcome: Outcome,
    /// Start of the second in which they ended.
    pub second: Timestamp,
    /// Sum of how long they took.
    pub duration_ns: u64,
    /// How many took how long: [buckets](crate::bucket) in rising order and the number of tasks in
    /// each, never 0.
    pub buckets: Vec<(u32, u64)>,
    /// Sums by phase; `start_ns` is 0.
    pub phases: Vec<PhaseInterval>,
}

impl TaskTotals {
    /// How many tasks.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

/// A transfer, unique within its epoch and never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TransferId(pub u64);

/// Which way a transfer went, seen from who tells of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// To the worker.
    Incoming,
    /// From the worker.
    Outgoing,
}

impl Direction {
    /// Both.
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

/// One transfer, as one of its ends saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferEvent {
    /// Which transfer.
    pub id: TransferId,
    /// Which way.
    pub direction: Direction,
    /// The other end: a worker's id or any other name.
    pub peer: Arc<str>,
    /// What was transferred.
    pub keys: Vec<Arc<str>>,
    /// Keys beyond those.
    pub more_keys: u64,
    /// Type of what was transferred; empty if it was not said.
    pub type_name: Arc<str>,
    /// Bytes as the program has them.
    pub bytes: u64,
    /// Bytes as they went over the link, if that is known to differ.
    pub compressed_bytes: Option<u64>,
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub stop: Timestamp,
    /// The task that it was for.
    pub task: Option<TaskId>,
    /// The operating system's id of the thread that began it.
    pub thread_id: u32,
    /// How it ended; never running or lost.
    pub outcome: Outcome,
    /// Why, if it failed; else empty.
    pub cause: Arc<str>,
}

/// How many tasks of a name a worker will have run in all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpectedTasks {
    /// Which tasks.
    pub name: Arc<str>,
    /// All of them, since `since`.
    pub total: u64,
    /// When this was first said.
    pub since: Timestamp,
}

/// A named period, unique within its epoch and never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunId(pub u64);

/// A period with a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunMarker {
    /// Which run.
    pub id: RunId,
    /// Its name, such as `nightly`.
    pub name: Arc<str>,
    /// When it began.
    pub start: Timestamp,
    /// When it ended; `None` while it goes on.
    pub stop: Option<Timestamp>,
}
