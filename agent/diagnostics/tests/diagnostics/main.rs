//! Local diagnostics from outside: callbacks, runs, profilers and pictures, with real tasks and no
//! agent. Callbacks see all tasks of their process, so these tests take turns.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod callbacks;
mod pictures;
mod profilers;
mod runs;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    lock(&TURN)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calls of callbacks, in order.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn push(&self, line: impl Into<String>) {
        lock(&self.0).push(line.into());
    }

    /// Takes the calls since the last time.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0))
    }
}
