//! Retention: what is too old, or too much, goes by whole files.

use std::time::Duration;

use profiler_core::Timestamp;

use super::compact::end_of;
use super::manifest::{FileEntry, Manifest};
use super::table::TableName;
use super::tier::Tier;
use crate::limits::{RETENTION_BYTES_MAX, ROLLUPS_KEPT, SECONDS_KEPT, TASKS_KEPT, nanoseconds};

/// How much of the past a store keeps. The defaults are the constants of [`crate::limits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Retention {
    /// Counting tables by seconds.
    pub(crate) seconds: Duration,
    /// Counting tables of coarser tiers.
    pub(crate) rollups: Duration,
    /// Rows of tasks.
    pub(crate) tasks: Duration,
    /// All tables. Past it the oldest seconds and tasks go, then the oldest of the next tier.
    pub(crate) bytes_max: u64,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention {
            seconds: SECONDS_KEPT,
            rollups: ROLLUPS_KEPT,
            tasks: TASKS_KEPT,
            bytes_max: RETENTION_BYTES_MAX,
        }
    }
}

impl Retention {
    /// The files that have to go, by id.
    pub(crate) fn expired(&self, manifest: &Manifest, now: Timestamp) -> Vec<u64> {
        // Tables without time are needed as long as there is anything to name.
        let mut timed: Vec<_> =
            manifest.files.iter().filter_map(|file| Some((file, end_of(file)?))).collect();
        timed.sort_by_key(|(file, end)| (detail(file), *end, file.id));
        let mut bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
        let mut expired = Vec::new();
        for (file, end) in timed {
            let kept = nanoseconds(self.kept(file.table));
            if end.start().shifted(kept) <= now || bytes > self.bytes_max {
                bytes -= file.bytes;
                expired.push(file.id);
            }
        }
        expired
    }

    fn kept(&self, table: TableName) -> Duration {
        match table {
            TableName::Counting(_, Tier::Second) => self.seconds,
            // Rows of transfers are worth as much as those of tasks.
            TableName::Tasks | TableName::Transfers => self.tasks,
            // The finest there is of it, and most of it is never looked at again.
            TableName::Resources => self.seconds,
            _ => self.rollups,
        }
    }
}

/// The finest goes first when there is too much.
fn detail(file: &FileEntry) -> Tier {
    match file.table {
        TableName::Counting(_, tier) => tier,
        _ => Tier::Second,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::table::Counting;
    use crate::store::tier::Period;

    const HOUR: u32 = 3_600;

    #[test]
    fn the_old_goes_and_of_too_much_the_oldest_detail() {
        let counting = |tier| TableName::Counting(Counting::Samples, tier);
        let file = |id, table, to| FileEntry {
            table,
            id,
            bytes: 100,
            rows: 1,
            crc32: 0,
            from: Period(0),
            to: Period(to),
            level: 0,
        };
        let files = vec![
            file(1, counting(Tier::Second), HOUR),
            file(2, counting(Tier::Second), 2 * HOUR),
            file(3, counting(Tier::Hour), 1),
            file(4, counting(Tier::Day), 1),
            file(5, TableName::Tasks, HOUR + 1),
            file(6, TableName::Frames, 9),
        ];
        let manifest = Manifest { files, ..Manifest::default() };
        let check = |hours: u32, bytes_max: u64, expected: &[u64]| {
            let hour = |count| Duration::from_secs(u64::from(HOUR) * count);
            let retention =
                Retention { seconds: hour(2), rollups: hour(10), tasks: hour(4), bytes_max };
            let now = Timestamp::from_unix_ns(i64::from(hours * HOUR) * 1_000_000_000);
            assert_eq!(retention.expired(&manifest, now), expected, "{hours} h, {bytes_max} bytes");
        };
        check(0, u64::MAX, &[]);
        check(3, u64::MAX, &[1]);
        check(4, u64::MAX, &[1, 2]);
        check(6, u64::MAX, &[1, 5, 2]);
        check(11, u64::MAX, &[1, 5, 2, 3]);
        check(34, u64::MAX, &[1, 5, 2, 3, 4]);
        check(0, 600, &[]);
        check(0, 599, &[1]);
        check(0, 400, &[1, 5]);
        check(0, 250, &[1, 5, 2, 3]);
        check(0, 0, &[1, 5, 2, 3, 4]);
    }
}
