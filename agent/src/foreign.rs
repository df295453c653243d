//! Frames of interpreters, such as CPython, in the stacks of their threads.
//!
//! A library that knows how an interpreter keeps its frames implements [`FrameWalker`], and passes it to [`set_walker`]
//! before an agent starts. Stacks then have the interpreter's functions in the place of the native code that runs them.

use std::fmt;
use std::sync::OnceLock;

pub use crate::task::{TaskPhase, ThreadTask};
pub use system::foreign::{ForeignFrame, ForeignLock, ForeignName, FrameWalker, Walk};

static WALKER: OnceLock<Walker> = OnceLock::new();

/// Shows the functions of an interpreter in the stacks of all agents that start from now on, also those of reports and
/// of forked children. A process has one walker: a later one changes nothing.
pub fn set_walker(walker: &'static dyn FrameWalker) {
    let _ = WALKER.set(Walker(walker));
}

/// Returns the walker of this process.
pub(crate) fn walker() -> Option<Walker> {
    WALKER.get().copied()
}

/// The walker of a process.
#[derive(Clone, Copy)]
pub(crate) struct Walker(pub(crate) &'static dyn FrameWalker);

impl fmt::Debug for Walker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Walker")
    }
}
