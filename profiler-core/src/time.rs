//! Points and spans of time. Nothing here reads a clock: times come from outside, and the
//! collector's clock is the fleet's.

use std::fmt;

/// A point in time: nanoseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The earliest representable point.
    pub const MIN: Timestamp = Timestamp(i64::MIN);
    /// The latest representable point.
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// The point `nanoseconds` after the Unix epoch.
    #[must_use]
    pub const fn from_unix_ns(nanoseconds: i64) -> Self {
        Timestamp(nanoseconds)
    }

    /// Nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_ns(self) -> i64 {
        self.0
    }

    /// This point moved by `nanoseconds`, clamped to the representable range.
    #[must_use]
    pub const fn shifted(self, nanoseconds: i64) -> Self {
        Timestamp(self.0.saturating_add(nanoseconds))
    }

    /// Nanoseconds from `earlier` to this point; 0 if it is not later.
    #[must_use]
    pub fn since_ns(self, earlier: Timestamp) -> u64 {
        u64::try_from(i128::from(self.0) - i128::from(earlier.0)).unwrap_or(0)
    }

    /// The whole second that holds this point, in seconds since the Unix epoch.
    #[must_use]
    pub const fn second(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let second = self.second();
        let rest = self.0.rem_euclid(1_000_000_000);
        write!(f, "{second}.{rest:09}s")
    }
}

/// A half-open span of time: it contains `start` but not `stop`, so adjoining ranges neither
/// overlap nor leave a gap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimeRange {
    start: Timestamp,
    stop: Timestamp,
}

impl TimeRange {
    /// All of time.
    pub const ALL: TimeRange = TimeRange {
        start: Timestamp::MIN,
        stop: Timestamp::MAX,
    };

    /// The range `[start, stop)`, or `None` if it would be empty or reversed.
    #[must_use]
    pub fn new(start: Timestamp, stop: Timestamp) -> Option<Self> {
        (start < stop).then_some(TimeRange { start, stop })
    }

    /// First point of the range.
    #[must_use]
    pub const fn start(self) -> Timestamp {
        self.start
    }

    /// First point after the range.
    #[must_use]
    pub const fn stop(self) -> Timestamp {
        self.stop
    }

    /// Whether `point` lies in the range.
    #[must_use]
    pub fn contains(self, point: Timestamp) -> bool {
        self.start <= point && point < self.stop
    }

    /// Length in nanoseconds.
    #[must_use]
    pub fn length_ns(self) -> u64 {
        self.stop.since_ns(self.start)
    }

    /// The smallest range that holds both.
    #[must_use]
    pub fn hull(self, other: TimeRange) -> TimeRange {
        TimeRange {
            start: self.start.min(other.start),
            stop: self.stop.max(other.stop),
        }
    }

    /// This range moved by `nanoseconds`; `None` if clamping makes it empty.
    #[must_use]
    pub fn shifted(self, nanoseconds: i64) -> Option<TimeRange> {
        TimeRange::new(
            self.start.shifted(nanoseconds),
            self.stop.shifted(nanoseconds),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_and_reversed_ranges_do_not_exist() {
        let at = Timestamp::from_unix_ns;
        assert_eq!(TimeRange::new(at(5), at(5)), None);
        assert_eq!(TimeRange::new(at(6), at(5)), None);
        let range = TimeRange::new(at(5), at(8)).unwrap();
        assert!(range.contains(at(5)) && range.contains(at(7)) && !range.contains(at(8)));
        assert_eq!(range.length_ns(), 3);
        assert_eq!(TimeRange::ALL.length_ns(), u64::MAX);
    }

    #[test]
    fn seconds_round_down_before_the_epoch_too() {
        assert_eq!(Timestamp::from_unix_ns(-1).second(), -1);
        assert_eq!(
            format!("{:?}", Timestamp::from_unix_ns(-1)),
            "-1.999999999s"
        );
    }
}
