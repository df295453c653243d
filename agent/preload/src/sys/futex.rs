//! Waiting for a change of a word, without a clock: a thread of the program may not be allowed to read one.

use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Waits until the word is woken, at most this long, if it has the value `while_it_is`.
pub(crate) fn wait(word: &AtomicU32, while_it_is: u32, at_most: Duration) {
    let time = libc::timespec {
        tv_sec: at_most.as_secs().cast_signed(),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: both pointers are valid for the call. However it returns, the caller looks at the word.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation,
            while_it_is,
            &raw const time,
            ptr::null::<u32>(),
            0,
        )
    };
}

/// Wakes all that wait.
pub(crate) fn wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the pointer is valid for the call, which only compares it with those of waiting threads.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
}
