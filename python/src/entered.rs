//! The scopes that the calling thread has entered.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent::foreign::ThreadTask;
use agent::observe::fork_generation;
use agent::{Phase, PhaseGuard, TaskScope};
use pyo3::prelude::*;

use crate::scopes::Scope;

/// A number for each scope that a thread enters, in this order.
pub(crate) type Mark = u64;

/// A scope that the thread has entered. The fields are dropped in this order.
struct Entered {
    _phase: Option<PhaseGuard>,
    _task: TaskScope,
    scope: Py<Scope>,
    /// Whether a context continues in it, so that its end leaves the thread in the outer scope.
    is_resumed: bool,
    mark: Mark,
}

impl Entered {
    fn new(py: Python<'_>, scope: &Py<Scope>, is_resumed: bool) -> Entered {
        let inner = scope.get();
        let task = inner.task.enter();
        Entered {
            _phase: inner.enter_phase(),
            _task: task,
            scope: scope.clone_ref(py),
            is_resumed,
            mark: NEXT_MARK.replace(next_mark() + 1),
        }
    }

    /// Whether it ended on another thread. A context may continue in a task that has ended.
    fn is_over(&self) -> bool {
        !self.is_resumed && self.scope.get().is_ended()
    }
}

/// The scopes of a thread, the innermost last.
struct Stack {
    all: Vec<Entered>,
    thread: Arc<EnteringThread>,
}

impl Stack {
    fn new() -> Stack {
        Stack {
            all: Vec::new(),
            thread: Arc::new(EnteringThread::own()),
        }
    }

    fn note_innermost(&self) {
        let innermost = self.all.last().map(|last| last.scope.get());
        self.thread.set_innermost(innermost);
    }

    fn push(&mut self, entered: Entered) {
        if self.thread.generation != fork_generation() {
            self.thread = Arc::new(EnteringThread::own());
        }
        if !entered.is_resumed {
            entered.scope.get().note_thread(&self.thread);
        }
        if self.all.len() < ENTERED_MAX {
            self.all.push(entered);
            self.note_innermost();
        }
    }

    fn pop_if(&mut self, is_left: impl Fn(&Entered) -> bool) -> Option<Entered> {
        let left = self.all.pop_if(|last| is_left(last))?;
        self.note_innermost();
        Some(left)
    }

    fn remove(&mut self, scope: &Py<Scope>) -> Option<Entered> {
        let index = self.all.iter().rposition(|it| it.scope.is(scope))?;
        let removed = self.all.remove(index);
        self.note_innermost();
        Some(removed)
    }
}

thread_local! {
    static STACK: RefCell<Stack> = RefCell::new(Stack::new());
    static NEXT_MARK: Cell<Mark> = const { Cell::new(0) };
}

/// Scopes that one thread may be in; deeper ones change the context only.
const ENTERED_MAX: usize = 10_000;

/// A thread that enters scopes, for those that end on another one. It is changed with the GIL only.
pub(crate) struct EnteringThread {
    task: Option<ThreadTask>,
    /// The address of the scope that it is in, or 0.
    innermost: AtomicUsize,
    generation: usize,
}

impl EnteringThread {
    fn own() -> EnteringThread {
        EnteringThread {
            task: ThreadTask::of_own_thread(),
            innermost: AtomicUsize::new(0),
            generation: fork_generation(),
        }
    }

    fn set_innermost(&self, scope: Option<&Scope>) {
        let address = scope.map_or(0, |scope| ptr::from_ref(scope).addr());
        self.innermost.store(address, Ordering::Relaxed);
    }

    /// Takes the thread out of a scope that has ended, if it is still in it: its samples belong to the outer one. The
    /// thread itself leaves the scope when it next comes here.
    pub(crate) fn leave(&self, ended: &Scope, outer: Option<&Scope>) {
        if self.innermost.load(Ordering::Relaxed) != ptr::from_ref(ended).addr() {
            return;
        }
        self.set_innermost(outer);
        if let Some(thread) = &self.task {
            let task = outer.map(|scope| scope.task.clone()).unwrap_or_default();
            let phase = outer.and_then(|scope| scope.phase.as_deref());
            thread.set(&task, phase.map(Phase::of_name));
        }
    }
}

/// Returns the mark of the scope that the thread enters next, for [`leave_since`].
#[pyfunction]
pub(crate) fn next_mark() -> Mark {
    NEXT_MARK.get()
}

/// Returns the innermost scope that has not ended on another thread.
pub(crate) fn innermost(py: Python<'_>) -> Option<Py<Scope>> {
    leave_ended();
    let innermost = |stack: &Stack| Some(stack.all.last()?.scope.clone_ref(py));
    STACK.with_borrow(innermost)
}

/// Enters a scope by a `with` block.
pub(crate) fn push(py: Python<'_>, scope: &Py<Scope>) {
    leave_ended();
    let entered = Entered::new(py, scope, false);
    STACK.with_borrow_mut(|stack| stack.push(entered));
}

/// Enters a scope in which a context continues.
pub(crate) fn push_resumed(py: Python<'_>, scope: &Py<Scope>) {
    leave_ended();
    let entered = Entered::new(py, scope, true);
    STACK.with_borrow_mut(|stack| stack.push(entered));
}

/// Leaves a scope, wherever in the stack it is. Returns whether a context has continued in it.
pub(crate) fn remove(scope: &Py<Scope>) -> bool {
    let removed = STACK.with_borrow_mut(|stack| stack.remove(scope));
    let was_resumed = removed.is_some_and(|entered| entered.is_resumed);
    leave_ended();
    was_resumed
}

/// Ends the phases of a task that the thread has not left.
pub(crate) fn end_phases_of(py: Python<'_>, task: &Py<Scope>) {
    let is_of_task = |entered: &Entered| {
        let scope = entered.scope.get();
        scope.phase.is_some() && scope.task == task.get().task
    };
    while let Some(left) = STACK.with_borrow_mut(|stack| stack.pop_if(is_of_task)) {
        left.scope.get().end(py);
    }
}

/// Leaves the innermost scopes that ended on other threads.
fn leave_ended() {
    STACK.with_borrow_mut(|stack| while stack.pop_if(Entered::is_over).is_some() {});
}

/// Leaves all scopes, and enters others. Returns those that were left, the outermost first: another greenlet runs.
#[pyfunction]
pub(crate) fn exchange_entered(py: Python<'_>, entered: Vec<Py<Scope>>) -> Vec<Py<Scope>> {
    let mut left = Vec::new();
    while let Some(last) = STACK.with_borrow_mut(|stack| stack.pop_if(|_| true)) {
        left.push(last.scope);
    }
    left.reverse();
    for scope in entered.iter().filter(|scope| !scope.get().is_ended()) {
        push(py, scope);
    }
    left
}

/// Leaves all scopes that were entered since `mark`, the innermost first. Returns those of `with` blocks.
pub(crate) fn leave_since(mark: Mark) -> Vec<Py<Scope>> {
    let mut left = Vec::new();
    STACK.with_borrow_mut(|stack| {
        while let Some(entered) = stack.pop_if(|last| last.mark >= mark) {
            if !entered.is_resumed {
                left.push(entered.scope);
            }
        }
    });
    left
}
