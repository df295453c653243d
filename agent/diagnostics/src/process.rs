//! Values that a forked child does not share with its parent.

use std::sync::OnceLock;

use emberline_agent::observe::fork_generation;

/// Most generations of forked processes with values of their own; deeper ones share the last.
const GENERATIONS_MAX: usize = 16;

/// A value of which each forked process has its own, because the parent's may be locked by a thread
/// that does not exist in the child.
pub(super) struct PerProcess<T>([OnceLock<T>; GENERATIONS_MAX]);

impl<T> PerProcess<T> {
    pub(super) const fn new() -> PerProcess<T> {
        PerProcess([const { OnceLock::new() }; GENERATIONS_MAX])
    }
}

impl<T: Default> PerProcess<T> {
    /// This process's value.
    pub(super) fn get(&self) -> &T {
        self.0[fork_generation().min(GENERATIONS_MAX - 1)].get_or_init(T::default)
    }
}
