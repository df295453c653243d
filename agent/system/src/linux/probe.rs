//! Finding out what the system allows, without risk: a system call filter (seccomp) may kill the
//! process that tries a call, so a child process tries first.

use nix::errno::Errno;

use super::file;

/// Tries `call`, which makes system calls only. If calls are filtered, a child tries first.
///
/// # Errors
/// The reason why it is refused.
pub fn allowed(call: fn() -> Result<(), Errno>) -> Result<(), Errno> {
    if calls_are_filtered() {
        survives(call)?;
    }
    call()
}

/// Whether this thread's system calls are filtered; `true` if that cannot be determined.
fn calls_are_filtered() -> bool {
    let status = file::read_text("/proc/thread-self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"))
        .map(str::trim)
        != Some("0")
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
}
