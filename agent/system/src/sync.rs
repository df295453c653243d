//! Locks that outlive a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, even if another thread panicked while it held the lock: a panic of the agent must not affect
/// the host. The data behind the agent's locks changes atomically; at worst a count is wrong.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
