//! The task and phase that a Python context is in, and those that a thread has entered.
//!
//! A thread enters a [`Scope`] when a `with` block begins. A step of a coroutine, a callback of an event loop and work in
//! a thread pool run between [`resume`] and [`suspend`]: there a context variable has the innermost scope, so that a
//! task follows `await`. `resume` enters that scope, and `suspend` leaves all that were entered since. So does
//! [`leave_since`] for the first step of an eager task of asyncio, which runs inside of its parent's step. Elsewhere no
//! variable is set, which would take most of the time of an empty task.

use std::cell::Cell;
use std::mem::{self, ManuallyDrop};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use agent::foreign::TaskPhase;
use agent::{Phase, PhaseGuard};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyWeakrefReference};

use crate::entered::{self, EnteringThread, Mark, next_mark};
use crate::lifecycle;

/// A task, or a phase of a task, in which a context is.
#[pyclass(frozen, module = "emberline._native")]
pub(crate) struct Scope {
    pub(crate) task: agent::TaskHandle,
    /// `None` if the task is in no phase.
    pub(crate) phase: Option<String>,
    outer: Outer,
    /// The address of the [`TaskHandle`] whose `with` block this is, or 0.
    handle: usize,
    /// Set at its end, which may be on another thread than its start.
    is_ended: AtomicBool,
    /// The thread on which a `with` block entered it.
    thread: OnceLock<Arc<EnteringThread>>,
    /// The context in which a `with` block entered it, once that has waited in it.
    context: Mutex<Option<Py<PyWeakrefReference>>>,
    /// The phase in the task's record, until its end.
    interval: Mutex<Option<Box<Interval>>>,
}

/// A phase in its task's record. It goes on while its context waits, and others work in it.
struct Interval {
    phase: TaskPhase,
    /// Phases that have interrupted this one.
    inner: usize,
    /// The phase that this one has interrupted.
    outer: Option<Py<Scope>>,
}

impl Scope {
    pub(crate) fn of_task(task: agent::TaskHandle, outer: Option<Py<Scope>>) -> Scope {
        Scope {
            task,
            phase: None,
            outer: Outer::new(outer),
            handle: 0,
            is_ended: AtomicBool::new(false),
            thread: OnceLock::new(),
            context: Mutex::default(),
            interval: Mutex::default(),
        }
    }

    /// Begins a phase of the thread's task. It interrupts the one around it.
    pub(crate) fn of_phase(py: Python<'_>, name: String, outer: Option<Py<Scope>>) -> Scope {
        let task = agent::current_task();
        let interrupted = phase_around(py, &task, outer.as_ref());
        if let Some(around) = &interrupted {
            around.get().change_interval(Interval::interrupt);
        }
        let interval = Interval {
            phase: TaskPhase::begin(&task, Phase::of_name(&name)),
            inner: 0,
            outer: interrupted,
        };
        Scope {
            phase: Some(name),
            interval: Mutex::new(Some(Box::new(interval))),
            ..Scope::of_task(task, outer)
        }
    }

    /// Ends it, for all threads and contexts.
    pub(crate) fn end(&self, py: Python<'_>) {
        self.end_interval();
        if self.is_ended.swap(true, Ordering::Relaxed) {
            return;
        }
        self.outer.skip_ended(py);
        if let Some(thread) = self.thread.get() {
            let outer = self.outer.get(py);
            thread.leave(self, outer.as_ref().map(|scope| scope.get()));
        }
    }

    /// Notes the thread on which a `with` block enters it.
    pub(crate) fn note_thread(&self, thread: &Arc<EnteringThread>) {
        let _ = self.thread.set(thread.clone());
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    /// Notes that `context` waits in it.
    fn note_context(&self, context: &Bound<'_, PyAny>) -> PyResult<()> {
        let context = PyWeakrefReference::new(context)?.unbind();
        let mut known = self.context.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert(context);
        Ok(())
    }

    /// Whether it ended elsewhere than in `context`, which entered it and has not left it: a context that has a copy of
    /// the variable works for a task that has ended.
    fn has_ended_outside_of(&self, context: &Bound<'_, PyAny>) -> bool {
        if !self.is_ended() {
            return false;
        }
        let known = self.context.lock().unwrap_or_else(PoisonError::into_inner);
        let entered = known
            .as_ref()
            .and_then(|it| it.bind(context.py()).upgrade());
        entered.is_some_and(|entered| entered.is(context))
    }

    /// Ends the phase in the task's record.
    fn end_interval(&self) {
        let mut current = self.interval.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = current.take();
        drop(current);
        drop(ended);
    }

    fn change_interval(&self, change: impl FnOnce(&mut Interval)) {
        let mut current = self.interval.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(interval) = &mut *current {
            change(interval);
        }
    }

    /// Puts samples of the calling thread, which is in the task, into the phase.
    pub(crate) fn enter_phase(&self) -> Option<PhaseGuard> {
        let name = self.phase.as_deref()?;
        Some(TaskPhase::enter(Phase::of_name(name)))
    }
}

impl Interval {
    fn interrupt(&mut self) {
        self.inner += 1;
        self.phase.interrupt();
    }

    fn resume(&mut self) {
        self.inner -= 1;
        if self.inner == 0 {
            self.phase.resume();
        }
    }
}

impl Drop for Interval {
    /// The phase that it has interrupted continues.
    fn drop(&mut self) {
        self.phase.interrupt();
        if let Some(around) = self.outer.take() {
            around.get().change_interval(Interval::resume);
        }
    }
}

/// Returns the phase of `task` that a phase in `outer` interrupts.
fn phase_around(
    py: Python<'_>,
    task: &agent::TaskHandle,
    outer: Option<&Py<Scope>>,
) -> Option<Py<Scope>> {
    let mut around = outer.map(|scope| scope.clone_ref(py));
    while let Some(scope) = around {
        let inner = scope.get();
        if inner.task != *task {
            return None;
        }
        if inner.phase.is_some() && !inner.is_ended() {
            return Some(scope);
        }
        around = inner.outer.get(py);
    }
    None
}

/// The scope in which another one began.
///
/// A job that starts its successor, such as a callback that calls `call_soon`, makes a chain of scopes as long as the
/// program runs. So a scope that ends lets go of the outer ones that ended before: what remains was open at a time.
struct Outer(Mutex<Option<Py<Scope>>>);

impl Outer {
    fn new(scope: Option<Py<Scope>>) -> Outer {
        Outer(Mutex::new(scope))
    }

    fn get(&self, py: Python<'_>) -> Option<Py<Scope>> {
        let scope = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        scope.as_ref().map(|scope| scope.clone_ref(py))
    }

    fn exchange(&self, scope: Option<Py<Scope>>) -> Option<Py<Scope>> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mem::replace(&mut *current, scope)
    }

    /// Replaces it by the next scope that is open, if there is one.
    fn skip_ended(&self, py: Python<'_>) {
        let outer = self.get(py);
        if outer.as_ref().is_some_and(|scope| scope.get().is_ended()) {
            self.exchange(open_of(py, outer));
        }
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        if let Some(scope) = self.exchange(None) {
            release(scope);
        }
    }
}

thread_local! {
    static IS_RELEASING: Cell<bool> = const { Cell::new(false) };
    /// The scope that [`release`] drops next: the outer one of that which it drops.
    static RELEASED: Cell<Option<ManuallyDrop<Py<Scope>>>> = const { Cell::new(None) };
}

/// Drops the scopes of a chain one after the other: within each other, they would overflow the stack.
fn release(scope: Py<Scope>) {
    if IS_RELEASING.replace(true) {
        RELEASED.set(Some(ManuallyDrop::new(scope)));
        return;
    }
    let mut next = Some(scope);
    while let Some(scope) = next {
        drop(scope);
        next = RELEASED.take().map(ManuallyDrop::into_inner);
    }
    IS_RELEASING.set(false);
}

thread_local! {
    /// Calls of [`resume`] without their [`suspend`].
    static RESUMED: Cell<usize> = const { Cell::new(0) };
}

/// Whether the context variable counts.
fn is_resumed() -> bool {
    RESUMED.get() > 0
}

fn variable(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = || {
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        let default = PyDict::new(py);
        default.set_item("default", py.None())?;
        class
            .call(("emberline_scope",), Some(&default))
            .map(Bound::unbind)
    };
    Ok(VARIABLE.get_or_try_init(py, make)?.bind(py))
}

/// Returns the innermost scope that this thread is in, or that its context is in.
pub(crate) fn innermost(py: Python<'_>) -> PyResult<Option<Py<Scope>>> {
    if is_resumed() {
        return of_context(py);
    }
    Ok(entered::innermost(py))
}

/// Returns the innermost scope of the calling thread's context.
pub(crate) fn of_context(py: Python<'_>) -> PyResult<Option<Py<Scope>>> {
    let value = variable(py)?.call_method0(pyo3::intern!(py, "get"))?;
    Ok(as_scope(value))
}

/// Returns the innermost scope of a context.
fn innermost_of(context: &Bound<'_, PyAny>) -> PyResult<Option<Py<Scope>>> {
    let py = context.py();
    let value = context.call_method1(pyo3::intern!(py, "get"), (variable(py)?,))?;
    Ok(as_scope(value))
}

/// Returns the innermost scope of a context without those that ended elsewhere, such as that of a generator which the event
/// loop has closed. The context forgets these.
fn open_in(context: &Bound<'_, PyAny>) -> PyResult<Option<Py<Scope>>> {
    let py = context.py();
    let mut open = innermost_of(context)?;
    let mut has_ended = false;
    while let Some(ended) = open.take_if(|scope| scope.get().has_ended_outside_of(context)) {
        open = ended.get().outer.get(py);
        has_ended = true;
    }
    if has_ended {
        let set = variable(py)?.getattr("set")?;
        // Fails if another thread runs in the context.
        let _ = context.call_method1("run", (set, open.as_ref()));
    }
    Ok(open)
}

/// Returns the first scope that has not ended, of one and those around it.
pub(crate) fn open_of(py: Python<'_>, scope: Option<Py<Scope>>) -> Option<Py<Scope>> {
    let mut open = scope;
    while let Some(ended) = open.take_if(|scope| scope.get().is_ended()) {
        open = ended.get().outer.get(py);
    }
    open
}

/// Returns the scope that is a value of the variable; other values are those of a program that sets it itself.
fn as_scope(value: Bound<'_, PyAny>) -> Option<Py<Scope>> {
    value.cast_into::<Scope>().ok().map(Bound::unbind)
}

/// Sets the innermost scope of the calling thread's context.
pub(crate) fn set_of_context(py: Python<'_>, scope: Option<&Py<Scope>>) -> PyResult<()> {
    variable(py)?.call_method1(pyo3::intern!(py, "set"), (scope,))?;
    Ok(())
}

/// Puts the thread, and a context that was resumed, into a scope, at the start of a `with` block.
pub(crate) fn enter(py: Python<'_>, scope: &Py<Scope>) -> PyResult<()> {
    if is_resumed() {
        set_of_context(py, Some(scope))?;
    }
    entered::push(py, scope);
    Ok(())
}

/// Leaves a scope at the end of a `with` block, in whatever thread and order that happens, and ends it.
pub(crate) fn leave(py: Python<'_>, scope: &Py<Scope>) -> PyResult<()> {
    let left = step_out(py, scope);
    scope.get().end(py);
    left
}

/// Takes the thread and its context out of a scope, which may go on elsewhere.
pub(crate) fn step_out(py: Python<'_>, scope: &Py<Scope>) -> PyResult<()> {
    let outer = scope.get().outer.get(py);
    if entered::remove(scope)
        && let Some(outer) = &outer
    {
        entered::push_resumed(py, outer);
    }
    if is_resumed() && of_context(py)?.is_some_and(|innermost| innermost.is(scope)) {
        set_of_context(py, outer.as_ref())?;
    }
    Ok(())
}

/// Puts the thread into the innermost scope of a context that continues. Returns the mark for [`suspend`].
#[pyfunction]
pub(crate) fn resume(context: &Bound<'_, PyAny>) -> PyResult<Mark> {
    let py = context.py();
    Ok(resume_in(py, open_in(context)?))
}

/// Puts the thread into `scope`, in which its context continues. Returns the mark for [`suspend_in`].
pub(crate) fn resume_in(py: Python<'_>, scope: Option<Py<Scope>>) -> Mark {
    RESUMED.set(RESUMED.get() + 1);
    let mark = next_mark();
    if let Some(scope) = &scope {
        entered::push_resumed(py, scope);
    }
    mark
}

/// Takes the thread out of all scopes that it has entered since [`resume`], because its context waits or ends.
#[pyfunction]
pub(crate) fn suspend(mark: Mark, context: &Bound<'_, PyAny>) -> PyResult<()> {
    RESUMED.set(RESUMED.get().saturating_sub(1));
    leave_since(mark, context)
}

/// Takes the thread out of all scopes that it has entered since [`resume_in`].
pub(crate) fn suspend_in(mark: Mark) {
    RESUMED.set(RESUMED.get().saturating_sub(1));
    entered::leave_since(mark);
}

/// Takes the thread out of all scopes that it has entered since [`next_mark`] returned `mark`: `context`, in which it
/// entered them, waits.
#[pyfunction]
pub(crate) fn leave_since(mark: Mark, context: &Bound<'_, PyAny>) -> PyResult<()> {
    for scope in entered::leave_since(mark) {
        scope.get().note_context(context)?;
    }
    Ok(())
}

/// Takes a forked child out of its parent's tasks.
pub(crate) fn clear(py: Python<'_>) -> PyResult<()> {
    entered::leave_since(0);
    set_of_context(py, None)
}

/// Returns the innermost scope around `scope` that the handle at this address has entered.
fn entered_by(py: Python<'_>, mut scope: Option<Py<Scope>>, handle: usize) -> Option<Py<Scope>> {
    while let Some(current) = scope {
        if current.get().handle == handle {
            return Some(current);
        }
        scope = current.get().outer.get(py);
    }
    None
}

/// A reference to a task, to hand it to other threads: `with handle:`, or `handle.run(function)`.
///
/// It can be entered after the task has ended; samples then still belong to the task's name.
///
/// ```text
/// >>> with task("load"):
/// ...     current_task().run(sum, [1, 2])
/// 3
///
/// ```
#[pyclass(frozen, module = "emberline")]
pub(crate) struct TaskHandle {
    pub(crate) scope: Py<Scope>,
}

impl TaskHandle {
    pub(crate) fn empty(py: Python<'_>) -> PyResult<TaskHandle> {
        let scope = Scope::of_task(agent::current_task(), None);
        Ok(TaskHandle {
            scope: Py::new(py, scope)?,
        })
    }

    pub(crate) fn task(&self) -> agent::TaskHandle {
        self.scope.get().task.clone()
    }
}

#[pymethods]
impl TaskHandle {
    /// The name of the task, or `None` if the handle is empty.
    #[getter]
    fn name(&self) -> Option<String> {
        self.scope.get().task.name().map(|name| name.to_string())
    }

    /// Calls `function` for the task and returns its result.
    #[pyo3(signature = (function, /, *args, **kwargs))]
    fn run<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = function.py();
        if !lifecycle::is_active() {
            return function.call(args, kwargs);
        }
        let outer = of_context(py)?;
        set_of_context(py, Some(&self.scope))?;
        let mark = resume_in(py, Some(self.scope.clone_ref(py)));
        let result = function.call(args, kwargs);
        suspend_in(mark);
        set_of_context(py, outer.as_ref())?;
        result
    }

    /// Sets the size of the task's result, in bytes, while the task runs.
    pub(crate) fn result_bytes(&self, size: i128) -> PyResult<()> {
        let size = crate::text::count(size, 0, "size")?;
        self.scope.get().task.result_bytes(size);
        Ok(())
    }

    /// Sets the type of the task's result while the task runs.
    pub(crate) fn result_type(&self, name: &Bound<'_, pyo3::types::PyString>) {
        self.scope.get().task.result_type(crate::text::lossy(name));
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let py = slf.py();
        if lifecycle::is_active() {
            let scope = Scope {
                handle: slf.as_ptr().addr(),
                ..Scope::of_task(slf.get().task(), innermost(py)?)
            };
            enter(py, &Py::new(py, scope)?)?;
        }
        Ok(slf)
    }

    fn __exit__(
        slf: Bound<'_, Self>,
        _class: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let py = slf.py();
        if let Some(scope) = entered_by(py, innermost(py)?, slf.as_ptr().addr()) {
            leave(py, &scope)?;
        }
        Ok(false)
    }

    fn __repr__(&self) -> String {
        let name = self.name();
        name.map_or_else(
            || "<TaskHandle, empty>".to_owned(),
            |name| format!("<TaskHandle of {name:?}>"),
        )
    }
}

/// Returns a handle for work that this thread hands to a pool; `None` if it is in no task.
#[pyfunction]
pub(crate) fn handle_for_pool(py: Python<'_>) -> PyResult<Option<TaskHandle>> {
    let scope = innermost(py)?.or_else(|| entered::innermost(py));
    Ok(scope.map(|scope| TaskHandle { scope }))
}

/// Returns a handle of the current task, to hand it to other threads. Empty if there is none.
///
/// ```text
/// >>> current_task()
/// <TaskHandle, empty>
///
/// ```
#[pyfunction]
pub(crate) fn current_task(py: Python<'_>) -> PyResult<TaskHandle> {
    match innermost(py)? {
        Some(scope) => Ok(TaskHandle { scope }),
        None => TaskHandle::empty(py),
    }
}
