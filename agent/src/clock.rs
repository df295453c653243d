//! The agent's clock: the real time of its first use, advanced by the monotonic clock. It never
//! steps, so a cycle is never empty or reversed. Its offset from the collector's clock is measured
//! with every ack.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use profiler_core::Timestamp;

pub(crate) use system::clock::monotonic_ns;

/// The current time of the agent's clock.
pub(crate) fn now() -> Timestamp {
    at(monotonic_ns())
}

/// The time of the agent's clock at a reading of the monotonic clock.
pub(crate) fn at(monotonic_ns: u64) -> Timestamp {
    static ANCHOR: OnceLock<Anchor> = OnceLock::new();
    ANCHOR.get_or_init(Anchor::here).at(monotonic_ns)
}

/// The difference between the two clocks.
struct Anchor {
    monotonic_to_real_ns: i64,
    /// For tests: the error of the clock, and the monotonic time at which it started.
    shift: Option<(ClockShift, u64)>,
}

impl Anchor {
    fn here() -> Anchor {
        let monotonic_ns = self::monotonic_ns();
        // Below 2^63 for centuries, as is the real time.
        Anchor {
            monotonic_to_real_ns: real_ns().saturating_sub(monotonic_ns as i64),
            shift: SHIFT.get().map(|shift| (*shift, monotonic_ns)),
        }
    }

    fn at(&self, monotonic_ns: u64) -> Timestamp {
        let real_ns = self
            .monotonic_to_real_ns
            .saturating_add(monotonic_ns as i64);
        let right = Timestamp::from_unix_ns(real_ns);
        match &self.shift {
            None => right,
            Some((shift, since_ns)) => right.shifted(shift.after(monotonic_ns, *since_ns)),
        }
    }
}

/// An error of this process's clock, for tests: it starts `offset_ns` ahead of real time, gains
/// `drift_ppm` microseconds a second, and after some time leaps ahead.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockShift {
    /// Nanoseconds ahead of real time at the start.
    pub offset_ns: i64,
    /// Microseconds gained per second.
    pub drift_ppm: i32,
    /// The time after which it leaps ahead, and by how much.
    pub leap: Option<(Duration, Duration)>,
}

static SHIFT: OnceLock<ClockShift> = OnceLock::new();

/// Sets an error of the clock. Has no effect once the clock was read.
pub(crate) fn shift(by: ClockShift) {
    // A second call has no effect, because the clock must not step.
    let _ = SHIFT.set(by);
}

impl ClockShift {
    /// Nanoseconds ahead, at a time after the start.
    #[cold]
    fn after(self, now_ns: u64, start_ns: u64) -> i64 {
        let since_ns = i128::from(now_ns) - i128::from(start_ns);
        let leapt = self
            .leap
            .filter(|(after, _)| since_ns >= after.as_nanos() as i128);
        let leap_ns = leapt.map_or(0, |(_, by)| by.as_nanos() as i128);
        let drift_ns = since_ns * i128::from(self.drift_ppm) / 1_000_000;
        i64::try_from(i128::from(self.offset_ns) + drift_ns + leap_ns).unwrap_or(i64::MAX)
    }
}

/// Nanoseconds since the Unix epoch; 0 for a clock that is set before it.
fn real_ns() -> i64 {
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_starts_at_real_time_and_follows_the_monotonic_clock() {
        let here = monotonic_ns();
        assert_eq!(at(here + 500).since_ns(at(here)), 500);
        assert_eq!(at(here).since_ns(at(here - 7)), 7);
        assert!((now().unix_ns() - real_ns()).abs() < 3_600_000_000_000);
    }

    /// Other tests rely on the exact error, and that the clock never steps back.
    #[test]
    fn a_shifted_clock_has_the_requested_error() {
        let leap = Some((Duration::from_secs(2), Duration::from_secs(5)));
        let shift = ClockShift {
            offset_ns: -7,
            drift_ppm: 100,
            leap,
        };
        let anchor = Anchor {
            monotonic_to_real_ns: 950,
            shift: Some((shift, 50)),
        };
        let at = |since_ns: u64| anchor.at(50 + since_ns).unix_ns();
        assert_eq!((at(0), at(10_000)), (993, 10_994));
        assert_eq!(at(1_999_999_999), 2_000_200_991);
        assert_eq!(at(2_000_000_000), 7_000_200_993);
        let straight = Anchor {
            shift: None,
            ..anchor
        };
        assert_eq!(straight.at(60).unix_ns(), 1_010);
    }
}
