//! The border: what a call of the program returns, and the error of the thread's last call.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a call. `emberline_last_error` has the text of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum EmberlineStatus {
    /// It did what it says. Also for a handle of 0, for which there is nothing to do.
    Ok = 0,
    /// No agent runs, so nothing was recorded.
    NotRunning = 1,
    /// Another agent runs in this process: of this library, of another copy of it, or of `emberline record`.
    AlreadyRunning = 2,
    /// An argument is NULL, empty or out of bounds.
    InvalidArgument = 3,
    /// A text is not UTF-8.
    NotUtf8 = 4,
    /// A handle is of something that has ended, of another kind, or invented.
    InvalidHandle = 5,
    /// This thread has not entered the task, or is not in the phase.
    NotEntered = 6,
    /// Too much has begun and not ended.
    Limit = 7,
    /// The system did not let the agent start.
    StartFailed = 8,
    /// The collector did not answer in time.
    Timeout = 9,
    /// A bug in Emberline, which has done no harm to the program.
    Internal = 10,
}

pub(crate) use EmberlineStatus as Status;

/// Why a call did nothing, or not all of its work.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    text: CString,
}

impl Failure {
    pub(crate) fn new(status: Status, text: impl Display) -> Failure {
        let bytes = text.to_string().into_bytes();
        // A name of the program that is quoted has none, because it ended there.
        let text = CString::new(bytes).unwrap_or_default();
        Failure { status, text }
    }

    /// No agent runs. Allocates nothing, because every task of a program without an agent gets it.
    pub(crate) fn not_running() -> Failure {
        Failure {
            status: Status::NotRunning,
            text: CString::default(),
        }
    }

    fn text(&self) -> &CStr {
        match self.status {
            Status::NotRunning => c"no agent runs; call emberline_start first",
            _ => &self.text,
        }
    }
}

thread_local! {
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Keeps the error of this call, for [`last_status`] and [`last_error`].
fn set_last(failure: Option<Failure>) {
    // A thread whose locals are gone has no last error.
    let _ = LAST.try_with(|last| *last.borrow_mut() = failure);
}

/// Runs a call that returns a status.
pub(crate) fn status(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    run(body).map_or_else(|status| status, |()| Status::Ok)
}

/// Runs a call that returns a handle, which is 0 after an error.
pub(crate) fn handle(body: impl FnOnce() -> Result<u64, Failure>) -> u64 {
    run(body).unwrap_or(0)
}

fn run<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Status> {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        // It may panic when it is dropped.
        std::mem::forget(payload);
        let text = "the call panicked, which is a bug in Emberline";
        Err(Failure::new(Status::Internal, text))
    });
    match result {
        Ok(value) => {
            set_last(None);
            Ok(value)
        }
        Err(failure) => {
            let status = failure.status;
            set_last(Some(failure));
            Err(status)
        }
    }
}

/// The status of this thread's last call.
pub(crate) fn last_status() -> Status {
    let status = LAST.try_with(|last| last.borrow().as_ref().map(|failure| failure.status));
    status.ok().flatten().unwrap_or(Status::Ok)
}

/// The text of this thread's last error, until its next call; empty after a call without one.
pub(crate) fn last_error() -> *const c_char {
    let text = LAST.try_with(|last| {
        last.borrow()
            .as_ref()
            .map(|failure| failure.text().as_ptr())
    });
    text.ok().flatten().unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_and_a_panic_are_a_status_with_a_text() {
        let failed = status(|| Err(Failure::new(Status::Limit, "too many")));
        assert_eq!((failed, last_status()), (Status::Limit, Status::Limit));
        let silent = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        assert_eq!(handle(|| panic!("a bug")), 0);
        std::panic::set_hook(silent);
        assert_eq!(last_status(), Status::Internal);
        assert_eq!(handle(|| Ok(5)), 5);
        assert_eq!(last_status(), Status::Ok);
        assert_eq!(handle(|| Err(Failure::not_running())), 0);
        assert_eq!(last_status(), Status::NotRunning);
    }
}
