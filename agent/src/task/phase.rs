//! Phases: what a task does at which time, in its record and in samples.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use profiler_core::PHASES;

use super::scope::{FuturePhase, Scope};
use super::thread::ScopeNumber;
use crate::registry::{self, NameId};
use crate::wanted;

/// The kind of work that a task does at a time. The default is [`Phase::Execute`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Phase<'a> {
    /// Waits to be started.
    Queue,
    /// Sends or receives data over a network.
    Transfer,
    /// Reads from a disk.
    DiskRead,
    /// Decodes bytes to values.
    Deserialize,
    /// Does its work: the phase outside any other one.
    Execute,
    /// Encodes values to bytes.
    Serialize,
    /// Writes to a disk.
    DiskWrite,
    /// A phase of the program's own. Its names share the limit on task names, so keep them few.
    Custom(&'a str),
}

impl<'a> Phase<'a> {
    /// Returns the phase with that name.
    #[must_use]
    pub fn of_name(name: &'a str) -> Self {
        let own = [
            Phase::Queue,
            Phase::Transfer,
            Phase::DiskRead,
            Phase::Deserialize,
            Phase::Execute,
            Phase::Serialize,
            Phase::DiskWrite,
        ];
        own.into_iter()
            .find(|phase| phase.name() == name)
            .unwrap_or(Phase::Custom(name))
    }

    /// Returns the phase's name, as in profiles and task records.
    #[must_use]
    pub const fn name(self) -> &'a str {
        match self {
            Phase::Custom(name) => name,
            other => PHASES[other.index()],
        }
    }

    /// The index in [`PHASES`].
    const fn index(self) -> usize {
        match self {
            Phase::Queue => 0,
            Phase::Transfer => 1,
            Phase::DiskRead => 2,
            Phase::Deserialize => 3,
            Phase::Execute | Phase::Custom(_) => 4,
            Phase::Serialize => 5,
            Phase::DiskWrite => 6,
        }
    }

    /// Returns the id of its name; none for `execute`, which is the same as no phase.
    pub(super) fn id(self) -> NameId {
        const EXECUTE: NameId = NameId::of_phase(Phase::Execute.index());
        let id = match self {
            Phase::Custom("") => NameId::NONE,
            Phase::Custom(name) => registry::name_id(name),
            other => NameId::of_phase(other.index()),
        };
        if id == EXECUTE { NameId::NONE } else { id }
    }
}

impl<'a> From<&'a str> for Phase<'a> {
    fn from(name: &'a str) -> Self {
        Phase::of_name(name)
    }
}

/// Puts this thread's current task into a phase until the guard is dropped. The task's record has every
/// phase, however short, and samples of this thread carry it.
///
/// Guards nest: the inner phase interrupts the outer one, which continues afterwards, so the phases of
/// a task never overlap. The rest of the task's time is `execute`. Past 48 intervals of a task further
/// ones are summed by phase. While a thread writes faster than the agent reads, its tasks and phases
/// are summed by name: ten task names (each outcome counts separately) and 31 phases (for each task
/// name), others as `[overflow]`.
///
/// Phases also work on other threads that [entered](super::TaskHandle::enter) the task. Where two of
/// them are in phases of one task at the same time, the phase that started last gets the time. A phase
/// that is still open on such a thread when the task ends is in samples, but not in the task's record:
/// drop those guards before the task's. On a thread without a task only samples carry the phase.
///
/// Do not hold the guard across an `.await`: use [`PhaseFutureExt::in_phase`] in async code.
///
/// ```
/// use emberline_agent::{Phase, phase, task};
///
/// let _task = task("load").start();
/// {
///     let _reading = phase(Phase::DiskRead);
///     // … read …
/// }
/// let _decoding = phase("decode");
/// // … a phase of the program's own …
/// ```
pub fn phase<'a>(phase: impl Into<Phase<'a>>) -> PhaseGuard {
    let active = wanted::by_anyone();
    let scope = || Scope::enter_phase(phase.into().id());
    PhaseGuard {
        _scope: if active { scope() } else { Scope::none() },
    }
}

/// The time in which a thread is in a phase of its task; made by [`phase`]. It stays on its thread.
#[derive(Debug)]
#[must_use = "the phase ends when this is dropped"]
pub struct PhaseGuard {
    pub(super) _scope: Scope,
}

/// Puts a future into a phase, as a postfix method.
///
/// ```
/// use emberline_agent::{Phase, PhaseFutureExt as _, task};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// task("load").future(async {
///     let bytes = async { vec![1, 2, 3] }.in_phase(Phase::Transfer).await;
///     assert_eq!(bytes.len(), 3);
/// }).await;
/// # });
/// ```
pub trait PhaseFutureExt: Future + Sized {
    /// Puts the task that is current at the first poll into a phase until the future is ready or
    /// dropped: in the task's record for all that time, in samples while the future is polled. Inner
    /// phases interrupt it, as with [`phase`].
    fn in_phase<'a>(self, phase: impl Into<Phase<'a>>) -> PhaseFuture<Self> {
        let phase = if wanted::by_anyone() {
            phase.into().id()
        } else {
            NameId::NONE
        };
        PhaseFuture {
            future: Some(self),
            phase,
            state: State::Waiting,
        }
    }
}

impl<F: Future> PhaseFutureExt for F {}

pin_project! {
    /// A future in a phase of its task; made by [`PhaseFutureExt::in_phase`].
    #[must_use = "a future does nothing unless it is polled"]
    pub struct PhaseFuture<F: Future> {
        // `None` once it was ready, because it is dropped inside the phase.
        #[pin]
        future: Option<F>,
        phase: NameId,
        state: State,
    }

    impl<F: Future> PinnedDrop for PhaseFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let polling = Polling::enter(this.state);
            this.future.set(None);
            drop(polling);
            this.state.end();
        }
    }
}

impl<F: Future> Future for PhaseFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        if matches!(this.state, State::Waiting) && wanted::by_anyone() {
            *this.state = State::In(FuturePhase::begin(*this.phase));
        }
        let polling = Polling::enter(this.state);
        let future = this.future.as_mut().as_pin_mut();
        let polled = future
            .expect("a PhaseFuture is not polled after it was ready")
            .poll(context);
        if polled.is_ready() {
            this.future.set(None);
            drop(polling);
            this.state.end();
        }
        polled
    }
}

impl<F: Future> fmt::Debug for PhaseFuture<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PhaseFuture")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// The state of a future's phase.
#[derive(Debug)]
enum State {
    /// Not polled yet, or nobody consumes task events.
    Waiting,
    In(FuturePhase),
    Ended,
}

impl State {
    /// Ends the phase, once.
    fn end(&mut self) {
        if let State::In(phase) = std::mem::replace(self, State::Ended) {
            phase.end();
        }
    }
}

/// A poll inside the phase, which it leaves when dropped, also by a panic.
struct Polling<'a>(Option<(&'a mut FuturePhase, ScopeNumber)>);

impl<'a> Polling<'a> {
    fn enter(state: &'a mut State) -> Polling<'a> {
        let State::In(phase) = state else {
            return Polling(None);
        };
        let number = if wanted::by_anyone() {
            phase.enter()
        } else {
            None
        };
        Polling(number.map(|number| (phase, number)))
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        if let Some((phase, number)) = &mut self.0 {
            phase.leave(*number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_phases_correspond() {
        for name in PHASES {
            assert_eq!(Phase::of_name(name).name(), name);
            assert!(!matches!(Phase::of_name(name), Phase::Custom(_)), "{name}");
            assert_eq!(
                registry::name(Phase::of_name(name).id()).is_empty(),
                name == "execute"
            );
        }
        assert_eq!(Phase::from("decode"), Phase::Custom("decode"));
        assert_eq!(Phase::Custom("transfer").id(), Phase::Transfer.id());
        assert_eq!(Phase::Custom("execute").id(), NameId::NONE);
    }
}
