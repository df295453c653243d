//! State shared by a worker's roles: the stop request, the record, and how work is interrupted.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use emberline_agent::Phase;

use super::pace::Pace;
use super::record::{PhaseSpan, Recorder, Task};
use crate::wire::WireError;

/// Workers are asked to stop at nearly the same time, but one may close its connections before
/// another has received its request. For this long, a broken connection may still turn out to be a
/// stop.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// A request that can be made once and is never withdrawn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    state: Arc<(Mutex<bool>, Condvar)>,
}

impl Stop {
    pub(crate) fn set(&self) {
        *self.state.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.state.1.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until the stop or for `timeout`; returns whether to stop.
    pub(crate) fn wait_for(&self, timeout: Duration) -> bool {
        let guard = self.state.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .state
            .1
            .wait_timeout_while(guard, timeout, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sleeps until the stop.
    pub(crate) fn wait(&self) {
        let guard = self.state.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.state.1.wait_while(guard, |stopped| !*stopped));
    }
}

/// Why a step of a role did not complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Interrupt {
    /// The fleet is stopping; not a failure.
    #[error("asked to stop")]
    Stopped,
    /// A peer is gone; the role continues without it or idles.
    #[error("worker-{peer} is gone: {cause}")]
    Lost { peer: usize, cause: WireError },
    /// The role itself failed; the worker must not look healthy.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

/// Result of a step of a role.
pub(crate) type Step<T> = Result<T, Interrupt>;

/// One worker, as seen by its roles.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) index: usize,
    pub(crate) seed: u64,
    pub(crate) stop: Stop,
    pub(crate) recorder: Arc<Recorder>,
    /// The worker's share of the machine; `None`: all of it.
    pub(super) pace: Option<Arc<Pace>>,
}

impl Context {
    #[cfg(test)]
    pub(crate) fn new(index: usize, seed: u64) -> Self {
        Self::with_recorder(index, seed, Recorder::new(format!("worker-{index}")))
    }

    pub(crate) fn with_recorder(index: usize, seed: u64, recorder: Recorder) -> Self {
        Self {
            index,
            seed,
            stop: Stop::default(),
            recorder: Arc::new(recorder),
            pace: None,
        }
    }

    /// The number of threads that may compute at once.
    pub(crate) fn threads(&self, most: usize) -> usize {
        self.pace.as_ref().map_or(most, |pace| pace.threads(most))
    }

    /// Sleeps while the worker has used more CPU time than its share; called between two jobs.
    pub(crate) fn rest(&self) {
        let rest = self
            .pace
            .as_ref()
            .map_or(Duration::ZERO, |pace| pace.rest());
        if !rest.is_zero() {
            self.stop.wait_for(rest);
        }
    }

    pub(crate) fn task(&self, name: &'static str, key: String) -> Task {
        Task::start(&self.recorder, name, key, None)
    }

    /// Starts a task that has waited in a queue since `queued`.
    pub(crate) fn queued_task(&self, name: &'static str, key: String, queued: Instant) -> Task {
        Task::start(&self.recorder, name, key, Some(queued))
    }

    /// Starts a phase of this thread's task.
    pub(crate) fn phase(&self, phase: Phase<'static>) -> PhaseSpan {
        PhaseSpan::start(&self.recorder, phase)
    }

    pub(crate) fn note(&self, line: impl Into<String>) {
        self.recorder.note(line.into());
    }

    /// Returns an error if the fleet is stopping; called between any two pieces of work.
    pub(crate) fn check_stop(&self) -> Step<()> {
        if self.stop.is_set() {
            Err(Interrupt::Stopped)
        } else {
            Ok(())
        }
    }

    /// Classifies a broken exchange with `peer`: a stop in progress, or the loss of the peer.
    pub(crate) fn lost(&self, peer: usize, cause: WireError) -> Interrupt {
        if self.stop.wait_for(STOP_GRACE) {
            Interrupt::Stopped
        } else {
            Interrupt::Lost { peer, cause }
        }
    }

    /// [`Context::lost`] for an exchange inside `task`, which it ends.
    pub(crate) fn lost_in(&self, task: Task, peer: usize, cause: WireError) -> Interrupt {
        let interrupt = self.lost(peer, cause);
        match &interrupt {
            Interrupt::Stopped => task.cancel(),
            other => task.fail(other),
        }
        interrupt
    }
}
