//! The calling thread's side of its cell: which task is current, and rows for the ledger.

use std::cell::{Cell, RefCell, RefMut};
use std::marker::PhantomData;
use std::sync::Arc;

use profiler_core::{Outcome, PHASES, TaskId, TaskRecord, Timestamp};

use super::WantedBy;
use crate::detail::{self, Detail, Interval};
use crate::diagnostics::hooks::{self, Observed};
use crate::registry::{
    self, Doing, NameId, PhaseRow, ROWS_BEYOND_STARTS, ROWS_FOR_ENDS, ROWS_FOR_KNOWN_ENDS,
    ResultRow, Row, TaskRow, ThreadCell, ThreadIdentity,
};
use crate::{clock, fork};

/// The phase of waiting to be started.
const QUEUE: NameId = NameId::of_phase(0);
const _: () = assert!(matches!(PHASES[0].as_bytes(), b"queue"));

/// A task, or none, as samples and children see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TaskRef {
    pub(super) id: Option<TaskId>,
    pub(super) name: NameId,
}

impl TaskRef {
    pub(super) const NONE: TaskRef = TaskRef { id: None, name: NameId::NONE };
}

/// What a task begins with.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) name: NameId,
    pub(super) key: Option<Arc<str>>,
    /// `None`: the one that is current where it begins.
    pub(super) parent: Option<TaskRef>,
    pub(super) detail: Option<Box<Detail>>,
    /// How it waited to be started, if that was said.
    pub(super) queued: Option<Queued>,
    /// Whether it may end on another thread than it began on.
    pub(super) may_move: bool,
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

/// A task that has started and not ended. It may end on another thread.
#[derive(Debug)]
pub(super) struct Running {
    id: TaskId,
    name: NameId,
    pub(super) key: Option<Arc<str>>,
    parent: Option<TaskId>,
    start: Timestamp,
    /// Where it started, if it may end elsewhere: a count that threads share is slow to change.
    thread: Option<Arc<ThreadIdentity>>,
    /// Whether an agent was there to take rows when it started.
    in_ledger: bool,
    /// Whether its start was written, so that its end must be too.
    is_known: bool,
    /// By callbacks, which then hear of its end too. In a box, for a guard is moved where it is made.
    observed: Option<Box<Observed>>,
    pub(super) detail: Option<Box<Detail>>,
}

impl Running {
    /// Starts a task: a row for the ledger and word to the callbacks, and nothing for samples. `None`
    /// on a thread whose locals are already gone.
    pub(super) fn begin(beginning: Beginning) -> Option<Running> {
        let wanted = WantedBy::now();
        let queued = beginning.queued;
        let begin = |thread: &Thread| thread.begin(beginning, wanted);
        let mut running = THREAD.try_with(begin).ok()?;
        if wanted.callbacks() {
            let record = running.record(None, Outcome::Running, None);
            running.observed = hooks::task_began(&record).map(Box::new);
        }
        if let Some(queued) = queued {
            let (task, start) = (running.task(), running.start);
            let since = Some(queued.since(start));
            let _ = THREAD.try_with(|thread| thread.push_phase(task, QUEUE, since, start));
        }
        Some(running)
    }

    /// Ends it. The row is lost on a thread whose locals are already gone; its start said it ran. When
    /// the agent is gone too, a row would only wait for another one, which does not know the task.
    /// Called once. By reference, for what is written and then moved as a whole is slow to read back.
    pub(super) fn end(&mut self, outcome: Outcome, cause: Option<Arc<str>>) {
        let wanted = WantedBy::now();
        let (to_ledger, observed) = (self.in_ledger && wanted.agent(), self.observed.take());
        if !to_ledger && observed.is_none() {
            return;
        }
        let stop = clock::now();
        if let Some(observed) = observed.filter(|_| wanted.callbacks()) {
            let _ = THREAD.try_with(|thread| thread.end_phases_of(self.id, stop));
            let record = self.record(Some(stop), outcome, cause.clone());
            hooks::task_ended(*observed, record, self.detail.as_deref());
        }
        if to_ledger {
            let _ = THREAD.try_with(|thread| {
                thread.end_phases_of(self.id, stop);
                thread.push_end(self, stop, outcome, cause);
            });
        }
    }

    /// The task as callbacks see it.
    fn record(
        &self,
        stop: Option<Timestamp>,
        outcome: Outcome,
        cause: Option<Arc<str>>,
    ) -> TaskRecord {
        let here = || THREAD.try_with(|thread| thread.mine().cell.thread.clone()).ok();
        let thread = self.thread.clone().or_else(here);
        TaskRecord {
            id: self.id,
            name: registry::name(self.name),
            key: self.key.clone().unwrap_or_default(),
            thread_id: thread.as_ref().map_or(0, |thread| thread.id),
            thread_name: thread.map_or_else(Arc::default, |thread| thread.name.clone()),
            parent: self.parent,
            start: self.start,
            stop,
            outcome,
            cause: cause.unwrap_or_default(),
            detail: detail::told(self.detail.as_deref(), Vec::new()),
        }
    }

    pub(super) fn task(&self) -> TaskRef {
        TaskRef { id: Some(self.id), name: self.name }
    }

    /// What else is said of it, for more to be said.
    pub(super) fn detail(&mut self) -> &mut Detail {
        self.detail.get_or_insert_default()
    }
}

/// The innermost task that this thread runs.
pub(super) fn current() -> TaskRef {
    THREAD.try_with(Thread::current).unwrap_or(TaskRef::NONE)
}

/// Says of a task's result what is known now.
pub(super) fn tell_result(task: TaskId, bytes: Option<u64>, type_name: NameId) {
    let wanted = WantedBy::now();
    if wanted.agent() {
        let row = Row::Result(ResultRow { task, bytes, type_name });
        let _ = THREAD.try_with(|thread| thread.mine().push_leaving(ROWS_FOR_ENDS, row));
    }
    if wanted.callbacks() {
        hooks::note_result(task, bytes, type_name);
    }
}

/// While it lives, samples of this thread belong to a task, or to a phase of the current one. Scopes
/// may be dropped in any order: the last one entered of those that live decides.
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

    /// Puts the current task into a phase: for samples, and for the ledger until the scope ends.
    pub(super) fn enter_phase(phase: NameId) -> Scope {
        let number = THREAD.try_with(|thread| thread.enter_phase(phase)).ok();
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

/// A phase of a future, between its polls.
#[derive(Clone, Copy, Debug)]
pub(super) struct FuturePhase {
    phase: NameId,
    /// The task that was current at the first poll.
    task: TaskRef,
    /// Since when it has been in the phase without being interrupted by an inner one.
    since: Option<Timestamp>,
}

impl FuturePhase {
    /// Begins at the first poll.
    pub(super) fn begin(phase: NameId) -> FuturePhase {
        let begin = |thread: &Thread| {
            let task = thread.current();
            let now = thread.interrupt(task);
            FuturePhase { phase, task, since: now.filter(|_| phase != NameId::NONE) }
        };
        let nothing = FuturePhase { phase, task: TaskRef::NONE, since: None };
        THREAD.try_with(begin).unwrap_or(nothing)
    }

    /// Runs a poll in the phase. `None` on a thread whose locals are already gone.
    pub(super) fn enter(self) -> Option<u64> {
        THREAD.try_with(|thread| thread.enter_future(self)).ok()
    }

    /// The poll is over; inner phases may have interrupted this one.
    pub(super) fn leave(&mut self, number: u64) {
        let leave = |thread: &Thread| thread.remove(|entry| entry.scope == number);
        if let Some(left) = THREAD.try_with(leave).ok().flatten() {
            self.since = left.since;
        }
    }

    /// The future is ready or gone.
    pub(super) fn end(self) {
        let _ = THREAD.try_with(|thread| {
            if self.task.id.is_some() {
                let now = clock::now();
                thread.push_phase(self.task, self.phase, self.since, now);
                thread.resume(self.task, now);
            }
        });
    }
}

/// What enters and leaves without a guard to hold: spans of `tracing`.
#[cfg(feature = "tracing-layer")]
pub(super) mod span {
    use super::{Entry, THREAD, TaskRef};

    pub(in crate::task) fn enter(task: TaskRef) {
        let _ = THREAD.try_with(|thread| {
            let unwinding = std::thread::panicking();
            thread.push_entry(Entry { unwinding, ..thread.entry(Entry::SPAN, task) });
        });
    }

    /// Whether a panic is unwinding the thread that was not when the span was entered. A span that was
    /// not entered on this thread changes nothing.
    pub(in crate::task) fn leave(task: TaskRef) -> bool {
        let left = THREAD.try_with(|thread| {
            thread.remove(|entry| entry.scope == Entry::SPAN && entry.task == task)
        });
        let left = left.ok().flatten();
        left.is_some_and(|entry| !entry.unwinding && std::thread::panicking())
    }
}

thread_local! {
    static THREAD: Thread = Thread::new();
}

/// One task or phase that the thread is in.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Never given twice on a thread, so that a task which is entered twice is left twice.
    scope: u64,
    task: TaskRef,
    /// [`NameId::NONE`] while it executes.
    phase: NameId,
    /// Whether it is a phase's own entry, not a task's that was entered within a phase.
    is_phase: bool,
    /// Since when the task has been in this phase here; `None` if it is not for the ledger, or an
    /// inner phase has interrupted it.
    since: Option<Timestamp>,
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
    /// Tasks that run here and their phases, the innermost last.
    stack: RefCell<Vec<Entry>>,
    scopes: Cell<u64>,
}

/// What the thread shares with the agent of its process.
struct Mine {
    cell: Arc<ThreadCell>,
    rows: rtrb::Producer<Row>,
    registered: bool,
    /// How many forks away the process is.
    generation: usize,
}

impl Mine {
    fn new() -> Mine {
        let (cell, rows) = ThreadCell::new();
        Mine { cell, rows, registered: false, generation: fork::generation() }
    }

    fn push(&mut self, row: Row) {
        if self.rows.push(row).is_err() {
            self.cell.count_lost();
        }
    }

    /// Writes a row if so many others would still have room.
    fn push_leaving(&mut self, room: usize, row: Row) {
        if self.rows.slots() > room {
            self.push(row);
        } else {
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

    fn next_scope(&self) -> u64 {
        let scope = self.scopes.get() + 1;
        self.scopes.set(scope);
        scope
    }

    /// An entry for `task`. Within a phase of the same task, it stays in that.
    fn entry(&self, scope: u64, task: TaskRef) -> Entry {
        let stack = self.stack.borrow();
        let phase = stack.last().filter(|last| last.task == task).map(|last| last.phase);
        Entry {
            scope,
            task,
            phase: phase.unwrap_or(NameId::NONE),
            is_phase: false,
            since: None,
            #[cfg(feature = "tracing-layer")]
            unwinding: false,
        }
    }

    fn enter(&self, task: TaskRef) -> Option<u64> {
        if task == TaskRef::NONE && self.stack.borrow().is_empty() {
            return None;
        }
        let scope = self.next_scope();
        let entry = self.entry(scope, task);
        self.push_entry(entry);
        Some(scope)
    }

    fn enter_phase(&self, phase: NameId) -> u64 {
        let (scope, task) = (self.next_scope(), self.current());
        let since = self.interrupt(task).filter(|_| phase != NameId::NONE);
        self.push_entry(Entry { phase, is_phase: true, since, ..self.entry(scope, task) });
        scope
    }

    fn enter_future(&self, future: FuturePhase) -> u64 {
        let (scope, task) = (self.next_scope(), self.current());
        let FuturePhase { phase, since, .. } = future;
        self.push_entry(Entry { phase, is_phase: true, since, ..self.entry(scope, task) });
        scope
    }

    fn push_entry(&self, entry: Entry) {
        self.stack.borrow_mut().push(entry);
        self.mine().cell.set_doing(Doing { task: entry.task.name, phase: entry.phase });
    }

    /// Removes the last entry that is meant, wherever it is; if it was a phase, that is over, and the
    /// one that it interrupted goes on.
    fn leave(&self, is_meant: impl Fn(&Entry) -> bool) {
        if let Some(left) = self.remove(is_meant).filter(|left| left.is_phase)
            && left.task.id.is_some()
        {
            let now = clock::now();
            self.push_phase(left.task, left.phase, left.since, now);
            self.resume(left.task, now);
        }
    }

    /// Removes the last entry that is meant, wherever it is.
    fn remove(&self, is_meant: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let mut stack = self.stack.borrow_mut();
        let index = stack.iter().rposition(is_meant)?;
        let left = stack.remove(index);
        let doing = |entry: &Entry| Doing { task: entry.task.name, phase: entry.phase };
        self.mine.borrow().cell.set_doing(stack.last().map_or_else(Doing::default, doing));
        Some(left)
    }

    /// Ends what the innermost phase of `task` has had so far, for another one begins; gives when.
    /// `None` for no task, whose phases are for samples alone.
    fn interrupt(&self, task: TaskRef) -> Option<Timestamp> {
        task.id?;
        let now = clock::now();
        if let Some((phase, since)) =
            self.with_phase_of(task, |entry| (entry.phase, entry.since.take()))
        {
            self.push_phase(task, phase, since, now);
        }
        Some(now)
    }

    /// Lets the innermost phase of `task` that is left go on.
    fn resume(&self, task: TaskRef, now: Timestamp) {
        self.with_phase_of(task, |entry| {
            if entry.phase != NameId::NONE {
                entry.since.get_or_insert(now);
            }
        });
    }

    /// Changes the innermost phase of the innermost task, if that is `task` and in one.
    fn with_phase_of<T>(&self, task: TaskRef, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let mut stack = self.stack.borrow_mut();
        let mut of_task = stack.iter_mut().rev().take_while(|entry| entry.task == task);
        of_task.find(|entry| entry.is_phase).map(change)
    }

    /// A task has ended: so have its phases, though their guards may still live.
    fn end_phases_of(&self, id: TaskId, stop: Timestamp) {
        if self.stack.borrow().is_empty() {
            return;
        }
        let mut from = 0;
        loop {
            let mut stack = self.stack.borrow_mut();
            let mut rest = stack.iter_mut().enumerate().skip(from);
            let is_meant =
                |(_, entry): &(usize, &mut Entry)| entry.is_phase && entry.task.id == Some(id);
            let Some((index, entry)) = rest.find(is_meant) else { return };
            from = index + 1;
            entry.is_phase = false;
            let ended = (entry.task, entry.phase, entry.since.take());
            drop(stack);
            self.push_phase(ended.0, ended.1, ended.2, stop);
        }
    }

    /// Tells the ledger and the callbacks of a stay in a phase, if it began.
    fn push_phase(&self, task: TaskRef, phase: NameId, since: Option<Timestamp>, stop: Timestamp) {
        let (Some(start), Some(id)) = (since, task.id) else { return };
        let wanted = WantedBy::now();
        if wanted.agent() {
            let mut mine = self.mine();
            if mine.rows.slots() > ROWS_FOR_ENDS {
                mine.push(Row::Phase(PhaseRow { task: id, phase, start, stop }));
            } else {
                mine.cell.spill.add_phase(task.name, phase, start, stop);
            }
        }
        if wanted.callbacks() {
            hooks::note_phase(id, Interval { phase, start, stop });
        }
    }

    fn begin(&self, beginning: Beginning, wanted: WantedBy) -> Running {
        let Beginning { name, key, parent, detail, may_move, .. } = beginning;
        let parent = parent.unwrap_or_else(|| self.current()).id;
        let id = registry::next_task_id();
        let mut mine = self.mine();
        let thread = may_move.then(|| mine.cell.thread.clone());
        let (start, in_ledger) = (clock::now(), wanted.agent());
        let is_known = in_ledger && mine.rows.slots() > ROWS_BEYOND_STARTS;
        if is_known {
            mine.push(Row::Task(TaskRow {
                id,
                name,
                key: key.clone(),
                thread: None,
                parent,
                start,
                stop: None,
                outcome: Outcome::Running,
                cause: None,
                detail: detail.clone(),
            }));
        }
        drop(mine);
        Running {
            id,
            name,
            key,
            parent,
            start,
            thread,
            in_ledger,
            is_known,
            observed: None,
            detail,
        }
    }

    fn push_end(
        &self,
        running: &mut Running,
        stop: Timestamp,
        outcome: Outcome,
        cause: Option<Arc<str>>,
    ) {
        let Running { id, name, parent, start, is_known, .. } = *running;
        let mut mine = self.mine();
        if !is_known && mine.rows.slots() <= ROWS_FOR_KNOWN_ENDS {
            return mine.cell.spill.add_task(name, outcome, start, stop);
        }
        let thread = running.thread.take();
        let thread = thread.filter(|thread| !Arc::ptr_eq(thread, &mine.cell.thread));
        mine.push(Row::Task(TaskRow {
            id,
            name,
            key: running.key.take(),
            thread,
            parent,
            start,
            stop: Some(stop),
            outcome,
            cause,
            detail: running.detail.take(),
        }));
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let mine = self.mine.borrow();
        mine.cell.set_doing(Doing::default());
        mine.cell.set_gone();
    }
}
