//! Finding out what the system allows, without risk: a system call filter (seccomp) may kill the
//! process that tries a call, so a child process tries first.

use std::fs;
use std::io;

use nix::errno::Errno;

/// Tries `call`, which makes system calls only. If calls are filtered, a child tries first.
///
/// # Errors
/// The reason why it is refused.
pub(in crate::sampler) fn allowed(call: fn() -> Result<(), Errno>) -> Result<(), Errno> {
    if calls_are_filtered() {
        survives(call)?;
    }
    call()
}

/// Whether this thread's system calls are filtered; `true` if that cannot be determined.
fn calls_are_filtered() -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim) != Some("0")
}

/// Makes the call in a child and returns how that ended.
///
/// The child shares nothing with this process. Its end is not reported to the program: it sends no
/// `SIGCHLD`, and a `wait` for any child ignores it. It leaves no core file.
fn survives(call: fn() -> Result<(), Errno>) -> Result<(), Errno> {
    // SAFETY: clone without flags copies the process, like `fork` but without fork handlers; the
    // child below makes only system calls and ends itself.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if child == 0 {
        // SAFETY: `prctl` takes plain numbers here.
        unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
        let code = call().err().map_or(0, |error| error as libc::c_long);
        loop {
            // SAFETY: ends the child and does not return.
            unsafe { libc::syscall(libc::SYS_exit_group, code) };
        }
    }
    let child = libc::pid_t::try_from(child).map_err(|_| Errno::EPERM)?;
    if child < 0 {
        return Err(Errno::last());
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writing. `__WCLONE` waits for a child that ends without a
    // signal to its parent.
    while unsafe { libc::waitpid(child, &raw mut status, libc::__WCLONE) } == -1 {
        if Errno::last() != Errno::EINTR {
            return Err(Errno::last());
        }
    }
    if !libc::WIFEXITED(status) {
        // The filter killed it.
        return Err(Errno::EPERM);
    }
    match libc::WEXITSTATUS(status) {
        0 => Ok(()),
        code => Err(Errno::from_raw(code)),
    }
}

/// Copies a word of this process's memory with `process_vm_readv`.
pub(in crate::sampler) fn copy_memory() -> Result<(), Errno> {
    let source = 1u64;
    let mut copy = 0u64;
    let local = libc::iovec { iov_base: (&raw mut copy).cast(), iov_len: size_of::<u64>() };
    let remote =
        libc::iovec { iov_base: (&raw const source).cast_mut().cast(), iov_len: size_of::<u64>() };
    let pid = nix::unistd::getpid().as_raw();
    // SAFETY: writes only to `copy`, within its size.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    Errno::result(read).map(drop)
}

/// Creates and sets a timer on this thread's CPU clock that sends no signal.
pub(in crate::sampler) fn set_timer() -> Result<(), Errno> {
    // SAFETY: all zeros are a valid `sigevent`.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_NONE;
    let mut timer: libc::c_int = 0;
    let clock = libc::CLOCK_THREAD_CPUTIME_ID;
    let event = &raw const event;
    let id = &raw mut timer;
    // SAFETY: the kernel reads `event` and writes the id of the timer.
    Errno::result(unsafe { libc::syscall(libc::SYS_timer_create, clock, event, id) })?;
    let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let setting = libc::itimerspec { it_interval: never, it_value: never };
    let none = std::ptr::null_mut::<libc::itimerspec>();
    // SAFETY: the kernel reads `setting`; the timer was created above.
    let set = unsafe { libc::syscall(libc::SYS_timer_settime, timer, 0, &raw const setting, none) };
    let result = Errno::result(set).map(drop);
    // SAFETY: the timer was created above and is used nowhere else.
    unsafe { libc::syscall(libc::SYS_timer_delete, timer) };
    result
}

/// Reads `/proc/thread-self/syscall`, as the sampler does for each blocked thread.
pub(in crate::sampler) fn read_own_call() -> io::Result<()> {
    fs::read("/proc/thread-self/syscall").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_returns_the_result_of_the_call() {
        assert_eq!(survives(|| Ok(())), Ok(()));
        assert_eq!(survives(|| Err(Errno::ENOSYS)), Err(Errno::ENOSYS));
        let killed = survives(|| {
            let own = nix::unistd::getpid().as_raw();
            // SAFETY: kills the child, as a filter would.
            unsafe { libc::syscall(libc::SYS_kill, own, libc::SIGSYS) };
            Ok(())
        });
        assert_eq!(killed, Err(Errno::EPERM));
    }

    #[test]
    fn everything_that_the_sampler_needs_is_allowed_here() {
        assert_eq!(allowed(copy_memory), Ok(()));
        assert_eq!(allowed(set_timer), Ok(()));
        read_own_call().unwrap();
    }
}
