//! The newest of many tasks: matching tasks are counted by the columns of the query, and only rows that
//! may be among the newest are read whole.

use std::ops::ControlFlow;

use profiler_core::{TaskId, TimeRange, Timestamp};

use crate::error::StoreError;
use crate::lists::SealedTask;
use crate::manifest::FileEntry;
use crate::rows::{ByStart, NewestTasks, TaskFilter, overlaps};
use crate::segment::ListSegment;
use crate::tables::Tables;
use crate::union::PartFile;

/// Tasks to count and select.
#[derive(Clone, Debug)]
pub struct NewestTaskScan<'a> {
    range: TimeRange,
    filter: &'a TaskFilter,
    /// Columns, and the texts of which each column must have one.
    texts: Vec<(&'static str, Vec<&'a str>)>,
}

/// A row of a row group, without what does not decide whether it is among the newest.
#[derive(Debug)]
struct RankedRow {
    number: usize,
    task: ByStart,
}

/// At or before all rows of a group.
fn first_of(segment: &ListSegment, group: usize) -> ByStart {
    let start = segment
        .number_bounds(group, "start")
        .map_or(i64::MAX, |(_, latest)| latest);
    let ids = segment.number_bounds(group, "id");
    // Ids are stored as signed numbers: those from 2^63 on would be the lowest.
    let id = ids
        .filter(|(lowest, _)| *lowest >= 0)
        .map_or(0, |(lowest, _)| lowest.unsigned_abs());
    ByStart::new(Timestamp::from_unix_ns(start), TaskId(id))
}

impl<'a> NewestTaskScan<'a> {
    /// Tasks that overlap `range` and that `filter` keeps.
    pub fn new(range: TimeRange, filter: &'a TaskFilter) -> NewestTaskScan<'a> {
        fn all(texts: &[String]) -> Vec<&str> {
            texts.iter().map(String::as_str).collect()
        }
        let TaskFilter {
            names,
            keys,
            workers,
            outcomes,
            types,
        } = filter;
        // The most selective and cheapest columns first.
        let mut texts = vec![
            ("key", all(keys)),
            ("name", all(names)),
            ("worker", all(workers)),
            (
                "outcome",
                outcomes.iter().map(|outcome| outcome.name()).collect(),
            ),
            ("type_name", all(types)),
        ];
        texts.retain(|(_, texts)| !texts.is_empty());
        NewestTaskScan {
            range,
            filter,
            texts,
        }
    }

    /// Counts the tasks of a row group, and selects the newest of them.
    fn select(
        &self,
        segment: &ListSegment,
        group: usize,
        selecting: &mut NewestTasks,
    ) -> Result<(), StoreError> {
        let Some(counts) = self.counts(segment, group)? else {
            return Ok(());
        };
        selecting.count(counts.iter().filter(|counts| **counts).count() as u64);
        if !selecting.wants(first_of(segment, group)) {
            return Ok(());
        }
        let mut rows = Self::ranked(segment, group)?;
        rows.retain(|row| counts[row.number] && selecting.wants(row.task));
        // Of the tasks of this group only the newest `limit` are read, and those that have the id of the
        // last of them.
        let mut tasks: Vec<ByStart> = rows.iter().map(|row| row.task).collect();
        let last_place = tasks
            .len()
            .checked_sub(1)
            .map(|last| last.min(selecting.limit() - 1));
        let last = last_place.map(|last| *tasks.select_nth_unstable(last).1);
        let mut is_selected = vec![false; counts.len()];
        for row in rows.iter().filter(|row| Some(row.task) <= last) {
            is_selected[row.number] = true;
        }
        let ranges = segment.ranges_where(group, is_selected.into_iter());
        for SealedTask { row, .. } in segment.rows(group, &ranges)? {
            // The ranges include a few other rows.
            if overlaps(&row, self.range) && self.filter.keeps(&row) {
                selecting.keep(row);
            }
        }
        Ok(())
    }

    /// Rows of a row group with the keys that decide which of them are the newest.
    fn ranked(segment: &ListSegment, group: usize) -> Result<Vec<RankedRow>, StoreError> {
        let starts = segment.numbers(group, "start")?;
        let ids = segment.numbers(group, "id")?;
        let rows = starts.into_iter().zip(ids).enumerate();
        let ranked = rows.map(|(number, (start, id))| {
            let start = Timestamp::from_unix_ns(start.unwrap_or_default());
            let id = TaskId(id.unwrap_or_default().cast_unsigned());
            RankedRow {
                number,
                task: ByStart::new(start, id),
            }
        });
        Ok(ranked.collect())
    }

    /// Whether each row of a row group matches; `None` if no row does.
    fn counts(&self, segment: &ListSegment, group: usize) -> Result<Option<Vec<bool>>, StoreError> {
        let bounds = |column| {
            segment
                .number_bounds(group, column)
                .unwrap_or((i64::MIN, i64::MAX))
        };
        let starts = bounds("start");
        let stops = bounds("stop");
        let [start, stop] = [self.range.start(), self.range.stop()].map(Timestamp::unix_ns);
        if starts.0 >= stop || stops.1 < start {
            return Ok(None);
        }
        for (column, texts) in &self.texts {
            let mut may_hold = false;
            for text in texts {
                may_hold |= segment.may_hold(group, column, text)?;
            }
            if !may_hold {
                return Ok(None);
            }
        }
        let mut counts = vec![true; segment.all_rows(group).len()];
        for (column, texts) in &self.texts {
            let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
            rule_out(
                &mut counts,
                segment.texts_where(group, column, |text| texts.contains(&text))?,
            );
        }
        if starts.1 >= stop {
            let starts = segment.numbers(group, "start")?.into_iter();
            rule_out(
                &mut counts,
                starts.map(|at| at.is_none_or(|at| at < stop)).collect(),
            );
        }
        if stops.0 < start {
            let stops = segment.numbers(group, "stop")?.into_iter();
            rule_out(
                &mut counts,
                stops.map(|at| at.is_none_or(|at| at >= start)).collect(),
            );
        }
        Ok(Some(counts))
    }
}

fn rule_out(counts: &mut [bool], keeps: Vec<bool>) {
    counts
        .iter_mut()
        .zip(keeps)
        .for_each(|(counts, keeps)| *counts &= keeps);
}

impl Tables {
    /// Counts the tasks of a file of `tasks` that match `scan`, and selects the newest of them. Calls
    /// `go_on` before each part of the work.
    ///
    /// # Errors
    /// As [`Tables::scan`].
    pub fn newest_tasks(
        &self,
        file: &FileEntry,
        scan: &NewestTaskScan<'_>,
        selecting: &mut NewestTasks,
        go_on: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        if let Some(PartFile { part, file }) = self.part_of(file) {
            return part.tables.newest_tasks(&file, scan, selecting, go_on);
        }
        let segment = self.list::<SealedTask>(file)?;
        let mut groups: Vec<usize> = (0..segment.group_count()).collect();
        groups.sort_by_cached_key(|group| first_of(&segment, *group));
        for group in groups {
            if go_on().is_break() {
                break;
            }
            self.note_damage(file, scan.select(&segment, group, selecting))?;
        }
        Ok(())
    }
}
