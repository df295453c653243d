//! A task from its start to its end.

use std::sync::Arc;

use profiler_core::{Outcome, PHASES, TaskId, TaskRecord, Timestamp};

use super::hooks::{self, Observed};
use super::thread::{ScopeNumber, THREAD, TaskRef, Thread};
use crate::clock;
use crate::detail::{self, Detail};
use crate::registry::{
    self, LocalTaskId, NameId, ROWS_BEYOND_STARTS, ROWS_FOR_KNOWN_ENDS, Row, TaskRow,
};
use crate::threads::ThreadIdentity;
use crate::wanted::WantedBy;

/// The phase of waiting to be started.
const QUEUE: NameId = NameId::of_phase(0);
const _: () = assert!(matches!(PHASES[0].as_bytes(), b"queue"));

/// What may be said of a task as it begins, beside its name.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) key: Option<Arc<str>>,
    /// `None`: the one that is current where it begins.
    pub(super) parent: Option<TaskRef>,
    pub(super) detail: Option<Box<Detail>>,
    /// How it waited to be started, if that was said.
    pub(super) queued: Option<Queued>,
}

/// Since when a task has waited to be started.
#[derive(Clone, Copy, Debug)]
pub(super) enum Queued {
    Since(Timestamp),
    ForNs(u64),
}

impl Queued {
    /// When the waiting began, of a task that started at `start`.
    fn since(self, start: Timestamp) -> Timestamp {
        match self {
            Queued::Since(since) => since.min(start),
            Queued::ForNs(length_ns) => {
                let length_ns = i64::try_from(length_ns).unwrap_or(i64::MAX);
                start.shifted(length_ns.saturating_neg())
            }
        }
    }
}

/// A task that has started and not ended.
#[derive(Debug)]
pub(super) struct Running {
    id: LocalTaskId,
    parent: Option<LocalTaskId>,
    start: Timestamp,
    pub(super) key: Option<Arc<str>>,
    detail: Option<Box<Detail>>,
    /// By callbacks, which then hear of its end too. In a box, for a guard is moved where it is made.
    observed: Option<Box<Observed>>,
    /// Where it started, if it may end elsewhere: a count that threads share is slow to change.
    thread: Option<Arc<ThreadIdentity>>,
    name: NameId,
    /// Whether an agent was there to take rows when it started.
    in_ledger: bool,
    /// Whether its start was written, so that its end must be too.
    is_known: bool,
}

impl Running {
    /// Starts a task that may end on another thread: a row for the ledger and word to the callbacks, and
    /// nothing for samples. `None` on a thread whose locals are already gone.
    pub(super) fn begin(name: NameId, mut said: Said) -> Option<Running> {
        let begin = |thread: &Thread| {
            let begun = Begun::begin(thread, name, Some(&said));
            let origin = Some(thread.mine().cell.thread.clone());
            let mut running = Running { thread: origin, ..begun.running(name, Some(&mut said)) };
            running.tell_start(thread, said.queued);
            running
        };
        THREAD.try_with(begin).ok()
    }

    /// Tells callbacks that it has begun, and how long it waited for that.
    fn tell_start(&mut self, thread: &Thread, queued: Option<Queued>) {
        if WantedBy::now().callbacks() {
            let record = self.record(None, Outcome::Running);
            self.observed = hooks::task_began(&record).map(Box::new);
        }
        if let Some(queued) = queued {
            let since = Some(queued.since(self.start));
            thread.push_phase(self.task(), QUEUE, since, self.start);
        }
    }

    /// Ends it. The row is lost on a thread whose locals are already gone; its start said it ran. When
    /// the agent is gone too, a row would only wait for another one, which does not know the task.
    /// Called once.
    pub(super) fn end(&mut self, outcome: Outcome) {
        let _ = THREAD.try_with(|thread| self.end_on(thread, outcome));
    }

    #[inline]
    fn end_on(&mut self, thread: &Thread, outcome: Outcome) {
        let wanted = WantedBy::now();
        let to_ledger = self.in_ledger && wanted.agent();
        if !to_ledger && self.observed.is_none() {
            return;
        }
        let stop = clock::now();
        thread.end_phases_of(self.id, stop);
        if self.observed.is_some() && wanted.callbacks() {
            self.tell_end(stop, outcome);
        }
        if to_ledger {
            self.write_end(thread, stop, outcome);
        }
    }

    #[cold]
    fn tell_end(&mut self, stop: Timestamp, outcome: Outcome) {
        if let Some(observed) = self.observed.take() {
            let record = self.record(Some(stop), outcome);
            hooks::task_ended(*observed, record, self.detail.as_deref());
        }
    }

    #[inline(always)]
    fn write_end(&mut self, thread: &Thread, stop: Timestamp, outcome: Outcome) {
        let Running { id, parent, start, name, is_known, .. } = *self;
        let mut mine = thread.mine();
        // A start that had no room was not told.
        if !is_known && mine.room() <= ROWS_FOR_KNOWN_ENDS {
            return mine.cell.spill.add_task(name, outcome, start, stop);
        }
        if let Some(origin) = self.thread.take()
            && !Arc::ptr_eq(&origin, &mine.cell.thread)
        {
            self.detail().began_on = Some(origin);
        }
        let (key, detail) = (self.key.take(), self.detail.take());
        mine.push(Row::Task(TaskRow { id, parent, start, stop, key, detail, name, outcome }));
    }

    /// The task as callbacks see it.
    fn record(&self, stop: Option<Timestamp>, outcome: Outcome) -> TaskRecord {
        let here = || THREAD.try_with(|thread| thread.mine().cell.thread.clone()).ok();
        let thread = self.thread.clone().or_else(here);
        TaskRecord {
            id: self.id.into(),
            name: registry::name(self.name),
            key: self.key.clone().unwrap_or_default(),
            thread_id: thread.as_ref().map_or(0, |thread| thread.id),
            thread_name: thread.map_or_else(Arc::default, |thread| thread.name.clone()),
            parent: self.parent.map(TaskId::from),
            start: self.start,
            stop,
            outcome,
            cause: self.detail.as_ref().and_then(|it| it.cause.clone()).unwrap_or_default(),
            detail: detail::told(self.detail.as_deref(), Vec::new()),
        }
    }

    pub(super) fn task(&self) -> TaskRef {
        TaskRef { id: Some(self.id), name: self.name }
    }

    /// Says why it fails, if that is known.
    pub(super) fn set_cause(&mut self, cause: Option<Arc<str>>) {
        if cause.is_some() {
            self.detail().cause = cause;
        }
    }

    /// What else is said of it, for more to be said.
    pub(super) fn detail(&mut self) -> &mut Detail {
        self.detail.get_or_insert_default()
    }
}

/// What a task has begun with. Not yet a [`Running`], for a struct that is written and at once moved is
/// slow to read back.
struct Begun {
    id: LocalTaskId,
    parent: Option<LocalTaskId>,
    start: Timestamp,
    in_ledger: bool,
    is_known: bool,
}

impl Begun {
    /// Starts a task: its row for the ledger, if that takes rows and there is room.
    #[inline(always)]
    fn begin(thread: &Thread, name: NameId, said: Option<&Said>) -> Begun {
        let in_ledger = WantedBy::now().agent();
        let parent = said.and_then(|said| said.parent).unwrap_or_else(|| thread.current()).id;
        let mut mine = thread.mine();
        let (id, start) = (mine.ids.next(), clock::now());
        let is_known = in_ledger && mine.room() > ROWS_BEYOND_STARTS;
        if is_known {
            let (stop, outcome) = (start, Outcome::Running);
            let key = said.and_then(|said| said.key.clone());
            let detail = said.and_then(|said| said.detail.clone());
            mine.push(Row::Task(TaskRow { id, parent, start, stop, key, detail, name, outcome }));
        }
        Begun { id, parent, start, in_ledger, is_known }
    }

    #[inline(always)]
    fn running(self, name: NameId, said: Option<&mut Said>) -> Running {
        let Begun { id, parent, start, in_ledger, is_known } = self;
        let (key, detail) = match said {
            Some(said) => (said.key.take(), said.detail.take()),
            None => (None, None),
        };
        let (observed, thread) = (None, None);
        Running { id, parent, start, key, detail, observed, thread, name, in_ledger, is_known }
    }
}

/// A task that ends on the thread on which it began, whose samples are its own meanwhile. The thread
/// keeps it.
#[derive(Debug)]
pub(super) struct RunningHere {
    scope: ScopeNumber,
    running: Running,
}

/// Starts one. `None` on a thread whose locals are already gone.
pub(super) fn begin_here(name: NameId, mut said: Option<&mut Said>) -> Option<ScopeNumber> {
    let begin = |thread: &Thread| {
        let begun = Begun::begin(thread, name, said.as_deref());
        let queued = said.as_ref().and_then(|said| said.queued);
        match said.take() {
            None if !WantedBy::now().callbacks() => keep(thread, begun.running(name, None)),
            said => keep_told(thread, begun.running(name, said), queued),
        }
    };
    THREAD.try_with(begin).ok()
}

#[inline(always)]
fn keep(thread: &Thread, running: Running) -> ScopeNumber {
    let scope = thread.enter(running.task());
    thread.tasks.borrow_mut().push(RunningHere { scope, running });
    scope
}

/// Callbacks hear of it where its parent is still current.
#[inline(never)]
fn keep_told(thread: &Thread, mut running: Running, queued: Option<Queued>) -> ScopeNumber {
    running.tell_start(thread, queued);
    keep(thread, running)
}

/// Ends one that was started here.
pub(super) fn end_here(scope: ScopeNumber, outcome: Outcome) {
    let end = |thread: &Thread| {
        thread.leave(scope);
        let mut tasks = thread.tasks.borrow_mut();
        let Some(index) = tasks.iter().rposition(|task| task.scope == scope) else { return };
        if index + 1 < tasks.len() || tasks[index].running.observed.is_some() {
            // Callbacks may start tasks.
            let mut task = tasks.remove(index);
            drop(tasks);
            return task.running.end_on(thread, outcome);
        }
        tasks[index].running.end_on(thread, outcome);
        tasks.truncate(index);
    };
    let _ = THREAD.try_with(end);
}

/// Calls `with` for one that was started here and has not ended.
pub(super) fn with_here<T>(scope: ScopeNumber, with: impl FnOnce(&mut Running) -> T) -> Option<T> {
    let with = |thread: &Thread| {
        let mut tasks = thread.tasks.borrow_mut();
        tasks.iter_mut().rfind(|task| task.scope == scope).map(|task| with(&mut task.running))
    };
    THREAD.try_with(with).ok().flatten()
}
