//! Task guards: which task a thread is running, for the sampler, and a row for the ledger at every
//! start and stop.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use profiler_core::limits::{CAUSE_BYTES_MAX, bounded, bounded_name};
use profiler_core::{Outcome, TaskId, Timestamp};

use crate::clock;
use crate::registry::{self, NameId, ROWS_FOR_ENDS, TaskRow, ThreadCell};

/// Whether an agent takes rows; without one, guards cost two loads and do nothing.
static ACTIVE: AtomicBool = AtomicBool::new(false);
static NEXT_TASK: AtomicU64 = AtomicU64::new(1);

pub(crate) fn set_active(active: bool) {
    ACTIVE.store(active, Ordering::Release);
}

/// Names a task; `key` and `start` follow.
///
/// `name` is the group by which profiles and totals are asked for, such as `load`: keep the number
/// of different names small. Past 10,000 of them new ones count as `[overflow]`.
///
/// ```
/// let task = emberline_agent::task("load").key("load-17").start();
/// // … the work: samples of this thread now belong to `load` …
/// drop(task);
/// ```
pub fn task(name: impl AsRef<str>) -> TaskBuilder {
    let name = ACTIVE.load(Ordering::Acquire).then(|| registry::name_id(name.as_ref()));
    TaskBuilder { name, key: None }
}

/// A task about to start.
#[derive(Debug)]
#[must_use = "a task starts with `start`"]
pub struct TaskBuilder {
    name: Option<NameId>,
    key: Option<Arc<str>>,
}

impl TaskBuilder {
    /// Which one of its group this task is, such as `load-17`. Longer than 4 KiB is cut.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        if self.name.is_some() {
            self.key = Some(bounded_name(&key.into()).into());
        }
        self
    }

    /// Starts the task on this thread. It runs until the guard is dropped.
    pub fn start(self) -> TaskGuard {
        let running = self.name.and_then(|name| {
            let key = self.key.unwrap_or_else(|| "".into());
            // A thread whose locals are already gone runs no tasks.
            THREAD.try_with(|thread| thread.start(name, key)).ok()
        });
        TaskGuard { running, outcome: None, not_send: PhantomData }
    }
}

/// A running task. Dropping it ends the task as `ok`, or as `panicked` during a panic;
/// [`TaskGuard::fail`] and [`TaskGuard::cancel`] end it otherwise.
///
/// Tasks nest: samples go to the innermost one that runs on the thread. The guard stays on its
/// thread, for that thread's samples are the task's.
#[derive(Debug)]
#[must_use = "the task ends when this guard is dropped"]
pub struct TaskGuard {
    running: Option<Running>,
    outcome: Option<(Outcome, Arc<str>)>,
    not_send: PhantomData<*const ()>,
}

impl TaskGuard {
    /// Ends the task as `erred`, and says why. Longer than 1 KiB is cut.
    pub fn fail(mut self, cause: impl Display) {
        if self.running.is_some() {
            let cause = cause.to_string();
            self.outcome = Some((Outcome::Erred, bounded(&cause, CAUSE_BYTES_MAX).into()));
        }
    }

    /// Ends the task as `cancelled`.
    pub fn cancel(mut self) {
        self.outcome = Some((Outcome::Cancelled, "".into()));
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        let by_itself = if std::thread::panicking() { Outcome::Panicked } else { Outcome::Ok };
        let (outcome, cause) = self.outcome.take().unwrap_or((by_itself, "".into()));
        // The row of a guard that outlives its thread's locals is lost; its start said it ran.
        let _ = THREAD.try_with(|thread| thread.stop(running, outcome, cause));
    }
}

#[derive(Debug)]
struct Running {
    id: TaskId,
    name: NameId,
    key: Arc<str>,
    parent: Option<TaskId>,
    start: Timestamp,
}

thread_local! {
    static THREAD: Thread = Thread::new();
}

/// This thread's side of its cell.
struct Thread {
    cell: Arc<ThreadCell>,
    rows: RefCell<rtrb::Producer<TaskRow>>,
    /// Tasks that run here, the innermost last. Guards may be dropped in any order.
    stack: RefCell<Vec<(TaskId, NameId)>>,
    registered: Cell<bool>,
}

impl Thread {
    fn new() -> Self {
        let (cell, rows) = ThreadCell::new();
        Thread {
            cell,
            rows: RefCell::new(rows),
            stack: RefCell::new(Vec::new()),
            registered: Cell::new(false),
        }
    }

    fn start(&self, name: NameId, key: Arc<str>) -> Running {
        if !self.registered.replace(true) {
            registry::register(&self.cell);
        }
        let id = TaskId(NEXT_TASK.fetch_add(1, Ordering::Relaxed));
        let mut stack = self.stack.borrow_mut();
        let parent = stack.last().map(|(id, _)| *id);
        stack.push((id, name));
        let running = Running { id, name, key, parent, start: clock::now() };
        self.cell.set_task(name);
        if self.rows.borrow().slots() > ROWS_FOR_ENDS {
            self.push(&running, None, Outcome::Running, "".into());
        }
        running
    }

    fn stop(&self, running: Running, outcome: Outcome, cause: Arc<str>) {
        let mut stack = self.stack.borrow_mut();
        stack.retain(|(id, _)| *id != running.id);
        self.cell.set_task(stack.last().map_or(NameId::NONE, |(_, name)| *name));
        self.push(&running, Some(clock::now()), outcome, cause);
    }

    fn push(&self, running: &Running, stop: Option<Timestamp>, outcome: Outcome, cause: Arc<str>) {
        let Running { id, name, ref key, parent, start } = *running;
        let row = TaskRow { id, name, key: key.clone(), parent, start, stop, outcome, cause };
        if self.rows.borrow_mut().push(row).is_err() {
            self.cell.count_lost();
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.cell.set_task(NameId::NONE);
        self.cell.set_gone();
    }
}
