//! Tasks and phases that end on any thread, and whose scopes are entered and left in between: the futures of the agent,
//! polled when one begins and when it ends.

use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use agent::observe::fork_generation;
use agent::{
    Phase, PhaseFuture, PhaseFutureExt as _, TaskBuilder, TaskFuture, TaskHandle, current_task,
};

/// How a task ends: `Err` has the cause of a failure.
pub(crate) type Ending = Result<(), String>;

thread_local! {
    /// Passed to the poll that ends a future.
    static ENDING: RefCell<Option<Ending>> = const { RefCell::new(None) };
    /// The current task within the last poll.
    static POLLED: RefCell<Option<TaskHandle>> = const { RefCell::new(None) };
}

/// Ready when [`ENDING`] is set.
#[derive(Debug)]
struct Marker;

impl Future for Marker {
    type Output = Ending;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Ending> {
        POLLED.with_borrow_mut(|polled| *polled = Some(current_task()));
        ENDING.take().map_or(Poll::Pending, Poll::Ready)
    }
}

fn poll<F: Future + Unpin>(future: &mut F, ending: Option<Ending>) {
    ENDING.set(ending);
    // Its result is the ending, which the future has taken note of.
    let _ = Pin::new(future).poll(&mut Context::from_waker(Waker::noop()));
    ENDING.set(None);
}

/// A running task.
#[derive(Debug)]
pub(crate) struct DetachedTask {
    /// `None` once it has ended.
    future: Option<TaskFuture<Marker>>,
    pub(crate) handle: TaskHandle,
    generation: usize,
}

impl DetachedTask {
    /// Starts a task. No samples belong to it until its handle is entered.
    pub(crate) fn begin(builder: TaskBuilder) -> DetachedTask {
        let mut future = builder.try_future(Marker);
        poll(&mut future, None);
        DetachedTask {
            future: Some(future),
            handle: POLLED.take().unwrap_or_else(current_task),
            generation: fork_generation(),
        }
    }

    pub(crate) fn end(mut self, ending: Ending) {
        if self.is_own()
            && let Some(mut future) = self.future.take()
        {
            poll(&mut future, Some(ending));
        }
    }

    /// Whether it started in this process: a forked child does not end its parent's tasks.
    fn is_own(&self) -> bool {
        self.generation == fork_generation()
    }
}

impl Drop for DetachedTask {
    /// Ends it as `cancelled`.
    fn drop(&mut self) {
        if !self.is_own() {
            mem::forget(self.future.take());
        }
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
        poll(&mut future, None);
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
