//! The signal masks of the agent's threads.

use nix::sys::signal::{SigSet, SigmaskHow};

/// Blocks all signals on this thread, and so on threads that it starts, until it is dropped: signals
/// to the process must be handled on a thread of the program, whose descriptors its handlers know.
pub struct BlockedSignals(Option<SigSet>);

impl BlockedSignals {
    /// Blocks all signals on this thread.
    pub fn block() -> Self {
        BlockedSignals(SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK).ok())
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // Restoring a mask that was valid cannot fail.
            let _ = before.thread_set_mask();
        }
    }
}
