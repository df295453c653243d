//! Compaction: merges the sorted rows of files of one table, tier and partition into one file.
//!
//! Memory is bounded whatever the file sizes: a batch of rows of each of a few inputs, and one row
//! group of output. Files are merged by levels, so a row is written about log₈ n times in n sealings.
//! Once the time of a partition is over, its remaining files become one.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use profiler_core::hash::KeyedMap;
use profiler_core::{Epoch, Outcome, TaskId, Timestamp, WorkerId};

use crate::error::StoreError;
use crate::lists::telemetry_lists::{LinkRow, compare_samples, compare_transfers};
use crate::lists::{FrameRow, NodeRow, SealedTask, WorkerRow};
use crate::manifest::{FileEntry, Manifest};
use crate::seal::{TASKS_FILE_SECONDS, compare_tasks};
use crate::segment::{
    ALL_COLUMNS, Batch, Compression, Cursor, EncodedFile, ListRow, ListSegment, ListWriter, Scan,
    SegmentWriter,
};
use crate::sums::row::{Key, Row};
use crate::sums::table::{SumTable, TableName};
use crate::sums::tier::{Second, Tier};
use crate::tables::{OnPublish, Tables};
use base::limits::nanoseconds;

/// Files of one level that are merged into one of the next.
const FANOUT: usize = 8;

/// Most files of one merge.
const INPUTS_MAX: usize = 16;

/// A file of this size is not merged again, and a merge starts another output past it.
const FULL_BYTES: u64 = 32 << 20;

/// A partition's files are merged into one if the largest is at most this many times the rest, so that
/// a little late data does not rewrite a lot.
const LARGEST_BY_REST: u64 = 4;

/// Time between the end of files' data and their merge: data that is late by less is included.
const CLOSED_AFTER: std::time::Duration = std::time::Duration::from_secs(600);

/// Merges that are due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// Merges of full levels, and of partitions that ended before this point.
    By(Timestamp),
    /// All merges that reduce the number of files.
    Everything,
}

impl Tables {
    /// Merges one set of files, as [`choose`] returns it. Returns the number of files merged.
    pub(crate) fn compact_one(
        &self,
        inputs: &[FileEntry],
        on_publish: &mut OnPublish<'_>,
    ) -> Result<usize, StoreError> {
        let table = inputs[0].table;
        let written = match table {
            TableName::Sums(sum_table, tier) => self.merge_rows(sum_table, tier, inputs)?,
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
                self.merge_list(inputs, compare_tasks, |task: &SealedTask| {
                    replaced
                        .get(&task_key(task))
                        .is_none_or(|version| task.version == *version)
                })?
            }
            TableName::Links => {
                self.merge_list(inputs, |a: &LinkRow, b| a.number.cmp(&b.number), |_| true)?
            }
            TableName::Transfers => self.merge_list(inputs, compare_transfers, |_| true)?,
            TableName::Resources => self.merge_list(inputs, compare_samples, |_| true)?,
            TableName::Running
            | TableName::LostTasks
            | TableName::Sessions
            | TableName::Runs
            | TableName::Expected => {
                unreachable!("every sealing replaces these tables")
            }
        };
        let level = inputs
            .iter()
            .map(|file| file.level)
            .max()
            .unwrap_or(0)
            .saturating_add(1);
        let mut outputs = Vec::new();
        for written in written {
            outputs.push(self.put(table, level, written)?);
        }
        let ids: Vec<u64> = inputs.iter().map(|file| file.id).collect();
        self.publish(
            |manifest| {
                // An input that was removed meanwhile must not come back in the output; then the
                // outputs are garbage.
                let are_current = ids.iter().all(|id| manifest.file(*id).is_some());
                if are_current {
                    manifest.files.retain(|file| !ids.contains(&file.id));
                    manifest.files.append(&mut outputs);
                }
                are_current
            },
            on_publish,
        )?;
        self.close_files(ids);
        Ok(inputs.len())
    }

    fn merge_rows(
        &self,
        sum_table: SumTable,
        tier: Tier,
        inputs: &[FileEntry],
    ) -> Result<Vec<EncodedFile>, StoreError> {
        let mut streams = inputs
            .iter()
            .map(|file| RowStream::open(self, file, tier))
            .collect::<Result<Vec<_>, _>>()?;
        let mut outputs = Vec::new();
        let mut writer = SegmentWriter::new(sum_table, tier, Compression::Merged);
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
                    SegmentWriter::new(sum_table, tier, Compression::Merged),
                );
                outputs.extend(full.finish());
            }
            writer.push(key.fields(tier), value);
            last = Some(key);
        }
        outputs.extend(writer.finish());
        Ok(outputs)
    }

    /// Merges files of a list, without the rows for which `keep` is `false`.
    fn merge_list<R: ListRow>(
        &self,
        inputs: &[FileEntry],
        compare: impl Fn(&R, &R) -> Ordering,
        keep: impl Fn(&R) -> bool,
    ) -> Result<Vec<EncodedFile>, StoreError> {
        let mut streams = inputs
            .iter()
            .map(|file| ListStream::open(self, file))
            .collect::<Result<Vec<ListStream<R>>, _>>()?;
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

    /// The tasks that the collector ended as lost, each with the version of its last row. Only these
    /// can have several rows, because the end that a worker reports is final.
    fn replaced_tasks(&self, inputs: &[FileEntry]) -> Result<KeyedMap<TaskKey, u64>, StoreError> {
        let mut versions: KeyedMap<TaskKey, u64> = KeyedMap::default();
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

/// The rows of a sum table's file, one after the other.
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
        let scan = Scan {
            spans: None,
            periods: file.from..file.to,
            tasks: None,
            workers: None,
            columns: &ALL_COLUMNS,
            sums_only: false,
        };
        let cursor = tables.segment(file)?.cursor(&scan);
        let batch = Batch::default();
        let file = file.clone();
        let mut stream = RowStream {
            file,
            tier,
            cursor,
            batch,
            index: 0,
            head: None,
        };
        stream.take(tables)?;
        Ok(stream)
    }

    fn key(&self) -> Option<Key> {
        self.head.map(|row| row.key)
    }

    /// Returns the value of the current row and moves on to the next one.
    fn take(&mut self, tables: &Tables) -> Result<u64, StoreError> {
        let taken = self.head.take();
        if self.index == self.batch.row_count() {
            tables.note_damage(&self.file, self.cursor.next(&mut self.batch))?;
            self.index = 0;
        }
        if self.index < self.batch.row_count() {
            let next = self.batch.row(self.tier, self.index);
            if taken.is_some_and(|row| row.key >= next.key) {
                let damaged = StoreError::damaged(self.file.path(), "its rows are not in order");
                return tables.note_damage(&self.file, Err(damaged));
            }
            self.head = Some(next);
            self.index += 1;
        }
        Ok(taken.map_or(0, |row| row.value))
    }
}

/// The rows of a list's file, one after the other.
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
        let file = file.clone();
        let rows = Vec::new().into_iter();
        let mut stream = ListStream {
            file,
            segment,
            next_group: 0,
            rows,
            head: None,
        };
        stream.take(tables)?;
        Ok(stream)
    }

    fn take(&mut self, tables: &Tables) -> Result<Option<R>, StoreError> {
        let taken = self.head.take();
        self.head = self.rows.next();
        while self.head.is_none() && self.next_group < self.segment.group_count() {
            let rows = self.segment.group(self.next_group);
            self.rows = tables.note_damage(&self.file, rows)?.into_iter();
            self.next_group += 1;
            self.head = self.rows.next();
        }
        Ok(taken)
    }
}

/// The files of the first merge that is due, without the omitted ones.
pub(crate) fn choose(
    manifest: &Manifest,
    due: Due,
    omitted: &BTreeSet<u64>,
) -> Option<Vec<FileEntry>> {
    let mut partitions: BTreeMap<(TableName, u32), Vec<&FileEntry>> = BTreeMap::new();
    for file in manifest
        .files
        .iter()
        .filter(|file: &&FileEntry| file.bytes < FULL_BYTES && !omitted.contains(&file.id))
    {
        if let Some(partition) = partition(file) {
            partitions
                .entry((file.table, partition))
                .or_default()
                .push(file);
        }
    }
    partitions.into_values().find_map(|files| {
        let ended = || {
            files
                .iter()
                .copied()
                .filter(|file: &&FileEntry| match due {
                    Due::Everything => true,
                    Due::By(now) => is_over(file, now),
                })
                .collect()
        };
        let chosen = of_full_level(&files).or_else(|| of_ended(ended(), due))?;
        Some(chosen.into_iter().cloned().collect())
    })
}

/// Whether the time of a file's data is over. Rollups need not wait for the end of their partition:
/// each sealing writes a file of them with rows of nearly all stacks of the fleet, and a query over an
/// hour would read each stack 60 times.
fn is_over(file: &FileEntry, now: Timestamp) -> bool {
    /// A minute is merged with the nine next to it.
    const ROLLUPS_END_EVERY: u32 = Tier::TenMinutes.seconds();
    let end = match file.table {
        TableName::Sums(_, tier) if tier > Tier::Second => file.end().map(|end| {
            end.0
                .div_ceil(ROLLUPS_END_EVERY)
                .saturating_mul(ROLLUPS_END_EVERY)
        }),
        _ => partition(file).and_then(|partition| ends(file.table, partition)),
    };
    end.is_some_and(|end| Second(end).start().shifted(nanoseconds(CLOSED_AFTER)) <= now)
}

/// The oldest files of the lowest level that has at least [`FANOUT`].
fn of_full_level<'a>(files: &[&'a FileEntry]) -> Option<Vec<&'a FileEntry>> {
    let mut levels: BTreeMap<u8, Vec<&FileEntry>> = BTreeMap::new();
    files
        .iter()
        .for_each(|file| levels.entry(file.level).or_default().push(file));
    let full = levels.into_values().find(|files| files.len() >= FANOUT)?;
    Some(full.into_iter().take(INPUTS_MAX).collect())
}

/// The files of a partition whose time is over, without those that are much larger than the rest.
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

/// The partition of a file: files of one table and partition may be merged. `None` if a file is never
/// merged.
pub(crate) fn partition(file: &FileEntry) -> Option<u32> {
    match file.table {
        TableName::Sums(_, tier) => Some(file.from.0 / tier.periods_in_file()),
        table if table.is_by_day() => Some(file.to.0.saturating_sub(1) / TASKS_FILE_SECONDS),
        table if table.is_replaced() => None,
        _ => Some(0),
    }
}

/// The second at which a partition's time is over; `None` for tables of ids, which grow forever.
fn ends(table: TableName, partition: u32) -> Option<u32> {
    let seconds = match table {
        TableName::Sums(_, tier) => tier.periods_in_file() * tier.seconds(),
        table if table.is_by_day() => TASKS_FILE_SECONDS,
        _ => return None,
    };
    Some(partition.saturating_add(1).saturating_mul(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sums::tier::Period;

    /// Checks which of the files (table, seconds, megabytes) with ids from 1 are merged at the Unix
    /// time `after`.
    fn check(files: &[(TableName, std::ops::Range<u32>, u64)], after: i64, expected: &[u64]) {
        let files = (1..).zip(files).map(|(id, (table, seconds, megabytes))| {
            let of = |second: u32| match table {
                TableName::Sums(_, tier) => Period(second / tier.seconds()),
                _ => Period(second),
            };
            FileEntry {
                table: *table,
                id,
                bytes: megabytes << 20,
                rows: 1,
                crc32: 0,
                from: of(seconds.start),
                to: Period(of(seconds.end - 1).0 + 1),
                level: 0,
            }
        });
        let manifest = Manifest {
            files: files.collect(),
            ..Manifest::default()
        };
        let due = Due::By(Timestamp::from_unix_ns(after * 1_000_000_000));
        let chosen = choose(&manifest, due, &BTreeSet::new());
        let ids: Vec<u64> = chosen.iter().flatten().map(|file| file.id).collect();
        assert_eq!(ids, expected, "{after}");
    }

    #[test]
    fn files_are_merged_once_the_time_of_their_data_is_over() {
        const HOUR: u32 = 3_600;
        let hours = samples_of_all(Tier::Hour);
        let two = [(hours, 0..60, 1), (hours, 60..120, 1)];
        check(&two, 4_199, &[]);
        check(&two, 4_200, &[1, 2]);
        // The next hour is not over.
        check(
            &[
                (hours, 0..60, 1),
                (hours, 60..120, 1),
                (hours, HOUR..HOUR + 9, 1),
            ],
            4_200,
            &[1, 2],
        );
        // The small file does not justify rewriting the large one.
        check(&[(hours, 0..60, 9), (hours, 60..120, 2)], 9_000, &[]);
        // Minutes are merged with those next to them; days when they are over; seconds with their hour.
        let minutes = samples_of_all(Tier::Minute);
        let two = [(minutes, 0..60, 1), (minutes, 60..120, 1)];
        check(&two, 1_199, &[]);
        check(&two, 1_200, &[1, 2]);
        let days = samples_of_all(Tier::Day);
        let two = [(days, 0..60, 1), (days, HOUR..2 * HOUR, 1)];
        check(&two, 24 * 3_600 + 599, &[]);
        check(&two, 24 * 3_600 + 600, &[1, 2]);
        let seconds = TableName::Sums(SumTable::Samples, Tier::Second);
        check(&[(seconds, 0..60, 1), (seconds, 60..120, 1)], 4_199, &[]);
        check(
            &[(seconds, 0..60, 1), (seconds, 60..120, 1)],
            4_200,
            &[1, 2],
        );
        check(
            &[(seconds, 0..60, 1), (seconds, HOUR..HOUR + 60, 1)],
            90_000,
            &[],
        );
        // Tables of ids grow forever.
        check(
            &[(TableName::Nodes, 1..60, 1), (TableName::Nodes, 60..120, 1)],
            90_000,
            &[],
        );
    }

    fn samples_of_all(tier: Tier) -> TableName {
        TableName::Sums(SumTable::SamplesAll, tier)
    }
}
