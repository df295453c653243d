//! Which callbacks are registered, and the calls to them.
//!
//! The task path asks one atomic whether there are any ([`WantedBy`](crate::wanted::WantedBy)); only then does it come
//! here. A callback runs outside every lock, so it may register others and start tasks; what it
//! starts is not told to callbacks again.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use profiler_core::{Outcome, TaskId, TaskRecord};
use rustc_hash::FxHashMap;

use super::callback::Callback;
use super::run::State;
use crate::detail::{self, Detail, Interval, Phases};
use crate::fork::{self, PerProcess};
use crate::registry::NameId;
use crate::sync::lock;
use crate::wanted;

/// A registered callback.
pub(super) struct Entry {
    /// Rises with every registration of the process, so that who saw a start also sees its end, and
    /// nobody else does.
    number: u64,
    callback: Arc<dyn Callback>,
    /// It panicked: it is not called again.
    is_broken: AtomicBool,
}

impl Entry {
    /// Calls the callback; a panic in it stays here.
    pub(super) fn call(&self, event: &str, call: impl Fn(&dyn Callback)) {
        if self.is_broken.load(Ordering::Relaxed) {
            return;
        }
        let called = catch_unwind(AssertUnwindSafe(|| call(&*self.callback)));
        let Err(payload) = called else { return };
        if !self.is_broken.swap(true, Ordering::Relaxed) {
            let text = panic_text(&*payload);
            tracing::error!(
                "a diagnostics callback panicked in `{event}`: {text}; it is not called again"
            );
        }
        // What was thrown is the callback's too, and may panic when it is dropped.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(again);
        }
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

type Entries = Arc<Vec<Arc<Entry>>>;

/// This process's callbacks. A forked child has none, and locks of its own: those of its parent may
/// be held for ever by threads that do not exist in the child.
fn registered() -> &'static RwLock<Entries> {
    static REGISTERED: PerProcess<RwLock<Entries>> = PerProcess::new();
    REGISTERED.get()
}

static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// An entry for `callback`, which is not called before it is added.
pub(super) fn entry(callback: impl Callback + 'static) -> Arc<Entry> {
    let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    Arc::new(Entry { number, callback: Arc::new(callback), is_broken: AtomicBool::new(false) })
}

/// From now on `entry` is called. Gives its number.
pub(super) fn add(entry: Arc<Entry>) -> u64 {
    fork::watch();
    let number = entry.number;
    change(|entries| entries.push(entry));
    number
}

/// Forgets the callback of that number, if it is still there. Calls that other threads have begun may
/// still be under way.
pub(super) fn remove(number: u64) -> Option<Arc<Entry>> {
    let mut removed = None;
    change(|entries| {
        let index = entries.iter().position(|entry| entry.number == number);
        removed = index.map(|index| entries.remove(index));
    });
    removed
}

fn change(change: impl FnOnce(&mut Vec<Arc<Entry>>)) {
    let mut entries = registered().write().unwrap_or_else(PoisonError::into_inner);
    let mut changed = Vec::clone(&entries);
    change(&mut changed);
    // Inside the lock, or the last to go could switch off the first to come.
    wanted::set_callbacks(!changed.is_empty());
    *entries = Arc::new(changed);
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// This thread calls callbacks, until it is dropped.
struct InCallback;

impl InCallback {
    /// `None` inside a callback, and on a thread whose locals are already gone.
    fn enter() -> Option<InCallback> {
        let was_inside = IN_CALLBACK.try_with(|inside| inside.replace(true)).unwrap_or(true);
        (!was_inside).then_some(InCallback)
    }
}

impl Drop for InCallback {
    fn drop(&mut self) {
        let _ = IN_CALLBACK.try_with(|inside| inside.set(false));
    }
}

/// The callbacks that are registered at one moment, in the order in which they came.
pub(super) struct Calls {
    entries: Entries,
    _inside: InCallback,
}

impl Calls {
    /// `None` if there are none, or a callback itself asks.
    pub(super) fn begin() -> Option<Calls> {
        let _inside = InCallback::enter()?;
        let entries = registered().read().unwrap_or_else(PoisonError::into_inner).clone();
        (!entries.is_empty()).then_some(Calls { entries, _inside })
    }

    pub(super) fn call(&self, event: &str, call: impl Fn(&dyn Callback)) {
        self.entries.iter().for_each(|entry| entry.call(event, &call));
    }

    /// Calls those that `seen` covers.
    pub(super) fn call_seen(&self, seen: Seen, event: &str, call: impl Fn(&dyn Callback)) {
        let who_saw = self.entries.iter().filter(|entry| entry.number <= seen.last_number);
        who_saw.for_each(|entry| entry.call(event, &call));
    }

    pub(super) fn seen(&self) -> Seen {
        let last_number = self.entries.last().map_or(0, |entry| entry.number);
        Seen { last_number, generation: fork::generation() }
    }
}

/// Who was told of a start: all registered up to then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    last_number: u64,
    generation: usize,
}

impl Seen {
    /// Whether it was this process that was told, not the parent that it was forked from.
    pub(super) fn is_here(self) -> bool {
        self.generation == fork::generation()
    }
}

/// What callbacks know of a running task.
#[derive(Debug)]
pub(crate) struct Observed {
    seen: Seen,
    /// Of the run that it began in.
    state: State,
}

/// Most tasks of which notes are taken at a time; callbacks do not see the phases of more.
const NOTED_MAX: usize = 100_000;

/// What was said of a running task since its start, for the callbacks that hear of its end.
#[derive(Debug, Default)]
struct Notes {
    phases: Phases,
    result_bytes: Option<u64>,
    type_name: NameId,
}

/// The notes of this process, as [`registered`].
fn notes() -> &'static Mutex<FxHashMap<TaskId, Notes>> {
    static NOTES: PerProcess<Mutex<FxHashMap<TaskId, Notes>>> = PerProcess::new();
    NOTES.get()
}

/// A task was in a phase.
pub(crate) fn note_phase(task: TaskId, interval: Interval) {
    if let Some(notes) = lock(notes()).get_mut(&task) {
        notes.phases.add(interval);
    }
}

/// A handle said something of a task's result.
pub(crate) fn note_result(task: TaskId, bytes: Option<u64>, type_name: NameId) {
    if let Some(notes) = lock(notes()).get_mut(&task) {
        notes.result_bytes = bytes.or(notes.result_bytes);
        notes.type_name = if type_name == NameId::NONE { notes.type_name } else { type_name };
    }
}

/// Tells of a task's start.
pub(crate) fn task_began(task: &TaskRecord) -> Option<Observed> {
    let calls = Calls::begin()?;
    let mut notes = lock(notes());
    if notes.len() < NOTED_MAX {
        notes.insert(task.id, Notes::default());
    }
    drop(notes);
    let state = State::current();
    state.count_start(&task.name);
    calls.call("pretask", |callback| callback.pretask(task, &state));
    Some(Observed { seen: calls.seen(), state })
}

/// Tells of its end those who know of its start. `said` is what the task itself knows of its detail.
pub(crate) fn task_ended(observed: Observed, mut task: TaskRecord, said: Option<&Detail>) {
    let Observed { seen, state } = observed;
    if !seen.is_here() {
        return;
    }
    if let Some(noted) = lock(notes()).remove(&task.id) {
        let phases = noted.phases.intervals(task.start, task.stop);
        let mut all = said.cloned();
        if noted.result_bytes.is_some() || noted.type_name != NameId::NONE {
            all.get_or_insert_default().set_result(noted.result_bytes, noted.type_name);
        }
        task.detail = detail::task_detail(all.as_ref(), phases);
    }
    let task = &task;
    state.count_end(&task.name, matches!(task.outcome, Outcome::Failed | Outcome::Panicked));
    if let Some(calls) = Calls::begin() {
        calls.call_seen(seen, "posttask", |callback| callback.posttask(task, &state));
    }
}
