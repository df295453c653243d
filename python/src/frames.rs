//! The walker of this process's interpreter.

use std::sync::OnceLock;

use pyo3::prelude::*;
use stacks::{Interpreter, Unsupported};

static INTERPRETER: OnceLock<Result<Interpreter, Unsupported>> = OnceLock::new();

/// Finds the interpreter, once. `function` is the Python function that calls this. Returns why Python functions cannot
/// be shown, or `None` if they can.
#[pyfunction]
pub(crate) fn find_interpreter(function: &str) -> Option<String> {
    let found = INTERPRETER.get_or_init(|| {
        let interpreter = Interpreter::find()?;
        interpreter.verify(function)?;
        Ok(interpreter)
    });
    found.as_ref().err().map(Unsupported::to_string)
}

/// The walker, if the interpreter was found.
pub(crate) fn walker() -> Option<&'static Interpreter> {
    INTERPRETER.get()?.as_ref().ok()
}
