//! Tiers: how coarse time is in a table.

use profiler_core::{TimeRange, Timestamp};

/// Length of one period of a table's time. Each is a whole number of the one before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Tier {
    Second,
    Minute,
    TenMinutes,
    Hour,
    Day,
}

impl Tier {
    /// From the finest.
    pub(crate) const ALL: [Tier; 5] =
        [Tier::Second, Tier::Minute, Tier::TenMinutes, Tier::Hour, Tier::Day];

    /// As in names of tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Tier::Second => "1s",
            Tier::Minute => "1m",
            Tier::TenMinutes => "10m",
            Tier::Hour => "1h",
            Tier::Day => "1d",
        }
    }

    /// Seconds of one period.
    pub(crate) const fn seconds(self) -> u32 {
        match self {
            Tier::Second => 1,
            Tier::Minute => 60,
            Tier::TenMinutes => 600,
            Tier::Hour => 3_600,
            Tier::Day => 86_400,
        }
    }

    /// Periods of this tier in one of its row groups at least: one period of the next tier, so that
    /// what a range does not share with the next tier is found without reading more.
    pub(crate) const fn periods_in_group(self) -> u32 {
        match self {
            Tier::Second => Tier::Minute.seconds() / Tier::Second.seconds(),
            Tier::Minute => Tier::TenMinutes.seconds() / Tier::Minute.seconds(),
            Tier::TenMinutes => Tier::Hour.seconds() / Tier::TenMinutes.seconds(),
            Tier::Hour => Tier::Day.seconds() / Tier::Hour.seconds(),
            Tier::Day => 30,
        }
    }

    /// Periods of this tier in one of its files at most: late data makes new files for the periods
    /// that it is about, and what is too old goes by whole files.
    pub(crate) const fn periods_in_file(self) -> u32 {
        const HOUR: u32 = Tier::Hour.seconds();
        const DAY: u32 = Tier::Day.seconds();
        let seconds = match self {
            Tier::Second => HOUR,
            Tier::Minute => DAY,
            Tier::TenMinutes => 10 * DAY,
            Tier::Hour => 30 * DAY,
            Tier::Day => 360 * DAY,
        };
        seconds / self.seconds()
    }

    /// The next coarser tier.
    pub(crate) fn coarser(self) -> Option<Tier> {
        Tier::ALL.into_iter().find(|tier| *tier > self)
    }

    /// The period that holds a second.
    pub(crate) const fn period(self, second: Second) -> Period {
        Period(second.0 / self.seconds())
    }
}

/// A second since the Unix epoch, up to the year 2106. A window counts whole to the second in which
/// it starts, so this is the grain of every question about time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Second(pub(crate) u32);

impl Second {
    /// The second that holds a point; the first or last there is for what lies outside.
    pub(crate) fn of(point: Timestamp) -> Second {
        let first_or_last = if point.unix_ns() < 0 { 0 } else { u32::MAX };
        Second(u32::try_from(point.second()).unwrap_or(first_or_last))
    }

    /// Its first point.
    pub(crate) fn start(self) -> Timestamp {
        Timestamp::from_unix_ns(i64::from(self.0) * 1_000_000_000)
    }

    /// The seconds that start in `range`: any split of a range shares none of them and misses none.
    pub(crate) fn starting_in(range: TimeRange) -> std::ops::Range<Second> {
        let from = |point: Timestamp| Second::of(point.shifted(999_999_999));
        from(range.start())..from(range.stop())
    }
}

/// Number of a tier's period since the Unix epoch.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub(crate) struct Period(pub(crate) u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tier_holds_whole_periods_of_the_one_before() {
        for pair in Tier::ALL.windows(2) {
            let [fine, coarse] = [pair[0], pair[1]].map(Tier::seconds);
            assert!(fine < coarse && coarse.is_multiple_of(fine), "{pair:?}");
            assert_eq!(pair[0].periods_in_group(), coarse / fine);
        }
    }

    #[test]
    fn seconds_start_in_exactly_one_part_of_a_range() {
        let check = |start: i64, stop: i64, expected: std::ops::Range<u32>| {
            let [start, stop] = [start, stop].map(Timestamp::from_unix_ns);
            let seconds = Second::starting_in(TimeRange::new(start, stop).unwrap());
            assert_eq!(seconds.start.0..seconds.end.0, expected);
        };
        check(0, 1, 0..1);
        check(1, 2, 1..1);
        check(1, 1_000_000_001, 1..2);
        check(1_000_000_000, 3_000_000_000, 1..3);
        check(-5, 1, 0..1);
        check(i64::MIN, i64::MAX, 0..u32::MAX);
        assert_eq!(Second::of(Second(7).start()), Second(7));
    }
}
