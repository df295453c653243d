//! Phases that end on any thread: futures of the agent, polled when one begins. They never become ready.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use agent::observe::fork_generation;
use agent::{Phase, PhaseFuture, PhaseFutureExt as _};

/// Never ready.
#[derive(Debug)]
struct Marker;

impl Future for Marker {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

/// A phase of the current task, while no thread works for it. It lasts until this is dropped.
#[derive(Debug)]
pub(crate) struct DetachedPhase {
    future: Option<PhaseFuture<Marker>>,
    generation: usize,
}

impl DetachedPhase {
    pub(crate) fn begin(name: &str) -> DetachedPhase {
        let mut future = Marker.in_phase(Phase::of_name(name));
        // It begins at the first poll.
        let _ = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
        DetachedPhase {
            future: Some(future),
            generation: fork_generation(),
        }
    }
}

impl Drop for DetachedPhase {
    fn drop(&mut self) {
        if self.generation != fork_generation() {
            mem::forget(self.future.take());
        }
    }
}
