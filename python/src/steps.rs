//! Coroutines and generators as tasks, or as the rest of one: their steps run inside the task, on whatever thread, and the time between steps
//! is outside of it.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::scopes::{self, Scope};
use crate::tasks::{RunningTask, Task};

enum State {
    New,
    Waiting(Waiting),
    /// A step runs, or the last one has.
    Away,
}

/// The task between two steps.
struct Waiting {
    running: RunningTask,
    /// The innermost scope at the end of the last step.
    innermost: Option<Py<Scope>>,
}

impl Waiting {
    fn new(py: Python<'_>, running: RunningTask) -> Waiting {
        Waiting {
            innermost: Some(running.scope.clone_ref(py)),
            running,
        }
    }
}

/// Runs the steps of `inner`, a coroutine or generator, inside a task that starts at the first step.
#[pyclass(frozen, module = "emberline._native")]
pub(crate) struct Steps {
    task: Py<Task>,
    inner: Py<PyAny>,
    state: Mutex<State>,
    /// The result of `close` of `inner`.
    closed: Mutex<Option<Py<PyAny>>>,
}

impl Steps {
    fn new_in(task: Py<Task>, inner: Py<PyAny>, state: State) -> Steps {
        Steps {
            task,
            inner,
            state: Mutex::new(state),
            closed: Mutex::default(),
        }
    }

    fn exchange(&self, state: State) -> State {
        let mut current = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, state)
    }

    /// Returns the task for the next step; `None` without an agent.
    fn waiting(&self, py: Python<'_>) -> PyResult<Option<Waiting>> {
        match self.exchange(State::Away) {
            State::Waiting(waiting) => Ok(Some(waiting)),
            State::New => {
                let running = self.task.get().begin(py)?;
                Ok(running.map(|running| Waiting::new(py, running)))
            }
            State::Away => Ok(None),
        }
    }

    fn step<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        args: impl pyo3::call::PyCallArgs<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let inner = self.inner.bind(py);
        let Some(Waiting { running, innermost }) = self.waiting(py)? else {
            return inner.call_method1(method, args);
        };
        let outer = scopes::of_context(py)?;
        // A generator whose scope it was may have been closed elsewhere.
        let innermost = scopes::open_of(py, innermost);
        scopes::set_of_context(py, innermost.as_ref())?;
        let mark = scopes::resume_in(py, innermost);
        let result = inner.call_method1(method, args);
        let innermost = scopes::of_context(py)?;
        scopes::suspend_in(mark);
        scopes::set_of_context(py, outer.as_ref())?;
        match &result {
            Ok(_) if method != "close" => {
                self.exchange(State::Waiting(Waiting { running, innermost }));
            }
            Ok(_) => running.cancel(),
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => running.end(None),
            Err(error) => running.end(Some(error.value(py))),
        }
        result
    }
}

#[pymethods]
impl Steps {
    #[new]
    fn new(task: Py<Task>, inner: Py<PyAny>) -> Steps {
        Steps::new_in(task, inner, State::New)
    }

    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.step(py, "send", (py.None(),))
    }

    fn send<'py>(&self, value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.step(value.py(), "send", (value,))
    }

    #[pyo3(signature = (*error))]
    fn throw<'py>(&self, error: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        if error.is_empty() {
            return Err(PyValueError::new_err("throw() expected an exception"));
        }
        self.step(error.py(), "throw", error.clone())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let result = self.step(py, "close", ())?;
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        *closed = (!result.is_none()).then(|| result.unbind());
        Ok(())
    }

    /// The result of a closed generator, from Python 3.13 on; `yield from` drops it.
    #[getter]
    fn closed(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        closed.as_ref().map(|result| result.clone_ref(py))
    }
}

/// Takes the thread out of a task whose `with` block it is in; the task goes on in the steps of `inner`, which are
/// returned. `None` if the task does not run.
#[pyfunction]
pub(crate) fn rest(py: Python<'_>, task: Py<Task>, inner: Py<PyAny>) -> PyResult<Option<Steps>> {
    let Some(running) = task.get().take_running() else {
        return Ok(None);
    };
    scopes::step_out(py, &running.scope)?;
    let waiting = State::Waiting(Waiting::new(py, running));
    Ok(Some(Steps::new_in(task, inner, waiting)))
}
