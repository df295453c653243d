//! Functions of the C library that programs call here first: those that end the process, make it another
//! program or another process, or forbid it what the agent needs. Each then calls the C library's own.
//!
//! All of them keep the meaning of the C library's functions, and none of them allocates or takes a lock.

#![expect(unreachable_pub, reason = "the loader finds them by their names")]

mod become_other;
mod confine;
mod end;
mod fork;

use std::ffi::{c_int, c_long};

use nix::errno::Errno;

use crate::lifecycle;

pub(super) fn resolve() {
    become_other::resolve();
    confine::resolve();
    end::resolve();
    fork::resolve();
    SYSCALL.resolve();
}

/// The error of a function that the C library lacks.
fn missing() -> c_int {
    Errno::ENOSYS.set();
    -1
}

type Syscall =
    unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

// SAFETY: it takes six numbers at most, whatever the call.
static SYSCALL: super::next::Next<Syscall> = unsafe { super::next::Next::new(c"syscall") };

/// Some programs make these calls without the C library's functions for them.
///
/// # Safety
/// As the C library's.
// SAFETY: a function of this name is expected by programs, with these arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let plain = || match SYSCALL.get() {
        // SAFETY: as called.
        Some(call) => unsafe { call(number, a, b, c, d, e, f) },
        None => missing().into(),
    };
    // The kernel reads the lower half of these, as the functions do.
    let flags = a as c_int;
    match number {
        libc::SYS_exit_group => {
            lifecycle::finish();
            plain()
        }
        libc::SYS_execve => {
            // SAFETY: as called.
            let result =
                unsafe { become_other::execve(a as *const _, b as *const _, c as *const _) };
            result.into()
        }
        libc::SYS_execveat => {
            let path = b as *const _;
            // SAFETY: as called.
            let result = unsafe {
                become_other::execveat(flags, path, c as *const _, d as *const _, e as c_int)
            };
            result.into()
        }
        libc::SYS_unshare if confine::needs_one_thread(flags) => confine::alone(plain),
        libc::SYS_setns | libc::SYS_capset => confine::alone(plain),
        libc::SYS_seccomp if confine::installs_filter(a as libc::c_uint) => {
            confine::confined(plain)
        }
        libc::SYS_prctl if flags == libc::PR_SET_SECCOMP => confine::confined(plain),
        _ => plain(),
    }
}
