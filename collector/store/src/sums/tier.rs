//! Tiers: the time resolution of a table.

pub use crate::rows::Second;

/// The length of a table's periods. Each is a multiple of the next finer one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Tier {
    Second,
    Minute,
    TenMinutes,
    Hour,
    Day,
}

impl Tier {
    /// From the finest.
    pub const ALL: [Tier; 5] = [
        Tier::Second,
        Tier::Minute,
        Tier::TenMinutes,
        Tier::Hour,
        Tier::Day,
    ];

    /// The name in the names of tables.
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Second => "1s",
            Tier::Minute => "1m",
            Tier::TenMinutes => "10m",
            Tier::Hour => "1h",
            Tier::Day => "1d",
        }
    }

    /// Length of a period in seconds.
    pub const fn seconds(self) -> u32 {
        match self {
            Tier::Second => 1,
            Tier::Minute => 60,
            Tier::TenMinutes => 600,
            Tier::Hour => 3_600,
            Tier::Day => 86_400,
        }
    }

    /// Number of periods that share a row group: one period of the next tier, because a query reads at
    /// most that much of this tier at each edge of its range.
    pub const fn periods_in_group(self) -> u32 {
        match self {
            Tier::Second => Tier::Minute.seconds() / Tier::Second.seconds(),
            Tier::Minute => Tier::TenMinutes.seconds() / Tier::Minute.seconds(),
            Tier::TenMinutes => Tier::Hour.seconds() / Tier::TenMinutes.seconds(),
            Tier::Hour => Tier::Day.seconds() / Tier::Hour.seconds(),
            Tier::Day => 30,
        }
    }

    /// Most periods of a file: late data makes new files for its periods, and retention drops whole
    /// files.
    pub const fn periods_in_file(self) -> u32 {
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
    pub fn coarser(self) -> Option<Tier> {
        Tier::ALL.into_iter().find(|tier| *tier > self)
    }

    /// The period that contains a second.
    pub const fn period(self, second: Second) -> Period {
        Period(second.0 / self.seconds())
    }
}

/// The number of a period of a tier since the Unix epoch.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Period(pub u32);

#[cfg(test)]
mod tests {
    use profiler_core::{TimeRange, Timestamp};

    use super::*;

    #[test]
    fn each_period_is_a_multiple_of_the_next_finer_one() {
        for pair in Tier::ALL.windows(2) {
            let [fine, coarse] = [pair[0], pair[1]].map(Tier::seconds);
            assert!(fine < coarse && coarse.is_multiple_of(fine), "{pair:?}");
            assert_eq!(pair[0].periods_in_group(), coarse / fine);
        }
    }

    #[test]
    fn each_second_starts_in_exactly_one_part_of_a_split_range() {
        check(0, 1, 0..1);
        check(1, 2, 1..1);
        check(1, 1_000_000_001, 1..2);
        check(1_000_000_000, 3_000_000_000, 1..3);
        check(-5, 1, 0..1);
        check(i64::MIN, i64::MAX, 0..u32::MAX);
        assert_eq!(Second::of(Second(7).start()), Second(7));
    }

    fn check(start: i64, stop: i64, expected: std::ops::Range<u32>) {
        let [start, stop] = [start, stop].map(Timestamp::from_unix_ns);
        let seconds = Second::starting_in(TimeRange::new(start, stop).unwrap());
        assert_eq!(seconds.start.0..seconds.end.0, expected);
    }
}
