//! The monotonic clock. Every start and end of a task reads it.

use libc::{CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID, clockid_t, timespec};

/// Nanoseconds of the monotonic clock. Unlike nix's wrapper this returns no `Result`, which has to
/// be written to memory and read back; that took up to a fifth of the whole call.
#[inline]
pub fn monotonic_ns() -> u64 {
    let mut time = ZERO;
    // SAFETY: `time` is a valid `timespec` for the call, which keeps no pointer to it.
    let status = unsafe { libc::clock_gettime(CLOCK_MONOTONIC, &raw mut time) };
    debug_assert_eq!(status, 0, "Linux always has this clock");
    nanoseconds(time)
}

const ZERO: timespec = timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

fn nanoseconds(time: timespec) -> u64 {
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// Clocks that the agent reads by the C library, and whose times it compares with those of the kernel. Its waits with a
/// limit would not end either.
const CLOCKS: [(clockid_t, &str); 2] = [
    (CLOCK_MONOTONIC, "CLOCK_MONOTONIC"),
    (CLOCK_THREAD_CPUTIME_ID, "CLOCK_THREAD_CPUTIME_ID"),
];
/// Difference of two readings of the same clock that is no fault.
const TOLERANCE_NS: u64 = 10_000_000;

/// A clock of the C library that is not the kernel's.
#[derive(Debug)]
pub struct FakedClock {
    /// Its name.
    pub clock: &'static str,
}

/// Checks that no library that is loaded before the C library replaces its clocks by others.
///
/// # Errors
/// If one does.
pub fn check() -> Result<(), FakedClock> {
    for (id, clock) in CLOCKS {
        let before = kernel_ns(id);
        let mut time = ZERO;
        // SAFETY: as in `monotonic_ns`.
        unsafe { libc::clock_gettime(id, &raw mut time) };
        let between = nanoseconds(time);
        let after = kernel_ns(id);
        if between.saturating_add(TOLERANCE_NS) < before
            || between > after.saturating_add(TOLERANCE_NS)
        {
            return Err(FakedClock { clock });
        }
    }
    Ok(())
}

/// A clock, read by the kernel's call.
fn kernel_ns(clock: clockid_t) -> u64 {
    let mut time = ZERO;
    // SAFETY: as in `monotonic_ns`. The call changes nothing else.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time) };
    nanoseconds(time)
}
