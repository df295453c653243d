//! Rows of the ledger: each task's thread, start, stop and outcome.

use std::fmt;
use std::sync::Arc;

use crate::Timestamp;

/// A worker's id, as configured in its agent. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerId(pub Arc<str>);

impl WorkerId {
    /// Start of the ids of imported profiles, so that they never mix with a live worker.
    pub const IMPORT_PREFIX: &str = "import:";

    /// Start of the ids of series that clients of Pyroscope push.
    pub const PYROSCOPE_PREFIX: &str = "pyroscope:";

    /// Start of the ids of services that send profiles by OTLP.
    pub const OTLP_PREFIX: &str = "otlp:";

    /// Start of the ids of services that the collector scrapes.
    pub const SCRAPE_PREFIX: &str = "scrape:";

    /// Whether an agent reports as it, so that it can be lost.
    #[must_use]
    pub fn has_agent(&self) -> bool {
        let pushed = [
            WorkerId::PYROSCOPE_PREFIX,
            WorkerId::OTLP_PREFIX,
            WorkerId::SCRAPE_PREFIX,
        ];
        !self.is_import()
            && !pushed
                .iter()
                .any(|prefix: &&str| self.0.starts_with(*prefix))
    }

    /// Whether it is an imported profile instead of a process.
    #[must_use]
    pub fn is_import(&self) -> bool {
        self.0.starts_with(WorkerId::IMPORT_PREFIX)
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One life of an agent: a random number, see [`SessionKey`](crate::SessionKey).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A task's id, unique within its epoch and never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId(pub u64);

/// How a task ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Outcome {
    /// It has not ended.
    Running,
    /// It succeeded.
    Ok,
    /// It reported a failure.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It ended by a panic.
    Panicked,
    /// Its worker is gone and never reported how it ended.
    Lost,
}

impl Outcome {
    /// All outcomes, in the order in which they are written.
    pub const ALL: [Outcome; 6] = [
        Outcome::Running,
        Outcome::Ok,
        Outcome::Failed,
        Outcome::Cancelled,
        Outcome::Panicked,
        Outcome::Lost,
    ];

    /// The outcome's name in queries and exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Running => "running",
            Outcome::Ok => "ok",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
            Outcome::Panicked => "panicked",
            Outcome::Lost => "lost",
        }
    }
}

/// One task of one worker. A later record for the same id replaces the earlier one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskRecord {
    /// Unique within the epoch.
    pub id: TaskId,
    /// The group that it belongs to, such as `load`.
    pub name: Arc<str>,
    /// Distinguishes tasks of one name, such as `load-17`; empty if not set.
    pub key: Arc<str>,
    /// The operating system's id of the thread that ran it.
    pub thread_id: u32,
    /// That thread's name.
    pub thread_name: Arc<str>,
    /// The task that was running on this thread when it started.
    pub parent: Option<TaskId>,
    /// When it started.
    pub start: Timestamp,
    /// When it ended; `None` while it runs.
    pub stop: Option<Timestamp>,
    /// Outcome of the task.
    pub outcome: Outcome,
    /// Cause of a failure; empty otherwise.
    pub cause: Arc<str>,
    /// Optional details; most tasks have none.
    pub detail: Option<Box<TaskDetail>>,
}

/// Optional details of a task, besides its times and outcome.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TaskDetail {
    /// Attempt number, from 1; 0 if not set.
    pub attempt: u32,
    /// Size of its result, in bytes.
    pub result_bytes: Option<u64>,
    /// Type of its result; empty if not set.
    pub type_name: Arc<str>,
    /// Keys and values, in the order in which they were set.
    pub labels: Vec<(Arc<str>, Arc<str>)>,
    /// Phases, in the order of their starts. Intervals do not overlap; the rest of the task's time
    /// is `execute`.
    pub phases: Vec<PhaseInterval>,
}

/// A time interval that a task spent in one phase.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PhaseInterval {
    /// One of [`PHASES`] or the user's own.
    pub name: Arc<str>,
    /// Nanoseconds from the task's start; negative before it, such as waiting in a queue.
    pub start_ns: i64,
    /// Length of the interval.
    pub duration_ns: u64,
    /// Above 1: the sum of that many intervals that had no room of their own; `start_ns` is that of
    /// the first.
    pub count: u32,
}

/// The predefined phases. A task is in `execute` unless it says otherwise.
pub const PHASES: [&str; 7] = [
    "queue",
    "transfer",
    "disk-read",
    "deserialize",
    "execute",
    "serialize",
    "disk-write",
];
