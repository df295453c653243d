//! The end of this library's agent for another one.

use crate::lifecycle;

/// Called by another copy of the agent that starts in this process, and is its agent from now on.
#[unsafe(no_mangle)]
pub extern "C" fn emberline_preload_hand_over() {
    lifecycle::hand_over();
}
