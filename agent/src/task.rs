//! Tasks: for the sampler the one that each thread works for, and for the ledger a row at every start
//! and end. Guards are for threads, futures for async runtimes, handles for thread pools, and the
//! layer for programs that already have spans of `tracing`.

mod detached;
mod foreign_phase;
mod future;
mod handle;
#[cfg(feature = "tracing-layer")]
mod layer;
mod other_thread;
mod phase;
mod running;
mod scope;
mod thread;
mod unwinding;

use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use profiler_core::limits::{
    CAUSE_BYTES_MAX, NAME_BYTES_MAX, TASK_LABELS_MAX, bounded, bounded_name,
};
use profiler_core::{Outcome, TaskId};

pub use self::detached::DetachedTask;
pub use self::foreign_phase::TaskPhase;
pub use self::future::{TaskFuture, TaskFutureExt};
pub use self::handle::{TaskHandle, TaskScope, current_task};
#[cfg(feature = "tracing-layer")]
pub use self::layer::TaskLayer;
pub use self::other_thread::ThreadTask;
pub use self::phase::{Phase, PhaseFuture, PhaseFutureExt, PhaseGuard, phase};
use self::running::{
    EarlierPhase, QueueTime, Running, TaskOptions, begin_here, end_here, with_here,
};
use self::thread::ScopeNumber;
pub(crate) use self::unwinding::Beginning;
use crate::detail::Detail;
use crate::registry::{self, NameId};
use crate::{clock, wanted};

/// Returns the id of the innermost task of this thread.
pub(crate) fn current_id() -> Option<TaskId> {
    thread::current().id.map(TaskId::from)
}

/// Most phases before the start of a task.
const EARLIER_PHASES_MAX: usize = 16;

fn nanoseconds(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

fn bounded_cause(cause: impl Display) -> Arc<str> {
    bounded(&cause.to_string(), CAUSE_BYTES_MAX).into()
}

/// Describes a task; [`TaskBuilder::start`] starts it, or [`TaskBuilder::future`] in async code.
///
/// Profiles and totals are grouped by `name`, for example `load`. Keep the number of different names
/// small: past 10,000 of them new ones count as `[overflow]`.
///
/// ```
/// let task = emberline_agent::task("load").key("load-17").start();
/// // … the work: samples of this thread now belong to `load` …
/// drop(task);
/// ```
#[inline]
pub fn task(name: impl AsRef<str>) -> TaskBuilder {
    let name = wanted::by_anyone().then(|| registry::name_id(name.as_ref()));
    TaskBuilder {
        name,
        options: None,
    }
}

/// A task about to start.
#[derive(Debug)]
#[must_use = "a task starts with `start` or `future`"]
pub struct TaskBuilder {
    /// `None` while nobody consumes task events.
    name: Option<NameId>,
    options: Option<TaskOptions>,
}

impl TaskBuilder {
    /// Sets the key that identifies this task within its name, for example `load-17`. It is cut to 4 KiB.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        if let Some(options) = self.options() {
            options.key = Some(bounded_name(&key.into()).into());
        }
        self
    }

    /// Like [`TaskBuilder::key`], for a key that is used repeatedly: it is copied only if it must be cut.
    pub fn shared_key(mut self, key: Arc<str>) -> Self {
        if let Some(options) = self.options() {
            let is_cut = key.len() > NAME_BYTES_MAX;
            options.key = Some(if is_cut {
                bounded_name(&key).into()
            } else {
                key
            });
        }
        self
    }

    /// Sets the parent. The default is the current task of the thread on which this one starts.
    pub fn parent(mut self, parent: &TaskHandle) -> Self {
        if let Some(options) = self.options() {
            options.parent = Some(parent.0);
        }
        self
    }

    /// Sets the number of this attempt, from 1, for work that is retried after a failure.
    pub fn attempt(mut self, attempt: u32) -> Self {
        if let Some(detail) = self.detail() {
            detail.attempt = attempt;
        }
        self
    }

    /// Adds a label that is shown with the task, for example `table` and `orders`. Keys share the limit
    /// on task names, so keep them few. The first 16 labels are kept; values are cut to 4 KiB.
    pub fn label(mut self, key: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        if let Some(detail) = self.detail().filter(|it| it.labels.len() < TASK_LABELS_MAX) {
            let key = registry::name_id(key.as_ref());
            detail
                .labels
                .push((key, bounded_name(value.as_ref()).into()));
        }
        self
    }

    /// Sets when the work was queued. The time from then to the task's start becomes the phase
    /// `queue`.
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

    /// Like [`TaskBuilder::queued_since`], by wall-clock time, which another process can send. A time in
    /// the future counts as now.
    pub fn queued_since_time(self, since: SystemTime) -> Self {
        // Another machine's clock may be ahead.
        self.queued_before(since.elapsed().unwrap_or_default())
    }

    /// Like [`TaskBuilder::queued_since`], with the length of the wait.
    pub fn queued_for(mut self, length: Duration) -> Self {
        if let Some(options) = self.options() {
            options.queued = Some(QueueTime::ForNs(nanoseconds(length)));
        }
        self
    }

    /// Adds a phase before the task's start, such as the transfer of its input: it began `ago` before the
    /// start and took `length`. The first 16 are kept. They are no part of the task's duration.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (ago, length) = (Duration::from_millis(30), Duration::from_millis(20));
    /// let _task = emberline_agent::task("load").earlier_phase("transfer", ago, length).start();
    /// ```
    pub fn earlier_phase<'a>(
        mut self,
        phase: impl Into<Phase<'a>>,
        ago: Duration,
        length: Duration,
    ) -> Self {
        let Some(options) = self.options() else {
            return self;
        };
        let phase = phase.into().id();
        if phase != NameId::NONE {
            let earlier = options.earlier.get_or_insert_default();
            if earlier.len() < EARLIER_PHASES_MAX {
                earlier.push(EarlierPhase {
                    phase,
                    ago_ns: nanoseconds(ago),
                    length_ns: nanoseconds(length.min(ago)),
                });
            }
        }
        self
    }

    fn queued_before(mut self, length: Duration) -> Self {
        if let Some(options) = self.options() {
            let length_ns = i64::try_from(nanoseconds(length)).unwrap_or(i64::MAX);
            options.queued = Some(QueueTime::Since(
                clock::now().shifted(length_ns.saturating_neg()),
            ));
        }
        self
    }

    /// `None` while nobody consumes task events.
    fn options(&mut self) -> Option<&mut TaskOptions> {
        self.name.map(|_| self.options.get_or_insert_default())
    }

    /// `None` while nobody consumes task events.
    fn detail(&mut self) -> Option<&mut Detail> {
        self.options()
            .map(|options| &mut **options.detail.get_or_insert_default())
    }

    /// Starts the task on this thread. It ends when the guard is dropped.
    #[inline(always)]
    pub fn start(mut self) -> TaskGuard {
        let name = self.name.filter(|_| wanted::by_anyone());
        let scope = name.and_then(|name| begin_here(name, self.options.as_mut()));
        TaskGuard {
            scope,
            beginning: Beginning::now(),
            not_send: PhantomData,
        }
    }

    /// Starts a task that may end on another thread. Returns `None` while nobody consumes task events,
    /// and on a thread whose locals are already gone.
    fn begin(&mut self) -> Option<Running> {
        let name = self.name.filter(|_| wanted::by_anyone())?;
        Running::begin(name, self.options.take().unwrap_or_default())
    }
}

/// A running task. Dropping it ends the task as `ok`, or as `panicked` if a panic since its start drops it;
/// [`TaskGuard::fail`] and [`TaskGuard::cancel`] end it with another outcome.
///
/// Tasks nest: samples belong to the innermost task of the thread. The guard stays on its thread,
/// because that thread's samples are the task's; other threads that work for it enter
/// [`TaskGuard::handle`].
///
/// Do not hold it across an `.await`, during which the thread does other work: use
/// [`TaskBuilder::future`]. The compiler rejects that for futures that move between threads; for other
/// futures clippy does, with `await-holding-invalid-types = ["emberline_agent::TaskGuard"]` in
/// `clippy.toml`.
#[derive(Debug)]
#[must_use = "the task ends when this guard is dropped"]
pub struct TaskGuard {
    /// `None` while nobody consumes task events.
    scope: Option<ScopeNumber>,
    beginning: Beginning,
    not_send: PhantomData<*const ()>,
}

impl TaskGuard {
    /// Sets the size of the task's result.
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

    /// Sets the type of the task's result. Types share the limit on task names, so keep them few.
    pub fn result_type(&mut self, name: impl AsRef<str>) {
        self.set_result(None, || registry::name_id(name.as_ref()));
    }

    /// Like [`TaskGuard::result_type`], with the compiler's name of `T`.
    pub fn result_of<T: ?Sized>(&mut self) {
        self.result_type(std::any::type_name::<T>());
    }

    fn set_result(&mut self, bytes: Option<u64>, type_name: impl FnOnce() -> NameId) {
        if let Some(scope) = self.scope {
            let type_name = type_name();
            with_here(scope, |running| {
                running.detail().set_result(bytes, type_name)
            });
        }
    }

    /// Ends the task as `failed`, with a cause, which is cut to 1 KiB.
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
            end_here(scope, self.beginning.outcome());
        }
    }
}
