//! Records when each task ran, and on which thread.

use std::sync::{Arc, Mutex};

use profiler_core::{Outcome, TaskRecord, Timestamp};

use super::callback::Callback;
use super::run::State;
use super::{ObservedPeriod, epoch_seconds};
use crate::sync::lock;

/// Default limit of a [`Profiler`]: about 100 MB.
const TASKS_MAX: usize = 1_000_000;

/// Records each task that started and ended while the profiler was registered: key, name, start,
/// finish, thread.
///
/// A [`scope`](super::scope) starts without results; a registered profiler keeps results until
/// [`Profiler::clear`]. Clones share their results.
///
/// ```
/// use emberline_diagnostics::{self as diagnostics, Profiler};
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
    results: Arc<Mutex<Results>>,
    tasks_max: usize,
}

#[derive(Debug, Default)]
struct Results {
    rows: Vec<TaskData>,
    omitted: u64,
    observed: ObservedPeriod,
}

/// A task that has ended.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct TaskData {
    /// The task's key; empty if it had none.
    pub key: Arc<str>,
    /// The task's name.
    pub name: Arc<str>,
    /// Start, in seconds since the Unix epoch.
    pub start: f64,
    /// End, in seconds since the Unix epoch.
    pub finish: f64,
    /// Start, to the nanosecond.
    pub started_at: Timestamp,
    /// End, to the nanosecond.
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
    /// Returns a profiler that keeps up to a million tasks.
    #[must_use]
    pub fn new() -> Profiler {
        Profiler {
            results: Arc::default(),
            tasks_max: TASKS_MAX,
        }
    }

    /// Limits the number of tasks; [`Profiler::omitted`] counts further ones.
    #[must_use]
    pub fn tasks_max(mut self, tasks: usize) -> Profiler {
        self.tasks_max = tasks;
        self
    }

    /// Returns the tasks that have ended so far, in the order in which they ended.
    #[must_use]
    pub fn results(&self) -> Vec<TaskData> {
        lock(&self.results).rows.clone()
    }

    /// Returns the number of tasks past the limit.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        lock(&self.results).omitted
    }

    /// Drops all results.
    pub fn clear(&self) {
        *lock(&self.results) = Results::default();
    }

    /// Calls `read` with the results, without copying them.
    pub(super) fn read<T>(&self, read: impl FnOnce(&[TaskData], u64, ObservedPeriod) -> T) -> T {
        let results = lock(&self.results);
        read(&results.rows, results.omitted, results.observed)
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
        let mut results = lock(&self.results);
        if results.rows.len() < self.tasks_max {
            results.rows.push(data);
        } else {
            results.omitted += 1;
        }
    }

    fn enter(&self) {
        *lock(&self.results) = Results {
            observed: ObservedPeriod::starting_now(),
            ..Results::default()
        };
    }

    fn exit(&self) {
        lock(&self.results).observed.end_now();
    }
}
