//! The times in which a thread is in a task or a phase, to which its samples then belong.

use std::marker::PhantomData;

use profiler_core::Timestamp;

use super::thread::{ScopeNumber, THREAD, TaskRef, Thread};
use crate::clock;
use crate::registry::NameId;

/// While this lives, samples of this thread belong to a task, or to a phase of the current task. Scopes
/// may be dropped in any order: of the living ones the last one entered decides.
#[derive(Debug)]
pub(super) struct Scope {
    number: Option<ScopeNumber>,
    not_send: PhantomData<*const ()>,
}

impl Scope {
    pub(super) fn enter(task: TaskRef) -> Scope {
        let enters = |thread: &Thread| task != TaskRef::NONE || !thread.is_idle();
        let number = THREAD
            .try_with(|thread: &Thread| enters(thread).then(|| thread.enter(task)))
            .ok()
            .flatten();
        Scope {
            number,
            not_send: PhantomData,
        }
    }

    /// Puts the current task into a phase, in samples and in the task's record, until the scope ends.
    pub(super) fn enter_phase(phase: NameId) -> Scope {
        let number = THREAD.try_with(|thread| thread.enter_phase(phase)).ok();
        Scope {
            number,
            not_send: PhantomData,
        }
    }

    /// Puts the thread's samples into a phase of the current task until the scope ends. The task's record does not change.
    pub(super) fn enter_phase_of_samples(phase: NameId) -> Scope {
        let number = THREAD
            .try_with(|thread| thread.enter_phase_of_samples(phase))
            .ok();
        Scope {
            number,
            not_send: PhantomData,
        }
    }

    /// Changes nothing.
    pub(super) fn none() -> Scope {
        Scope {
            number: None,
            not_send: PhantomData,
        }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let _ = THREAD.try_with(|thread| thread.leave(number));
        }
    }
}

/// A phase of a future, between its polls.
#[derive(Clone, Copy, Debug)]
pub(super) struct FuturePhase {
    pub(super) phase: NameId,
    /// The task that was current at the first poll.
    task: TaskRef,
    /// The start of the current interval, which an inner phase ends.
    pub(super) since: Option<Timestamp>,
}

impl FuturePhase {
    /// Starts the phase, at the first poll.
    pub(super) fn begin(phase: NameId) -> FuturePhase {
        let begin = |thread: &Thread| {
            let task = thread.current();
            let now = thread.interrupt(task);
            FuturePhase {
                phase,
                task,
                since: now.filter(|_| phase != NameId::NONE),
            }
        };
        let nothing = FuturePhase {
            phase,
            task: TaskRef::NONE,
            since: None,
        };
        THREAD.try_with(begin).unwrap_or(nothing)
    }

    /// Runs a poll in the phase. `None` on a thread whose locals are already gone.
    pub(super) fn enter(self) -> Option<ScopeNumber> {
        THREAD.try_with(|thread| thread.enter_future(self)).ok()
    }

    /// Ends a poll; inner phases may have interrupted this one.
    pub(super) fn leave(&mut self, number: ScopeNumber) {
        let leave = |thread: &Thread| thread.remove(|entry| entry.scope == Some(number));
        if let Some(entry) = THREAD.try_with(leave).ok().flatten() {
            self.since = entry.since;
        }
    }

    /// Ends the phase: the future is ready or dropped.
    pub(super) fn end(self) {
        let _ = THREAD.try_with(|thread| {
            if self.task.id.is_some() {
                let now = clock::now();
                thread.push_phase(self.task, self.phase, self.since, now);
                thread.resume(self.task, now);
            }
        });
    }
}

/// Spans of `tracing`, which are entered and left without a guard.
#[cfg(feature = "tracing-layer")]
pub(super) mod span {
    use super::super::thread::{Entry, THREAD, TaskRef};
    use super::super::unwinding::Beginning;

    pub(in crate::task) fn enter(task: TaskRef) {
        let _ = THREAD.try_with(|thread| {
            thread.push_entry(Entry {
                beginning: Some(Beginning::now()),
                ..thread.entry(None, task)
            });
        });
    }

    /// Leaves the span and returns whether a panic that started inside it unwinds the thread. A span
    /// that was not entered on this thread changes nothing.
    pub(in crate::task) fn leave(task: TaskRef) -> bool {
        let entry = THREAD
            .try_with(|thread| thread.remove(|entry| entry.scope.is_none() && entry.task == task));
        entry
            .ok()
            .flatten()
            .and_then(|entry| entry.beginning)
            .is_some_and(Beginning::unwinds)
    }
}
