//! Callbacks for the program's own tasks: the trait, its implementation by closures, and registration.

use std::fmt;
use std::sync::Arc;

use profiler_core::TaskRecord;

use super::cache_event::CacheEvent;
use super::registry;
use super::run::{RunInfo, State};
use emberline_agent::observe::fork_generation;

/// Methods that are called when tasks and runs start and end. The default methods do nothing.
///
/// The order is `start`, `start_state`, then `pretask` and `posttask` for each task, then `finish`.
/// Callbacks are called in the order of their registration. Only callbacks that saw the start of a task
/// or run see its end.
///
/// Methods are called on the program's threads, concurrently, and the task waits for them: be brief. A
/// panic in a callback does not harm the program: it is logged once, and the callback is not called
/// again. Callbacks do not see tasks that a callback itself starts.
///
/// ```
/// use emberline_diagnostics::{self as diagnostics, Callback, State, TaskRecord};
///
/// struct PrintKeys;
///
/// impl Callback for PrintKeys {
///     fn pretask(&self, task: &TaskRecord, _state: &State) {
///         println!("computing {}", task.key);
///     }
/// }
///
/// let _printing = diagnostics::scope(PrintKeys);
/// drop(emberline_agent::task("load").key("load-17").start()); // computing load-17
/// ```
pub trait Callback: Send + Sync {
    /// A run starts; it has no tasks yet.
    fn start(&self, run: &RunInfo) {
        let _ = run;
    }

    /// The run's counts are initialized. `state` follows the run, so it may be kept and read at any
    /// time.
    fn start_state(&self, run: &RunInfo, state: &State) {
        let _ = (run, state);
    }

    /// A task starts. `state` already counts it as running.
    fn pretask(&self, task: &TaskRecord, state: &State) {
        let _ = (task, state);
    }

    /// A task has ended; `task` has the time and the outcome. `state` is of the run in which it started.
    fn posttask(&self, task: &TaskRecord, state: &State) {
        let _ = (task, state);
    }

    /// A run has ended; `failed` if by a panic or by [`Run::fail`](super::Run::fail).
    fn finish(&self, run: &RunInfo, state: &State, failed: bool) {
        let _ = (run, state, failed);
    }

    /// An event happened in a [`Cache`](super::Cache).
    fn cache(&self, event: &CacheEvent<'_>) {
        let _ = event;
    }

    /// A [`scope`] of this callback starts.
    fn enter(&self) {}

    /// The [`scope`] has ended, or [`unregister`] was called: no further calls start, not even the
    /// `finish` of a run that continues.
    fn exit(&self) {}
}

impl<C: Callback + ?Sized> Callback for Arc<C> {
    fn start(&self, run: &RunInfo) {
        (**self).start(run);
    }

    fn start_state(&self, run: &RunInfo, state: &State) {
        (**self).start_state(run, state);
    }

    fn pretask(&self, task: &TaskRecord, state: &State) {
        (**self).pretask(task, state);
    }

    fn posttask(&self, task: &TaskRecord, state: &State) {
        (**self).posttask(task, state);
    }

    fn finish(&self, run: &RunInfo, state: &State, failed: bool) {
        (**self).finish(run, state, failed);
    }

    fn cache(&self, event: &CacheEvent<'_>) {
        (**self).cache(event);
    }

    fn enter(&self) {
        (**self).enter();
    }

    fn exit(&self) {
        (**self).exit();
    }
}

/// Calls `callback` until the scope is dropped. Scopes may be dropped in any order.
///
/// Clones of the built-in profilers share their results: move one into the scope, and read the other.
///
/// ```
/// use emberline_diagnostics::{self as diagnostics, Profiler};
///
/// let profiler = Profiler::new();
/// {
///     let _scope = diagnostics::scope(profiler.clone());
///     drop(emberline_agent::task("load").key("load-17").start());
/// }
/// assert_eq!(&*profiler.results()[0].key, "load-17");
/// ```
pub fn scope(callback: impl Callback + 'static) -> Scope {
    let entry = registry::entry(callback);
    entry.call("enter", |callback| callback.enter());
    Scope {
        number: registry::add(entry),
        generation: fork_generation(),
    }
}

/// The time in which a callback is called; made by [`scope`]. It may move between threads.
#[derive(Debug)]
#[must_use = "the callback is no longer called when this is dropped"]
pub struct Scope {
    number: u64,
    generation: usize,
}

impl Drop for Scope {
    fn drop(&mut self) {
        // A forked child has a copy of this, but no callbacks.
        if self.generation != fork_generation() {
            return;
        }
        if let Some(entry) = registry::remove(self.number) {
            entry.call("exit", |callback| callback.exit());
        }
    }
}

/// Calls `callback` from now on, until [`unregister`].
pub fn register(callback: impl Callback + 'static) -> Registration {
    Registration(registry::add(registry::entry(callback)))
}

/// Removes a callback that [`register`] added, and returns whether it was still registered. Calls that
/// other threads have started may still be running.
pub fn unregister(registration: Registration) -> bool {
    let removed = registry::remove(registration.0);
    if let Some(entry) = &removed {
        entry.call("exit", |callback| callback.exit());
    }
    removed.is_some()
}

/// Identifies a callback that [`register`] added. Dropping it changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Registration(u64);

type OnRun = Box<dyn Fn(&RunInfo) + Send + Sync>;
type OnState = Box<dyn Fn(&RunInfo, &State) + Send + Sync>;
type OnTask = Box<dyn Fn(&TaskRecord, &State) + Send + Sync>;
type OnFinish = Box<dyn Fn(&RunInfo, &State, bool) + Send + Sync>;
type OnCache = Box<dyn Fn(&CacheEvent<'_>) + Send + Sync>;

/// A [`Callback`] of closures, each of them optional.
///
/// ```
/// use emberline_diagnostics::{self as diagnostics, Callbacks};
///
/// let registration = diagnostics::register(
///     Callbacks::new()
///         .pretask(|task, _| println!("{} starts", task.key))
///         .finish(|run, state, failed| {
///             println!("{}: {} tasks, failed: {failed}", run.name(), state.counts().finished);
///         }),
/// );
/// diagnostics::run("nightly").during(|| drop(emberline_agent::task("load").start()));
/// assert!(diagnostics::unregister(registration));
/// ```
#[derive(Default)]
pub struct Callbacks {
    start: Option<OnRun>,
    start_state: Option<OnState>,
    pretask: Option<OnTask>,
    posttask: Option<OnTask>,
    finish: Option<OnFinish>,
    cache: Option<OnCache>,
}

impl Callbacks {
    /// Returns a callback that does nothing yet.
    #[must_use]
    pub fn new() -> Callbacks {
        Callbacks::default()
    }

    /// Sets [`Callback::start`].
    #[must_use]
    pub fn start(mut self, start: impl Fn(&RunInfo) + Send + Sync + 'static) -> Self {
        self.start = Some(Box::new(start));
        self
    }

    /// Sets [`Callback::start_state`].
    #[must_use]
    pub fn start_state(
        mut self,
        start_state: impl Fn(&RunInfo, &State) + Send + Sync + 'static,
    ) -> Self {
        self.start_state = Some(Box::new(start_state));
        self
    }

    /// Sets [`Callback::pretask`].
    #[must_use]
    pub fn pretask(
        mut self,
        pretask: impl Fn(&TaskRecord, &State) + Send + Sync + 'static,
    ) -> Self {
        self.pretask = Some(Box::new(pretask));
        self
    }

    /// Sets [`Callback::posttask`].
    #[must_use]
    pub fn posttask(
        mut self,
        posttask: impl Fn(&TaskRecord, &State) + Send + Sync + 'static,
    ) -> Self {
        self.posttask = Some(Box::new(posttask));
        self
    }

    /// Sets [`Callback::finish`].
    #[must_use]
    pub fn finish(
        mut self,
        finish: impl Fn(&RunInfo, &State, bool) + Send + Sync + 'static,
    ) -> Self {
        self.finish = Some(Box::new(finish));
        self
    }

    /// Sets [`Callback::cache`].
    #[must_use]
    pub fn cache(mut self, cache: impl Fn(&CacheEvent<'_>) + Send + Sync + 'static) -> Self {
        self.cache = Some(Box::new(cache));
        self
    }
}

impl Callback for Callbacks {
    fn start(&self, run: &RunInfo) {
        if let Some(start) = &self.start {
            start(run);
        }
    }

    fn start_state(&self, run: &RunInfo, state: &State) {
        if let Some(start_state) = &self.start_state {
            start_state(run, state);
        }
    }

    fn pretask(&self, task: &TaskRecord, state: &State) {
        if let Some(pretask) = &self.pretask {
            pretask(task, state);
        }
    }

    fn posttask(&self, task: &TaskRecord, state: &State) {
        if let Some(posttask) = &self.posttask {
            posttask(task, state);
        }
    }

    fn finish(&self, run: &RunInfo, state: &State, failed: bool) {
        if let Some(finish) = &self.finish {
            finish(run, state, failed);
        }
    }

    fn cache(&self, event: &CacheEvent<'_>) {
        if let Some(cache) = &self.cache {
            cache(event);
        }
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Callbacks").finish_non_exhaustive()
    }
}
