//! The calling thread's side of its cell: its current task, and the rows that it writes.

use std::cell::{Cell, RefCell, RefMut};
use std::num::NonZeroU64;
use std::sync::Arc;

use profiler_core::Timestamp;

use super::running::ScopedTask;
use super::scope::FuturePhase;
#[cfg(feature = "tracing-layer")]
use super::unwinding::Beginning;
use crate::detail::Interval;
use crate::registry::{
    self, LocalTaskId, NameId, PhaseRow, ROWS_FOR_ENDS, ResultRow, RingSlot, Row, TaskContext,
    TaskIds, ThreadCell,
};
use crate::wanted::WantedBy;
use crate::{clock, fork, observe};
use system::queue::Writer;

/// A reference to a task, or to none, for samples and child tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TaskRef {
    pub(super) id: Option<LocalTaskId>,
    pub(super) name: NameId,
}

impl TaskRef {
    pub(super) const NONE: TaskRef = TaskRef {
        id: None,
        name: NameId::NONE,
    };
}

/// Returns the innermost task of this thread.
pub(super) fn current() -> TaskRef {
    THREAD.try_with(Thread::current).unwrap_or(TaskRef::NONE)
}

/// Records the size and type of a task's result.
pub(super) fn record_result(task: LocalTaskId, bytes: Option<u64>, type_name: NameId) {
    let wanted = WantedBy::now();
    if wanted.agent() {
        let row = Row::Result(ResultRow {
            task,
            bytes,
            type_name,
        });
        let _ = THREAD.try_with(|thread| thread.link().push_reserving(ROWS_FOR_ENDS, row));
    }
    if wanted.observer() {
        observe::note_result(task.into(), bytes, type_name);
    }
}

thread_local! {
    pub(super) static THREAD: Thread = Thread::new();
}

/// Identifies one entry of a thread into a task or phase. Numbers are not reused on a thread, so a task
/// that is entered twice is left twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ScopeNumber(NonZeroU64);

impl ScopeNumber {
    const FIRST: ScopeNumber = ScopeNumber(NonZeroU64::MIN);

    fn next(self) -> ScopeNumber {
        ScopeNumber(self.0.saturating_add(1))
    }
}

/// A task or phase that the thread is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// `None` for spans.
    pub(super) scope: Option<ScopeNumber>,
    pub(super) task: TaskRef,
    /// [`NameId::NONE`] for `execute`.
    pub(super) phase: NameId,
    /// Whether this is the entry of a phase itself, not of a task that was entered within a phase.
    pub(super) is_phase: bool,
    /// The start of the current interval of the phase; `None` if the phase is not recorded or an inner
    /// phase has interrupted it.
    pub(super) since: Option<Timestamp>,
    #[cfg(feature = "tracing-layer")]
    pub(super) beginning: Option<Beginning>,
}

impl Entry {
    /// Returns the task and phase to which the thread's samples belong.
    fn context(stack: &[Entry]) -> TaskContext {
        stack
            .last()
            .map_or_else(TaskContext::default, |entry: &Entry| TaskContext {
                task: entry.task.name,
                phase: entry.phase,
            })
    }
}

pub(super) struct Thread {
    link: RefCell<AgentLink>,
    /// Tasks and phases that the thread is in, the innermost last.
    stack: RefCell<Vec<Entry>>,
    /// Running tasks that started on this thread and end on it.
    pub(super) tasks: RefCell<Vec<ScopedTask>>,
    next_scope: Cell<ScopeNumber>,
}

/// The thread's connection to the agent of its process.
pub(super) struct AgentLink {
    pub(super) cell: Arc<ThreadCell>,
    rows: Writer<RingSlot>,
    pub(super) ids: TaskIds,
    registered: bool,
    /// The process's [`fork::generation`].
    generation: usize,
}

impl AgentLink {
    fn new() -> AgentLink {
        let (cell, rows) = ThreadCell::new();
        let ids = TaskIds::default();
        AgentLink {
            cell,
            rows,
            ids,
            registered: false,
            generation: fork::generation(),
        }
    }

    /// Returns the number of rows for which the ring has room.
    pub(super) fn room(&self) -> usize {
        self.rows.slots()
    }

    #[inline(always)]
    pub(super) fn push(&mut self, row: Row) {
        if !self.rows.push(RingSlot(row)) {
            self.cell.count_lost();
        }
    }

    /// Writes a row if at least `reserved` others would still have room.
    fn push_reserving(&mut self, reserved: usize, row: Row) {
        if self.room() > reserved {
            self.push(row);
        } else {
            self.cell.count_lost();
        }
    }
}

impl Thread {
    fn new() -> Self {
        Thread {
            link: RefCell::new(AgentLink::new()),
            stack: RefCell::new(Vec::new()),
            tasks: RefCell::new(Vec::new()),
            next_scope: Cell::new(ScopeNumber::FIRST),
        }
    }

    /// Borrows the link, after registering it with a running agent. A forked child gets a new link,
    /// because its thread and its agent are others.
    pub(super) fn link(&self) -> RefMut<'_, AgentLink> {
        let mut link = self.link.borrow_mut();
        if link.generation != fork::generation() {
            *link = AgentLink::new();
        }
        // Only an agent ever drops the cells of threads that have ended.
        if !link.registered && WantedBy::now().agent() {
            link.registered = true;
            link.cell.begin_early();
            registry::register(&link.cell);
        }
        link
    }

    pub(super) fn current(&self) -> TaskRef {
        self.stack
            .borrow()
            .last()
            .map_or(TaskRef::NONE, |entry| entry.task)
    }

    fn next_scope(&self) -> ScopeNumber {
        let number = self.next_scope.get();
        self.next_scope.set(number.next());
        number
    }

    /// Makes an entry for `task`, in the current phase if that is of the same task.
    pub(super) fn entry(&self, scope: Option<ScopeNumber>, task: TaskRef) -> Entry {
        let stack = self.stack.borrow();
        let phase = stack
            .last()
            .filter(|last| last.task == task)
            .map(|last| last.phase);
        Entry {
            scope,
            task,
            phase: phase.unwrap_or(NameId::NONE),
            is_phase: false,
            since: None,
            #[cfg(feature = "tracing-layer")]
            beginning: None,
        }
    }

    pub(super) fn enter(&self, task: TaskRef) -> ScopeNumber {
        let scope = self.next_scope();
        self.push_entry(self.entry(Some(scope), task));
        scope
    }

    pub(super) fn is_idle(&self) -> bool {
        self.stack.borrow().is_empty()
    }

    pub(super) fn enter_phase(&self, phase: NameId) -> ScopeNumber {
        let scope = self.next_scope();
        let task = self.current();
        let since = self.interrupt(task).filter(|_| phase != NameId::NONE);
        self.push_entry(Entry {
            phase,
            is_phase: true,
            since,
            ..self.entry(Some(scope), task)
        });
        scope
    }

    pub(super) fn enter_phase_of_samples(&self, phase: NameId) -> ScopeNumber {
        let scope = self.next_scope();
        self.push_entry(Entry {
            phase,
            ..self.entry(Some(scope), self.current())
        });
        scope
    }

    pub(super) fn enter_future(&self, future: FuturePhase) -> ScopeNumber {
        let scope = self.next_scope();
        let task = self.current();
        let FuturePhase { phase, since, .. } = future;
        self.push_entry(Entry {
            phase,
            is_phase: true,
            since,
            ..self.entry(Some(scope), task)
        });
        scope
    }

    pub(super) fn push_entry(&self, entry: Entry) {
        self.stack.borrow_mut().push(entry);
        self.link().cell.set_context(TaskContext {
            task: entry.task.name,
            phase: entry.phase,
        });
    }

    /// Removes an entry, wherever in the stack it is. If it is a phase, its interval ends, and the phase
    /// that it interrupted continues.
    pub(super) fn leave(&self, scope: ScopeNumber) {
        let mut stack = self.stack.borrow_mut();
        if stack
            .last()
            .is_some_and(|last| last.scope == Some(scope) && !last.is_phase)
        {
            stack.pop();
            return self.link.borrow().cell.set_context(Entry::context(&stack));
        }
        drop(stack);
        let removed = self.remove(|entry: &Entry| entry.scope == Some(scope));
        if let Some(ended) = removed.filter(|entry| entry.is_phase && entry.task.id.is_some()) {
            let now = clock::now();
            self.push_phase(ended.task, ended.phase, ended.since, now);
            self.resume(ended.task, now);
        }
    }

    /// Removes the last matching entry.
    pub(super) fn remove(&self, matches_entry: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let mut stack = self.stack.borrow_mut();
        let index = stack.iter().rposition(matches_entry)?;
        let removed = stack.remove(index);
        self.link.borrow().cell.set_context(Entry::context(&stack));
        Some(removed)
    }

    /// Ends the current interval of the innermost phase of `task`, because another phase starts, and
    /// returns the time. `None` without a task, where phases are in samples only.
    pub(super) fn interrupt(&self, task: TaskRef) -> Option<Timestamp> {
        task.id?;
        let now = clock::now();
        if let Some((phase, since)) =
            self.with_phase_of(task, |entry| (entry.phase, entry.since.take()))
        {
            self.push_phase(task, phase, since, now);
        }
        Some(now)
    }

    /// Continues the innermost remaining phase of `task`.
    pub(super) fn resume(&self, task: TaskRef, now: Timestamp) {
        self.with_phase_of(task, |entry| {
            if entry.phase != NameId::NONE {
                entry.since.get_or_insert(now);
            }
        });
    }

    /// Calls `change` for the innermost phase of the innermost task, if that is `task` and is in one.
    fn with_phase_of<T>(&self, task: TaskRef, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let mut stack = self.stack.borrow_mut();
        let mut of_task = stack
            .iter_mut()
            .rev()
            .take_while(|entry| entry.task == task);
        of_task.find(|entry| entry.is_phase).map(change)
    }

    /// Ends the phases of a task that has ended, even if their guards still live.
    pub(super) fn end_phases_of(&self, id: LocalTaskId, stop: Timestamp) {
        if self.is_idle() {
            return;
        }
        let mut from = 0;
        loop {
            let mut stack = self.stack.borrow_mut();
            let mut rest = stack.iter_mut().enumerate().skip(from);
            let matches_entry =
                |(_, entry): &(usize, &mut Entry)| entry.is_phase && entry.task.id == Some(id);
            let Some((index, entry)) = rest.find(matches_entry) else {
                return;
            };
            from = index + 1;
            entry.is_phase = false;
            let ended = (entry.task, entry.phase, entry.since.take());
            drop(stack);
            self.push_phase(ended.0, ended.1, ended.2, stop);
        }
    }

    /// Reports an interval of a phase to the agent and the observer, if it has a start.
    pub(super) fn push_phase(
        &self,
        task: TaskRef,
        phase: NameId,
        since: Option<Timestamp>,
        stop: Timestamp,
    ) {
        let (Some(start), Some(id)) = (since, task.id) else {
            return;
        };
        let wanted = WantedBy::now();
        if wanted.agent() {
            let mut link = self.link();
            if link.room() > ROWS_FOR_ENDS {
                link.push(Row::Phase(PhaseRow {
                    task: id,
                    phase,
                    start,
                    stop,
                }));
            } else {
                let cell = link.cell.clone();
                // The first sum allocates.
                drop(link);
                cell.spill.add_phase(task.name, phase, start, stop);
            }
        }
        if wanted.observer() {
            observe::note_phase(id.into(), Interval { phase, start, stop });
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let link = self.link.borrow();
        link.cell.finish();
    }
}
