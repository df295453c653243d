//! Ends of the process without the library's destructor.

use std::ffi::c_int;

use crate::lifecycle;
use crate::sys::next::Next;

type End = unsafe extern "C" fn(c_int) -> !;

// SAFETY: three functions of this type.
static EXIT: Next<End> = unsafe { Next::new(c"_exit") };
// SAFETY: as above.
static EXIT_OF_C: Next<End> = unsafe { Next::new(c"_Exit") };
// SAFETY: as above.
static QUICK_EXIT: Next<End> = unsafe { Next::new(c"quick_exit") };

pub(super) fn resolve() {
    EXIT.resolve();
    EXIT_OF_C.resolve();
    QUICK_EXIT.resolve();
}

fn end(next: &Next<End>, status: c_int) -> ! {
    lifecycle::ends_with(status);
    lifecycle::finish();
    lifecycle::leave_memory();
    if let Some(end) = next.get() {
        // SAFETY: takes a plain number.
        unsafe { end(status) }
    }
    loop {
        // SAFETY: ends the process and does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// # Safety
/// As the C library's.
// SAFETY: a function of this name is expected by programs, with these arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    end(&EXIT, status)
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    end(&EXIT_OF_C, status)
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    end(&QUICK_EXIT, status)
}
