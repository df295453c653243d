//! Calls that the sampler needs, each in a form that has no lasting effect, to find out what the
//! system allows.

use std::io;

use nix::errno::Errno;

use system::file;
pub(in crate::sampler) use system::probe::allowed;

/// Copies a word of this process's memory with `process_vm_readv`.
pub(in crate::sampler) fn copy_memory() -> Result<(), Errno> {
    let source = 1u64;
    let mut copy = 0u64;
    let local = libc::iovec {
        iov_base: (&raw mut copy).cast(),
        iov_len: size_of::<u64>(),
    };
    let remote = libc::iovec {
        iov_base: (&raw const source).cast_mut().cast(),
        iov_len: size_of::<u64>(),
    };
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
    let never = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let setting = libc::itimerspec {
        it_interval: never,
        it_value: never,
    };
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
    file::read_start("/proc/thread-self/syscall", &mut [0; 256]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_the_sampler_needs_is_allowed_here() {
        assert_eq!(allowed(copy_memory), Ok(()));
        assert_eq!(allowed(set_timer), Ok(()));
        read_own_call().unwrap();
    }
}
