//! Observing the tasks of the own process, as `emberline-diagnostics` does: their starts and ends, and the clock,
//! threads and forks that the agent uses itself.
//!
//! An observer sees the same starts and ends that an agent records, and needs no agent. While there is neither, a
//! task costs two loads.
//!
//! ```
//! use emberline_agent::observe::{TaskEnd, set_observer};
//! use emberline_agent::{TaskRecord, task};
//!
//! fn print(task: &TaskRecord) -> Option<TaskEnd> {
//!     println!("{} starts", task.key);
//!     Some(Box::new(|task| println!("{} ended: {:?}", task.key, task.outcome)))
//! }
//!
//! set_observer(Some(print));
//! drop(task("load").key("load-17").start());
//! set_observer(None);
//! ```

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;

use profiler_core::{TaskId, TaskRecord, Timestamp};
use rustc_hash::FxHashMap;

use crate::detail::{self, Detail, Interval, Phases};
use crate::fork::{self, PerProcess};
use crate::registry::NameId;
use crate::{StartError, clock, spawn, wanted};
use system::sync::lock;

/// Called at the start of each task, on its thread, which waits. What it returns is called at the task's end; `None`
/// if the end is of no interest.
///
/// A panic in it, or in the [`TaskEnd`], is logged and stays here.
pub type TaskObserver = fn(&TaskRecord) -> Option<TaskEnd>;

/// Called at the end of a task, on the thread that ends it, with the time, the outcome and all details.
pub type TaskEnd = Box<dyn FnOnce(&TaskRecord) + Send + Sync>;

/// The observer of this process. A forked child has none, and a lock of its own.
fn observer() -> &'static RwLock<Option<TaskObserver>> {
    static OBSERVER: PerProcess<RwLock<Option<TaskObserver>>> = PerProcess::new();
    OBSERVER.get()
}

/// Sets the observer of this process's tasks in place of the one before, or removes it. A forked child starts
/// without one.
///
/// Tasks that started before are not seen. Nor are ends while there is no observer.
pub fn set_observer(new: Option<TaskObserver>) {
    fork::watch();
    let mut observer = observer().write().unwrap_or_else(PoisonError::into_inner);
    // Inside the lock, or removing one observer could race with setting the next.
    wanted::set_observer(new.is_some());
    *observer = new;
}

/// Whether there is an observer: one load.
#[inline]
#[must_use]
pub fn is_observed() -> bool {
    wanted::by_observer()
}

/// The time by the clock of tasks: the real time at which the process first read it, advanced by the monotonic clock.
#[must_use]
pub fn now() -> Timestamp {
    clock::now()
}

/// The number of forks between the process that set the first observer or started the first agent, and this one; at
/// most 15. In a forked child, locks of an earlier generation may be held by threads that do not exist there.
#[must_use]
pub fn fork_generation() -> usize {
    fork::generation()
}

/// Starts a thread that is shown below `[agent]` in profiles. It is named `emberline-`, then the first 5 bytes of
/// `name`. It blocks all signals, and a panic in it is logged without ending the program.
///
/// # Errors
/// [`StartError::Spawn`].
pub fn spawn_thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    spawn::spawn(name, body)
}

/// A running task whose start was observed.
pub(crate) struct Observed {
    generation: usize,
    /// For the unwind safety of what contains it: a panic is caught.
    end: AssertUnwindSafe<TaskEnd>,
}

impl fmt::Debug for Observed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Observed").finish_non_exhaustive()
    }
}

/// Most running tasks with notes; the observer does not see the phases of more.
const NOTED_MAX: usize = 100_000;

/// Records of a running task, which the observer reads at its end.
#[derive(Debug, Default)]
struct Notes {
    phases: Phases,
    result_bytes: Option<u64>,
    type_name: NameId,
}

/// Returns the notes of this process.
fn notes() -> &'static Mutex<FxHashMap<TaskId, Notes>> {
    static NOTES: PerProcess<Mutex<FxHashMap<TaskId, Notes>>> = PerProcess::new();
    NOTES.get()
}

/// Records an interval of a phase.
pub(crate) fn note_phase(task: TaskId, interval: Interval) {
    if let Some(notes) = lock(notes()).get_mut(&task) {
        notes.phases.add(interval);
    }
}

/// Records a task's result, as set by a handle.
pub(crate) fn note_result(task: TaskId, bytes: Option<u64>, type_name: NameId) {
    if let Some(notes) = lock(notes()).get_mut(&task) {
        notes.result_bytes = bytes.or(notes.result_bytes);
        notes.type_name = if type_name == NameId::NONE {
            notes.type_name
        } else {
            type_name
        };
    }
}

/// Calls the observer for a task's start.
pub(crate) fn task_began(task: &TaskRecord) -> Option<Observed> {
    let observer = (*observer().read().unwrap_or_else(PoisonError::into_inner))?;
    let end = caught(|| observer(task)).flatten()?;
    let mut notes = lock(notes());
    if notes.len() < NOTED_MAX {
        notes.insert(task.id, Notes::default());
    }
    Some(Observed {
        generation: fork::generation(),
        end: AssertUnwindSafe(end),
    })
}

/// Calls what the observer returned at the start. `detail` is the part of the details that the task itself has.
pub(crate) fn task_ended(observed: Observed, mut task: TaskRecord, task_detail: Option<&Detail>) {
    let Observed {
        generation,
        end: AssertUnwindSafe(end),
    } = observed;
    // A start in the process from which this one was forked.
    if generation != fork::generation() {
        return;
    }
    let noted = lock(notes()).remove(&task.id);
    if let Some(noted) = noted {
        let phases = noted.phases.intervals(task.start, task.stop);
        let mut all = task_detail.cloned();
        if noted.result_bytes.is_some() || noted.type_name != NameId::NONE {
            all.get_or_insert_default()
                .set_result(noted.result_bytes, noted.type_name);
        }
        task.detail = detail::task_detail(all.as_ref(), phases);
    }
    caught(|| end(&task));
}

/// Returns `None` after a panic in `call`.
fn caught<T>(call: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => Some(result),
        Err(payload) => {
            tracing::error!("an observer of tasks panicked");
            // It is the observer's, and may panic when it is dropped.
            std::mem::forget(payload);
            None
        }
    }
}
