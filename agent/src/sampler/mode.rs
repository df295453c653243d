//! Kinds of threads that can be sampled in this process.

use nix::errno::Errno;

use super::sys::probe;
use crate::SamplerMode;
use system::file;
use system::process::{self, MemoryAccess};

/// Facilities that the system allows the sampler to use; a refusal comes with its reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mode {
    /// Timers that make a running thread copy its stack.
    running: Facility,
    /// Reading where blocked threads are, and their stacks.
    blocked: Facility,
    /// Whether memory can be copied by a system call, which a signal handler may use too.
    pub(super) checked_copies: bool,
}

/// Something that the sampler needs from the system.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Facility {
    /// Whether it worked at the start, and so is used.
    used: bool,
    /// Whether it works now, and why it does not.
    now: Result<(), String>,
    /// Whether the last attempt failed.
    has_failed: bool,
}

impl Facility {
    fn at_start(now: Result<(), String>) -> Facility {
        Facility {
            used: now.is_ok(),
            has_failed: now.is_err(),
            now,
        }
    }

    /// Tries again what worked at the start. What works is lost at the second failure in a row: another
    /// thread of the agent may have the last descriptor for a moment.
    fn update(&mut self, attempt: impl FnOnce() -> Result<(), String>) {
        if !self.used {
            return;
        }
        let result = attempt();
        let is_first_failure = result.is_err() && !self.has_failed;
        self.has_failed = result.is_err();
        if !is_first_failure {
            self.now = result;
        }
    }
}

impl Mode {
    /// Tries what the system allows.
    pub(super) fn detect() -> Mode {
        if let Err(reason) = threads_are_listed() {
            return Mode {
                running: Facility::at_start(Err(reason.clone())),
                blocked: Facility::at_start(Err(reason)),
                checked_copies: false,
            };
        }
        let copies = probe::allowed(probe::copy_memory);
        choose_memory_access(copies);
        Mode {
            running: Facility::at_start(probe::allowed(probe::set_timer).map_err(refused_timers)),
            blocked: Facility::at_start(blocked_are_readable(copies)),
            checked_copies: copies.is_ok(),
        }
    }

    /// Tries again what worked at the start: the program may have applied a filter, changed its
    /// root or used up its descriptors since. Tries nothing that was refused at the start, because a
    /// filter may kill the process that tries. Takes 30 µs. Returns whether anything has changed.
    pub(super) fn update(&mut self) -> bool {
        let before = SamplerMode::from(&*self);
        let listed = threads_are_listed();
        self.running.update(|| {
            listed.clone()?;
            probe::set_timer().map_err(refused_timers)
        });
        let checked_copies = self.checked_copies;
        self.blocked.update(|| {
            listed?;
            let copies = if checked_copies {
                probe::copy_memory()
            } else {
                Err(Errno::EPERM)
            };
            choose_memory_access(copies);
            blocked_are_readable(copies)
        });
        SamplerMode::from(&*self) != before
    }

    /// Whether sampling of running threads is in use, even if it is unavailable at present.
    pub(super) fn uses_running(&self) -> bool {
        self.running.used
    }

    /// Whether reading of blocked threads is in use, even if it is unavailable at present.
    pub(super) fn uses_blocked(&self) -> bool {
        self.blocked.used
    }

    /// Whether sampling running threads works now.
    pub(super) fn samples_running(&self) -> bool {
        self.running.now.is_ok()
    }

    /// Whether reading blocked threads works now.
    pub(super) fn samples_blocked(&self) -> bool {
        self.blocked.now.is_ok()
    }

    /// Running threads can no longer be sampled.
    pub(super) fn lose_running(&mut self, reason: String) {
        self.running = Facility::at_start(Err(reason));
    }

    /// Whether no thread can be sampled.
    pub(super) fn is_off(&self) -> bool {
        !self.samples_running() && !self.samples_blocked()
    }
}

fn threads_are_listed() -> Result<(), String> {
    let opened = file::try_open("/proc/self/task");
    opened.map_err(|error| format!("cannot list threads: /proc/self/task: {error}"))
}

fn refused_timers(error: Errno) -> String {
    format!("CPU-clock timers are refused: {}", error.desc())
}

fn choose_memory_access(copies: Result<(), Errno>) {
    let access = if copies.is_ok() {
        MemoryAccess::Call
    } else {
        MemoryAccess::File
    };
    process::set_memory_access(access);
}

/// Whether blocked threads can be read; `copies` is the result of copying memory by a system call.
fn blocked_are_readable(copies: Result<(), Errno>) -> Result<(), String> {
    probe::read_own_call()
        .map_err(|error| format!("cannot read /proc/self/task/*/syscall: {error}"))?;
    if own_memory_is_readable() {
        return Ok(());
    }
    Err(format!(
        "cannot read this process's memory: process_vm_readv: {}, and /proc/self/mem is not readable",
        copies.err().unwrap_or(Errno::UnknownErrno).desc()
    ))
}

fn own_memory_is_readable() -> bool {
    let source = [7u8; 8];
    let mut copy = [0; 8];
    process::read_memory(source.as_ptr() as u64, &mut copy) == 8
}

impl From<&Mode> for SamplerMode {
    fn from(mode: &Mode) -> SamplerMode {
        match (&mode.running.now, &mode.blocked.now) {
            (Ok(()), Ok(())) => SamplerMode::Full,
            (Ok(()), Err(reason)) => SamplerMode::RunningOnly {
                reason: reason.as_str().into(),
            },
            (Err(reason), Ok(())) => SamplerMode::BlockedOnly {
                reason: reason.as_str().into(),
            },
            (Err(running), Err(blocked)) if running == blocked => SamplerMode::Off {
                reason: running.as_str().into(),
            },
            (Err(running), Err(blocked)) => SamplerMode::Off {
                reason: format!("{running}; {blocked}").into(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_names_what_is_missing_and_why() {
        let mode = |running: Result<(), &str>, blocked: Result<(), &str>| Mode {
            running: Facility::at_start(running.map_err(str::to_owned)),
            blocked: Facility::at_start(blocked.map_err(str::to_owned)),
            checked_copies: true,
        };
        let check = |mode: Mode, text| assert_eq!(SamplerMode::from(&mode).to_string(), text);
        check(mode(Ok(()), Ok(())), "full");
        check(
            mode(Ok(()), Err("a")),
            "running threads only, blocked ones without stacks: a",
        );
        check(
            mode(Err("b"), Ok(())),
            "blocked threads only, running ones without stacks: b",
        );
        check(mode(Err("b"), Err("a")), "off: b; a");
        check(mode(Err("b"), Err("b")), "off: b");
        assert!(mode(Err("b"), Err("a")).is_off());
    }

    #[test]
    fn a_facility_that_fails_once_is_not_lost() {
        let mut facility = Facility::at_start(Ok(()));
        let fail = || Err("too many open files".to_owned());
        facility.update(fail);
        assert!(facility.now.is_ok());
        facility.update(|| Ok(()));
        facility.update(fail);
        assert!(facility.now.is_ok(), "it worked in between");
        facility.update(fail);
        assert_eq!(facility.now, fail());
        facility.update(|| Ok(()));
        assert!(facility.now.is_ok());
    }

    #[test]
    fn the_mode_is_full_on_this_machine_and_stays_so() {
        let mut mode = Mode::detect();
        assert_eq!(SamplerMode::from(&mode), SamplerMode::Full);
        assert!(!mode.update());
        mode.lose_running("it is gone".to_owned());
        assert!(
            !mode.update() && !mode.samples_running(),
            "a lost signal does not come back"
        );
    }
}
