//! Locks that outlive a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after another thread panicked with the lock: the host must not feel a panic of ours.
/// What is behind the agent's locks changes whole, or leaves a wrong count at worst.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
