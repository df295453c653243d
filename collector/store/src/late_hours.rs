//! Late data: the number of hours that one sealing may be spread over is limited, because each hour
//! makes files of its own in every table.

use std::collections::BTreeSet;

use profiler_core::Timestamp;

use crate::rows::CheckedFlush;
use crate::{Second, Tier};
use base::limits::{LATE_AFTER, LATE_HOURS_MAX, nanoseconds};

/// Hours since the Unix epoch.
pub type Hours = BTreeSet<u32>;

/// The late hours of a flush at `now`: of the start of its window, the stops of its tasks and
/// transfers, and the times of its resource samples. Hours of the future count as late ones.
pub fn late_hours(checked: &CheckedFlush, now: Timestamp) -> Hours {
    let hour = |point: Timestamp| Second::of(point).0 / Tier::Hour.seconds();
    let usual = hour(now.shifted(-nanoseconds(LATE_AFTER)))..=hour(now);
    times(checked)
        .map(hour)
        .filter(|hour| !usual.contains(hour))
        .collect()
}

/// The first second to which a flush adds rows; `None` if it adds none.
pub fn first_second(checked: &CheckedFlush) -> Option<Second> {
    times(checked).min().map(Second::of)
}

/// The times of all rows that a flush adds to tables.
fn times(checked: &CheckedFlush) -> impl Iterator<Item = Timestamp> + '_ {
    let window = checked.window.iter().map(|stored| stored.range.start());
    let stops = checked.tasks.iter().filter_map(|task| task.stop);
    let transfers = checked
        .telemetry
        .transfers
        .iter()
        .map(|transfer| transfer.stop);
    let samples = checked.telemetry.resources.iter().map(|sample| sample.at);
    let totals = checked.totals.iter().map(|sum| sum.second);
    window
        .chain(stops)
        .chain(totals)
        .chain(transfers)
        .chain(samples)
}

/// The late hours of unsealed data.
#[derive(Debug, Default)]
pub struct LateHours {
    open: Hours,
    /// Of data that is being written to tables.
    sealing: Hours,
    /// Whether hours were refused since the last sealing.
    is_full: bool,
}

impl LateHours {
    /// Adds hours, all of them or none. Returns false if they exceed [`LATE_HOURS_MAX`].
    pub fn admit(&mut self, hours: &Hours) -> bool {
        let new: Vec<u32> = hours
            .iter()
            .filter(|hour| !self.sealing.contains(hour))
            .filter(|hour| !self.open.contains(hour))
            .copied()
            .collect();
        let count = self.sealing.union(&self.open).count();
        if !new.is_empty() && count + new.len() > LATE_HOURS_MAX {
            self.is_full = true;
            return false;
        }
        self.open.extend(new);
        true
    }

    /// Adds hours that were admitted before a restart.
    pub fn restore(&mut self, hours: Hours) {
        self.open.extend(hours);
    }

    /// Whether hours were refused, so that a sealing is due.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Moves all hours to those that are being written.
    pub fn take_for_sealing(&mut self) {
        self.is_full = false;
        self.sealing.append(&mut self.open);
    }

    /// Drops the hours last taken, which are in tables now.
    pub fn sealed(&mut self) {
        self.sealing.clear();
    }
}
