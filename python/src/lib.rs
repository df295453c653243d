//! The native half of the Python package `emberline`. `package/emberline` has the other half: decorators, and hooks of
//! asyncio, thread pools and `fork`.
//!
//! ```text
//! task, phase ─▶ `scopes` (innermost scope of a context, scopes of a thread) ─▶ emberline_agent
//! start, stop ─▶ `lifecycle` ─▶ emberline_agent ─▶ `frames` (the functions of Python in stacks)
//! ```
//!
//! # Rules
//! - No thread of ours runs Python code, and none waits for the GIL.
//! - A lock is held only with the GIL, and never while Python code runs: so a forked child finds none of them taken.

mod entered;
mod errors;
mod frames;
mod lifecycle;
mod phases;
mod records;
mod scopes;
mod steps;
mod tasks;
mod text;

/// The module `emberline._native`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::entered::{exchange_entered, next_mark};
    #[pymodule_export]
    use crate::errors::{ReportError, StartError};
    #[pymodule_export]
    use crate::frames::find_interpreter;
    #[pymodule_export]
    use crate::lifecycle::{fork_in_child, is_active, mode, start, stop};
    #[pymodule_export]
    use crate::phases::PhaseScope;
    #[pymodule_export]
    use crate::records::{Report, Run, Transfer, expect, report, report_memory};
    #[pymodule_export]
    use crate::scopes::{TaskHandle, current_task, handle_for_pool, leave_since, resume, suspend};
    #[pymodule_export]
    use crate::steps::{Steps, rest};
    #[pymodule_export]
    use crate::tasks::Task;
}
