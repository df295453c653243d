//! Phases of a task: what it does when, for the ledger and for samples alike.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use profiler_core::PHASES;

use super::scope::{FuturePhase, Scope};
use super::thread::ScopeNumber;
use crate::registry::{self, NameId};
use crate::wanted;

/// What a task does at the moment. It executes unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Phase<'a> {
    /// Waits to be begun.
    Queue,
    /// Gets or sends data over a network.
    Transfer,
    /// Reads from a disk.
    DiskRead,
    /// Makes values of bytes.
    Deserialize,
    /// Does its work: what it is in outside any other phase.
    Execute,
    /// Makes bytes of values.
    Serialize,
    /// Writes to a disk.
    DiskWrite,
    /// Whatever the program calls it. It is a name as those of tasks: keep them few.
    Custom(&'a str),
}

impl<'a> Phase<'a> {
    /// The phase of that name.
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
        own.into_iter().find(|phase| phase.name() == name).unwrap_or(Phase::Custom(name))
    }

    /// The phase's name in profiles and ledgers.
    #[must_use]
    pub const fn name(self) -> &'a str {
        match self {
            Phase::Custom(name) => name,
            other => PHASES[other.place()],
        }
    }

    /// Among [`PHASES`].
    const fn place(self) -> usize {
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

    /// The number of its name; none for `execute`, which is what no phase means.
    fn id(self) -> NameId {
        const EXECUTE: NameId = NameId::of_phase(Phase::Execute.place());
        let id = match self {
            Phase::Custom("") => NameId::NONE,
            Phase::Custom(name) => registry::name_id(name),
            other => NameId::of_phase(other.place()),
        };
        if id == EXECUTE { NameId::NONE } else { id }
    }
}

impl<'a> From<&'a str> for Phase<'a> {
    fn from(name: &'a str) -> Self {
        Phase::of_name(name)
    }
}

/// Puts the task that this thread runs into a phase until the guard is dropped. However short the
/// phase is, the ledger has it, and samples of this thread carry it.
///
/// Guards nest: the inner phase interrupts the outer one, which goes on afterwards, so the phases of
/// a task never overlap; what they leave of the task's time it executed. Past 48 intervals of a task
/// further ones are summed by phase. A thread that writes faster than the agent reads has its tasks
/// and phases summed by name meanwhile: ten names of tasks (each outcome counts for itself) and 31 of
/// phases (in each name of a task), others as `[overflow]`.
///
/// It works the same on other threads that [entered](super::TaskHandle::enter) the task. Where two of
/// them are in phases of one task at the same time, the one that began last has the time. A phase that
/// is still open on such a thread when the task ends is in samples, but not in the ledger: drop guards
/// there before the task's. On a thread without a task only samples carry the phase. Do not hold the
/// guard across an `.await`:
/// [`PhaseFutureExt::in_phase`] is for async code.
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
/// // … a phase of one's own …
/// ```
pub fn phase<'a>(phase: impl Into<Phase<'a>>) -> PhaseGuard {
    let active = wanted::by_anyone();
    let scope = || Scope::enter_phase(phase.into().id());
    PhaseGuard { _scope: if active { scope() } else { Scope::none() } }
}

/// A thread in a phase of its task; made by [`phase`]. It stays on its thread.
#[derive(Debug)]
#[must_use = "the phase ends when this is dropped"]
pub struct PhaseGuard {
    _scope: Scope,
}

/// Puts a future into a phase, at the end of the line.
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
    /// The task that is current at the first poll is in the phase from then until the future is ready
    /// or dropped: for the ledger all that time, for samples while it is polled. Inner phases interrupt
    /// it, as with [`phase`].
    fn in_phase<'a>(self, phase: impl Into<Phase<'a>>) -> PhaseFuture<Self> {
        let phase = if wanted::by_anyone() { phase.into().id() } else { NameId::NONE };
        PhaseFuture { future: Some(self), phase, state: State::Waiting }
    }
}

impl<F: Future> PhaseFutureExt for F {}

pin_project! {
    /// A future in a phase of its task; made by [`PhaseFutureExt::in_phase`].
    #[must_use = "a future does nothing unless it is polled"]
    pub struct PhaseFuture<F: Future> {
        // Gone once it was ready, so that what it holds is dropped inside the phase.
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
        let polled = future.expect("a PhaseFuture is not polled after it was ready").poll(context);
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
        formatter.debug_struct("PhaseFuture").field("state", &self.state).finish_non_exhaustive()
    }
}

/// How far a future's phase is.
#[derive(Debug)]
enum State {
    /// Not polled yet. Without an agent it stays so.
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

/// A poll inside the phase, also if it panics.
struct Polling<'a>(Option<(&'a mut FuturePhase, ScopeNumber)>);

impl<'a> Polling<'a> {
    fn enter(state: &'a mut State) -> Polling<'a> {
        let State::In(phase) = state else { return Polling(None) };
        let number = if wanted::by_anyone() { phase.enter() } else { None };
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
    fn a_phase_is_found_by_its_name() {
        for name in PHASES {
            assert_eq!(Phase::of_name(name).name(), name);
            assert!(!matches!(Phase::of_name(name), Phase::Custom(_)), "{name}");
            assert_eq!(registry::name(Phase::of_name(name).id()).is_empty(), name == "execute");
        }
        assert_eq!(Phase::from("decode"), Phase::Custom("decode"));
        assert_eq!(Phase::Custom("transfer").id(), Phase::Transfer.id());
        assert_eq!(Phase::Custom("execute").id(), NameId::NONE);
    }
}
