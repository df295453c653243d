//! Locks with a [rank](rank::Rank), which ignore poisoning.
//!
//! The type of a lock has its rank. Debug builds and simulations assert at each lock that the thread holds no lock of
//! the same or a later rank; in other builds the rank takes no memory and no time.
//!
//! A panic under a lock is a bug of Emberline. It interrupts the flush of one agent, whose loss account
//! shows it (`balanced: false`). Refusing all other agents from then on would lose more.

#[cfg(any(debug_assertions, feature = "simulation"))]
mod held;
#[cfg(not(any(debug_assertions, feature = "simulation")))]
#[path = "unchecked.rs"]
mod held;
pub mod rank;

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError};
use std::time::Duration;

use self::held::HeldRank;
use self::rank::Ranked;

/// A mutex of rank `R`.
#[derive(Default, Debug)]
pub struct Mutex<T, R> {
    inner: sync::Mutex<T>,
    rank: PhantomData<R>,
}

/// A readers-writer lock of rank `R`.
#[derive(Default, Debug)]
pub struct RwLock<T, R> {
    inner: sync::RwLock<T>,
    rank: PhantomData<R>,
}

/// Access to what a lock protects, until it is dropped.
#[derive(Debug)]
pub struct Guard<G> {
    // Unlocked first.
    guard: G,
    _held: HeldRank,
}

pub type MutexGuard<'a, T> = Guard<sync::MutexGuard<'a, T>>;

#[cfg(not(any(debug_assertions, feature = "simulation")))]
const _: () = {
    assert!(size_of::<Mutex<u64, rank::Tree>>() == size_of::<sync::Mutex<u64>>());
    assert!(size_of::<RwLock<u64, rank::Tree>>() == size_of::<sync::RwLock<u64>>());
    assert!(size_of::<MutexGuard<'_, u64>>() == size_of::<sync::MutexGuard<'_, u64>>());
};

impl<T, R> Mutex<T, R> {
    pub const fn new(value: T) -> Mutex<T, R> {
        Mutex {
            inner: sync::Mutex::new(value),
            rank: PhantomData,
        }
    }

    /// For a look at whether it is locked: in no order, because it never waits.
    pub fn try_lock(&self) -> sync::TryLockResult<sync::MutexGuard<'_, T>> {
        self.inner.try_lock()
    }
}

impl<T, R> RwLock<T, R> {
    pub const fn new(value: T) -> RwLock<T, R> {
        RwLock {
            inner: sync::RwLock::new(value),
            rank: PhantomData,
        }
    }

    /// As [`Mutex::try_lock`].
    pub fn try_write(&self) -> sync::TryLockResult<sync::RwLockWriteGuard<'_, T>> {
        self.inner.try_write()
    }
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

#[track_caller]
pub fn lock<T, R: Ranked>(mutex: &Mutex<T, R>) -> MutexGuard<'_, T> {
    let held = HeldRank::take(R::RANK);
    Guard {
        guard: mutex.inner.lock().unwrap_or_else(PoisonError::into_inner),
        _held: held,
    }
}

#[track_caller]
pub fn read<T, R: Ranked>(lock: &RwLock<T, R>) -> Guard<sync::RwLockReadGuard<'_, T>> {
    let held = HeldRank::take(R::RANK);
    Guard {
        guard: lock.inner.read().unwrap_or_else(PoisonError::into_inner),
        _held: held,
    }
}

#[track_caller]
pub fn write<T, R: Ranked>(lock: &RwLock<T, R>) -> Guard<sync::RwLockWriteGuard<'_, T>> {
    let held = HeldRank::take(R::RANK);
    Guard {
        guard: lock.inner.write().unwrap_or_else(PoisonError::into_inner),
        _held: held,
    }
}

/// Like [`write()`], while another lock of the same rank is held. Only for the union of several stores, which copies
/// from a store's part to its own: the union's comes second, and no store's is ever taken under it.
#[track_caller]
pub fn write_second<T, R: Ranked>(lock: &RwLock<T, R>) -> Guard<sync::RwLockWriteGuard<'_, T>> {
    let held = HeldRank::take_second(R::RANK);
    Guard {
        guard: lock.inner.write().unwrap_or_else(PoisonError::into_inner),
        _held: held,
    }
}

/// Asserts that the thread holds no lock but those that exist to let one use files at a time. Called before files are
/// read, written or synced.
#[track_caller]
pub fn before_io() {
    held::check_io();
}

/// Runs what another thread does in a simulation of several threads in one: it holds none of the caller's locks, and
/// must not take them.
#[cfg(feature = "simulation")]
pub fn as_another_thread(work: impl FnOnce()) {
    held::as_another_thread(work);
}

/// Wakes threads that wait under a [`Mutex`]. One that waits still counts as a holder of it, because it takes the
/// mutex again under all locks that it has.
#[derive(Default, Debug)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        is_waiting: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let Guard { guard, _held } = guard;
        let waited = self.0.wait_while(guard, is_waiting);
        Guard {
            guard: waited.unwrap_or_else(PoisonError::into_inner),
            _held,
        }
    }

    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        at_most: Duration,
        is_waiting: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let Guard { guard, _held } = guard;
        let waited = self.0.wait_timeout_while(guard, at_most, is_waiting);
        let (guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        Guard { guard, _held }
    }
}

#[cfg(test)]
mod tests;
