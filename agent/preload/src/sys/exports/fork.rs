//! New processes. A child has none of the parent's threads, so it gets a keeper of its own.
//!
//! Not in a handler of `pthread_atfork`: those of allocators may run after it, and the start of a thread
//! allocates. When the C library's function has returned, all handlers have run, the agent's too.

use std::ffi::{c_char, c_int, c_void};

use nix::errno::Errno;

use super::missing;
use crate::lifecycle;
use crate::sys::next::Next;
use crate::sys::process;

type ForkPty =
    unsafe extern "C" fn(*mut c_int, *mut c_char, *const c_void, *const c_void) -> libc::pid_t;

// SAFETY: the type of the C library's function.
static FORK: Next<unsafe extern "C" fn() -> libc::pid_t> = unsafe { Next::new(c"fork") };
// SAFETY: the type of the C library's function.
static DAEMON: Next<unsafe extern "C" fn(c_int, c_int) -> c_int> = unsafe { Next::new(c"daemon") };

// SAFETY: the type of the C library's function.
static FORKPTY: Next<ForkPty> = unsafe { Next::new(c"forkpty") };

pub(super) fn resolve() {
    FORK.resolve();
    FORKPTY.resolve();
    DAEMON.resolve();
}

/// # Safety
/// As the C library's.
// SAFETY: a function of this name is expected by programs, with these arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> libc::pid_t {
    let Some(fork) = FORK.get() else {
        return missing();
    };
    // SAFETY: as called.
    forked(unsafe { fork() })
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkpty(
    controller: *mut c_int,
    name: *mut c_char,
    terminal: *const c_void,
    window: *const c_void,
) -> libc::pid_t {
    let Some(forkpty) = FORKPTY.get() else {
        return missing();
    };
    // SAFETY: as called.
    forked(unsafe { forkpty(controller, name, terminal, window) })
}

/// Returns the result of a call that forks.
fn forked(child: libc::pid_t) -> libc::pid_t {
    if child == 0 {
        let before = Errno::last_raw();
        lifecycle::in_child();
        Errno::set_raw(before);
    }
    child
}

/// The C library's own function ends the parent without a call that is seen here.
///
/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daemon(keep_folder: c_int, keep_streams: c_int) -> c_int {
    let Some(daemon) = DAEMON.get() else {
        return missing();
    };
    if lifecycle::is_confined() {
        // SAFETY: as called.
        return unsafe { daemon(keep_folder, keep_streams) };
    }
    let parent = process::id();
    let was_running = lifecycle::finish();
    // SAFETY: as called.
    let result = unsafe { daemon(keep_folder, keep_streams) };
    let before = Errno::last_raw();
    if process::id() != parent {
        lifecycle::in_child();
    } else if was_running {
        lifecycle::resume();
    }
    Errno::set_raw(before);
    result
}
