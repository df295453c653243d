//! Retention: drops whole files that are too old, or when there is too much data.
//!
//! Age is not by the clock alone, because one start with a clock that is years ahead would drop all
//! data. It is counted along the data ([`DataAge`]): a time without data counts as at most a day.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use profiler_core::Timestamp;

use crate::manifest::{FileEntry, Manifest};
use crate::sums::table::TableName;
use crate::sums::tier::Tier;
use base::limits::{AGE_GAP_MAX, RETENTION_BYTES_MAX, ROLLUPS_KEPT, SECONDS_KEPT, TASKS_KEPT};

/// Names count up to this part of the size limit: however many there are, they drop no newer data.
const NAMES_PART: u64 = 2;

/// How long a store keeps data. The defaults are the constants of [`base::limits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Age limit of sums by the second, and of resources.
    pub seconds: Duration,
    /// Age limit of coarser tiers: minutes, 10 minutes, hours and days.
    pub rollups: Duration,
    /// Age limit of rows of tasks and transfers.
    pub tasks: Duration,
    /// Size limit of all tables. Past it the oldest seconds and tasks are dropped, then the oldest rows
    /// of the next tier.
    pub bytes_max: u64,
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
    /// The ids of the files to drop. Past the size limit, files whose data begins after `horizon` go
    /// first: only a wrong clock makes them, and they would outlive all others.
    pub fn expired(&self, manifest: &Manifest, age: &DataAge, horizon: Timestamp) -> Vec<u64> {
        let mut timed: Vec<_> = manifest
            .files
            .iter()
            .filter_map(|file| Some((file, file.end()?)))
            .collect();
        timed.sort_by_key(|(file, end)| {
            let is_past_horizon = file.start().is_some_and(|start| start.start() > horizon);
            (!is_past_horizon, drop_order(file), *end, file.id)
        });
        let mut bytes: u64 = timed.iter().map(|(file, _)| file.bytes).sum();
        let left = self.bytes_max.saturating_sub(names_bytes(manifest));
        let bytes_max = left.max(self.bytes_max / NAMES_PART);
        let mut expired = Vec::new();
        for (file, end) in timed {
            let is_old = end.start() <= age.before(self.kept(file.table));
            if is_old || bytes > bytes_max {
                bytes -= file.bytes;
                expired.push(file.id);
            }
        }
        expired
    }

    /// The bytes of names, if they leave data less room than the size limit promises.
    pub(super) fn excess_of_names(&self, manifest: &Manifest) -> Option<u64> {
        Some(names_bytes(manifest)).filter(|bytes| *bytes > self.bytes_max / NAMES_PART)
    }

    fn kept(&self, table: TableName) -> Duration {
        match table {
            TableName::Sums(_, Tier::Second) => self.seconds,
            // Rows of transfers are as useful as rows of tasks.
            TableName::Tasks | TableName::Transfers => self.tasks,
            // The finest data of its kind, and most of it is never read again.
            TableName::Resources => self.seconds,
            _ => self.rollups,
        }
    }
}

/// Bytes of the tables without time, which are always kept: they have the names of ids.
fn names_bytes(manifest: &Manifest) -> u64 {
    let names = manifest.files.iter().filter(|file| file.end().is_none());
    names.map(|file| file.bytes).sum()
}

/// Age counted along the data, in Unix seconds.
///
/// With a correct clock this is the age by the clock, except after gaps in the data of over
/// [`AGE_GAP_MAX`]: data before such a gap is kept longer. With a clock that is years ahead, all data is
/// before one gap, even if new data is stamped by the same clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataAge {
    now_s: i64,
    /// Spans with data, and the life of this process, by descending end. They may overlap.
    spans_s: Vec<Range<i64>>,
}

impl DataAge {
    /// The age as of `now`, in a process that has been running for `running`. The data is that of a store, and of
    /// one whose collector was running meanwhile.
    pub fn of<'a>(
        manifests: impl IntoIterator<Item = &'a Manifest>,
        now: Timestamp,
        running: Duration,
    ) -> DataAge {
        let now_s = now.unix_ns().div_euclid(1_000_000_000);
        let running_s = i64::try_from(running.as_secs()).unwrap_or(i64::MAX);
        let attended_s = now_s.saturating_sub(running_s)..now_s;
        let mut spans_s = vec![attended_s];
        for file in manifests.into_iter().flat_map(|manifest| &manifest.files) {
            // Every row is in every tier. A file of minutes covers at most a day, so it has no gap that
            // matters, and minutes are kept as long as any tier.
            if let TableName::Sums(_, tier @ Tier::Minute) = file.table {
                let second = |period: u32| i64::from(period) * i64::from(tier.seconds());
                spans_s.push(second(file.from.0)..second(file.to.0).min(now_s));
            }
        }
        spans_s.retain(|span| !span.is_empty());
        spans_s.sort_unstable_by_key(|span| Reverse(span.end));
        DataAge { now_s, spans_s }
    }

    /// The point in time with this age.
    pub fn before(&self, age: Duration) -> Timestamp {
        let gap_max_s = AGE_GAP_MAX.as_secs().cast_signed();
        let mut remaining_s = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        let mut at_s = self.now_s;
        for span in &self.spans_s {
            for (point_s, counted_max_s) in [(span.end, gap_max_s), (span.start, i64::MAX)] {
                let counted_s = (at_s - point_s).min(counted_max_s);
                if counted_s > 0 {
                    if remaining_s <= counted_s {
                        return seconds(at_s.saturating_sub(remaining_s));
                    }
                    remaining_s -= counted_s;
                    at_s = point_s;
                }
            }
        }
        seconds(at_s.saturating_sub(remaining_s))
    }
}

fn seconds(unix_s: i64) -> Timestamp {
    Timestamp::from_unix_ns(unix_s.saturating_mul(1_000_000_000))
}

/// The files that retention dropped, for people to read.
#[derive(Debug)]
pub(crate) struct DroppedFiles {
    files: BTreeMap<TableName, usize>,
    bytes: u64,
    from_s: u32,
    to_s: u32,
}

impl DroppedFiles {
    /// `None` if there are no files.
    pub(crate) fn of<'a>(files: impl IntoIterator<Item = &'a FileEntry>) -> Option<DroppedFiles> {
        let mut dropped = DroppedFiles {
            files: BTreeMap::new(),
            bytes: 0,
            from_s: u32::MAX,
            to_s: 0,
        };
        for file in files {
            *dropped.files.entry(file.table).or_default() += 1;
            dropped.bytes += file.bytes;
            let start = file.start().map_or(file.from.0, |start| start.0);
            let end = file.end().map_or(start, |end| end.0);
            dropped.from_s = start.min(dropped.from_s);
            dropped.to_s = end.max(dropped.to_s);
        }
        (!dropped.files.is_empty()).then_some(dropped)
    }
}

impl fmt::Display for DroppedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = utc(self.from_s);
        let to = utc(self.to_s);
        let count = self.files.values().sum::<usize>();
        let bytes = self.bytes;
        write!(f, "{count} files of {bytes} bytes, from {from} to {to}:")?;
        for (place, (table, count)) in self.files.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            write!(f, "{comma} {count} of {}", table.name())?;
        }
        Ok(())
    }
}

fn utc(second: u32) -> jiff::Timestamp {
    jiff::Timestamp::constant(i64::from(second), 0)
}

/// The finest tier is dropped first when there is too much data.
fn drop_order(file: &FileEntry) -> Tier {
    match file.table {
        TableName::Sums(_, tier) => tier,
        _ => Tier::Second,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sums::table::SumTable;
    use crate::sums::tier::{Period, Second};

    const HOUR: u32 = 3_600;

    #[test]
    fn old_files_are_dropped_and_past_the_size_limit_the_finest_oldest_ones() {
        let files = vec![
            file_until(1, samples(Tier::Second), HOUR),
            file_until(2, samples(Tier::Second), 2 * HOUR),
            file_until(3, samples(Tier::Hour), 1),
            file_until(4, samples(Tier::Day), 1),
            file_until(5, TableName::Tasks, HOUR + 1),
            file_until(6, TableName::Frames, 9),
        ];
        let manifest = Manifest {
            files,
            ..Manifest::default()
        };
        check_expired(&manifest, 0, u64::MAX, &[]);
        check_expired(&manifest, 3, u64::MAX, &[1]);
        check_expired(&manifest, 4, u64::MAX, &[1, 2]);
        check_expired(&manifest, 6, u64::MAX, &[1, 5, 2]);
        check_expired(&manifest, 11, u64::MAX, &[1, 5, 2, 3]);
        check_expired(&manifest, 34, u64::MAX, &[1, 5, 2, 3, 4]);
        check_expired(&manifest, 0, 600, &[]);
        check_expired(&manifest, 0, 599, &[1]);
        check_expired(&manifest, 0, 400, &[1, 5]);
        check_expired(&manifest, 0, 250, &[1, 5, 2, 3]);
        check_expired(&manifest, 0, 0, &[1, 5, 2, 3, 4]);
    }

    #[test]
    fn names_beyond_half_of_the_size_limit_drop_no_data() {
        let names = FileEntry {
            bytes: 1_000,
            ..file_until(9, TableName::Frames, 9)
        };
        let data = (1..=5).map(|id| file_until(id.into(), samples(Tier::Second), id * HOUR));
        let manifest = Manifest {
            files: data.chain([names]).collect(),
            ..Manifest::default()
        };
        check_expired(&manifest, 0, 1_500, &[]);
        check_expired(&manifest, 0, 1_000, &[]);
        check_expired(&manifest, 0, 600, &[1, 2]);
    }

    fn check_expired(manifest: &Manifest, hours: u32, bytes_max: u64, expected: &[u64]) {
        let retention = Retention {
            seconds: in_hours(2),
            rollups: in_hours(10),
            tasks: in_hours(4),
            bytes_max,
        };
        let now = Timestamp::from_unix_ns(i64::from(hours * HOUR) * 1_000_000_000);
        let past = DataAge::of([manifest], now, Duration::ZERO);
        assert_eq!(
            retention.expired(manifest, &past, Timestamp::MAX),
            expected,
            "{hours} h, {bytes_max} bytes"
        );
    }

    fn samples(tier: Tier) -> TableName {
        TableName::Sums(SumTable::Samples, tier)
    }

    fn file_until(id: u64, table: TableName, to: u32) -> FileEntry {
        FileEntry {
            table,
            id,
            bytes: 100,
            rows: 1,
            crc32: 0,
            from: Period(0),
            to: Period(to),
            level: 0,
        }
    }

    fn in_hours(count: u64) -> Duration {
        Duration::from_secs(u64::from(HOUR) * count)
    }

    #[test]
    fn past_the_size_limit_files_of_the_far_future_are_dropped_first() {
        let files = vec![
            file(1, samples(Tier::Second), HOUR, 2 * HOUR),
            file(2, TableName::Tasks, HOUR, 2 * HOUR),
            // The day that contains the present ends in the future.
            file(3, samples(Tier::Day), 0, 1),
            file(4, samples(Tier::Second), 90 * HOUR, 91 * HOUR),
            file(5, samples(Tier::Day), 40, 41),
            file(6, TableName::Tasks, 80 * HOUR, 90 * HOUR),
        ];
        let mut manifest = Manifest {
            files,
            ..Manifest::default()
        };
        let now = Second(2 * HOUR).start();
        let age = DataAge::of([&manifest], now, Duration::ZERO);
        let expired = |bytes_max: u64, horizon: u32| {
            let retention = Retention {
                bytes_max,
                ..Retention::default()
            };
            retention.expired(&manifest, &age, Second(horizon).start())
        };
        assert_eq!(expired(600, 3 * HOUR), Vec::<u64>::new());
        assert_eq!(expired(300, 3 * HOUR), [6, 4, 5]);
        assert_eq!(expired(100, 3 * HOUR), [6, 4, 5, 1, 2]);
        // With a clock that was far ahead before, nothing is known to be of the future.
        assert_eq!(expired(300, 1_000 * HOUR), [1, 2, 6]);

        // The data of the present is still complete.
        manifest.expire(&[6, 4, 5], Second(3 * HOUR).start());
        assert_eq!(manifest.complete_from(), [Second(0); Tier::ALL.len()]);
        assert!(manifest.cut.is_empty());
        manifest.expire(&[1], Second(3 * HOUR).start());
        assert_eq!(manifest.complete_from()[0], Second(2 * HOUR));
    }

    fn file(id: u64, table: TableName, from: u32, to: u32) -> FileEntry {
        FileEntry {
            table,
            id,
            bytes: 100,
            rows: 1,
            crc32: 0,
            from: Period(from),
            to: Period(to),
            level: 0,
        }
    }

    const DAY: i64 = 86_400;

    /// Checks which day is `age` days before day `now`, with minutes of data in the days (from, to), in a
    /// process that has been running for `running` days.
    fn check_past(data: &[(i64, i64)], clock: (i64, i64), age: i64, expected: i64) {
        let (now, running) = clock;
        let days = data
            .iter()
            .flat_map(|(from, to)| (*from..*to).map(|day| (day, day + 1)));
        let files = (1..).zip(days).map(|(id, (from, to))| FileEntry {
            table: TableName::Sums(SumTable::Totals, Tier::Minute),
            id,
            bytes: 1,
            rows: 1,
            crc32: 0,
            from: minute(from),
            to: minute(to),
            level: 0,
        });
        let manifest = Manifest {
            files: files.collect(),
            ..Manifest::default()
        };
        let past = DataAge::of([&manifest], seconds(now * DAY), of_days(running));
        assert_eq!(
            past.before(of_days(age)),
            seconds(expected * DAY),
            "{data:?}, {age} of {now}"
        );
    }

    fn minute(day: i64) -> Period {
        Period(u32::try_from(day * DAY / 60).unwrap())
    }

    fn of_days(count: i64) -> Duration {
        Duration::from_secs((count * DAY).cast_unsigned())
    }

    #[test]
    fn a_time_without_data_counts_as_at_most_a_day() {
        let data = [(100, 120)];
        check_past(&data, (120, 0), 7, 113);
        check_past(&data, (121, 0), 7, 114);
        check_past(&data, (122, 0), 7, 114);
        // A clock years ahead, without and with data stamped by it.
        check_past(&data, (4_000, 0), 7, 114);
        check_past(&data, (4_000, 0), 1, 3_999);
        check_past(&[(100, 120), (3_998, 4_000)], (4_000, 0), 2, 3_998);
        check_past(&[(100, 120), (3_998, 4_000)], (4_000, 0), 7, 116);
        check_past(&[(100, 120), (3_990, 4_000)], (4_000, 0), 7, 3_993);
        // The clock is correct again, and the data stamped by it is still ahead.
        check_past(&[(100, 120), (3_998, 4_000)], (121, 0), 7, 114);
        // No data came, but the process was running.
        check_past(&data, (130, 10), 7, 123);
        check_past(&data, (130, 4), 7, 118);
        // Data on every other day; and ages before the first data.
        check_past(&[(100, 101), (102, 103), (104, 105)], (105, 0), 4, 101);
        check_past(&data, (120, 0), 50, 70);
        check_past(&[], (120, 0), 7, 113);
    }

    /// The store has had no owner since day 120, and another collector has data since.
    #[test]
    fn the_data_of_another_collector_shows_how_much_time_has_passed() {
        let store = minutes(100..120);
        let witness = minutes(90..150);
        let week = Duration::from_secs(7 * DAY.unsigned_abs());
        let now = seconds(150 * DAY);
        let before = |age: DataAge| age.before(week);
        assert_eq!(
            before(DataAge::of([&store], now, Duration::ZERO)),
            seconds(114 * DAY)
        );
        let both = DataAge::of([&store, &witness], now, Duration::ZERO);
        assert_eq!(before(both), seconds(143 * DAY));
    }

    fn minutes(days: std::ops::Range<i64>) -> Manifest {
        let files = days.map(|day| FileEntry {
            table: TableName::Sums(SumTable::Totals, Tier::Minute),
            id: 1,
            bytes: 1,
            rows: 1,
            crc32: 0,
            from: minute(day),
            to: minute(day + 1),
            level: 0,
        });
        Manifest {
            files: files.collect(),
            ..Manifest::default()
        }
    }

    #[test]
    fn dropped_files_are_described_by_table_and_time() {
        let minutes = TableName::Sums(SumTable::Samples, Tier::Minute);
        let files = [
            described(minutes, 60, 120),
            described(minutes, 24 * 60, 25 * 60),
            described(TableName::Tasks, 4_000, 9_000),
        ];
        assert!(DroppedFiles::of(&[]).is_none());
        assert_eq!(
            DroppedFiles::of(&files).unwrap().to_string(),
            "3 files of 300 bytes, from 1970-01-01T01:00:00Z to 1970-01-02T01:00:00Z: \
             2 of samples_1m, 1 of tasks"
        );
    }

    fn described(table: TableName, from: u32, to: u32) -> FileEntry {
        FileEntry {
            table,
            id: 1,
            bytes: 100,
            rows: 1,
            crc32: 0,
            from: Period(from),
            to: Period(to),
            level: 0,
        }
    }
}
