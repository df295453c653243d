//! Exceptions of the package.

use agent::StartError as Cause;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::{PyErr, Python, create_exception};

create_exception!(
    emberline,
    StartError,
    PyRuntimeError,
    "The agent cannot run in this process. The program is unharmed, and it is not profiled."
);
create_exception!(
    emberline,
    ReportError,
    PyRuntimeError,
    "There is no report. The program is unharmed."
);

/// Returns `ValueError` for an invalid setting, and `StartError` if the process cannot have an agent.
pub(crate) fn of_start(cause: Cause) -> PyErr {
    let text = cause.to_string();
    match cause {
        Cause::AlreadyRunning
        | Cause::Unsupported { .. }
        | Cause::Spawn { .. }
        | Cause::AddressSpace { .. }
        | Cause::Clock { .. }
        | Cause::Panicked => StartError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

/// Returns `ReportError` with the reason as its `__cause__`, where there is one.
pub(crate) fn of_report(py: Python<'_>, error: agent::ReportError) -> PyErr {
    let report = ReportError::new_err(error.to_string());
    let cause = match error {
        agent::ReportError::Program { source, .. } => Some(PyErr::from(source)),
        agent::ReportError::Start { source } => Some(of_start(source)),
        _ => None,
    };
    report.set_cause(py, cause);
    report
}
