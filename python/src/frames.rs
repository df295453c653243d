//! The walker of this process's interpreter.

use std::sync::OnceLock;

use agent::foreign::set_walker;
use pyo3::prelude::*;
use stacks::{Interpreter, Unsupported};

static INTERPRETER: OnceLock<Result<Interpreter, Unsupported>> = OnceLock::new();

/// Finds the interpreter, once, for all agents of this process. `function` is the Python function that calls this.
/// Returns why Python functions cannot be shown, or `None` if they can.
#[pyfunction]
pub(crate) fn find_interpreter(function: &str) -> Option<String> {
    let found = INTERPRETER.get_or_init(|| {
        let interpreter = Interpreter::find()?;
        interpreter.verify(function)?;
        Ok(interpreter)
    });
    match found {
        Ok(interpreter) => {
            set_walker(interpreter);
            None
        }
        Err(unsupported) => Some(unsupported.to_string()),
    }
}
