//! What a program can hear of its own tasks: the trait, the same with closures, and registration.

use std::fmt;
use std::sync::Arc;

use profiler_core::TaskRecord;

use super::cache_event::CacheEvent;
use super::hooks;
use super::run::{RunInfo, State};
use crate::fork;

/// What to do when tasks and runs start and end. Every method does nothing unless it is written.
///
/// The order is `start`, `start_state`, then `pretask` and `posttask` for each task, then `finish`.
/// Several callbacks are called in the order in which they were registered. Who was registered when
/// a task or run started hears of its end, and nobody else does.
///
/// Methods are called on the program's threads, by several of them at once, and the task waits
/// meanwhile: be brief. A callback that panics does not harm the program: it is reported once in the
/// log and not called again. Tasks that a callback itself starts are not told to callbacks.
///
/// ```
/// use emberline_agent::diagnostics::{self, Callback, State, TaskRecord};
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
    /// A run begins; nothing of it has happened yet.
    fn start(&self, run: &RunInfo) {
        let _ = run;
    }

    /// The run's counts are there. `state` stays true while the run goes on, so it may be kept and
    /// read at any time.
    fn start_state(&self, run: &RunInfo, state: &State) {
        let _ = (run, state);
    }

    /// A task begins. `state` counts it already as running.
    fn pretask(&self, task: &TaskRecord, state: &State) {
        let _ = (task, state);
    }

    /// A task has ended, and `task` says when and how. `state` is that of the run that it began in.
    fn posttask(&self, task: &TaskRecord, state: &State) {
        let _ = (task, state);
    }

    /// A run has ended; `errored` if by a panic or by [`Run::fail`](super::Run::fail).
    fn finish(&self, run: &RunInfo, state: &State, errored: bool) {
        let _ = (run, state, errored);
    }

    /// Something happened in a [`Cache`](super::Cache).
    fn cache(&self, event: &CacheEvent<'_>) {
        let _ = event;
    }

    /// A [`scope`] of this callback begins.
    fn enter(&self) {}

    /// The [`scope`] has ended, or the callback was given to [`unregister`]: no further calls begin,
    /// not even the `finish` of a run that goes on.
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

    fn finish(&self, run: &RunInfo, state: &State, errored: bool) {
        (**self).finish(run, state, errored);
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

/// Calls `callback` while the scope lives. Drop scopes in any order.
///
/// The built-in profilers are handles that can be cloned: give the scope one, and ask the other.
///
/// ```
/// use emberline_agent::diagnostics::{self, Profiler};
///
/// let profiler = Profiler::new();
/// {
///     let _scope = diagnostics::scope(profiler.clone());
///     drop(emberline_agent::task("load").key("load-17").start());
/// }
/// assert_eq!(&*profiler.results()[0].key, "load-17");
/// ```
pub fn scope(callback: impl Callback + 'static) -> Scope {
    let entry = hooks::entry(callback);
    entry.call("enter", |callback| callback.enter());
    Scope { number: hooks::add(entry), generation: fork::generation() }
}

/// A callback at work; made by [`scope`]. It may move between threads.
#[derive(Debug)]
#[must_use = "the callback is no longer called when this is dropped"]
pub struct Scope {
    number: u64,
    generation: usize,
}

impl Drop for Scope {
    fn drop(&mut self) {
        // A forked child has a copy of this, and no callbacks.
        if self.generation == fork::generation()
            && let Some(entry) = hooks::remove(self.number)
        {
            entry.call("exit", |callback| callback.exit());
        }
    }
}

/// Calls `callback` from now on, until it is given to [`unregister`].
pub fn register(callback: impl Callback + 'static) -> Registration {
    Registration(hooks::add(hooks::entry(callback)))
}

/// No longer calls what [`register`] added; `false` if it was gone already. Calls that other threads
/// have begun may still be under way.
pub fn unregister(registration: Registration) -> bool {
    let removed = hooks::remove(registration.0);
    if let Some(entry) = &removed {
        entry.call("exit", |callback| callback.exit());
    }
    removed.is_some()
}

/// Which callback [`register`] added. Dropping it changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Registration(u64);

type OnRun = Box<dyn Fn(&RunInfo) + Send + Sync>;
type OnState = Box<dyn Fn(&RunInfo, &State) + Send + Sync>;
type OnTask = Box<dyn Fn(&TaskRecord, &State) + Send + Sync>;
type OnFinish = Box<dyn Fn(&RunInfo, &State, bool) + Send + Sync>;
type OnCache = Box<dyn Fn(&CacheEvent<'_>) + Send + Sync>;

/// A [`Callback`] of closures, any number of them.
///
/// ```
/// use emberline_agent::diagnostics::{self, Callbacks};
///
/// let registration = diagnostics::register(
///     Callbacks::new()
///         .pretask(|task, _| println!("{} begins", task.key))
///         .finish(|run, state, errored| {
///             println!("{}: {} tasks, errored: {errored}", run.name(), state.counts().finished);
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
    /// Does nothing yet.
    #[must_use]
    pub fn new() -> Callbacks {
        Callbacks::default()
    }

    /// For [`Callback::start`].
    #[must_use]
    pub fn start(mut self, start: impl Fn(&RunInfo) + Send + Sync + 'static) -> Self {
        self.start = Some(Box::new(start));
        self
    }

    /// For [`Callback::start_state`].
    #[must_use]
    pub fn start_state(
        mut self,
        start_state: impl Fn(&RunInfo, &State) + Send + Sync + 'static,
    ) -> Self {
        self.start_state = Some(Box::new(start_state));
        self
    }

    /// For [`Callback::pretask`].
    #[must_use]
    pub fn pretask(
        mut self,
        pretask: impl Fn(&TaskRecord, &State) + Send + Sync + 'static,
    ) -> Self {
        self.pretask = Some(Box::new(pretask));
        self
    }

    /// For [`Callback::posttask`].
    #[must_use]
    pub fn posttask(
        mut self,
        posttask: impl Fn(&TaskRecord, &State) + Send + Sync + 'static,
    ) -> Self {
        self.posttask = Some(Box::new(posttask));
        self
    }

    /// For [`Callback::finish`].
    #[must_use]
    pub fn finish(
        mut self,
        finish: impl Fn(&RunInfo, &State, bool) + Send + Sync + 'static,
    ) -> Self {
        self.finish = Some(Box::new(finish));
        self
    }

    /// For [`Callback::cache`].
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

    fn finish(&self, run: &RunInfo, state: &State, errored: bool) {
        if let Some(finish) = &self.finish {
            finish(run, state, errored);
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
