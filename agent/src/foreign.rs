//! Frames of interpreters, such as CPython, in the stacks of their threads.
//!
//! A library that knows how an interpreter keeps its frames implements [`FrameWalker`], and passes it to
//! [`AgentBuilder::frame_walker`](crate::AgentBuilder::frame_walker). Stacks then have the interpreter's functions in the
//! place of the native code that runs them.

use std::fmt;

pub use system::foreign::{ForeignFrame, ForeignName, FrameWalker, Walk};

/// The walker of this process.
#[derive(Clone, Copy)]
pub(crate) struct Walker(pub(crate) &'static dyn FrameWalker);

impl fmt::Debug for Walker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Walker")
    }
}
