//! Calls that change the user or the capabilities of threads.
//!
//! The C library changes the user of all threads, and ends a process in which some may and some may not. So threads of
//! ours that have other capabilities than the program's end before such a call.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{gid_t, size_t, uid_t};

use super::confine::alone;
use super::missing;
use crate::lifecycle;
use crate::sys::next::Next;
use crate::sys::process::Capabilities;

// SAFETY: the type of the C library's function.
static CAPSET: Next<unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int> =
    unsafe { Next::new(c"capset") };

/// Whether a thread of the program has other effective capabilities than it had when the agent started.
static DIFFERS: AtomicBool = AtomicBool::new(false);

/// Makes a call that changes the capabilities of the calling thread. Programs switch some of them for each request, but
/// what they give up for good, the agent's threads must not keep.
pub(super) fn change_capabilities<R: Into<i64> + Copy>(call: impl FnOnce() -> R) -> R {
    if lifecycle::is_confined() {
        return call();
    }
    let before = Capabilities::of_thread();
    let result = call();
    if result.into() == 0 {
        DIFFERS.store(true, Ordering::Relaxed);
        if Capabilities::of_thread().permitted != before.permitted {
            alone(|| DIFFERS.store(false, Ordering::Relaxed));
        }
    }
    result
}

/// # Safety
/// As the C library's.
// SAFETY: a function of this name is expected by programs, with these arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn capset(header: *mut c_void, data: *const c_void) -> c_int {
    let Some(capset) = CAPSET.get() else {
        return missing();
    };
    // SAFETY: as called.
    change_capabilities(|| unsafe { capset(header, data) })
}

/// Defines functions that change the user of all threads, and their list.
macro_rules! change_user {
    ($($name:ident($($argument:ident: $kind:ty),*), $next:ident;)*) => {
        $(
            static $next: Next<unsafe extern "C" fn($($kind),*) -> c_int> =
                // SAFETY: the type of the C library's function.
                unsafe { Next::new(crate::sys::next::name(concat!(stringify!($name), "\0"))) };

            /// # Safety
            /// As the C library's.
            // SAFETY: a function of this name is expected by programs, with these arguments.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                let Some(change) = $next.get() else {
                    return missing();
                };
                // SAFETY: as called.
                let call = || unsafe { change($($argument),*) };
                if DIFFERS.swap(false, Ordering::Relaxed) {
                    alone(call)
                } else {
                    call()
                }
            }
        )*

        pub(super) fn resolve() {
            CAPSET.resolve();
            $($next.resolve();)*
        }
    };
}

change_user! {
    setuid(user: uid_t), SETUID;
    setgid(group: gid_t), SETGID;
    seteuid(user: uid_t), SETEUID;
    setegid(group: gid_t), SETEGID;
    setreuid(real: uid_t, effective: uid_t), SETREUID;
    setregid(real: gid_t, effective: gid_t), SETREGID;
    setresuid(real: uid_t, effective: uid_t, saved: uid_t), SETRESUID;
    setresgid(real: gid_t, effective: gid_t, saved: gid_t), SETRESGID;
    setgroups(count: size_t, groups: *const gid_t), SETGROUPS;
    initgroups(user: *const c_char, group: gid_t), INITGROUPS;
}
