//! The calling thread's side of its cell: which task is current, and rows for the ledger.

use std::cell::{Cell, RefCell, RefMut};
use std::num::NonZeroU64;
use std::sync::Arc;

use profiler_core::Timestamp;

use super::hooks;
use super::running::RunningHere;
use super::scope::FuturePhase;
use crate::detail::Interval;
use crate::registry::{
    self, LocalTaskId, NameId, PhaseRow, ROWS_FOR_ENDS, ResultRow, RingSlot, Row, TaskContext,
    TaskIds, ThreadCell,
};
use crate::wanted::WantedBy;
use crate::{clock, fork};

/// A task, or none, as samples and children see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TaskRef {
    pub(super) id: Option<LocalTaskId>,
    pub(super) name: NameId,
}

impl TaskRef {
    pub(super) const NONE: TaskRef = TaskRef { id: None, name: NameId::NONE };
}

/// The innermost task that this thread runs.
pub(super) fn current() -> TaskRef {
    THREAD.try_with(Thread::current).unwrap_or(TaskRef::NONE)
}

/// Says of a task's result what is known now.
pub(super) fn tell_result(task: LocalTaskId, bytes: Option<u64>, type_name: NameId) {
    let wanted = WantedBy::now();
    if wanted.agent() {
        let row = Row::Result(ResultRow { task, bytes, type_name });
        let _ = THREAD.try_with(|thread| thread.mine().push_leaving(ROWS_FOR_ENDS, row));
    }
    if wanted.callbacks() {
        hooks::note_result(task.into(), bytes, type_name);
    }
}

thread_local! {
    pub(super) static THREAD: Thread = Thread::new();
}

/// One stay of a thread in a task or phase. Never given twice on a thread, so that a task which is
/// entered twice is left twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ScopeNumber(NonZeroU64);

impl ScopeNumber {
    const FIRST: ScopeNumber = ScopeNumber(NonZeroU64::MIN);

    fn next(self) -> ScopeNumber {
        ScopeNumber(self.0.saturating_add(1))
    }
}

/// One task or phase that the thread is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Spans have none.
    pub(super) scope: Option<ScopeNumber>,
    pub(super) task: TaskRef,
    /// [`NameId::NONE`] while it executes.
    pub(super) phase: NameId,
    /// Whether it is a phase's own entry, not a task's that was entered within a phase.
    pub(super) is_phase: bool,
    /// Since when the task has been in this phase here; `None` if it is not for the ledger, or an
    /// inner phase has interrupted it.
    pub(super) since: Option<Timestamp>,
    #[cfg(feature = "tracing-layer")]
    pub(super) unwinding: bool,
}

impl Entry {
    /// What a thread's samples belong to.
    fn context(stack: &[Entry]) -> TaskContext {
        let context = |entry: &Entry| TaskContext { task: entry.task.name, phase: entry.phase };
        stack.last().map_or_else(TaskContext::default, context)
    }
}

pub(super) struct Thread {
    mine: RefCell<Mine>,
    /// Tasks that run here and their phases, the innermost last.
    stack: RefCell<Vec<Entry>>,
    /// Those that began here and end here.
    pub(super) tasks: RefCell<Vec<RunningHere>>,
    next_scope: Cell<ScopeNumber>,
}

/// What the thread shares with the agent of its process.
pub(super) struct Mine {
    pub(super) cell: Arc<ThreadCell>,
    rows: rtrb::Producer<RingSlot>,
    pub(super) ids: TaskIds,
    registered: bool,
    /// How many forks away the process is.
    generation: usize,
}

impl Mine {
    fn new() -> Mine {
        let (cell, rows) = ThreadCell::new();
        let ids = TaskIds::default();
        Mine { cell, rows, ids, registered: false, generation: fork::generation() }
    }

    /// Rows that the ring has room for.
    pub(super) fn room(&self) -> usize {
        self.rows.slots()
    }

    #[inline(always)]
    pub(super) fn push(&mut self, row: Row) {
        if self.rows.push(RingSlot(row)).is_err() {
            self.cell.count_lost();
        }
    }

    /// Writes a row if so many others would still have room.
    fn push_leaving(&mut self, room: usize, row: Row) {
        if self.room() > room {
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
            tasks: RefCell::new(Vec::new()),
            next_scope: Cell::new(ScopeNumber::FIRST),
        }
    }

    /// The thread's own part, which the agent knows if there is one. In a forked child this is another
    /// thread than before, and the agent is another.
    pub(super) fn mine(&self) -> RefMut<'_, Mine> {
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

    pub(super) fn current(&self) -> TaskRef {
        self.stack.borrow().last().map_or(TaskRef::NONE, |entry| entry.task)
    }

    fn next_scope(&self) -> ScopeNumber {
        let number = self.next_scope.get();
        self.next_scope.set(number.next());
        number
    }

    /// An entry for `task`. Within a phase of the same task, it stays in that.
    pub(super) fn entry(&self, scope: Option<ScopeNumber>, task: TaskRef) -> Entry {
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

    pub(super) fn enter(&self, task: TaskRef) -> ScopeNumber {
        let scope = self.next_scope();
        self.push_entry(self.entry(Some(scope), task));
        scope
    }

    pub(super) fn is_in_nothing(&self) -> bool {
        self.stack.borrow().is_empty()
    }

    pub(super) fn enter_phase(&self, phase: NameId) -> ScopeNumber {
        let (scope, task) = (self.next_scope(), self.current());
        let since = self.interrupt(task).filter(|_| phase != NameId::NONE);
        self.push_entry(Entry { phase, is_phase: true, since, ..self.entry(Some(scope), task) });
        scope
    }

    pub(super) fn enter_future(&self, future: FuturePhase) -> ScopeNumber {
        let (scope, task) = (self.next_scope(), self.current());
        let FuturePhase { phase, since, .. } = future;
        self.push_entry(Entry { phase, is_phase: true, since, ..self.entry(Some(scope), task) });
        scope
    }

    pub(super) fn push_entry(&self, entry: Entry) {
        self.stack.borrow_mut().push(entry);
        self.mine().cell.set_context(TaskContext { task: entry.task.name, phase: entry.phase });
    }

    /// Ends a stay, wherever in the stack it is; if it was in a phase, that is over, and the one that it
    /// interrupted goes on.
    pub(super) fn leave(&self, scope: ScopeNumber) {
        let mut stack = self.stack.borrow_mut();
        if let Some(last) = stack.last()
            && last.scope == Some(scope)
            && !last.is_phase
        {
            stack.pop();
            return self.mine.borrow().cell.set_context(Entry::context(&stack));
        }
        drop(stack);
        let is_meant = |entry: &Entry| entry.scope == Some(scope);
        if let Some(left) = self.remove(is_meant).filter(|left| left.is_phase)
            && left.task.id.is_some()
        {
            let now = clock::now();
            self.push_phase(left.task, left.phase, left.since, now);
            self.resume(left.task, now);
        }
    }

    /// Removes the last entry that is meant, wherever it is.
    pub(super) fn remove(&self, is_meant: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let mut stack = self.stack.borrow_mut();
        let index = stack.iter().rposition(is_meant)?;
        let left = stack.remove(index);
        self.mine.borrow().cell.set_context(Entry::context(&stack));
        Some(left)
    }

    /// Ends what the innermost phase of `task` has had so far, for another one begins; gives when.
    /// `None` for no task, whose phases are for samples alone.
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

    /// Lets the innermost phase of `task` that is left go on.
    pub(super) fn resume(&self, task: TaskRef, now: Timestamp) {
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
    pub(super) fn end_phases_of(&self, id: LocalTaskId, stop: Timestamp) {
        if self.is_in_nothing() {
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
    pub(super) fn push_phase(
        &self,
        task: TaskRef,
        phase: NameId,
        since: Option<Timestamp>,
        stop: Timestamp,
    ) {
        let (Some(start), Some(id)) = (since, task.id) else { return };
        let wanted = WantedBy::now();
        if wanted.agent() {
            let mut mine = self.mine();
            if mine.room() > ROWS_FOR_ENDS {
                mine.push(Row::Phase(PhaseRow { task: id, phase, start, stop }));
            } else {
                mine.cell.spill.add_phase(task.name, phase, start, stop);
            }
        }
        if wanted.callbacks() {
            hooks::note_phase(id.into(), Interval { phase, start, stop });
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let mine = self.mine.borrow();
        mine.cell.set_context(TaskContext::default());
        mine.cell.set_gone();
    }
}
