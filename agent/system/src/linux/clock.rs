//! The monotonic clock. Every start and end of a task reads it.

use libc::{CLOCK_MONOTONIC, timespec};

/// Nanoseconds of the monotonic clock. Unlike nix's wrapper this returns no `Result`, which has to
/// be written to memory and read back; that took up to a fifth of the whole call.
#[inline]
pub fn monotonic_ns() -> u64 {
    let mut time = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid `timespec` for the call, which keeps no pointer to it.
    let status = unsafe { libc::clock_gettime(CLOCK_MONOTONIC, &raw mut time) };
    debug_assert_eq!(status, 0, "Linux always has this clock");
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}
