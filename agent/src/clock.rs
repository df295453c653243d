//! The agent's clock: real time at the moment the process first used it, advanced by the
//! monotonic clock. It never steps, so a cycle is never empty or reversed; how far it is from the
//! collector's clock is measured with every ack.

use std::sync::OnceLock;

use nix::time::{ClockId, clock_gettime};
use profiler_core::Timestamp;

/// Nanoseconds of the monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    read_ns(ClockId::CLOCK_MONOTONIC)
}

/// Now, by the agent's clock.
pub(crate) fn now() -> Timestamp {
    at(monotonic_ns())
}

/// The agent's time at a reading of the monotonic clock.
pub(crate) fn at(monotonic_ns: u64) -> Timestamp {
    static ANCHOR: OnceLock<(u64, u64)> = OnceLock::new();
    let (real, monotonic) =
        *ANCHOR.get_or_init(|| (read_ns(ClockId::CLOCK_REALTIME), self::monotonic_ns()));
    let since = i128::from(monotonic_ns) - i128::from(monotonic);
    let nanoseconds = i128::from(real) + since;
    Timestamp::from_unix_ns(i64::try_from(nanoseconds).unwrap_or(i64::MAX))
}

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("Linux always has these two clocks");
    u64::try_from(time.tv_sec()).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_starts_at_real_time_and_follows_the_monotonic_one() {
        let here = monotonic_ns();
        assert_eq!(at(here + 500).since_ns(at(here)), 500);
        assert_eq!(at(here).since_ns(at(here - 7)), 7);
        let real = i64::try_from(read_ns(ClockId::CLOCK_REALTIME)).unwrap();
        assert!((now().unix_ns() - real).abs() < 3_600_000_000_000);
    }
}
