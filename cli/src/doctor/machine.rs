//! Whether this machine lets an agent sample its own process, as this user and in this container.

use std::fs::{self, File};
use std::io::{IoSliceMut, Read as _};
use std::os::unix::fs::FileExt as _;

use nix::sys::prctl;
use nix::sys::signal::{SigEvent, SigevNotify};
use nix::sys::timer::Timer;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::time::ClockId;
use nix::unistd::getpid;

use super::{Finding, Report};

/// The first kernel in which a timer on a thread's CPU clock expires when the thread returns to its own
/// code, so that it interrupts no system call.
const KERNEL_MIN: (u32, u32) = (5, 11);

/// Advice for a refused system call.
const ALLOW: &str =
    "allow it in the seccomp profile of the container or service; see the line `seccomp`";

/// Checks this machine.
pub(crate) fn examine() -> Report {
    let findings = vec![
        architecture(std::env::consts::ARCH),
        kernel(&first_line("/proc/sys/kernel/osrelease")),
        timers(),
        wait_sites(),
        memory(),
        run_delay(),
        dumpable(prctl::get_dumpable().unwrap_or(false)),
        seccomp(&status_field("Seccomp")),
    ];
    Report {
        subject: "this machine, as this user".to_owned(),
        findings,
    }
}

fn architecture(name: &str) -> Finding {
    match name {
        "aarch64" | "x86_64" => Finding::ok("architecture", name),
        other => Finding::bad(
            "architecture",
            other,
            "the agent samples on x86_64 and aarch64 only; it stays off here",
        ),
    }
}

fn kernel(release: &str) -> Finding {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return Finding::warn(
            "kernel",
            format!("unknown version {release:?}"),
            "use Linux 5.11",
        );
    };
    if (major, minor) >= KERNEL_MIN {
        return Finding::ok("kernel", format!("Linux {release}"));
    }
    Finding::warn(
        "kernel",
        format!("Linux {release}, older than 5.11"),
        "use a newer kernel: with this one, samples may interrupt system calls of the program",
    )
}

fn timers() -> Finding {
    let nothing = SigEvent::new(SigevNotify::SigevNone);
    match Timer::new(ClockId::CLOCK_THREAD_CPUTIME_ID, nothing) {
        Ok(_) => Finding::ok("running threads", "timers on CPU clocks work"),
        Err(error) => Finding::bad(
            "running threads",
            format!(
                "timers on CPU clocks are refused: timer_create: {}",
                error.desc()
            ),
            format!("without them running threads have no stacks: {ALLOW}"),
        ),
    }
}

fn wait_sites() -> Finding {
    file_of_thread(
        "blocked threads",
        "/proc/thread-self/syscall",
        "blocked threads have no stacks without it; mount /proc, and do not set dumpable to 0",
    )
}

fn run_delay() -> Finding {
    file_of_thread(
        "run queue delay",
        "/proc/thread-self/schedstat",
        "time waiting for a CPU counts as running; use a kernel with CONFIG_SCHED_INFO",
    )
}

/// Whether a thread can read this file of its own.
fn file_of_thread(check: &'static str, path: &str, advice: &str) -> Finding {
    match read_start(path) {
        Ok(text) if !text.is_empty() => Finding::ok(check, format!("{path} is readable")),
        failed => {
            let found = format!("{path} cannot be read{}", reason(failed.err()));
            Finding::warn(check, found, advice)
        }
    }
}

fn memory() -> Finding {
    let check = "stack copies";
    let source = [7u8; 8];
    let address = source.as_ptr() as usize;
    let mut copy = [0; 8];
    let called = process_vm_readv(
        getpid(),
        &mut [IoSliceMut::new(&mut copy)],
        &[RemoteIoVec {
            base: address,
            len: source.len(),
        }],
    );
    let error = match called {
        Ok(_) if copy == source => return Finding::ok(check, "process_vm_readv works"),
        Ok(_) => "it copied wrong bytes",
        Err(error) => error.desc(),
    };
    let mut copy = [0; 8];
    let read = File::open("/proc/self/mem")
        .and_then(|memory| memory.read_exact_at(&mut copy, address as u64));
    match read {
        Ok(()) if copy == source => Finding::warn(
            check,
            format!("process_vm_readv failed ({error}); /proc/self/mem works"),
            format!("sampling is slower this way: {ALLOW}"),
        ),
        failed => Finding::bad(
            check,
            format!(
                "cannot read own memory: {error}; /proc/self/mem{}",
                reason(failed.err())
            ),
            format!("blocked threads have no stacks without it: {ALLOW}"),
        ),
    }
}

fn dumpable(is_set: bool) -> Finding {
    if is_set {
        return Finding::ok("dumpable", "set: programs can read their own /proc files");
    }
    Finding::warn(
        "dumpable",
        "not set: the files in /proc/self belong to root",
        "do not set PR_SET_DUMPABLE to 0 in workers; setuid programs have it set so",
    )
}

/// `mode` is 0 for none, 1 for strict, 2 for a filter.
fn seccomp(mode: &str) -> Finding {
    match mode {
        "0" => Finding::ok("seccomp", "no filter"),
        "2" => Finding::ok("seccomp", "a filter; see above for what it blocks"),
        "" => Finding::ok("seccomp", "not supported by this kernel"),
        other => Finding::bad(
            "seccomp",
            format!("mode {other}"),
            "the agent cannot run in this mode",
        ),
    }
}

fn status_field(name: &str) -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    lines
        .find(|(key, _)| *key == name)
        .map_or(String::new(), |(_, value)| value.trim().to_owned())
}

fn first_line(path: &str) -> String {
    read_start(path).unwrap_or_default().trim().to_owned()
}

/// The first 4 KiB of a file.
fn read_start(path: &str) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(4096).read_to_string(&mut text)?;
    Ok(text)
}

fn reason(error: Option<std::io::Error>) -> String {
    error.map_or_else(|| ": it is empty".to_owned(), |error| format!(": {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn old_kernels_are_warned_about() {
        for (release, level) in [
            ("6.18.44-x", Level::Ok),
            ("5.11", Level::Ok),
            ("5.10.200", Level::Warn),
            ("4.18.0-553.el8", Level::Warn),
            ("", Level::Warn),
        ] {
            assert_eq!(kernel(release).level, level, "{release}");
        }
    }

    #[test]
    fn modes_that_stop_the_agent_are_bad() {
        assert_eq!(architecture("riscv64").level, Level::Bad);
        assert_eq!(seccomp("1").level, Level::Bad);
        assert_eq!(seccomp("2").level, Level::Ok);
        assert_eq!(dumpable(false).level, Level::Warn);
    }

    /// An agent can sample where these tests run.
    #[test]
    fn this_machine_has_no_bad_finding() {
        let report = examine();
        assert_eq!(report.count(Level::Bad), 0, "{}", report.text());
        assert_eq!(timers().level, Level::Ok);
        assert_eq!(memory().level, Level::Ok);
    }
}
