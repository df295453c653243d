//! When each task ran, and on which thread.

use std::sync::{Arc, Mutex};

use profiler_core::{Outcome, TaskRecord, Timestamp};

use super::callback::Callback;
use super::run::State;
use super::{Watched, epoch_seconds};
use crate::sync::lock;

/// Tasks that a [`Profiler`] keeps unless set otherwise: about 100 MB.
const TASKS_MAX: usize = 1_000_000;

/// Keeps each task that began and ended while it was called: key, name, start, finish, thread.
///
/// A [`scope`](super::scope) begins with no results; one that is registered keeps all until
/// [`Profiler::clear`]. Clones are handles of the same results.
///
/// ```
/// use emberline_agent::diagnostics::{self, Profiler};
///
/// let profiler = Profiler::new();
/// let scope = diagnostics::scope(profiler.clone());
/// drop(emberline_agent::task("load").key("load-17").start());
/// drop(scope);
/// let results = profiler.results();
/// assert_eq!((&*results[0].name, &*results[0].key), ("load", "load-17"));
/// assert!(results[0].start <= results[0].finish);
/// ```
#[derive(Clone, Debug)]
pub struct Profiler {
    kept: Arc<Mutex<Kept>>,
    tasks_max: usize,
}

#[derive(Debug, Default)]
struct Kept {
    results: Vec<TaskData>,
    omitted: u64,
    watched: Watched,
}

/// A task that has ended.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct TaskData {
    /// Which one of its name this task was; empty if that was not said.
    pub key: Arc<str>,
    /// The task's name.
    pub name: Arc<str>,
    /// When it started, in seconds since the Unix epoch.
    pub start: f64,
    /// When it ended, in seconds since the Unix epoch.
    pub finish: f64,
    /// When it started, to the nanosecond.
    pub started_at: Timestamp,
    /// When it ended, to the nanosecond.
    pub finished_at: Timestamp,
    /// The worker: the system's id of the thread on which it started.
    pub worker: u32,
    /// That thread's name.
    pub worker_name: Arc<str>,
    /// How it ended.
    pub outcome: Outcome,
}

impl Default for Profiler {
    fn default() -> Profiler {
        Profiler::new()
    }
}

impl Profiler {
    /// Keeps up to a million tasks.
    #[must_use]
    pub fn new() -> Profiler {
        Profiler { kept: Arc::default(), tasks_max: TASKS_MAX }
    }

    /// Keeps up to `tasks`; what comes after them is counted by [`Profiler::omitted`].
    #[must_use]
    pub fn tasks_max(mut self, tasks: usize) -> Profiler {
        self.tasks_max = tasks;
        self
    }

    /// The tasks that have ended so far, in the order in which they ended.
    #[must_use]
    pub fn results(&self) -> Vec<TaskData> {
        lock(&self.kept).results.clone()
    }

    /// How many tasks had no room.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        lock(&self.kept).omitted
    }

    /// Forgets all results.
    pub fn clear(&self) {
        *lock(&self.kept) = Kept::default();
    }

    /// Calls `read` with the results, without a copy of them.
    pub(super) fn read<T>(&self, read: impl FnOnce(&[TaskData], u64, Watched) -> T) -> T {
        let kept = lock(&self.kept);
        read(&kept.results, kept.omitted, kept.watched)
    }
}

impl Callback for Profiler {
    fn posttask(&self, task: &TaskRecord, _: &State) {
        let finished_at = task.stop.unwrap_or(task.start);
        let data = TaskData {
            key: task.key.clone(),
            name: task.name.clone(),
            start: epoch_seconds(task.start),
            finish: epoch_seconds(finished_at),
            started_at: task.start,
            finished_at,
            worker: task.thread_id,
            worker_name: task.thread_name.clone(),
            outcome: task.outcome,
        };
        let mut kept = lock(&self.kept);
        match kept.results.len() < self.tasks_max {
            true => kept.results.push(data),
            false => kept.omitted += 1,
        }
    }

    fn enter(&self) {
        *lock(&self.kept) = Kept { watched: Watched::begun_now(), ..Kept::default() };
    }

    fn exit(&self) {
        lock(&self.kept).watched.end_now();
    }
}
