//! The ledger's rows: what ran, where, from when to when, and how it ended.

use std::fmt;
use std::sync::Arc;

use crate::Timestamp;

/// A worker's id, as its agent was given it. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerId(pub Arc<str>);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One life of an agent: drawn at random when it starts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A task, unique within its epoch and never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId(pub u64);

/// How a task ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Outcome {
    /// It has not ended.
    Running,
    /// It ended in good order.
    Ok,
    /// It reported a failure.
    Failed,
    /// It was called off.
    Cancelled,
    /// It ended by a panic.
    Panicked,
    /// Its worker is gone and never said how it ended.
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

/// One task of one worker. Whoever has a later record for the same id replaces the earlier one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskRecord {
    /// Which task.
    pub id: TaskId,
    /// The group that it belongs to, such as `load`.
    pub name: Arc<str>,
    /// Which one of the group, such as `load-17`; empty if it was not given.
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
    /// How it ended.
    pub outcome: Outcome,
    /// Why, for a task that failed; else empty.
    pub cause: Arc<str>,
    /// What else was said of it; most tasks say nothing.
    pub detail: Option<Box<TaskDetail>>,
}

/// What a program may say of its task, beside when it ran and how it ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TaskDetail {
    /// Which try it is, from 1; 0 if it was not said.
    pub attempt: u32,
    /// Size of its result.
    pub result_bytes: Option<u64>,
    /// Type of its result; empty if it was not said.
    pub type_name: Arc<str>,
    /// Keys and values, in the order in which they were said.
    pub labels: Vec<(Arc<str>, Arc<str>)>,
    /// What it did when, in the order of the starts. Intervals do not overlap; what they leave of the
    /// task's time it executed.
    pub phases: Vec<PhaseInterval>,
}

/// From when to when a task was in a phase.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PhaseInterval {
    /// One of [`PHASES`] or the user's own.
    pub name: Arc<str>,
    /// From the task's start; negative for what was before it, such as waiting in a queue.
    pub start_ns: i64,
    /// How long.
    pub duration_ns: u64,
    /// Above 1: this is the sum of so many intervals that had no room of their own, and `start_ns` is
    /// that of the first.
    pub count: u32,
}

/// The phases that have a meaning of their own; a task is in `execute` unless it says otherwise.
pub const PHASES: [&str; 7] =
    ["queue", "transfer", "disk-read", "deserialize", "execute", "serialize", "disk-write"];
