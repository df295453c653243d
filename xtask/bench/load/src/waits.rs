//! Threads blocked in system calls that fail with `EINTR` whenever a signal is handled, next to threads
//! that compute: how many calls fail because of a profiler?

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

use anyhow::Result;
use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::{ClockId, NanosleepRelativeResult, clock_nanosleep_relative, futex};

use crate::figure::print_figure;
use crate::profiler::{self, Peer};
use crate::settings::Settings;
use crate::work;

const BUSY_THREADS: usize = 2;
/// The shortest wait. Each thread waits a step longer than the one before, so that they do not wake
/// at once.
const WAIT_NS: i64 = 20_000_000;
const WAIT_STEP_NS: i64 = 700_000;

/// Runs for the window and prints how many calls were made and how many were interrupted.
pub(crate) fn run(settings: &Settings, peers: &[Peer]) -> Result<()> {
    let profiler = profiler::start(&settings.profiler, settings.hertz, peers)?;
    let stop = AtomicBool::new(false);
    let calls = AtomicU64::new(0);
    let interrupted = AtomicU64::new(0);
    let wait = |index: usize| {
        let step = i64::try_from(index).unwrap_or(0) * WAIT_STEP_NS;
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: WAIT_NS + step,
        };
        while !stop.load(Ordering::Relaxed) {
            calls.fetch_add(1, Ordering::Relaxed);
            if is_interrupted(index, &timeout) {
                interrupted.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        let wait = &wait;
        for index in 0..settings.threads {
            scope.spawn(move || wait(index));
        }
        for _ in 0..BUSY_THREADS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    black_box(work::unit(1));
                }
            });
        }
        thread::sleep(settings.window);
        stop.store(true, Ordering::Relaxed);
    });
    print_figure("calls", calls.into_inner());
    print_figure("interrupted", interrupted.into_inner());
    profiler::finish(profiler)
}

/// Waits in one of three kinds of system call; returns whether a signal ended it.
fn is_interrupted(kind: usize, timeout: &Timespec) -> bool {
    match kind % 3 {
        0 => poll(&mut [] as &mut [PollFd<'_>], Some(timeout)) == Err(Errno::INTR),
        1 => matches!(
            clock_nanosleep_relative(ClockId::Monotonic, timeout),
            NanosleepRelativeResult::Interrupted(_)
        ),
        _ => {
            let never = AtomicU32::new(0);
            futex::wait(&never, futex::Flags::PRIVATE, 0, Some(timeout)) == Err(Errno::INTR)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_times_out_was_not_interrupted() {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: 1_000,
        };
        for kind in 0..3 {
            assert!(!is_interrupted(kind, &timeout));
        }
    }
}
