//! Runs: a period of many tasks that belong together, and how far it is.

use std::sync::{Arc, Mutex};

use profiler_core::Timestamp;
use profiler_core::limits::bounded_name;
use rustc_hash::FxHashMap;

use super::hooks::{Calls, Seen};
use crate::fork::PerProcess;
use crate::sync::lock;
use crate::{clock, wanted};

/// Names a run: a period of many tasks that belong together, such as one evaluation. Callbacks hear
/// of its start and its end, and a [`ProgressBar`](super::ProgressBar) shows how far it is.
///
/// A process has one run at a time, for a task does not say which run it belongs to: all that start
/// meanwhile, on any thread, are the run's. A run that starts inside another is a part of it: what it
/// expects is added, and callbacks hear of the outer one alone.
///
/// ```
/// use emberline_agent::{diagnostics, task};
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
    RunBuilder { name: bounded_name(name.as_ref()).into(), expected: Vec::new() }
}

/// A run about to start.
#[derive(Clone, Debug)]
#[must_use = "a run starts with `start`, `during` or `try_during`"]
pub struct RunBuilder {
    name: Arc<str>,
    expected: Vec<(Arc<str>, u64)>,
}

impl RunBuilder {
    /// So many tasks of this name will run. May be given for several names; progress then counts the
    /// tasks of these names alone. If none is given it counts all tasks, and as many are expected as
    /// have started.
    pub fn expect(mut self, task_name: impl AsRef<str>, tasks: u64) -> Self {
        self.expected.push((bounded_name(task_name.as_ref()).into(), tasks));
        self
    }

    /// Starts the run, which lasts until the guard is dropped. While no callback is registered this
    /// does nothing.
    pub fn start(self) -> Run {
        Run { opened: self.open(), errored: false }
    }

    /// The run is what `body` does; it has errored if `body` panics.
    pub fn during<T>(self, body: impl FnOnce() -> T) -> T {
        let _run = self.start();
        body()
    }

    /// As [`RunBuilder::during`]; the run has also errored if `body` gives an error.
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
        if !wanted::by_callbacks() {
            return None;
        }
        let calls = Calls::begin()?;
        let info = RunInfo { name: self.name, start: clock::now() };
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
        calls.call("start_state", |callback| callback.start_state(&info, &state));
        Some(Opened { state, info, seen: calls.seen() })
    }
}

/// A run under way; made by [`RunBuilder::start`]. Dropping it finishes the run, as errored during a
/// panic. It may move between threads and be held across an `.await`.
#[derive(Debug)]
#[must_use = "the run finishes when this is dropped"]
pub struct Run {
    /// Not in a part of another run, nor if no callback was there.
    opened: Option<Opened>,
    errored: bool,
}

#[derive(Debug)]
struct Opened {
    state: State,
    info: RunInfo,
    seen: Seen,
}

impl Run {
    /// Finishes the run as errored.
    pub fn fail(mut self) {
        self.errored = true;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let Some(Opened { state, info, seen }) = self.opened.take() else { return };
        if !seen.is_here() {
            return;
        }
        *lock(current()) = Current::default();
        let errored = self.errored || std::thread::panicking();
        if let Some(calls) = Calls::begin() {
            calls.call_seen(seen, "finish", |callback| callback.finish(&info, &state, errored));
        }
    }
}

/// Which run is meant.
#[derive(Clone, Debug)]
pub struct RunInfo {
    name: Arc<str>,
    start: Timestamp,
}

impl RunInfo {
    /// As it was given to [`run`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it started, by the clock of the tasks.
    #[must_use]
    pub fn start(&self) -> Timestamp {
        self.start
    }
}

/// How many tasks there are, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Counts {
    /// All tasks that are known of: those expected, or more if more have started.
    pub expected: u64,
    /// Started and not ended.
    pub running: u64,
    /// Ended, however.
    pub finished: u64,
    /// Ended as `failed` or `panicked`; these are part of `finished`.
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

/// How far a run is: a view that stays true while it goes on. Cheap to clone.
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
    /// Names were given: others do not count.
    only_expected: bool,
    by_name: FxHashMap<Arc<str>, Counts>,
}

impl State {
    fn new(run: Option<RunInfo>, expected: &[(Arc<str>, u64)]) -> State {
        let state = State(Arc::new(StateInner { run, tasks: Mutex::default() }));
        state.expect(expected);
        state
    }

    /// Of the run that is under way, or of none.
    pub(super) fn current() -> State {
        lock(current()).counting.clone()
    }

    fn expect(&self, expected: &[(Arc<str>, u64)]) {
        let mut tasks = lock(&self.0.tasks);
        if !expected.is_empty() && !tasks.only_expected {
            tasks.only_expected = true;
            // The others were counted for want of anything better.
            tasks.by_name.retain(|name, _| expected.iter().any(|(expected, _)| expected == name));
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
        // A name that came to be left out since the start has nothing running.
        if let Some(counts) = lock(&self.0.tasks).by_name.get_mut(name)
            && counts.running > 0
        {
            counts.running -= 1;
            counts.finished += 1;
            counts.failed += u64::from(failed);
        }
    }

    /// The run, if this is not the state outside any.
    #[must_use]
    pub fn run(&self) -> Option<&RunInfo> {
        self.0.run.as_ref()
    }

    /// The tasks that count, all together.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        lock(&self.0.tasks).by_name.values().for_each(|counts| sum.add(*counts));
        sum
    }

    /// The tasks that count, by their names.
    #[must_use]
    pub fn counts_by_name(&self) -> Vec<(Arc<str>, Counts)> {
        let tasks = lock(&self.0.tasks);
        let mut all: Vec<_> = tasks.by_name.iter().map(|(name, c)| (name.clone(), *c)).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }
}

/// The run of this moment.
struct Current {
    /// There is a run, which its callbacks may not yet know of.
    open: Option<State>,
    /// Where tasks count that start now.
    counting: State,
}

impl Default for Current {
    fn default() -> Current {
        Current { open: None, counting: State::new(None, &[]) }
    }
}

/// Of this process: a forked child has a lock of its own.
fn current() -> &'static Mutex<Current> {
    static CURRENT: PerProcess<Mutex<Current>> = PerProcess::new();
    CURRENT.get()
}
