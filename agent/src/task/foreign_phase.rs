//! Phases of an interpreter's tasks, which begin, wait and end on any thread.

use super::handle::TaskHandle;
use super::phase::{Phase, PhaseGuard};
use super::scope::Scope;
use super::thread::{THREAD, TaskRef};
use crate::registry::NameId;
use crate::{clock, fork, wanted};
use profiler_core::Timestamp;

/// A phase in a task's record, from its begin to its drop, whether or not a thread is in it.
#[derive(Debug)]
#[must_use = "the phase ends when this is dropped"]
pub struct TaskPhase {
    task: TaskRef,
    phase: NameId,
    since: Option<Timestamp>,
    generation: usize,
}

impl TaskPhase {
    /// Begins a phase of `task`.
    pub fn begin(task: &TaskHandle, phase: Phase<'_>) -> TaskPhase {
        let is_wanted = wanted::by_anyone();
        let mut begun = TaskPhase {
            task: task.0,
            phase: if is_wanted { phase.id() } else { NameId::NONE },
            since: None,
            generation: fork::generation(),
        };
        begun.resume();
        begun
    }

    /// Ends the current interval, because an inner phase begins. A forked child has no task to record it for.
    pub fn interrupt(&mut self) {
        let since = self.since.take();
        if since.is_some() && self.generation == fork::generation() {
            let now = clock::now();
            let _ = THREAD.try_with(|thread| thread.push_phase(self.task, self.phase, since, now));
        }
    }

    /// Continues after an interruption.
    pub fn resume(&mut self) {
        if self.phase != NameId::NONE && self.task.id.is_some() {
            self.since.get_or_insert_with(clock::now);
        }
    }

    /// Puts samples of the calling thread into a phase of its current task until the guard is dropped. The task's record
    /// does not change.
    pub fn enter(phase: Phase<'_>) -> PhaseGuard {
        PhaseGuard {
            _scope: if wanted::by_anyone() {
                Scope::enter_phase_of_samples(phase.id())
            } else {
                Scope::none()
            },
        }
    }
}

impl Drop for TaskPhase {
    fn drop(&mut self) {
        self.interrupt();
    }
}
