//! Tasks of async runtimes: a future that is its task on every thread that polls it.

use std::fmt::{self, Display};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use profiler_core::Outcome;

use super::running::Running;
use super::scope::Scope;
use super::thread::TaskRef;
use super::{TaskBuilder, bounded_cause};
use crate::{registry, wanted};

impl TaskBuilder {
    /// Makes `future` a task. The task starts at the first poll and ends as `ok` when the future is
    /// ready, as `panicked` if a poll panics, and as `cancelled` if the future is dropped before it
    /// was ready. A future that is never polled leaves no trace.
    ///
    /// During a poll, samples of the polling thread belong to the task; afterwards, to the previous
    /// one. So it does not matter which threads the runtime uses and what else they do. The future's
    /// own values are dropped inside the task too. A poll takes no lock and allocates nothing.
    ///
    /// The task's parent is the current task at the first poll. Runtimes poll spawned futures outside
    /// any task: set their parent with [`TaskBuilder::parent`].
    ///
    /// ```
    /// use emberline_agent::task;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let answer = tokio::spawn(task("load").key("load-17").future(async {
    ///     // … await as you like …
    ///     42
    /// }));
    /// assert_eq!(answer.await.unwrap(), 42);
    /// # });
    /// ```
    pub fn future<F: Future>(self, future: F) -> TaskFuture<F> {
        TaskFuture {
            state: State::of(self),
            future: Some(future),
            cause: |_| None,
            result: None,
        }
    }

    /// Like [`TaskBuilder::future`], for a future of a [`Result`]: `Err` ends the task as `failed`, with
    /// the error's text as its cause.
    ///
    /// ```
    /// use emberline_agent::task;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let read = task("read").try_future(async { std::fs::read("/no/such/file") });
    /// assert!(read.await.is_err()); // The task's record has the cause.
    /// # });
    /// ```
    pub fn try_future<F, T, E>(self, future: F) -> TaskFuture<F>
    where
        F: Future<Output = Result<T, E>>,
        E: Display,
    {
        let cause = |output: &Result<T, E>| output.as_ref().err().map(bounded_cause);
        TaskFuture {
            state: State::of(self),
            future: Some(future),
            cause,
            result: None,
        }
    }
}

impl<F: Future> TaskFuture<F> {
    /// Sets the size of the task's result, which `bytes` computes from the output, and its type.
    ///
    /// ```
    /// use emberline_agent::task;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let load = task("load").future(async { vec![0u8; 512] });
    /// assert_eq!(load.result_bytes(|rows| rows.len() as u64).await.len(), 512);
    /// # });
    /// ```
    pub fn result_bytes(mut self, bytes: fn(&F::Output) -> u64) -> Self {
        self.result = Some(bytes);
        self
    }
}

/// Makes a future a task, as a postfix method.
///
/// ```
/// use emberline_agent::{TaskFutureExt as _, task};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let sum = async { 1 + 1 }.in_task(task("sum").key("sum-1")).await;
/// assert_eq!(sum, 2);
/// # });
/// ```
pub trait TaskFutureExt: Future + Sized {
    /// Same as [`TaskBuilder::future`].
    fn in_task(self, task: TaskBuilder) -> TaskFuture<Self> {
        task.future(self)
    }

    /// Same as [`TaskBuilder::try_future`].
    fn in_try_task<T, E: Display>(self, task: TaskBuilder) -> TaskFuture<Self>
    where
        Self: Future<Output = Result<T, E>>,
    {
        task.try_future(self)
    }
}

impl<F: Future> TaskFutureExt for F {}

pin_project! {
    /// A future that is a task; made by [`TaskBuilder::future`] and [`TaskBuilder::try_future`].
    #[must_use = "a future does nothing unless it is polled"]
    pub struct TaskFuture<F: Future> {
        // `None` once it was ready, because it is dropped inside the task.
        #[pin]
        future: Option<F>,
        state: State,
        // Returns the cause if an output is a failure.
        cause: fn(&F::Output) -> Option<Arc<str>>,
        // Returns the size of an output.
        result: Option<fn(&F::Output) -> u64>,
    }

    impl<F: Future> PinnedDrop for TaskFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let _scope = this.state.enter();
            let _end = EndAs(Outcome::Cancelled, Some(this.state));
            this.future.set(None);
        }
    }
}

impl<F: Future> Future for TaskFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        this.state.start();
        let _scope = this.state.enter();
        let mut if_panicking = EndAs(Outcome::Panicked, Some(this.state));
        let future = this.future.as_mut().as_pin_mut();
        let polled = future
            .expect("a TaskFuture is not polled after it was ready")
            .poll(context);
        let cause = match &polled {
            Poll::Ready(output) => {
                this.future.set(None);
                if let (Some(bytes), Some(State::Running(running))) =
                    (*this.result, &mut if_panicking.1)
                {
                    let type_name = registry::name_id(std::any::type_name::<F::Output>());
                    running.detail().set_result(Some(bytes(output)), type_name);
                }
                (this.cause)(output)
            }
            Poll::Pending => None,
        };
        let state = if_panicking.1.take();
        if let (Some(state), Poll::Ready(_)) = (state, &polled) {
            let outcome = if cause.is_some() {
                Outcome::Failed
            } else {
                Outcome::Ok
            };
            state.end(outcome, cause);
        }
        polled
    }
}

impl<F: Future> fmt::Debug for TaskFuture<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TaskFuture")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// The state of a future's task.
#[derive(Debug)]
enum State {
    /// Not polled yet, or nobody consumes task events.
    Waiting(TaskBuilder),
    Running(Running),
    Ended(TaskRef),
}

impl State {
    fn of(task: TaskBuilder) -> State {
        State::Waiting(task)
    }

    fn start(&mut self) {
        let State::Waiting(task) = self else { return };
        if let Some(running) = task.begin() {
            *self = State::Running(running);
        }
    }

    /// Makes this thread work for the task.
    fn enter(&self) -> Scope {
        match self {
            State::Running(running) if wanted::by_anyone() => Scope::enter(running.task()),
            State::Ended(task) if wanted::by_anyone() => Scope::enter(*task),
            _ => Scope::none(),
        }
    }

    /// Ends a running task, once.
    fn end(&mut self, outcome: Outcome, cause: Option<Arc<str>>) {
        if let State::Running(running) = self {
            running.set_cause(cause);
            running.end(outcome);
            *self = State::Ended(running.task());
        }
    }
}

/// Ends a task when this is dropped, also by a panic.
struct EndAs<'a>(Outcome, Option<&'a mut State>);

impl Drop for EndAs<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.1.take() {
            state.end(self.0, None);
        }
    }
}
