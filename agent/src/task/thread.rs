//! The calling thread's side of its cell: which task is current, and rows for the ledger.

use std::cell::{Cell, RefCell, RefMut};
use std::marker::PhantomData;
use std::sync::Arc;

use profiler_core::{Outcome, TaskId, TaskRecord, Timestamp};

use super::WantedBy;
use crate::diagnostics::hooks::{self, Observed};
use crate::registry::{self, NameId, ROWS_FOR_ENDS, TaskRow, ThreadCell, ThreadIdentity};
use crate::{clock, fork};

/// A task, or none, as samples and children see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TaskRef {
    pub(super) id: Option<TaskId>,
    pub(super) name: NameId,
}

impl TaskRef {
    pub(super) const NONE: TaskRef = TaskRef { id: None, name: NameId::NONE };
}

/// A task that has started and not ended. It may end on another thread.
#[derive(Debug)]
pub(super) struct Running {
    id: TaskId,
    name: NameId,
    pub(super) key: Arc<str>,
    parent: Option<TaskId>,
    start: Timestamp,
    /// Where it started.
    thread: Arc<ThreadIdentity>,
    /// Whether an agent was there to take rows when it started.
    in_ledger: bool,
    /// By callbacks, which then hear of its end too.
    observed: Option<Observed>,
}

impl Running {
    /// Starts a task: a row for the ledger and word to the callbacks, and nothing for samples. `None`
    /// on a thread whose locals are already gone.
    pub(super) fn begin(name: NameId, key: Arc<str>, parent: TaskRef) -> Option<Running> {
        let wanted = WantedBy::now();
        let begin = |thread: &Thread| thread.begin(name, key, parent, wanted.agent());
        let mut running = THREAD.try_with(begin).ok()?;
        if wanted.callbacks() {
            running.observed =
                hooks::task_began(&running.record(None, Outcome::Running, "".into()));
        }
        Some(running)
    }

    /// Ends it. The row is lost on a thread whose locals are already gone; its start said it ran. When
    /// the agent is gone too, a row would only wait for another one, which does not know the task.
    pub(super) fn end(mut self, outcome: Outcome, cause: Arc<str>) {
        let wanted = WantedBy::now();
        let (to_ledger, observed) = (self.in_ledger && wanted.agent(), self.observed.take());
        if !to_ledger && observed.is_none() {
            return;
        }
        let stop = Some(clock::now());
        if to_ledger {
            let _ = THREAD.try_with(|thread| thread.push(&self, stop, outcome, cause.clone()));
        }
        if let Some(observed) = observed.filter(|_| wanted.callbacks()) {
            hooks::task_ended(observed, &self.record(stop, outcome, cause));
        }
    }

    /// The task as callbacks see it.
    fn record(&self, stop: Option<Timestamp>, outcome: Outcome, cause: Arc<str>) -> TaskRecord {
        TaskRecord {
            id: self.id,
            name: registry::name(self.name),
            key: self.key.clone(),
            thread_id: self.thread.id,
            thread_name: self.thread.name.clone(),
            parent: self.parent,
            start: self.start,
            stop,
            outcome,
            cause,
        }
    }

    pub(super) fn task(&self) -> TaskRef {
        TaskRef { id: Some(self.id), name: self.name }
    }
}

/// The innermost task that this thread runs.
pub(super) fn current() -> TaskRef {
    THREAD.try_with(Thread::current).unwrap_or(TaskRef::NONE)
}

/// While it lives, samples of this thread belong to a task. Scopes may be dropped in any order: the
/// last one entered of those that live decides.
#[derive(Debug)]
pub(super) struct Scope {
    number: Option<u64>,
    not_send: PhantomData<*const ()>,
}

impl Scope {
    pub(super) fn enter(task: TaskRef) -> Scope {
        let number = THREAD.try_with(|thread| thread.enter(task)).ok().flatten();
        Scope { number, not_send: PhantomData }
    }

    /// Changes nothing.
    pub(super) fn none() -> Scope {
        Scope { number: None, not_send: PhantomData }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let _ = THREAD.try_with(|thread| thread.leave(|entry| entry.scope == number));
        }
    }
}

/// What enters and leaves without a guard to hold: spans of `tracing`.
#[cfg(feature = "tracing-layer")]
pub(super) mod span {
    use super::{Entry, THREAD, TaskRef};

    pub(in crate::task) fn enter(task: TaskRef) {
        let _ = THREAD.try_with(|thread| {
            let unwinding = std::thread::panicking();
            thread.push_entry(Entry { scope: Entry::SPAN, task, unwinding });
        });
    }

    /// Whether a panic is unwinding the thread that was not when the span was entered. A span that was
    /// not entered on this thread changes nothing.
    pub(in crate::task) fn leave(task: TaskRef) -> bool {
        let left = THREAD.try_with(|thread| {
            thread.leave(|entry| entry.scope == Entry::SPAN && entry.task == task)
        });
        let left = left.ok().flatten();
        left.is_some_and(|entry| !entry.unwinding && std::thread::panicking())
    }
}

thread_local! {
    static THREAD: Thread = Thread::new();
}

/// One task that the thread runs.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Never given twice on a thread, so that a task which is entered twice is left twice.
    scope: u64,
    task: TaskRef,
    #[cfg(feature = "tracing-layer")]
    unwinding: bool,
}

#[cfg(feature = "tracing-layer")]
impl Entry {
    /// Spans have no scope to hold their number.
    const SPAN: u64 = 0;
}

struct Thread {
    mine: RefCell<Mine>,
    /// Tasks that run here, the innermost last.
    stack: RefCell<Vec<Entry>>,
    scopes: Cell<u64>,
}

/// What the thread shares with the agent of its process.
struct Mine {
    cell: Arc<ThreadCell>,
    rows: rtrb::Producer<TaskRow>,
    registered: bool,
    /// How many forks away the process is.
    generation: usize,
}

impl Mine {
    fn new() -> Mine {
        let (cell, rows) = ThreadCell::new();
        Mine { cell, rows, registered: false, generation: fork::generation() }
    }

    fn push(&mut self, row: TaskRow) {
        if self.rows.push(row).is_err() {
            self.cell.count_lost();
        }
    }
}

impl Thread {
    fn new() -> Self {
        Thread {
            mine: RefCell::new(Mine::new()),
            stack: RefCell::new(Vec::new()),
            scopes: Cell::new(0),
        }
    }

    /// The thread's own part, which the agent knows if there is one. In a forked child this is another
    /// thread than before, and the agent is another.
    fn mine(&self) -> RefMut<'_, Mine> {
        let mut mine = self.mine.borrow_mut();
        if mine.generation != fork::generation() {
            *mine = Mine::new();
        }
        // Without an agent nobody would ever let go of the cells of threads that are gone.
        if !mine.registered && WantedBy::now().agent() {
            mine.registered = true;
            registry::register(&mine.cell);
        }
        mine
    }

    fn current(&self) -> TaskRef {
        self.stack.borrow().last().map_or(TaskRef::NONE, |entry| entry.task)
    }

    fn enter(&self, task: TaskRef) -> Option<u64> {
        if task == TaskRef::NONE && self.stack.borrow().is_empty() {
            return None;
        }
        let scope = self.scopes.get() + 1;
        self.scopes.set(scope);
        self.push_entry(Entry {
            scope,
            task,
            #[cfg(feature = "tracing-layer")]
            unwinding: false,
        });
        Some(scope)
    }

    fn push_entry(&self, entry: Entry) {
        self.stack.borrow_mut().push(entry);
        self.mine().cell.set_task(entry.task.name);
    }

    /// Removes the last entry that is meant, wherever it is.
    fn leave(&self, is_meant: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let mut stack = self.stack.borrow_mut();
        let index = stack.iter().rposition(is_meant)?;
        let left = stack.remove(index);
        let name = stack.last().map_or(NameId::NONE, |entry| entry.task.name);
        self.mine.borrow().cell.set_task(name);
        Some(left)
    }

    fn begin(&self, name: NameId, key: Arc<str>, parent: TaskRef, in_ledger: bool) -> Running {
        let id = registry::next_task_id();
        let (thread, room) = {
            let mine = self.mine();
            (mine.cell.thread.clone(), mine.rows.slots())
        };
        let (parent, start) = (parent.id, clock::now());
        let running = Running { id, name, key, parent, start, thread, in_ledger, observed: None };
        if in_ledger && room > ROWS_FOR_ENDS {
            self.push(&running, None, Outcome::Running, "".into());
        }
        running
    }

    fn push(&self, running: &Running, stop: Option<Timestamp>, outcome: Outcome, cause: Arc<str>) {
        let Running { id, name, ref key, parent, start, ref thread, .. } = *running;
        let (key, thread) = (key.clone(), thread.clone());
        let row = TaskRow { id, name, key, thread, parent, start, stop, outcome, cause };
        self.mine().push(row);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let mine = self.mine.borrow();
        mine.cell.set_task(NameId::NONE);
        mine.cell.set_gone();
    }
}
