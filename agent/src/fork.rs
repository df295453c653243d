//! The agent in a forked child. None of its threads run there, and its locks may be held forever by
//! threads that do not exist in the child. So a child uses tables of its own ([`PerProcess`]) and
//! stays silent until it starts its own agent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

use crate::wanted;
use system::fork::call_in_forked_children;

/// Most generations of forked processes that get tables of their own; deeper ones share the last.
const GENERATIONS_MAX: usize = 16;

static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// A value of which each forked process has its own, because the parent's may be locked by a thread
/// that does not exist in the child.
pub(crate) struct PerProcess<T>([OnceLock<T>; GENERATIONS_MAX]);

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess([const { OnceLock::new() }; GENERATIONS_MAX])
    }
}

impl<T: Default> PerProcess<T> {
    /// This process's value.
    pub(crate) fn get(&self) -> &T {
        self.0[generation()].get_or_init(T::default)
    }
}

/// The number of forks between the first process and this one.
pub(crate) fn generation() -> usize {
    GENERATION.load(Ordering::Relaxed).min(GENERATIONS_MAX - 1)
}

/// Registers the fork handler, once.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| call_in_forked_children(reset_in_child));
}

/// Runs in a forked child before `fork` returns: only atomics may be touched.
extern "C" fn reset_in_child() {
    wanted::reset();
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
