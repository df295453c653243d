//! Ignored and blocked signals, closed streams, and the limit on descriptors: a program has them from the process that
//! starts it, and the standard library or a collector would change them.

use std::fs;
use std::io;
use std::process::Command;

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SigSet, Signal};

use super::sys::{self, Inheritance};

/// Signals, limits and closed streams that this process inherited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inherited(Inheritance);

impl Inherited {
    /// Reads it; before anything changes it.
    ///
    /// # Errors
    /// If the system does not tell.
    pub(crate) fn read() -> io::Result<Inherited> {
        let status = fs::read_to_string("/proc/self/status")?;
        let mut ignored = signals(&status, "SigIgn:");
        // The standard library ignores it in all of its programs.
        if !sys::ignored_pipe() {
            ignored.remove(Signal::SIGPIPE);
        }
        Ok(Inherited(Inheritance {
            ignored,
            blocked: SigSet::thread_get_mask()?,
            descriptors: getrlimit(Resource::RLIMIT_NOFILE)?,
            closed: sys::closed_streams(),
        }))
    }

    /// Whether a signal was ignored, so that the program ignores it too.
    pub(crate) fn ignores(&self, signal: Signal) -> bool {
        self.0.ignored.contains(signal)
    }

    /// Makes this process able to wait for children.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(crate) fn expect_children(&self) -> io::Result<()> {
        sys::expect_children()
    }

    /// Passes it on to a program.
    pub(crate) fn pass_on(&self, command: &mut Command) {
        sys::pass_on(command, self.0);
    }
}

/// The signals of a line of a process's status.
fn signals(status: &str, key: &str) -> SigSet {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    let bits = number.unwrap_or(0);
    Signal::iterator()
        .filter(|signal| bits & 1 << (*signal as i32 - 1) != 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_from_a_status() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001002\nSigCgt:\tffffffffffffffff\n";
        let ignored = signals(status, "SigIgn:");
        let expected: SigSet = [Signal::SIGINT, Signal::SIGPIPE].into_iter().collect();
        assert_eq!(ignored, expected);
        assert_eq!(signals(status, "SigBlk:"), SigSet::empty());
        assert_eq!(signals("", "SigIgn:"), SigSet::empty());
    }
}
