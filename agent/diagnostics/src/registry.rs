//! The registered callbacks, and the calls to them.
//!
//! The agent calls this module only if callbacks are registered, which costs a task one load. A callback runs outside every lock, so it may register others
//! and start tasks; the callbacks do not see these tasks.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use emberline_agent::observe::{self, TaskEnd, TaskObserver};
use profiler_core::{Outcome, TaskRecord};

use super::callback::Callback;
use super::process::PerProcess;
use super::run::State;

/// A registered callback.
pub(super) struct Entry {
    /// Rises with every registration of the process, so that exactly the callbacks that saw a start see
    /// the end.
    number: u64,
    callback: Arc<dyn Callback>,
    /// Whether it panicked: then it is not called again.
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
        // The payload is the callback's too, and may panic when it is dropped.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(again);
        }
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

type Entries = Arc<Vec<Arc<Entry>>>;

/// This process's callbacks. A forked child has none, and locks of its own: those of its parent may
/// be held for ever by threads that do not exist in the child.
fn registered() -> &'static RwLock<Entries> {
    static REGISTERED: PerProcess<RwLock<Entries>> = PerProcess::new();
    REGISTERED.get()
}

static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Makes an entry for `callback`, which is called once it is added.
pub(super) fn entry(callback: impl Callback + 'static) -> Arc<Entry> {
    let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    Arc::new(Entry {
        number,
        callback: Arc::new(callback),
        is_broken: AtomicBool::new(false),
    })
}

/// Registers `entry` and returns its number.
pub(super) fn add(entry: Arc<Entry>) -> u64 {
    let number = entry.number;
    change(|entries| entries.push(entry));
    number
}

/// Removes and returns the callback of that number, if it is registered. Calls that other threads have
/// started may still be running.
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
    // Inside the lock, or removing the last callback could race with adding the first.
    observe::set_observer((!changed.is_empty()).then_some(task_began as TaskObserver));
    *entries = Arc::new(changed);
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as calling callbacks, until it is dropped.
struct InCallback;

impl InCallback {
    /// Returns `None` inside a callback, and on a thread whose locals are already gone.
    fn enter() -> Option<InCallback> {
        let was_inside = IN_CALLBACK
            .try_with(|inside| inside.replace(true))
            .unwrap_or(true);
        (!was_inside).then_some(InCallback)
    }
}

impl Drop for InCallback {
    fn drop(&mut self) {
        let _ = IN_CALLBACK.try_with(|inside| inside.set(false));
    }
}

/// The callbacks that are registered at one moment, in the order of their registration.
pub(super) struct Calls {
    entries: Entries,
    _inside: InCallback,
}

impl Calls {
    /// Returns `None` if there are no callbacks, and inside a callback.
    pub(super) fn begin() -> Option<Calls> {
        let _inside = InCallback::enter()?;
        let entries = registered()
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        (!entries.is_empty()).then_some(Calls { entries, _inside })
    }

    pub(super) fn call(&self, event: &str, call: impl Fn(&dyn Callback)) {
        self.entries
            .iter()
            .for_each(|entry| entry.call(event, &call));
    }

    /// Calls only the callbacks of `snapshot`.
    pub(super) fn call_snapshot(
        &self,
        snapshot: CallbackSnapshot,
        event: &str,
        call: impl Fn(&dyn Callback),
    ) {
        let notified = self
            .entries
            .iter()
            .filter(|entry| entry.number <= snapshot.last_number);
        notified.for_each(|entry| entry.call(event, &call));
    }

    pub(super) fn snapshot(&self) -> CallbackSnapshot {
        let last_number = self.entries.last().map_or(0, |entry| entry.number);
        CallbackSnapshot {
            last_number,
            generation: observe::fork_generation(),
        }
    }
}

/// The callbacks that saw a start: all that were registered then.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallbackSnapshot {
    last_number: u64,
    generation: usize,
}

impl CallbackSnapshot {
    /// Whether the start was in this process, not in the one that it was forked from.
    pub(super) fn is_here(self) -> bool {
        self.generation == observe::fork_generation()
    }
}

/// Calls `pretask` for a task's start. Returns what calls `posttask` at its end, on the callbacks that saw the start.
fn task_began(task: &TaskRecord) -> Option<TaskEnd> {
    let calls = Calls::begin()?;
    let state = State::current();
    state.count_start(&task.name);
    calls.call("pretask", |callback| callback.pretask(task, &state));
    let snapshot = calls.snapshot();
    Some(Box::new(move |task| task_ended(snapshot, &state, task)))
}

fn task_ended(snapshot: CallbackSnapshot, state: &State, task: &TaskRecord) {
    state.count_end(
        &task.name,
        matches!(task.outcome, Outcome::Failed | Outcome::Panicked),
    );
    if let Some(calls) = Calls::begin() {
        calls.call_snapshot(snapshot, "posttask", |callback| {
            callback.posttask(task, state)
        });
    }
}
