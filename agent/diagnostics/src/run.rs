//! Runs: periods of many tasks that belong together, and their progress.

use std::sync::{Arc, Mutex};

use profiler_core::Timestamp;
use profiler_core::limits::bounded_name;
use rustc_hash::FxHashMap;

use super::registry::{CallbackSnapshot, Calls};
use crate::process::PerProcess;
use crate::sync::lock;
use emberline_agent::observe;

/// Describes a run: a period of many tasks that belong together, for example one evaluation. Callbacks
/// see its start and its end, and a [`ProgressBar`](super::ProgressBar) shows its progress.
///
/// A process has one run at a time, because tasks do not name their run: all tasks that start in its
/// time, on any thread, belong to it. A run that starts inside another becomes part of it: its expected
/// tasks are added, and callbacks see only the outer run.
///
/// ```
/// use emberline_agent::task;
/// use emberline_diagnostics as diagnostics;
///
/// let sum = diagnostics::run("sums").expect("add", 3).during(|| {
///     let add = |number: u64| {
///         let _task = task("add").key(format!("add-{number}")).start();
///         number + 1
///     };
///     (0..3).map(add).sum::<u64>()
/// });
/// assert_eq!(sum, 6);
/// ```
pub fn run(name: impl AsRef<str>) -> RunBuilder {
    RunBuilder {
        name: bounded_name(name.as_ref()).into(),
        expected: Vec::new(),
    }
}

/// A run about to start.
#[derive(Clone, Debug)]
#[must_use = "a run starts with `start`, `during` or `try_during`"]
pub struct RunBuilder {
    name: Arc<str>,
    expected: Vec<(Arc<str>, u64)>,
}

impl RunBuilder {
    /// Announces `tasks` tasks of this name. May be called for several names; progress then counts only
    /// tasks of these names. Without it progress counts all tasks, of which as many are expected as
    /// have started.
    pub fn expect(mut self, task_name: impl AsRef<str>, tasks: u64) -> Self {
        self.expected
            .push((bounded_name(task_name.as_ref()).into(), tasks));
        self
    }

    /// Starts the run, which ends when the guard is dropped. While no callback is registered this does
    /// nothing.
    pub fn start(self) -> Run {
        Run {
            opened: self.open(),
            failed: false,
        }
    }

    /// Runs `body` as the run, which has failed if `body` panics.
    pub fn during<T>(self, body: impl FnOnce() -> T) -> T {
        let _run = self.start();
        body()
    }

    /// Like [`RunBuilder::during`]; the run has also failed if `body` returns an error.
    ///
    /// # Errors
    /// Those of `body`.
    pub fn try_during<T, E>(self, body: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let run = self.start();
        let result = body();
        if result.is_err() {
            run.fail();
        }
        result
    }

    fn open(self) -> Option<Opened> {
        if !observe::is_observed() {
            return None;
        }
        let calls = Calls::begin()?;
        let info = RunInfo {
            name: self.name,
            start: observe::now(),
        };
        let state = State::new(Some(info.clone()), &self.expected);
        {
            let mut current = lock(current());
            if let Some(outer) = current.open.as_ref() {
                outer.expect(&self.expected);
                return None;
            }
            current.open = Some(state.clone());
        }
        calls.call("start", |callback| callback.start(&info));
        lock(current()).counting = state.clone();
        calls.call("start_state", |callback| {
            callback.start_state(&info, &state)
        });
        Some(Opened {
            state,
            info,
            callbacks: calls.snapshot(),
        })
    }
}

/// A running run; made by [`RunBuilder::start`]. Dropping it ends the run, as failed during a panic. It
/// may move between threads and be held across an `.await`.
#[derive(Debug)]
#[must_use = "the run ends when this is dropped"]
pub struct Run {
    /// `None` for a part of another run, and without callbacks.
    opened: Option<Opened>,
    failed: bool,
}

#[derive(Debug)]
struct Opened {
    state: State,
    info: RunInfo,
    callbacks: CallbackSnapshot,
}

impl Run {
    /// Ends the run as failed.
    pub fn fail(mut self) {
        self.failed = true;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let Some(Opened {
            state,
            info,
            callbacks,
        }) = self.opened.take()
        else {
            return;
        };
        if !callbacks.is_here() {
            return;
        }
        *lock(current()) = Current::default();
        let failed = self.failed || std::thread::panicking();
        if let Some(calls) = Calls::begin() {
            calls.call_snapshot(callbacks, "finish", |callback| {
                callback.finish(&info, &state, failed)
            });
        }
    }
}

/// Identifies a run.
#[derive(Clone, Debug)]
pub struct RunInfo {
    name: Arc<str>,
    start: Timestamp,
}

impl RunInfo {
    /// Returns the name that was passed to [`run`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns when it started, by the clock of the tasks.
    #[must_use]
    pub fn start(&self) -> Timestamp {
        self.start
    }
}

/// Numbers of tasks at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Counts {
    /// All known tasks: the expected ones, or more if more have started.
    pub expected: u64,
    /// Started, not ended.
    pub running: u64,
    /// Ended, with any outcome.
    pub finished: u64,
    /// Ended as `failed` or `panicked`; included in `finished`.
    pub failed: u64,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.expected += other.expected;
        self.running += other.running;
        self.finished += other.finished;
        self.failed += other.failed;
    }
}

/// The progress of a run: a live view, cheap to clone.
///
/// Outside any run it counts the tasks since the last run.
#[derive(Clone, Debug)]
pub struct State(Arc<StateInner>);

#[derive(Debug)]
struct StateInner {
    run: Option<RunInfo>,
    tasks: Mutex<Tasks>,
}

#[derive(Debug, Default)]
struct Tasks {
    /// Whether tasks of other names are not counted.
    only_expected: bool,
    by_name: FxHashMap<Arc<str>, Counts>,
}

impl State {
    fn new(run: Option<RunInfo>, expected: &[(Arc<str>, u64)]) -> State {
        let state = State(Arc::new(StateInner {
            run,
            tasks: Mutex::default(),
        }));
        state.expect(expected);
        state
    }

    /// Returns the state of the current run, or the one outside any run.
    pub(super) fn current() -> State {
        lock(current()).counting.clone()
    }

    fn expect(&self, expected: &[(Arc<str>, u64)]) {
        let mut tasks = lock(&self.0.tasks);
        if !expected.is_empty() && !tasks.only_expected {
            tasks.only_expected = true;
            // Other names were counted only while no name was expected.
            tasks
                .by_name
                .retain(|name, _| expected.iter().any(|(expected, _)| expected == name));
        }
        for (name, count) in expected {
            tasks.by_name.entry(name.clone()).or_default().expected += count;
        }
    }

    pub(super) fn count_start(&self, name: &Arc<str>) {
        let mut tasks = lock(&self.0.tasks);
        if !tasks.only_expected && !tasks.by_name.contains_key(name) {
            tasks.by_name.insert(name.clone(), Counts::default());
        }
        if let Some(counts) = tasks.by_name.get_mut(name) {
            counts.running += 1;
            counts.expected = counts.expected.max(counts.running + counts.finished);
        }
    }

    pub(super) fn count_end(&self, name: &Arc<str>, failed: bool) {
        // A name that stopped counting since the task started has no running tasks.
        let mut tasks = lock(&self.0.tasks);
        let counts = tasks.by_name.get_mut(name);
        if let Some(counts) = counts.filter(|counts| counts.running > 0) {
            counts.running -= 1;
            counts.finished += 1;
            counts.failed += u64::from(failed);
        }
    }

    /// Returns the run; `None` for the state outside any run.
    #[must_use]
    pub fn run(&self) -> Option<&RunInfo> {
        self.0.run.as_ref()
    }

    /// Returns the sums over all counted tasks.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        lock(&self.0.tasks)
            .by_name
            .values()
            .for_each(|counts| sum.add(*counts));
        sum
    }

    /// Returns the sums of the counted tasks by name.
    #[must_use]
    pub fn counts_by_name(&self) -> Vec<(Arc<str>, Counts)> {
        let tasks = lock(&self.0.tasks);
        let mut all: Vec<_> = tasks
            .by_name
            .iter()
            .map(|(name, c)| (name.clone(), *c))
            .collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }
}

/// The current run.
struct Current {
    /// The current run; its callbacks may not know it yet.
    open: Option<State>,
    /// Counts the tasks that start now.
    counting: State,
}

impl Default for Current {
    fn default() -> Current {
        Current {
            open: None,
            counting: State::new(None, &[]),
        }
    }
}

/// Returns this process's current run; a forked child has its own lock.
fn current() -> &'static Mutex<Current> {
    static CURRENT: PerProcess<Mutex<Current>> = PerProcess::new();
    CURRENT.get()
}
