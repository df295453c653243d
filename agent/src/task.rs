//! Tasks: which one a thread works for, for the sampler, and a row for the ledger at every start and
//! stop. Guards are for threads, futures for async runtimes, handles for thread pools, and the layer
//! for programs that have spans of `tracing` already.

mod future;
mod handle;
#[cfg(feature = "tracing-layer")]
mod layer;
#[cfg(not(feature = "diagnostics"))]
mod no_hooks;
mod phase;
mod running;
mod scope;
mod thread;

use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use profiler_core::limits::{
    CAUSE_BYTES_MAX, NAME_BYTES_MAX, TASK_LABELS_MAX, bounded, bounded_name,
};
use profiler_core::{Outcome, TaskId};

pub use self::future::{TaskFuture, TaskFutureExt};
pub use self::handle::{TaskHandle, TaskScope, current_task};
#[cfg(feature = "tracing-layer")]
pub use self::layer::TaskLayer;
#[cfg(not(feature = "diagnostics"))]
use self::no_hooks as hooks;
pub use self::phase::{Phase, PhaseFuture, PhaseFutureExt, PhaseGuard, phase};
use self::running::{Queued, Running, Said, begin_here, end_here, with_here};
use self::thread::ScopeNumber;
use crate::detail::Detail;
#[cfg(feature = "diagnostics")]
use crate::diagnostics::hooks;
use crate::registry::{self, NameId};
use crate::{clock, wanted};

/// The name of the task that this thread runs, if it runs one.
#[cfg(feature = "diagnostics")]
pub(crate) fn current_name() -> Option<Arc<str>> {
    let name = thread::current().name;
    (name != NameId::NONE).then(|| registry::name(name))
}

/// The innermost task that this thread runs.
pub(crate) fn current_id() -> Option<TaskId> {
    thread::current().id.map(TaskId::from)
}

fn nanoseconds(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

fn bounded_cause(cause: impl Display) -> Arc<str> {
    bounded(&cause.to_string(), CAUSE_BYTES_MAX).into()
}

/// Names a task; `key` and `start` follow, or [`TaskBuilder::future`] for async code.
///
/// `name` is the group by which profiles and totals are asked for, such as `load`: keep the number
/// of different names small. Past 10,000 of them new ones count as `[overflow]`.
///
/// ```
/// let task = emberline_agent::task("load").key("load-17").start();
/// // … the work: samples of this thread now belong to `load` …
/// drop(task);
/// ```
#[inline]
pub fn task(name: impl AsRef<str>) -> TaskBuilder {
    let name = wanted::by_anyone().then(|| registry::name_id(name.as_ref()));
    TaskBuilder { name, said: None }
}

/// A task about to start.
#[derive(Debug)]
#[must_use = "a task starts with `start` or `future`"]
pub struct TaskBuilder {
    /// `None` while nobody wants to know.
    name: Option<NameId>,
    said: Option<Said>,
}

impl TaskBuilder {
    /// Which one of its group this task is, such as `load-17`. Longer than 4 KiB is cut.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        if let Some(said) = self.said() {
            said.key = Some(bounded_name(&key.into()).into());
        }
        self
    }

    /// As [`TaskBuilder::key`], for a key that is used again: it is not copied unless it must be cut.
    pub fn shared_key(mut self, key: Arc<str>) -> Self {
        if let Some(said) = self.said() {
            let is_cut = key.len() > NAME_BYTES_MAX;
            said.key = Some(if is_cut { bounded_name(&key).into() } else { key });
        }
        self
    }

    /// The task on whose behalf this one runs. Unless given it is the one that is current where this
    /// one starts.
    pub fn parent(mut self, parent: &TaskHandle) -> Self {
        if let Some(said) = self.said() {
            said.parent = Some(parent.0);
        }
        self
    }

    /// Which try this is, from 1, for work that is begun again after a failure.
    pub fn attempt(mut self, attempt: u32) -> Self {
        if let Some(detail) = self.detail() {
            detail.attempt = attempt;
        }
        self
    }

    /// Adds a label that is shown with the task, such as `table` and `orders`. Keys are names as those
    /// of tasks: keep them few. Of more than 16 labels the first are kept; a value longer than 4 KiB is
    /// cut.
    pub fn label(mut self, key: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        if let Some(detail) = self.detail().filter(|it| it.labels.len() < TASK_LABELS_MAX) {
            let key = registry::name_id(key.as_ref());
            detail.labels.push((key, bounded_name(value.as_ref()).into()));
        }
        self
    }

    /// Since when the work has waited to be started: it becomes the phase `queue`, up to the task's
    /// start.
    ///
    /// ```
    /// let queued = std::time::Instant::now();
    /// std::thread::spawn(move || {
    ///     let _task = emberline_agent::task("load").queued_since(queued).start();
    /// });
    /// ```
    pub fn queued_since(self, since: Instant) -> Self {
        self.queued_before(since.elapsed())
    }

    /// As [`TaskBuilder::queued_since`], by the clock of the day, which another process can tell; a time
    /// to come is now.
    pub fn queued_since_time(self, since: SystemTime) -> Self {
        // By another machine's clock it may be still to come.
        self.queued_before(since.elapsed().unwrap_or_default())
    }

    /// As [`TaskBuilder::queued_since`], by how long it was.
    pub fn queued_for(mut self, length: Duration) -> Self {
        if let Some(said) = self.said() {
            said.queued = Some(Queued::ForNs(nanoseconds(length)));
        }
        self
    }

    fn queued_before(mut self, length: Duration) -> Self {
        if let Some(said) = self.said() {
            let length_ns = i64::try_from(nanoseconds(length)).unwrap_or(i64::MAX);
            said.queued = Some(Queued::Since(clock::now().shifted(length_ns.saturating_neg())));
        }
        self
    }

    /// `None` while nobody wants to know.
    fn said(&mut self) -> Option<&mut Said> {
        self.name.map(|_| self.said.get_or_insert_default())
    }

    /// As [`TaskBuilder::said`].
    fn detail(&mut self) -> Option<&mut Detail> {
        self.said().map(|said| &mut **said.detail.get_or_insert_default())
    }

    /// Starts the task on this thread. It runs until the guard is dropped.
    #[inline(always)]
    pub fn start(mut self) -> TaskGuard {
        let name = self.name.filter(|_| wanted::by_anyone());
        let scope = name.and_then(|name| begin_here(name, self.said.as_mut()));
        TaskGuard { scope, not_send: PhantomData }
    }

    /// Starts a task that may end on another thread. `None` while nobody wants to know, and on a thread
    /// whose locals are already gone.
    fn begin(&mut self) -> Option<Running> {
        let name = self.name.filter(|_| wanted::by_anyone())?;
        Running::begin(name, self.said.take().unwrap_or_default())
    }
}

/// A running task. Dropping it ends the task as `ok`, or as `panicked` during a panic;
/// [`TaskGuard::fail`] and [`TaskGuard::cancel`] end it otherwise.
///
/// Tasks nest: samples go to the innermost one that runs on the thread. The guard stays on its
/// thread, for that thread's samples are the task's; other threads that work for it take
/// [`TaskGuard::handle`].
///
/// Do not hold it across an `.await`: meanwhile the thread works for others. The compiler refuses
/// that for futures that move between threads; for the rest, clippy does with
/// `await-holding-invalid-types = ["emberline_agent::TaskGuard"]` in `clippy.toml`.
/// [`TaskBuilder::future`] is for async code.
#[derive(Debug)]
#[must_use = "the task ends when this guard is dropped"]
pub struct TaskGuard {
    /// `None` while nobody wants to know.
    scope: Option<ScopeNumber>,
    not_send: PhantomData<*const ()>,
}

impl TaskGuard {
    /// Tells the size of the task's result.
    ///
    /// ```
    /// let mut task = emberline_agent::task("load").start();
    /// let rows = vec![0u8; 512];
    /// task.result_bytes(rows.len() as u64);
    /// task.result_of::<Vec<u8>>();
    /// ```
    pub fn result_bytes(&mut self, bytes: u64) {
        self.set_result(Some(bytes), || NameId::NONE);
    }

    /// Tells the type of the task's result. It is a name as those of tasks: keep them few.
    pub fn result_type(&mut self, name: impl AsRef<str>) {
        self.set_result(None, || registry::name_id(name.as_ref()));
    }

    /// As [`TaskGuard::result_type`], with the name that the compiler has for `T`.
    pub fn result_of<T: ?Sized>(&mut self) {
        self.result_type(std::any::type_name::<T>());
    }

    fn set_result(&mut self, bytes: Option<u64>, type_name: impl FnOnce() -> NameId) {
        if let Some(scope) = self.scope {
            let type_name = type_name();
            with_here(scope, |running| running.detail().set_result(bytes, type_name));
        }
    }

    /// Ends the task as `failed`, and says why. Longer than 1 KiB is cut.
    pub fn fail(mut self, cause: impl Display) {
        if let Some(scope) = self.scope.take() {
            let cause = bounded_cause(cause);
            with_here(scope, |running| running.set_cause(Some(cause)));
            end_here(scope, Outcome::Failed);
        }
    }

    /// Ends the task as `cancelled`.
    pub fn cancel(mut self) {
        if let Some(scope) = self.scope.take() {
            end_here(scope, Outcome::Cancelled);
        }
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if let Some(scope) = self.scope {
            let panicking = std::thread::panicking();
            end_here(scope, if panicking { Outcome::Panicked } else { Outcome::Ok });
        }
    }
}
