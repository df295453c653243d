//! Calls that a process with several threads may not make, and calls after which the agent's threads could
//! harm the program.

use std::ffi::{c_int, c_long, c_uint, c_ulong};

use nix::errno::Errno;

use super::missing;
use crate::image::Obstacle;
use crate::lifecycle;
use crate::sys::foreign::soft_limit;
use crate::sys::next::Next;

type Prctl = unsafe extern "C" fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;
type SetLimit = unsafe extern "C" fn(c_uint, *const libc::rlimit) -> c_int;
type Limit =
    unsafe extern "C" fn(libc::pid_t, c_uint, *const libc::rlimit, *mut libc::rlimit) -> c_int;

// SAFETY: the type of the C library's function.
static UNSHARE: Next<unsafe extern "C" fn(c_int) -> c_int> = unsafe { Next::new(c"unshare") };
// SAFETY: the type of the C library's function.
static SETNS: Next<unsafe extern "C" fn(c_int, c_int) -> c_int> = unsafe { Next::new(c"setns") };
// SAFETY: it takes four numbers at most after the first one, whatever the operation.
static PRCTL: Next<Prctl> = unsafe { Next::new(c"prctl") };
// SAFETY: the type of the C library's function, of both names on 64 bits.
static SET_LIMIT: Next<SetLimit> = unsafe { Next::new(c"setrlimit") };
// SAFETY: as above.
static LIMIT: Next<Limit> = unsafe { Next::new(c"prlimit") };

pub(super) fn resolve() {
    UNSHARE.resolve();
    SETNS.resolve();
    PRCTL.resolve();
    SET_LIMIT.resolve();
    LIMIT.resolve();
}

/// Whether the kernel refuses these flags of `unshare` to a process with several threads.
pub(super) fn needs_one_thread(flags: c_int) -> bool {
    let alone = libc::CLONE_NEWUSER | libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
    flags & alone != 0
}

/// Whether the operation of `seccomp` confines, with a filter at this address. Programs ask whether there are filters by
/// one without an address.
pub(super) fn installs_filter(operation: c_uint, filter: usize) -> bool {
    match operation {
        libc::SECCOMP_SET_MODE_STRICT => true,
        libc::SECCOMP_SET_MODE_FILTER => filter != 0,
        _ => false,
    }
}

/// Whether `prctl` confines, with this mode and a filter at this address.
pub(super) fn confines(option: c_int, mode: c_ulong, filter: usize) -> bool {
    let is_filter = mode == c_ulong::from(libc::SECCOMP_MODE_FILTER);
    option == libc::PR_SET_SECCOMP && (!is_filter || filter != 0)
}

/// Makes a call while the agent has no threads.
pub(super) fn alone<R>(call: impl FnOnce() -> R) -> R {
    let was_stopped = lifecycle::stop();
    let result = call();
    let before = Errno::last_raw();
    if was_stopped {
        lifecycle::resume();
    }
    Errno::set_raw(before);
    result
}

/// Makes a call that the kernel may refuse to a process with several threads: then again, without the agent's.
pub(super) fn alone_if_refused<R: Into<c_long> + Copy>(call: impl Fn() -> R) -> R {
    let result = call();
    let is_refused = result.into() < 0 && matches!(Errno::last(), Errno::EINVAL | Errno::EUSERS);
    if is_refused { alone(call) } else { result }
}

/// Makes a call that confines the program, unless it fails. A filter that reports to a descriptor returns it.
pub(super) fn confined(call: impl FnOnce() -> c_long) -> c_long {
    if lifecycle::is_confined() {
        return call();
    }
    let was_stopped = lifecycle::confine();
    let result = call();
    if result < 0 {
        let before = Errno::last_raw();
        lifecycle::unconfine(was_stopped);
        Errno::set_raw(before);
    }
    result
}

/// # Safety
/// As the C library's.
// SAFETY: a function of this name is expected by programs, with these arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    let Some(unshare) = UNSHARE.get() else {
        return missing();
    };
    // SAFETY: as called.
    let call = || unsafe { unshare(flags) };
    if needs_one_thread(flags) {
        alone(call)
    } else {
        call()
    }
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(descriptor: c_int, kind: c_int) -> c_int {
    let Some(setns) = SETNS.get() else {
        return missing();
    };
    // SAFETY: as called.
    alone_if_refused(|| unsafe { setns(descriptor, kind) })
}

/// # Safety
/// As the C library's.
// SAFETY: as above; callers pass up to four numbers, and what they do not pass is not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    let Some(prctl) = PRCTL.get() else {
        return missing();
    };
    // SAFETY: as called.
    let call = || unsafe { prctl(option, a, b, c, d) };
    if confines(option, a, b as usize) {
        confined(|| call().into()) as c_int
    } else {
        call()
    }
}

/// Makes a call that changes a limit, after the end of the agent if its allocations may then fail, which ends a Rust
/// program. A limit that cannot be read is the kernel's to refuse.
pub(super) fn limited<R>(
    process: libc::pid_t,
    resource: c_uint,
    limit: *const libc::rlimit,
    call: impl FnOnce() -> R,
) -> R {
    let is_memory = [libc::RLIMIT_AS, libc::RLIMIT_DATA].contains(&resource);
    if is_memory && !limit.is_null() && !lifecycle::is_confined() {
        let is_own = process == 0 || process == crate::sys::process::id();
        let soft = if is_own { soft_limit(limit) } else { None };
        if soft.is_some_and(|soft| soft != libc::RLIM_INFINITY) {
            lifecycle::stop_for_good(Obstacle::AddressSpace);
        }
    }
    call()
}

/// # Safety
/// As the C library's.
unsafe fn set_limit(resource: c_uint, limit: *const libc::rlimit) -> c_int {
    let Some(set_limit) = SET_LIMIT.get() else {
        return missing();
    };
    // SAFETY: as called.
    limited(0, resource, limit, || unsafe { set_limit(resource, limit) })
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: c_uint, limit: *const libc::rlimit) -> c_int {
    // SAFETY: as called.
    unsafe { set_limit(resource, limit) }
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(resource: c_uint, limit: *const libc::rlimit) -> c_int {
    // SAFETY: as called; on 64 bits it is the same.
    unsafe { set_limit(resource, limit) }
}

/// # Safety
/// As the C library's.
unsafe fn limit(
    process: libc::pid_t,
    resource: c_uint,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
) -> c_int {
    let Some(limit) = LIMIT.get() else {
        return missing();
    };
    // SAFETY: as called.
    let call = || unsafe { limit(process, resource, new, old) };
    limited(process, resource, new, call)
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    process: libc::pid_t,
    resource: c_uint,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
) -> c_int {
    // SAFETY: as called.
    unsafe { limit(process, resource, new, old) }
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(
    process: libc::pid_t,
    resource: c_uint,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
) -> c_int {
    // SAFETY: as called; on 64 bits it is the same.
    unsafe { limit(process, resource, new, old) }
}
