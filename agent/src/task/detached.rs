//! Tasks without a guard on a thread, for bindings of other languages: they start on one thread, are entered on any, and
//! end on any.

use std::fmt::Display;
use std::sync::Arc;

use profiler_core::Outcome;

use super::running::Running;
use super::thread::TaskRef;
use super::{TaskBuilder, TaskHandle, bounded_cause};
use crate::fork;

impl TaskBuilder {
    /// Starts a task that any thread may end. Samples belong to it where its [handle](DetachedTask::handle) is
    /// entered, and only there. The task's parent is the current task of this thread, unless it is set.
    ///
    /// ```
    /// let task = emberline_agent::task("load").key("load-17").detached();
    /// let scope = task.handle().enter();
    /// // … the work: samples of this thread belong to `load` …
    /// drop(scope);
    /// std::thread::spawn(move || task.end());
    /// ```
    pub fn detached(mut self) -> DetachedTask {
        let running = self.begin();
        DetachedTask {
            task: running.as_ref().map_or(TaskRef::NONE, Running::task),
            running,
            generation: fork::generation(),
        }
    }
}

/// A running task that any thread may end; made by [`TaskBuilder::detached`]. Dropping it ends the task as `cancelled`.
#[derive(Debug)]
#[must_use = "the task ends as cancelled when this is dropped"]
pub struct DetachedTask {
    /// `None` if nobody consumes task events, and once it has ended.
    running: Option<Running>,
    task: TaskRef,
    /// The [`fork::generation`] in which it started: a child does not end its parent's task.
    generation: usize,
}

impl DetachedTask {
    /// Returns a handle of the task, for threads that work for it.
    #[must_use = "a handle does nothing until it is entered"]
    pub fn handle(&self) -> TaskHandle {
        TaskHandle(self.task)
    }

    /// Ends the task as `ok`.
    pub fn end(mut self) {
        self.end_as(Outcome::Ok, None);
    }

    /// Ends the task as `failed`, with a cause, which is cut to 1 KiB.
    pub fn fail(mut self, cause: impl Display) {
        self.end_as(Outcome::Failed, Some(bounded_cause(cause)));
    }

    /// Ends the task as `cancelled`.
    pub fn cancel(mut self) {
        self.end_as(Outcome::Cancelled, None);
    }

    fn end_as(&mut self, outcome: Outcome, cause: Option<Arc<str>>) {
        let Some(mut running) = self.running.take() else {
            return;
        };
        if self.generation == fork::generation() {
            running.set_cause(cause);
            running.end(outcome);
        }
    }
}

impl Drop for DetachedTask {
    fn drop(&mut self) {
        self.end_as(Outcome::Cancelled, None);
    }
}
