//! The task of a thread, as another thread changes it.

use std::sync::Arc;

use super::handle::TaskHandle;
use super::phase::Phase;
use super::thread::{THREAD, Thread};
use crate::registry::{NameId, TaskContext, ThreadCell};

/// Changes the task of a thread's samples from another thread: a task of an interpreter may end on a thread that is
/// not in it.
#[derive(Clone, Debug)]
pub struct ThreadTask(Arc<ThreadCell>);

impl ThreadTask {
    /// Returns that of the calling thread. `None` if its locals are already gone.
    #[must_use]
    pub fn of_own_thread() -> Option<ThreadTask> {
        let cell = |thread: &Thread| thread.link().cell.clone();
        THREAD.try_with(cell).ok().map(ThreadTask)
    }

    /// Counts further samples of the thread for `task` in `phase`, until the thread enters or leaves a task or phase. No
    /// row is recorded. The interpreter's lock keeps the thread from doing so at the same time.
    pub fn set(&self, task: &TaskHandle, phase: Option<Phase<'_>>) {
        self.0.set_context_from_outside(TaskContext {
            task: task.0.name,
            phase: phase.map_or(NameId::NONE, Phase::id),
        });
    }
}
