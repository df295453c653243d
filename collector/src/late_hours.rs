//! What is about long ago: bounded in how many hours one sealing may be spread over, for each hour
//! makes files of its own in every table.

use std::collections::BTreeSet;

use profiler_core::Timestamp;

use crate::limits::{LATE_AFTER, LATE_HOURS_MAX, nanoseconds};
use crate::rows::CheckedFlush;
use crate::store::{Second, Tier};

/// Hours since the Unix epoch.
pub(crate) type Hours = BTreeSet<u32>;

/// The hours of a flush that are long ago at `now`: where its window starts, where its tasks
/// and transfers stop, when its resources were measured.
pub(crate) fn late_hours(checked: &CheckedFlush, now: Timestamp) -> Hours {
    let hour = |point: Timestamp| Second::of(point).0 / Tier::Hour.seconds();
    let late_before = hour(now.shifted(-nanoseconds(LATE_AFTER)));
    let window = checked.window.iter().map(|stored| stored.range.start());
    let stops = checked.tasks.iter().filter_map(|task| task.stop);
    let transfers = checked.telemetry.transfers.iter().map(|transfer| transfer.stop);
    let samples = checked.telemetry.resources.iter().map(|sample| sample.at);
    window
        .chain(stops)
        .chain(checked.totals.iter().map(|sum| sum.second))
        .chain(transfers)
        .chain(samples)
        .map(hour)
        .filter(|hour| *hour < late_before)
        .collect()
}

/// The late hours of what is in memory.
#[derive(Debug, Default)]
pub(crate) struct LateHours {
    open: Hours,
    /// Of what is being written to tables.
    sealing: Hours,
    is_full: bool,
}

impl LateHours {
    /// Takes these hours in, all or none: none if there were too many then.
    pub(crate) fn admit(&mut self, hours: &Hours) -> bool {
        let new = hours.iter().filter(|hour| !self.sealing.contains(hour));
        let new: Vec<u32> = new.filter(|hour| !self.open.contains(hour)).copied().collect();
        let count = self.sealing.union(&self.open).count();
        if !new.is_empty() && count + new.len() > LATE_HOURS_MAX {
            self.is_full = true;
            return false;
        }
        self.open.extend(new);
        true
    }

    /// Takes in the hours of what was admitted before a restart.
    pub(crate) fn restore(&mut self, hours: Hours) {
        self.open.extend(hours);
    }

    /// Whether some were turned away, so that a sealing is due.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// All that is in memory is being written from now on.
    pub(crate) fn take_for_sealing(&mut self) {
        self.is_full = false;
        self.sealing.append(&mut self.open);
    }

    /// What was taken last is in tables.
    pub(crate) fn sealed(&mut self) {
        self.sealing.clear();
    }
}
