//! Frames of interpreters: what the agent asks of a library that knows how an interpreter keeps its stack.

use std::ops::Range;

/// A frame of an interpreter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ForeignFrame {
    /// The address of the code object.
    pub code: u64,
    /// The address of the instruction, or another number that tells it.
    pub at: u64,
    /// An address within the native frame that runs this one, so that both stacks can be merged; 0 if unknown.
    pub anchor: u64,
}

/// The result of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Walk {
    /// Number of frames, the innermost first.
    pub frames: usize,
    /// Whether the last one is the outermost: neither was there too little room, nor unreadable memory.
    pub is_complete: bool,
}

/// The name of a frame.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ForeignName {
    /// The function, with its path.
    pub function: String,
    /// The source file; empty if unknown.
    pub file: String,
    /// The line in that file; 0 if unknown.
    pub line: u32,
}

/// A lock of an interpreter, which lets one thread at a time run its code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignLock {
    /// The name, such as `GIL`.
    pub name: &'static str,
    /// The innermost frame of the thread that holds it. `None` if no other thread does, or no frame can be read.
    pub holder: Option<ForeignFrame>,
}

/// Walks the stacks of an interpreter in this process.
///
/// The agent calls all but [`FrameWalker::walk_own`] from one thread, which must not wait for the interpreter.
pub trait FrameWalker: Sync {
    /// Walks the calling thread's frames, in a signal handler that has interrupted it anywhere.
    ///
    /// The implementation must be safe there: no allocation, no lock, no change of errno, no fault. `stack` is the part
    /// of the thread's native stack that is in use, as far as it is known; it may be read without a check.
    fn walk_own(&self, stack: Range<u64>, frames: &mut [ForeignFrame]) -> Walk;

    /// Walks the frames of a thread that is blocked, by checked reads: it may continue at any moment. The result is
    /// used only if it did not.
    fn walk_blocked(&self, thread_id: u32, frames: &mut [ForeignFrame]) -> Walk;

    /// Sets for each address of code, of as many, a number that changes when other code gets that address; 0 if there is
    /// no code any more.
    fn identities(&self, codes: &[u64], identities: &mut [u64]);

    /// The name of a frame; `None` if its code is gone.
    fn name(&self, frame: ForeignFrame) -> Option<ForeignName>;

    /// The interpreter's lock that has a futex at this address, on which the thread waits. Called after a walk of that
    /// thread. The holder may run meanwhile, so it is read by checked reads.
    fn lock(&self, thread_id: u32, futex: u64) -> Option<ForeignLock>;

    /// The code of the interpreter's loop if each of its native frames runs one frame of the interpreter: divides frames
    /// without an anchor. Empty if frames have anchors.
    fn frame_loop(&self) -> Range<u64> {
        0..0
    }

    /// Whether a module is the interpreter itself, whose native frames between those of the interpreter are hidden.
    fn is_interpreter(&self, module: &str) -> bool;
}
