//! `emberline.task`: a task for a `with` block, and the description from which decorators start one at each call.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent::{DetachedTask, TaskBuilder};
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;

use crate::entered;
use crate::lifecycle;
use crate::scopes::{self, Scope, TaskHandle};
use crate::text::{self, Label};

/// The properties of a task at its start.
#[derive(Default)]
struct Description {
    name: String,
    key: Option<String>,
    attempt: Option<u32>,
    labels: Vec<Label>,
    parent: Option<agent::TaskHandle>,
    queued: Option<Duration>,
    earlier: Vec<EarlierPhase>,
}

/// A phase before the start of the task.
struct EarlierPhase {
    name: String,
    ago: Duration,
    length: Duration,
}

impl EarlierPhase {
    /// Reads `(name, seconds before the start, seconds)`.
    fn of(interval: (Bound<'_, PyAny>, f64, f64)) -> PyResult<EarlierPhase> {
        let (name, ago, length) = interval;
        Ok(EarlierPhase {
            name: text::name(&name, "name of a phase")?,
            ago: text::seconds(ago, "start of a phase")?,
            length: text::seconds(length, "length of a phase")?,
        })
    }
}

impl Description {
    fn builder(&self) -> TaskBuilder {
        let mut builder = agent::task(&self.name);
        if let Some(key) = &self.key {
            builder = builder.key(key);
        }
        if let Some(attempt) = self.attempt {
            builder = builder.attempt(attempt);
        }
        if let Some(parent) = &self.parent {
            builder = builder.parent(parent);
        }
        if let Some(queued) = self.queued {
            builder = builder.queued_for(queued);
        }
        for EarlierPhase { name, ago, length } in &self.earlier {
            builder = builder.earlier_phase(name.as_str(), *ago, *length);
        }
        for Label { key, value } in &self.labels {
            builder = builder.label(key, value);
        }
        builder
    }
}

/// A task that runs, with its scope.
pub(crate) struct RunningTask {
    task: DetachedTask,
    pub(crate) scope: OpenScope,
}

/// The scope of a task, which ends with it.
pub(crate) struct OpenScope(Py<Scope>);

impl Deref for OpenScope {
    type Target = Py<Scope>;

    fn deref(&self) -> &Py<Scope> {
        &self.0
    }
}

impl Drop for OpenScope {
    fn drop(&mut self) {
        Python::attach(|py| self.0.get().end(py));
    }
}

impl RunningTask {
    /// Ends the task. `error` is the exception that left it.
    pub(crate) fn end(self, error: Option<&Bound<'_, PyAny>>) {
        Python::attach(|py| entered::end_phases_of(py, &self.scope));
        match error {
            None => self.task.end(),
            Some(error) if error.is_instance_of::<PyException>() => self.task.fail(cause(error)),
            // Such as `asyncio.CancelledError`, `GeneratorExit` and `KeyboardInterrupt`.
            Some(_) => self.cancel(),
        }
    }

    pub(crate) fn cancel(self) {
        Python::attach(|py| entered::end_phases_of(py, &self.scope));
        self.task.cancel();
    }
}

/// Returns the text of an exception, as in the last line of a traceback.
pub(crate) fn cause(error: &Bound<'_, PyAny>) -> String {
    let type_name = error.get_type().name();
    let class = type_name.map_or_else(|_| "exception".to_owned(), |name| text::lossy(&name));
    match text::of_object(error) {
        Ok(text) if !text.is_empty() => format!("{class}: {text}"),
        _ => class,
    }
}

/// How a task is pickled: a function, and its arguments.
type Pickled<'py> = (
    Bound<'py, PyAny>,
    (
        String,
        Option<String>,
        Option<u32>,
        BTreeMap<String, String>,
    ),
);

enum State {
    New,
    /// `None` if no agent runs.
    Running(Option<RunningTask>),
    Ended,
}

/// A task: `with task("load"):`, or `@task("load")` above a function, a generator or a coroutine.
///
/// Samples of the thread belong to the innermost task. A task follows `await`, `asyncio.to_thread`,
/// `run_in_executor` and thread pools. It ends as `failed` if an exception leaves it, with the exception as its
/// cause, and as `cancelled` by those that are no `Exception`, such as `asyncio.CancelledError`. A coroutine that a
/// decorated function returns is part of its task; of other results, such as futures and iterators, only the call is.
///
/// `key` identifies the task within its name, `attempt` counts from 1, `labels` is a mapping, `parent` a handle
/// (default: the current task), and `queued_for` the seconds that it waited. `earlier_phases` are those before the
/// start, such as the transfer of its input: name, seconds before the start, and length in seconds of each.
///
/// A decorated generator or coroutine is inside its task while it runs, and not while it waits. With an event loop
/// that is not asyncio's own, such as uvloop, decorate coroutines: a `with` block with `await` in it would give the
/// task's samples to others.
///
/// ```text
/// >>> with task("load", key="load-17", attempt=2, labels={"role": "reader"}) as load:
/// ...     load.result_bytes(1_000)
/// >>> @task("count")
/// ... def count(limit):
/// ...     yield from range(limit)
/// >>> list(count(3))
/// [0, 1, 2]
///
/// ```
#[pyclass(frozen, name = "task", module = "emberline")]
pub(crate) struct Task {
    description: Arc<Description>,
    state: Mutex<State>,
}

impl Task {
    fn of(description: Arc<Description>) -> Task {
        Task {
            description,
            state: Mutex::new(State::New),
        }
    }

    /// Starts a task inside the context's innermost scope.
    pub(crate) fn begin(&self, py: Python<'_>) -> PyResult<Option<RunningTask>> {
        if !lifecycle::is_active() {
            return Ok(None);
        }
        let outer = scopes::innermost(py)?;
        let task = self.description.builder().detached();
        let scope = OpenScope(Py::new(py, Scope::of_task(task.handle(), outer))?);
        Ok(Some(RunningTask { task, scope }))
    }

    /// Returns the task that runs, whose end is up to the caller.
    pub(crate) fn take_running(&self) -> Option<RunningTask> {
        match self.exchange(State::Ended) {
            State::Running(running) => running,
            state => {
                self.exchange(state);
                None
            }
        }
    }

    fn exchange(&self, state: State) -> State {
        let mut current = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, state)
    }

    fn is_new(&self) -> bool {
        let current = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*current, State::New)
    }

    fn scope(&self, py: Python<'_>) -> Option<Py<Scope>> {
        let current = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            State::Running(Some(running)) => Some(running.scope.clone_ref(py)),
            _ => None,
        }
    }
}

#[pymethods]
impl Task {
    #[new]
    #[pyo3(signature = (name, *, key=None, attempt=None, labels=None, parent=None, queued_for=None,
        earlier_phases=None))]
    fn new(
        name: &Bound<'_, PyAny>,
        key: Option<&Bound<'_, PyAny>>,
        attempt: Option<&Bound<'_, PyAny>>,
        labels: Option<&Bound<'_, PyAny>>,
        parent: Option<&Bound<'_, TaskHandle>>,
        queued_for: Option<f64>,
        earlier_phases: Option<Vec<(Bound<'_, PyAny>, f64, f64)>>,
    ) -> PyResult<Task> {
        let has_name_only = key.is_none()
            && attempt.is_none()
            && labels.is_none()
            && parent.is_none()
            && queued_for.is_none()
            && earlier_phases.is_none();
        if has_name_only {
            return named::description(name).map(Task::of);
        }
        let description = Description {
            name: text::name(name, "name of a task")?,
            key: key.map(text::of_object).transpose()?,
            attempt: attempt.map(text::attempt).transpose()?,
            labels: text::labels(labels)?,
            parent: parent.map(|handle| handle.get().task()),
            queued: queued_for
                .map(|length| text::seconds(length, "queued_for"))
                .transpose()?,
            earlier: earlier_phases
                .into_iter()
                .flatten()
                .map(EarlierPhase::of)
                .collect::<PyResult<_>>()?,
        };
        Ok(Task::of(Arc::new(description)))
    }

    /// Makes each call of a function, generator or coroutine a task of this description.
    fn __call__(slf: Bound<'_, Self>, function: Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        static DECORATE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = slf.py();
        let find = || {
            let module = py.import("emberline._tasks")?;
            module.getattr("decorate").map(Bound::unbind)
        };
        DECORATE
            .get_or_try_init(py, find)?
            .call1(py, (slf, function))
    }

    /// Returns a new task of the same description.
    fn again(&self) -> Task {
        Task::of(self.description.clone())
    }

    /// Pickles a task of the same description, without its parent and what was before its start: decorated functions are
    /// sent to other processes.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Pickled<'py>> {
        let restore = slf.py().import("emberline._tasks")?.getattr("restore")?;
        let Description {
            name,
            key,
            attempt,
            labels,
            ..
        } = &*slf.get().description;
        let labels = labels
            .iter()
            .map(|label| (label.key.clone(), label.value.clone()));
        let arguments = (name.clone(), key.clone(), *attempt, labels.collect());
        Ok((restore, arguments))
    }

    /// The name of the task.
    #[getter]
    fn name(&self) -> &str {
        &self.description.name
    }

    /// A handle for other threads that work for this task; empty unless it runs.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<TaskHandle> {
        match self.scope(py) {
            Some(scope) => Ok(TaskHandle { scope }),
            None => TaskHandle::empty(py),
        }
    }

    /// Sets the size of the task's result, in bytes, while the task runs.
    fn result_bytes(&self, py: Python<'_>, size: i128) -> PyResult<()> {
        self.handle(py)?.result_bytes(size)
    }

    /// Sets the type of the task's result while the task runs.
    fn result_type(&self, py: Python<'_>, name: &Bound<'_, PyString>) -> PyResult<()> {
        self.handle(py)?.result_type(name);
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let py = slf.py();
        let task = slf.get();
        if !task.is_new() {
            let error = "this task has started already; call emberline.task again for another one";
            return Err(PyRuntimeError::new_err(error));
        }
        let running = task.begin(py)?;
        if let Some(running) = &running {
            scopes::enter(py, &running.scope)?;
        }
        task.exchange(State::Running(running));
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        if let Some(running) = self.take_running() {
            scopes::leave(py, &running.scope)?;
            running.end((!error.is_none()).then_some(error));
        }
        Ok(false)
    }

    fn __repr__(&self) -> String {
        format!("<emberline.task {:?}>", self.description.name)
    }
}

/// Descriptions that have a name only, kept for the next task: most names are constants of the program.
mod named {
    use super::*;

    /// Names that are kept, by their address.
    const NAMES: usize = 64;

    struct Named {
        /// It lives as long as this, so that no other object has its address.
        name: Py<PyString>,
        description: Arc<Description>,
    }

    static RECENT: Mutex<[Option<Named>; NAMES]> = Mutex::new([const { None }; NAMES]);

    pub(super) fn description(name: &Bound<'_, PyAny>) -> PyResult<Arc<Description>> {
        let slot = (name.as_ptr().addr() >> 4) % NAMES;
        let recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(named) = recent[slot].as_ref().filter(|named| named.name.is(name)) {
            return Ok(named.description.clone());
        }
        drop(recent);
        let description = Arc::new(Description {
            name: text::name(name, "name of a task")?,
            ..Description::default()
        });
        // The end of a subclass's object would run Python code.
        if let Ok(exact) = name.cast_exact::<PyString>() {
            let named = Named {
                name: exact.clone().unbind(),
                description: description.clone(),
            };
            RECENT.lock().unwrap_or_else(PoisonError::into_inner)[slot] = Some(named);
        }
        Ok(description)
    }
}
