//! Transfers, expected tasks, the program's own memory accounting, named runs and reports.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent::{Direction, ReportGuard, RunGuard, TransferGuard, expect_tasks, mark_run};
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::{self, ReportError};
use crate::lifecycle;
use crate::tasks::cause;
use crate::text;

fn take<T>(value: &Mutex<Option<T>>) -> Option<T> {
    value.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A transfer between this process and another end, during a `with` block.
///
/// ```text
/// >>> with transfer("incoming", "worker-2", keys=["x-1"], type_name="Matrix") as matrix:
/// ...     matrix.add_bytes(1_000)
///
/// ```
#[pyclass(frozen, module = "emberline._native")]
pub(crate) struct Transfer {
    direction: Direction,
    peer: String,
    keys: Vec<String>,
    type_name: Option<String>,
    lasted: Duration,
    guard: Mutex<Option<TransferGuard>>,
}

impl Transfer {
    fn with(&self, change: impl FnOnce(&mut TransferGuard)) {
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(guard) = &mut *guard {
            change(guard);
        }
    }
}

#[pymethods]
impl Transfer {
    #[new]
    #[pyo3(signature = (direction, peer, *, keys=Vec::new(), type_name=None, lasted=0.0))]
    fn new(
        direction: &Bound<'_, PyString>,
        peer: &Bound<'_, PyAny>,
        keys: Vec<Bound<'_, PyAny>>,
        type_name: Option<&Bound<'_, PyString>>,
        lasted: f64,
    ) -> PyResult<Transfer> {
        let direction = match &*text::lossy(direction) {
            "incoming" => Direction::Incoming,
            "outgoing" => Direction::Outgoing,
            other => {
                let error = format!("invalid direction {other:?}; expected incoming or outgoing");
                return Err(PyValueError::new_err(error));
            }
        };
        Ok(Transfer {
            direction,
            peer: text::name(peer, "peer of a transfer")?,
            keys: keys.iter().map(text::of_object).collect::<PyResult<_>>()?,
            type_name: type_name.map(text::lossy),
            lasted: text::seconds(lasted, "lasted")?,
            guard: Mutex::default(),
        })
    }

    /// Adds bytes, as the program sees them.
    fn add_bytes(&self, size: i128) -> PyResult<()> {
        let size = text::count(size, 0, "size")?;
        self.with(|guard| guard.add_bytes(size));
        Ok(())
    }

    /// Adds bytes as they crossed the link, if compression makes that another number.
    fn add_compressed_bytes(&self, size: i128) -> PyResult<()> {
        let size = text::count(size, 0, "size")?;
        self.with(|guard| guard.add_compressed_bytes(size));
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        let this = slf.get();
        let mut builder = agent::transfer(this.direction, &this.peer);
        for key in &this.keys {
            builder = builder.key(key);
        }
        if let Some(type_name) = &this.type_name {
            builder = builder.type_name(type_name);
        }
        *this.guard.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(builder.start_after(this.lasted));
        slf
    }

    fn __exit__(
        &self,
        _class: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> bool {
        if let Some(guard) = take(&self.guard) {
            if error.is_none() {
                drop(guard);
            } else if error.is_instance_of::<PyException>() {
                guard.fail(cause(error));
            } else {
                guard.cancel();
            }
        }
        false
    }
}

/// Announces further tasks of a name, so that the collector shows how far the fleet is.
///
/// ```text
/// >>> expect("load", 20)
///
/// ```
#[pyfunction]
pub(crate) fn expect(name: &Bound<'_, PyAny>, tasks: i128) -> PyResult<()> {
    let name = text::name(name, "name of a task")?;
    expect_tasks(name, text::count(tasks, 0, "number of tasks")?);
    Ok(())
}

/// Reports how much data the program keeps in memory by its own count, and how much of it it has spilled to disk, both
/// in bytes. The resources of the process show the latest values.
///
/// ```text
/// >>> report_memory(1_000_000, 0)
///
/// ```
#[pyfunction]
pub(crate) fn report_memory(managed: i128, spilled: i128) -> PyResult<()> {
    let managed = text::count(managed, 0, "number of managed bytes")?;
    let spilled = text::count(spilled, 0, "number of spilled bytes")?;
    agent::report_memory(managed, spilled);
    Ok(())
}

/// A period that has a name, during a `with` block.
///
/// ```text
/// >>> with mark_run("nightly"):
/// ...     pass
///
/// ```
#[pyclass(frozen, module = "emberline._native")]
pub(crate) struct Run {
    name: String,
    guard: Mutex<Option<RunGuard>>,
}

#[pymethods]
impl Run {
    #[new]
    fn new(name: &Bound<'_, PyAny>) -> PyResult<Run> {
        Ok(Run {
            name: text::name(name, "name of a run")?,
            guard: Mutex::default(),
        })
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        let this = slf.get();
        let guard = mark_run(&this.name);
        *this.guard.lock().unwrap_or_else(PoisonError::into_inner) = Some(guard);
        slf
    }

    fn __exit__(
        &self,
        _class: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> bool {
        drop(take(&self.guard));
        false
    }
}

/// A report under way, which the end of the `with` block writes.
#[pyclass(frozen, module = "emberline._native")]
pub(crate) struct Report {
    guard: Mutex<Option<ReportGuard>>,
}

#[pymethods]
impl Report {
    /// Writes the report and returns its path. Raises `ReportError` if there is none.
    fn finish(&self, py: Python<'_>) -> PyResult<PathBuf> {
        let Some(guard) = take(&self.guard) else {
            return Err(ReportError::new_err("this report is finished already"));
        };
        end_of_recording(py)?;
        py.detach(|| guard.finish())
            .map_err(|error| errors::of_report(py, error))
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Writes the report unless that has happened. An error is one line on standard error.
    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        if let Some(guard) = take(&self.guard) {
            end_of_recording(py)?;
            py.detach(|| drop(guard));
        }
        Ok(false)
    }
}

/// Removes the hooks unless an agent or another report needs them.
fn end_of_recording(py: Python<'_>) -> PyResult<()> {
    lifecycle::release();
    py.import("emberline._hooks")?.call_method0("remove")?;
    Ok(())
}

/// Starts a report of everything until its `with` block or `finish()`: an HTML file, with JSON next to it. The program
/// `emberline` writes it.
#[pyfunction]
pub(crate) fn report(py: Python<'_>, file: PathBuf) -> Report {
    let guard = py.detach(|| agent::report(file));
    lifecycle::acquire();
    Report {
        guard: Mutex::new(Some(guard)),
    }
}
