//! Panics that unwind through a task, a span or a transfer.

use profiler_core::Outcome;

/// Whether the thread was unwinding already when something began: code of a destructor that a panic runs may end well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning {
    is_unwinding: bool,
}

impl Beginning {
    pub(crate) fn now() -> Beginning {
        Beginning {
            is_unwinding: std::thread::panicking(),
        }
    }

    /// Whether a panic that started since unwinds the thread.
    pub(crate) fn unwinds(self) -> bool {
        !self.is_unwinding && std::thread::panicking()
    }

    /// The outcome of what ends here because its guard is dropped.
    pub(crate) fn outcome(self) -> Outcome {
        if self.unwinds() {
            Outcome::Panicked
        } else {
            Outcome::Ok
        }
    }
}
