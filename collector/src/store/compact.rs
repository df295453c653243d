//! Compaction: files of one table, tier and partition become one, by a merge of their sorted rows.
//!
//! Memory is bounded whatever their sizes: a batch of rows of each of a few inputs, and one row
//! group of output. Files are merged by levels, so a row is written about log₈ n times however many
//! sealings there are; once the time of what is left is over, it becomes one file.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use profiler_core::{Epoch, Outcome, TaskId, Timestamp, WorkerId};
use rustc_hash::FxHashMap;

use super::error::StoreError;
use super::lists::{FrameRow, NodeRow, SealedTask, WorkerRow};
use super::manifest::{FileEntry, Manifest};
use super::record_lists::{LinkRow, compare_samples, compare_transfers};
use super::row::{Key, Row};
use super::seal::{TASKS_FILE_SECONDS, compare_tasks};
use super::segment::{
    ALL_COLUMNS, Batch, Cursor, Effort, ListRow, ListSegment, ListWriter, Scan, SegmentWriter,
    Written,
};
use super::table::{Counting, TableName};
use super::tables::{Swap, Tables};
use super::tier::{Second, Tier};
use crate::limits::nanoseconds;

/// Files of one level that are merged into one of the next.
const FANOUT: usize = 8;

/// Most files of one merge.
const INPUTS_MAX: usize = 16;

/// A file of this size is not merged again, and a merge begins another one past it.
const FULL_BYTES: u64 = 32 << 20;

/// A partition's files are merged into one when the largest is at most so many times the rest, so
/// that a little that comes late does not rewrite a lot.
const LARGEST_BY_REST: u64 = 4;

/// How long after the end of what files are about they are merged: what is late by less is in.
const CLOSED_AFTER: std::time::Duration = std::time::Duration::from_secs(600);

/// Which merges are due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// Those of full levels, and of partitions that ended before this point.
    By(Timestamp),
    /// All that make fewer files.
    Everything,
}

impl Tables {
    /// Merges one set of files, as [`choose`] gives it. Gives how many files it merged.
    pub(super) fn compact_one(
        &self,
        inputs: &[FileEntry],
        swap: &mut Swap<'_>,
    ) -> Result<usize, StoreError> {
        let table = inputs[0].table;
        let written = match table {
            TableName::Counting(counting, tier) => self.merge_rows((counting, tier), inputs)?,
            TableName::Frames => {
                self.merge_list(inputs, |a: &FrameRow, b| a.id.cmp(&b.id), |_| true)?
            }
            TableName::Nodes => {
                self.merge_list(inputs, |a: &NodeRow, b| a.id.cmp(&b.id), |_| true)?
            }
            TableName::Workers => {
                self.merge_list(inputs, |a: &WorkerRow, b| a.number.cmp(&b.number), |_| true)?
            }
            TableName::Tasks => {
                let replaced = self.replaced_tasks(inputs)?;
                let keep = |task: &SealedTask| {
                    replaced.get(&task_key(task)).is_none_or(|version| task.version == *version)
                };
                self.merge_list(inputs, compare_tasks, keep)?
            }
            TableName::Links => {
                self.merge_list(inputs, |a: &LinkRow, b| a.number.cmp(&b.number), |_| true)?
            }
            TableName::Transfers => self.merge_list(inputs, compare_transfers, |_| true)?,
            TableName::Resources => self.merge_list(inputs, compare_samples, |_| true)?,
            TableName::Running
            | TableName::Settled
            | TableName::Sessions
            | TableName::Runs
            | TableName::Expected => {
                unreachable!("they are replaced whole")
            }
        };
        let level = inputs.iter().map(|file| file.level).max().unwrap_or(0).saturating_add(1);
        let mut outputs = Vec::new();
        for written in written {
            outputs.push(self.put(table, level, written)?);
        }
        let ids: Vec<u64> = inputs.iter().map(|file| file.id).collect();
        self.publish(
            |manifest| {
                // One that was taken out meanwhile must not come back in what it was merged into;
                // then the outputs are garbage.
                let all_there = ids.iter().all(|id| manifest.file(*id).is_some());
                if all_there {
                    manifest.files.retain(|file| !ids.contains(&file.id));
                    manifest.files.append(&mut outputs);
                }
                all_there
            },
            swap,
        )?;
        self.close_files(ids);
        Ok(inputs.len())
    }

    fn merge_rows(
        &self,
        (counting, tier): (Counting, Tier),
        inputs: &[FileEntry],
    ) -> Result<Vec<Written>, StoreError> {
        let streams = inputs.iter().map(|file| RowStream::open(self, file, tier));
        let mut streams = streams.collect::<Result<Vec<_>, _>>()?;
        let mut outputs = Vec::new();
        let mut writer = SegmentWriter::new((counting, tier), Effort::Merged);
        let mut last: Option<Key> = None;
        while let Some(key) = streams.iter().filter_map(RowStream::key).min() {
            let mut value = 0u64;
            for stream in &mut streams {
                if stream.key() == Some(key) {
                    value = value.saturating_add(stream.take(self)?);
                }
            }
            let ends_group = last.is_some_and(|last| last.group() != key.group());
            if ends_group && writer.bytes() as u64 >= FULL_BYTES {
                let full = std::mem::replace(
                    &mut writer,
                    SegmentWriter::new((counting, tier), Effort::Merged),
                );
                outputs.extend(full.finish());
            }
            writer.push(key.fields(tier), value);
            last = Some(key);
        }
        outputs.extend(writer.finish());
        Ok(outputs)
    }

    /// Merges files of a list; rows that are not to be kept are left out.
    fn merge_list<R: ListRow>(
        &self,
        inputs: &[FileEntry],
        compare: impl Fn(&R, &R) -> Ordering,
        keep: impl Fn(&R) -> bool,
    ) -> Result<Vec<Written>, StoreError> {
        let streams = inputs.iter().map(|file| ListStream::open(self, file));
        let mut streams = streams.collect::<Result<Vec<ListStream<R>>, _>>()?;
        let mut outputs = Vec::new();
        let mut writer = ListWriter::new(inputs[0].table);
        loop {
            let heads = streams.iter_mut().filter(|stream| stream.head.is_some());
            let first = heads.min_by(|a, b| match (&a.head, &b.head) {
                (Some(a), Some(b)) => compare(a, b),
                _ => Ordering::Equal,
            });
            let Some(row) = first.map(|stream| stream.take(self)).transpose()?.flatten() else {
                break;
            };
            if keep(&row) {
                if writer.bytes() as u64 >= FULL_BYTES {
                    let full = std::mem::replace(&mut writer, ListWriter::new(inputs[0].table));
                    outputs.extend(full.finish());
                }
                writer.push(row);
            }
        }
        outputs.extend(writer.finish());
        Ok(outputs)
    }

    /// The tasks that were ended as lost and told of later, each with the version of its last row.
    /// No other task has more than one row: its worker's word is final.
    fn replaced_tasks(&self, inputs: &[FileEntry]) -> Result<FxHashMap<TaskKey, u64>, StoreError> {
        let mut versions: FxHashMap<TaskKey, u64> = FxHashMap::default();
        self.each_task(inputs, |task| {
            if task.row.record.outcome == Outcome::Lost {
                versions.insert(task_key(task), task.version);
            }
        })?;
        self.each_task(inputs, |task| {
            if let Some(version) = versions.get_mut(&task_key(task)) {
                *version = task.version.max(*version);
            }
        })?;
        Ok(versions)
    }

    fn each_task(
        &self,
        inputs: &[FileEntry],
        mut visit: impl FnMut(&SealedTask),
    ) -> Result<(), StoreError> {
        for file in inputs {
            self.tasks(file, &Default::default(), &mut |tasks| {
                tasks.iter().for_each(&mut visit);
                std::ops::ControlFlow::Continue(())
            })?;
        }
        Ok(())
    }
}

type TaskKey = (WorkerId, Epoch, TaskId);

fn task_key(task: &SealedTask) -> TaskKey {
    (task.row.worker.clone(), task.row.epoch, task.row.record.id)
}

/// Rows of a counting table's file, one after the other.
struct RowStream {
    file: FileEntry,
    tier: Tier,
    cursor: Cursor<'static>,
    batch: Batch,
    index: usize,
    head: Option<Row>,
}

impl RowStream {
    fn open(tables: &Tables, file: &FileEntry, tier: Tier) -> Result<RowStream, StoreError> {
        let scan = Scan { periods: file.from..file.to, tasks: None, columns: &ALL_COLUMNS };
        let cursor = tables.segment(file)?.cursor(&scan);
        let (batch, file) = (Batch::default(), file.clone());
        let mut stream = RowStream { file, tier, cursor, batch, index: 0, head: None };
        stream.take(tables)?;
        Ok(stream)
    }

    fn key(&self) -> Option<Key> {
        self.head.map(|row| row.key)
    }

    /// The value of the row at hand, which is left behind.
    fn take(&mut self, tables: &Tables) -> Result<u64, StoreError> {
        let taken = self.head.take();
        if self.index == self.batch.len() {
            tables.noting_damage(&self.file, self.cursor.next(&mut self.batch))?;
            self.index = 0;
        }
        if self.index < self.batch.len() {
            let next = self.batch.row(self.tier, self.index);
            if taken.is_some_and(|row| row.key >= next.key) {
                let damaged = StoreError::damaged(self.file.path(), "its rows are not in order");
                return tables.noting_damage(&self.file, Err(damaged));
            }
            self.head = Some(next);
            self.index += 1;
        }
        Ok(taken.map_or(0, |row| row.value))
    }
}

/// Rows of a list's file, one after the other.
struct ListStream<R> {
    file: FileEntry,
    segment: Arc<ListSegment>,
    next_group: usize,
    rows: std::vec::IntoIter<R>,
    head: Option<R>,
}

impl<R: ListRow> ListStream<R> {
    fn open(tables: &Tables, file: &FileEntry) -> Result<ListStream<R>, StoreError> {
        let segment = tables.list::<R>(file)?;
        let (file, rows) = (file.clone(), Vec::new().into_iter());
        let mut stream = ListStream { file, segment, next_group: 0, rows, head: None };
        stream.take(tables)?;
        Ok(stream)
    }

    fn take(&mut self, tables: &Tables) -> Result<Option<R>, StoreError> {
        let taken = self.head.take();
        self.head = self.rows.next();
        while self.head.is_none() && self.next_group < self.segment.group_count() {
            let rows = self.segment.group(self.next_group);
            self.rows = tables.noting_damage(&self.file, rows)?.into_iter();
            self.next_group += 1;
            self.head = self.rows.next();
        }
        Ok(taken)
    }
}

/// The files of the first merge that is due, without those that are left out.
pub(super) fn choose(
    manifest: &Manifest,
    due: Due,
    omitted: &BTreeSet<u64>,
) -> Option<Vec<FileEntry>> {
    let mut partitions: BTreeMap<(TableName, u32), Vec<&FileEntry>> = BTreeMap::new();
    let is_in = |file: &&FileEntry| file.bytes < FULL_BYTES && !omitted.contains(&file.id);
    for file in manifest.files.iter().filter(is_in) {
        if let Some(partition) = partition(file) {
            partitions.entry((file.table, partition)).or_default().push(file);
        }
    }
    partitions.into_values().find_map(|files| {
        let is_over = |file: &&FileEntry| match due {
            Due::Everything => true,
            Due::By(now) => is_over(file, now),
        };
        let ended = || files.iter().copied().filter(is_over).collect();
        let chosen = of_full_level(&files).or_else(|| of_ended(ended(), due))?;
        Some(chosen.into_iter().cloned().collect())
    })
}

/// Whether the time that a file is about is over. Rollups need not wait for the end of their
/// partition: each sealing makes a file of them with rows of nearly all stacks of the fleet, and a
/// question about an hour read 60 rows of each.
fn is_over(file: &FileEntry, now: Timestamp) -> bool {
    /// A minute is merged with the nine beside it.
    const ROLLUPS_END_EVERY: u32 = Tier::TenMinutes.seconds();
    let end = match file.table {
        TableName::Counting(_, tier) if tier > Tier::Second => end_of(file)
            .map(|end| end.0.div_ceil(ROLLUPS_END_EVERY).saturating_mul(ROLLUPS_END_EVERY)),
        _ => partition(file).and_then(|partition| ends(file.table, partition)),
    };
    end.is_some_and(|end| Second(end).start().shifted(nanoseconds(CLOSED_AFTER)) <= now)
}

/// The oldest files of the lowest level that has enough of them.
fn of_full_level<'a>(files: &[&'a FileEntry]) -> Option<Vec<&'a FileEntry>> {
    let mut levels: BTreeMap<u8, Vec<&FileEntry>> = BTreeMap::new();
    files.iter().for_each(|file| levels.entry(file.level).or_default().push(file));
    let full = levels.into_values().find(|files| files.len() >= FANOUT)?;
    Some(full.into_iter().take(INPUTS_MAX).collect())
}

/// Those of files of a partition whose time is over, but for those that are much larger than the rest.
fn of_ended(mut files: Vec<&FileEntry>, due: Due) -> Option<Vec<&FileEntry>> {
    files.sort_by_key(|file| (file.bytes, file.id));
    files.truncate(INPUTS_MAX);
    while files.len() >= 2 {
        let (largest, rest) = files.split_last().expect("there are two");
        let rest: u64 = rest.iter().map(|file| file.bytes).sum();
        if due == Due::Everything || largest.bytes <= rest * LARGEST_BY_REST {
            return Some(files);
        }
        files.pop();
    }
    None
}

/// Which files of its table a file may be merged with; `None` if with none.
pub(super) fn partition(file: &FileEntry) -> Option<u32> {
    match file.table {
        TableName::Counting(_, tier) => Some(file.from.0 / tier.periods_in_file()),
        table if table.is_by_day() => Some(file.to.0.saturating_sub(1) / TASKS_FILE_SECONDS),
        table if table.is_replaced() => None,
        _ => Some(0),
    }
}

/// When a partition's time is over; `None` for tables of ids, which grow for ever.
fn ends(table: TableName, partition: u32) -> Option<u32> {
    let seconds = match table {
        TableName::Counting(_, tier) => tier.periods_in_file() * tier.seconds(),
        table if table.is_by_day() => TASKS_FILE_SECONDS,
        _ => return None,
    };
    Some(partition.saturating_add(1).saturating_mul(seconds))
}

/// Where a file stands in time, as the second after its last one; `None` for tables without time.
pub(super) fn end_of(file: &FileEntry) -> Option<Second> {
    match file.table {
        TableName::Counting(_, tier) => Some(Second(file.to.0.saturating_mul(tier.seconds()))),
        table if table.is_by_day() => Some(Second(file.to.0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tier::Period;
    use super::*;

    /// Files as (table, first and last second, megabytes), by id from 1; which are merged `after` so
    /// many seconds.
    fn check(files: &[(TableName, std::ops::Range<u32>, u64)], after: i64, expected: &[u64]) {
        let files = (1..).zip(files).map(|(id, (table, seconds, megabytes))| {
            let of = |second: u32| match table {
                TableName::Counting(_, tier) => Period(second / tier.seconds()),
                _ => Period(second),
            };
            let (from, to) = (of(seconds.start), Period(of(seconds.end - 1).0 + 1));
            let (bytes, rows, crc32, level) = (megabytes << 20, 1, 0, 0);
            FileEntry { table: *table, id, bytes, rows, crc32, from, to, level }
        });
        let manifest = Manifest { files: files.collect(), ..Manifest::default() };
        let due = Due::By(Timestamp::from_unix_ns(after * 1_000_000_000));
        let chosen = choose(&manifest, due, &BTreeSet::new());
        let ids: Vec<u64> = chosen.iter().flatten().map(|file| file.id).collect();
        assert_eq!(ids, expected, "{after}");
    }

    #[test]
    fn files_are_merged_once_what_they_are_about_is_over() {
        const HOUR: u32 = 3_600;
        let of = |tier| TableName::Counting(Counting::SamplesAll, tier);
        let hours = of(Tier::Hour);
        let two = [(hours, 0..60, 1), (hours, 60..120, 1)];
        check(&two, 4_199, &[]);
        check(&two, 4_200, &[1, 2]);
        // The next hour goes on.
        check(
            &[(hours, 0..60, 1), (hours, 60..120, 1), (hours, HOUR..HOUR + 9, 1)],
            4_200,
            &[1, 2],
        );
        // So little is not worth to write so much again.
        check(&[(hours, 0..60, 9), (hours, 60..120, 2)], 9_000, &[]);
        // Minutes with those beside them; days when they are over; seconds with their hour.
        let minutes = of(Tier::Minute);
        let two = [(minutes, 0..60, 1), (minutes, 60..120, 1)];
        check(&two, 1_199, &[]);
        check(&two, 1_200, &[1, 2]);
        let days = of(Tier::Day);
        let two = [(days, 0..60, 1), (days, HOUR..2 * HOUR, 1)];
        check(&two, 24 * 3_600 + 599, &[]);
        check(&two, 24 * 3_600 + 600, &[1, 2]);
        let seconds = TableName::Counting(Counting::Samples, Tier::Second);
        check(&[(seconds, 0..60, 1), (seconds, 60..120, 1)], 4_199, &[]);
        check(&[(seconds, 0..60, 1), (seconds, 60..120, 1)], 4_200, &[1, 2]);
        check(&[(seconds, 0..60, 1), (seconds, HOUR..HOUR + 60, 1)], 90_000, &[]);
        // Tables of ids grow for ever.
        check(&[(TableName::Nodes, 1..60, 1), (TableName::Nodes, 60..120, 1)], 90_000, &[]);
    }
}
