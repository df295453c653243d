//! Stops of another process's threads, by plain numbers of signals: the kernel has more of them than `nix` has names for,
//! and each that stops a thread must be delivered.

use std::ptr;

use nix::errno::Errno;

/// A thread that was attached to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Traced {
    /// It has not stopped yet.
    Runs,
    /// It has stopped; this signal is to be delivered, 0 for none.
    Stopped(i32),
    Ended,
}

/// Returns what a thread does that was attached to, without waiting.
///
/// # Errors
/// If this thread has not attached to it, or no longer.
pub(crate) fn traced(thread: i32) -> Result<Traced, Errno> {
    let mut status = 0;
    // SAFETY: the kernel writes one number to `status`.
    let id = unsafe { libc::waitpid(thread, &raw mut status, libc::WNOHANG | libc::__WALL) };
    if Errno::result(id)? == 0 {
        return Ok(Traced::Runs);
    }
    if !libc::WIFSTOPPED(status) {
        return Ok(Traced::Ended);
    }
    // Above the signal is the number of the tracer's own event, which is no signal of the program.
    let is_event = status >> 16 != 0;
    let signal = if is_event { 0 } else { libc::WSTOPSIG(status) };
    Ok(Traced::Stopped(signal))
}

/// Lets a stopped thread go on with this signal, 0 for none.
///
/// # Errors
/// If it has ended.
pub(crate) fn detach(thread: i32, signal: i32) -> Result<(), Errno> {
    let data = ptr::without_provenance_mut::<libc::c_void>(signal as usize);
    // SAFETY: the request takes plain numbers, and the thread is another process's.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_DETACH,
            thread,
            ptr::null_mut::<libc::c_void>(),
            data,
        )
    };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use nix::sys::ptrace;
    use nix::unistd::Pid;

    use super::*;

    /// A real-time signal and a trap of the program's own, which have no event of the tracer.
    #[test]
    fn every_signal_that_stops_a_thread_is_delivered() {
        for signal in [40, libc::SIGTRAP, libc::SIGUSR1] {
            let program = format!("trap 'exit 7' {signal}; echo ready; while :; do :; done");
            let mut child = Command::new("sh")
                .args(["-c", &program])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            let output = child.stdout.take().unwrap();
            BufReader::new(output).read_line(&mut line).unwrap();
            let thread = child.id() as i32;
            ptrace::seize(Pid::from_raw(thread), ptrace::Options::empty()).unwrap();
            // SAFETY: takes plain numbers.
            assert_eq!(unsafe { libc::kill(thread, signal) }, 0);
            let deadline = Instant::now() + Duration::from_secs(60);
            while traced(thread).unwrap() != Traced::Stopped(signal) {
                assert!(Instant::now() < deadline);
                std::thread::yield_now();
            }
            detach(thread, signal).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(7), "{signal}");
        }
    }
}
