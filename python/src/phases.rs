//! `emberline.phase`.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::scopes::{self, Scope};
use crate::{lifecycle, text};

/// Puts the current task into a phase during a `with` block; it goes on while a coroutine waits.
///
/// ```text
/// >>> with task("load"), phase("disk-read"):
/// ...     pass
///
/// ```
#[pyclass(frozen, name = "Phase", module = "emberline._native")]
pub(crate) struct PhaseScope {
    name: String,
    scope: Mutex<Option<Py<Scope>>>,
}

impl PhaseScope {
    fn exchange(&self, scope: Option<Py<Scope>>) -> Option<Py<Scope>> {
        let mut current = self.scope.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, scope)
    }
}

#[pymethods]
impl PhaseScope {
    #[new]
    fn new(name: &Bound<'_, PyAny>) -> PyResult<PhaseScope> {
        Ok(PhaseScope {
            name: text::name(name, "name of a phase")?,
            scope: Mutex::default(),
        })
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let py = slf.py();
        if !lifecycle::is_active() {
            return Ok(slf);
        }
        if let Some(active) = slf.get().exchange(None) {
            slf.get().exchange(Some(active));
            let error = "this phase is active already; call emberline.phase again for another one";
            return Err(PyRuntimeError::new_err(error));
        }
        let scope = Scope::of_phase(py, slf.get().name.clone(), scopes::innermost(py)?);
        let scope = Py::new(py, scope)?;
        slf.get().exchange(Some(scope.clone_ref(py)));
        scopes::enter(py, &scope)?;
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        if let Some(scope) = self.exchange(None) {
            scopes::leave(py, &scope)?;
        }
        Ok(false)
    }
}
