//! Which kinds of threads can be sampled in this process.

use nix::errno::Errno;

use super::sys::probe;
use crate::SamplerMode;
use crate::sys::process::{self, MemoryAccess};

/// What the system allows the sampler to do; a refusal comes with its reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mode {
    /// Timers that make a running thread copy its stack.
    running: Result<(), String>,
    /// Reading where blocked threads are, and their stacks.
    blocked: Result<(), String>,
    /// Whether memory can be copied by a system call, which a signal handler may use too.
    pub(super) checked_copies: bool,
}

impl Mode {
    /// Tries what the system allows.
    pub(super) fn detect() -> Mode {
        if let Err(error) = std::fs::read_dir("/proc/self/task") {
            let reason = format!("cannot list threads: /proc/self/task: {error}");
            return Mode {
                running: Err(reason.clone()),
                blocked: Err(reason),
                checked_copies: false,
            };
        }
        let copies = probe::allowed(probe::copy_memory);
        let access = if copies.is_ok() { MemoryAccess::Call } else { MemoryAccess::File };
        process::set_memory_access(access);
        let running = probe::allowed(probe::set_timer)
            .map_err(|error| format!("CPU-clock timers are refused: {}", error.desc()));
        let blocked = match (probe::read_own_call(), own_memory_is_readable()) {
            (Ok(()), true) => Ok(()),
            (Err(error), _) => Err(format!("cannot read /proc/self/task/*/syscall: {error}")),
            (Ok(()), false) => Err(format!(
                "cannot read this process's memory: process_vm_readv: {}, and /proc/self/mem is not \
                 readable",
                copies.err().unwrap_or(Errno::UnknownErrno).desc()
            )),
        };
        Mode { running, blocked, checked_copies: copies.is_ok() }
    }

    pub(super) fn samples_running(&self) -> bool {
        self.running.is_ok()
    }

    pub(super) fn samples_blocked(&self) -> bool {
        self.blocked.is_ok()
    }

    /// Running threads can no longer be sampled.
    pub(super) fn lose_running(&mut self, reason: String) {
        self.running = Err(reason);
    }

    /// Whether no thread can be sampled.
    pub(super) fn is_off(&self) -> bool {
        self.running.is_err() && self.blocked.is_err()
    }
}

fn own_memory_is_readable() -> bool {
    let source = [7u8; 8];
    let mut copy = [0; 8];
    process::read_memory(source.as_ptr() as u64, &mut copy) == 8
}

impl From<&Mode> for SamplerMode {
    fn from(mode: &Mode) -> SamplerMode {
        match (&mode.running, &mode.blocked) {
            (Ok(()), Ok(())) => SamplerMode::Full,
            (Ok(()), Err(reason)) => SamplerMode::RunningOnly { reason: reason.as_str().into() },
            (Err(reason), Ok(())) => SamplerMode::BlockedOnly { reason: reason.as_str().into() },
            (Err(running), Err(blocked)) if running == blocked => {
                SamplerMode::Off { reason: running.as_str().into() }
            }
            (Err(running), Err(blocked)) => {
                SamplerMode::Off { reason: format!("{running}; {blocked}").into() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_names_what_is_missing_and_why() {
        let mode = |running: Result<(), &str>, blocked: Result<(), &str>| Mode {
            running: running.map_err(str::to_owned),
            blocked: blocked.map_err(str::to_owned),
            checked_copies: true,
        };
        let check = |mode: Mode, text| assert_eq!(SamplerMode::from(&mode).to_string(), text);
        check(mode(Ok(()), Ok(())), "full");
        check(mode(Ok(()), Err("a")), "running threads only, blocked ones without stacks: a");
        check(mode(Err("b"), Ok(())), "blocked threads only, running ones without stacks: b");
        check(mode(Err("b"), Err("a")), "off: b; a");
        check(mode(Err("b"), Err("b")), "off: b");
        assert!(mode(Err("b"), Err("a")).is_off());
    }

    #[test]
    fn the_mode_is_full_on_this_machine() {
        assert_eq!(SamplerMode::from(&Mode::detect()), SamplerMode::Full);
    }
}
