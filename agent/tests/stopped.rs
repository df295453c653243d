//! Threads that a signal or a debugger stops for a while: they are neither short of processors nor wait for a disk.

#![cfg(all(
    target_os = "linux",
    any(target_arch = "aarch64", target_arch = "x86_64"),
    target_env = "gnu"
))]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::hint::black_box;
use std::process::{Child, Command};

use emberline_agent::{Recording, task};
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use profiler_core::State;

use common::start;

#[allow(unused, reason = "other tests use the rest")]
mod common;

/// Seconds of the stop.
const STOP_S: u64 = 3;
/// Part of it that must be `other`: the sampler may have waited for a processor in the second before.
const OTHER_NS_MIN: u64 = STOP_S * 1_000_000_000 / 2;
/// Most time that a computation waits for a disk: pages of the program.
const DISK_NS_MAX: u64 = 1_000_000_000;
/// The thread to stop, in the process that is its debugger.
const THREAD: &str = "EMBERLINE_TEST_THREAD";

#[test]
fn a_stopped_process_is_not_short_of_processors() {
    let (agent, _turn) = start();
    let process = std::process::id();
    let script =
        format!("sleep 2; kill -STOP {process}; sleep {STOP_S}; kill -CONT {process}; sleep 2");
    compute_while(Command::new("sh").args(["-c", &script]).spawn().unwrap());
    assert_stop_is_other(&agent.finish());
}

#[test]
fn a_thread_that_a_debugger_stops_does_not_wait_for_a_disk() {
    let (agent, _turn) = start();
    // Fails where the kernel restricts no debuggers.
    let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
    let debugger = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "debugger"])
        .env(THREAD, nix::unistd::gettid().to_string())
        .spawn()
        .unwrap();
    compute_while(debugger);
    assert_stop_is_other(&agent.finish());
}

/// Not a test by itself: the debugger of the one above.
#[test]
fn debugger() {
    let Ok(thread) = std::env::var(THREAD) else {
        return;
    };
    let thread = Pid::from_raw(thread.parse().unwrap());
    ptrace::seize(thread, Options::empty()).unwrap();
    ptrace::interrupt(thread).unwrap();
    waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
    let seconds = STOP_S.to_string();
    Command::new("sleep").arg(seconds).status().unwrap();
    ptrace::detach(thread, None).unwrap();
}

fn compute_while(mut child: Child) {
    let _computing = task("computing").start();
    let mut sum = 1_u64;
    let status = loop {
        for _ in 0..1_000_000 {
            sum = black_box(sum.wrapping_mul(31));
        }
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
    };
    assert!(status.success(), "{status}");
}

fn assert_stop_is_other(recording: &Recording) {
    let (_, weight) = recording
        .profile
        .top_level()
        .find(|(frame, _)| frame.function == "computing")
        .unwrap();
    assert!(weight.get(State::Other) >= OTHER_NS_MIN, "{weight:?}");
    assert!(weight.get(State::Disk) <= DISK_NS_MAX, "{weight:?}");
}
