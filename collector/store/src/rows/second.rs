//! Seconds: the resolution of every time range.

use std::ops::Range;

use profiler_core::{TimeRange, Timestamp};

/// A second since the Unix epoch, up to the year 2106. A window counts whole to the second in which
/// it starts, so this is the resolution of every time range.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(transparent)]
pub struct Second(pub u32);

impl Second {
    /// The second that contains a point in time; clamped to the first and last second.
    pub fn of(point: Timestamp) -> Second {
        let first_or_last = if point.unix_ns() < 0 { 0 } else { u32::MAX };
        Second(u32::try_from(point.second()).unwrap_or(first_or_last))
    }

    /// The first second that starts at that time or later.
    pub fn first_from(point: Timestamp) -> Second {
        Second::of(point.shifted(999_999_999))
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// Its first point.
    pub fn start(self) -> Timestamp {
        Timestamp::from_unix_ns(i64::from(self.0) * 1_000_000_000)
    }

    /// The seconds that start in `range`: the parts of a split range share none and miss none.
    pub fn starting_in(range: TimeRange) -> Range<Second> {
        Second::first_from(range.start())..Second::first_from(range.stop())
    }
}
