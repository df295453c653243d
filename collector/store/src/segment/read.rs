//! Reads a sum table's file in batches of rows, without the pages that statistics exclude.

use std::ops::Range;
use std::sync::Arc;

use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{
    PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;
use profiler_core::NodeId;

use super::super::error::StoreError;
use super::super::manifest::FileEntry;
use super::super::objects::{Object, Objects};
use super::bytes::{ChunkBytes, FileBytes};
use super::decode_checked;
use super::pages::Pages;
use super::schema::check_facts;
use crate::sums::row::{Fields, Key, Row, WorkerNumber};
use crate::sums::table::{Column, SumTable};
use crate::sums::tier::{Period, Second, Tier};

/// Most rows of a [`Batch`]: its columns fit in the L2 cache.
const BATCH_ROWS: usize = 8_192;

/// All key columns of sum tables.
pub(crate) const ALL_COLUMNS: [Column; 4] =
    [Column::Task, Column::Worker, Column::Kind, Column::Node];

/// Bytes that are read at once to verify a checksum.
const CHECK_BYTES: u64 = 1 << 20;

/// Selects the rows and columns of a file to read. Rows of other periods, tasks and workers may be returned
/// too: the caller filters.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    pub periods: Range<Period>,
    /// The seconds of these periods to read, in rising order; `None` for all.
    pub spans: Option<&'a [Range<Second>]>,
    /// In rising order; `None` for all.
    pub tasks: Option<&'a [NodeId]>,
    /// In rising order; `None` for all.
    pub workers: Option<&'a [WorkerNumber]>,
    /// In addition to periods and sums, which are always read. If `workers` are requested, so is their column.
    pub columns: &'a [Column],
    /// Whether the periods do not matter: rows of a whole file may come added up.
    pub sums_only: bool,
}

/// Rows by column. Columns that were not requested, or that the table does not have, are empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Periods of the table's tier.
    pub ts: Vec<u32>,
    pub task: Vec<u32>,
    pub worker: Vec<u32>,
    pub kind: Vec<u8>,
    pub node: Vec<u32>,
    pub values: Vec<u64>,
    /// Whether these are the sums of all requested rows of a file, and of no others.
    pub is_summed: bool,
}

impl Batch {
    /// Memory of the columns.
    pub(crate) fn bytes(&self) -> usize {
        let numbers = self.ts.len() + self.task.len() + self.worker.len() + self.node.len();
        numbers * size_of::<u32>() + self.kind.len() + self.values.len() * size_of::<u64>()
    }

    /// Number of rows.
    pub fn row_count(&self) -> usize {
        self.values.len()
    }

    /// A row; empty columns count as 0.
    pub fn row(&self, tier: Tier, index: usize) -> Row {
        let fields = Fields {
            ts: Period(self.ts[index]),
            task: NodeId(value_at(&self.task, index)),
            worker: WorkerNumber(value_at(&self.worker, index)),
            kind: self.kind.get(index).copied().unwrap_or(0),
            node: value_at(&self.node, index),
        };
        Row {
            key: Key::new(tier, fields),
            value: self.values[index],
        }
    }

    fn clear(&mut self) {
        let Batch {
            ts,
            task,
            worker,
            kind,
            node,
            values,
            is_summed,
        } = self;
        *is_summed = false;
        for column in [ts, task, worker, node] {
            column.clear();
        }
        kind.clear();
        values.clear();
    }
}

/// A value of a column; 0 if the column is empty.
pub(crate) fn value_at(column: &[u32], index: usize) -> u32 {
    column.get(index).copied().unwrap_or(0)
}

/// An open file of a sum table with a verified checksum.
#[derive(Debug)]
pub(crate) struct Segment {
    path: String,
    sum_table: SumTable,
    tier: Tier,
    object: Arc<Object>,
    pub(super) footer: ParquetMetaData,
}

/// Opens a file of a table, and verifies that it is as it was written. Every reader's way to a file's content.
pub(crate) fn open_checked(objects: &Objects, entry: &FileEntry) -> Result<Object, StoreError> {
    let object = objects.open(&entry.path())?;
    check_file(&object, entry)?;
    Ok(object)
}

/// Verifies the length and checksum of a file. A difference is damage.
fn check_file(object: &Object, entry: &FileEntry) -> Result<(), StoreError> {
    let bytes = object.bytes();
    if bytes != entry.bytes {
        let reason = format!("it has {bytes} bytes; {} were written", entry.bytes);
        return Err(StoreError::damaged(entry.path(), reason));
    }
    let mut crc32 = crc32fast::Hasher::new();
    let mut at = 0;
    while at < bytes {
        let length = CHECK_BYTES.min(bytes - at);
        crc32.update(&object.read(at, length)?);
        at += length;
    }
    if crc32.finalize() != entry.crc32 {
        return Err(StoreError::damaged(entry.path(), "its checksum is wrong"));
    }
    Ok(())
}

impl Segment {
    /// Opens a file and verifies its checksum.
    pub(crate) fn open(
        objects: &Objects,
        entry: &FileEntry,
        sum_table: SumTable,
        tier: Tier,
    ) -> Result<Segment, StoreError> {
        let path = entry.path();
        let object = Arc::new(open_checked(objects, entry)?);
        let footer = decode_checked(&path, || {
            ParquetMetaDataReader::new()
                .with_column_index_policy(PageIndexPolicy::Optional)
                .with_offset_index_policy(PageIndexPolicy::Required)
                .parse_and_finish(&FileBytes(object.clone()))
        })?;
        check_facts(&footer, &sum_table.name(tier))
            .map_err(|reason| StoreError::damaged(&*path, reason))?;
        let schema = sum_table.schema();
        if footer.file_metadata().schema() != schema.as_ref() {
            return Err(StoreError::damaged(
                path,
                "its columns differ from those of its table",
            ));
        }
        let rows = u64::try_from(footer.file_metadata().num_rows()).unwrap_or(0);
        let groups = footer.row_groups().iter().map(|group| group.num_rows());
        if rows != entry.rows || groups.map(|rows| rows.max(0).unsigned_abs()).sum::<u64>() != rows
        {
            let reason = format!("it has {rows} rows; {} were written", entry.rows);
            return Err(StoreError::damaged(path, reason));
        }
        Ok(Segment {
            path,
            sum_table,
            tier,
            object,
            footer,
        })
    }

    /// Memory of the footer.
    pub(crate) fn footer_bytes(&self) -> usize {
        self.footer.memory_size()
    }

    /// Starts a scan.
    pub(crate) fn cursor<'a>(self: &Arc<Self>, scan: &Scan<'a>) -> Cursor<'a> {
        Cursor {
            segment: self.clone(),
            scan: scan.clone(),
            wanted: self
                .sum_table
                .columns()
                .iter()
                .map(|column: &Column| {
                    let is_filtered = *column == Column::Worker && scan.workers.is_some();
                    is_filtered || scan.columns.contains(column)
                })
                .collect(),
            next_group: 0,
            group: None,
            scratch: Scratch::default(),
        }
    }

    /// The rows of a row group that may match, by the statistics of its pages; in rising order.
    fn rows_in_group(&self, index: usize, scan: &Scan<'_>) -> Vec<Range<usize>> {
        let group = self.footer.row_group(index);
        let rows = usize::try_from(group.num_rows()).unwrap_or(0);
        let bounds = self.period_bounds(&scan.periods);
        let by_period = |min: i64, max: i64| {
            max >= bounds.start && min < bounds.end && self.may_be_in(scan.spans, min, max)
        };
        if !chunk_bounds(group, 0).is_none_or(|(min, max)| by_period(min, max)) {
            return Vec::new();
        }
        let mut ranges = std::iter::once(0..rows).collect::<Vec<_>>();
        let all_periods = scan.spans.is_none()
            && chunk_bounds(group, 0)
                .is_some_and(|(min, max)| min >= bounds.start && max < bounds.end);
        if !all_periods {
            ranges = intersection(&ranges, &self.pages(index, 0, rows, by_period));
        }
        let ranges = self.narrowed(index, ranges, Column::Task, scan.tasks, |task| {
            task.0.into()
        });
        self.narrowed(index, ranges, Column::Worker, scan.workers, |worker| {
            worker.0.into()
        })
    }

    /// Those rows of a group that may have one of the asked numbers, which rise, in a column.
    fn narrowed<T>(
        &self,
        group: usize,
        ranges: Vec<Range<usize>>,
        column: Column,
        asked: Option<&[T]>,
        number: impl Fn(&T) -> i64,
    ) -> Vec<Range<usize>> {
        let column = self
            .sum_table
            .columns()
            .iter()
            .position(|known| *known == column);
        let (Some(asked), Some(column)) = (asked, column) else {
            return ranges;
        };
        let column = column + 1;
        let may = |min: i64, max: i64| {
            let first = asked.partition_point(|value| number(value) < min);
            asked.get(first).is_some_and(|value| number(value) <= max)
        };
        let facts = self.footer.row_group(group);
        if !chunk_bounds(facts, column).is_none_or(|(min, max)| may(min, max)) {
            return Vec::new();
        }
        let rows = usize::try_from(facts.num_rows()).unwrap_or(0);
        intersection(&ranges, &self.pages(group, column, rows, may))
    }

    /// Whether a period that starts from `min_ms` to `max_ms` may have seconds of the spans.
    fn may_be_in(&self, spans: Option<&[Range<Second>]>, min_ms: i64, max_ms: i64) -> bool {
        let Some(spans) = spans else { return true };
        let first = spans.partition_point(|span| i64::from(span.end.0) * 1_000 <= min_ms);
        let stop_ms = max_ms + self.period_ms();
        spans
            .get(first)
            .is_some_and(|span| i64::from(span.start.0) * 1_000 < stop_ms)
    }

    fn period_bounds(&self, periods: &Range<Period>) -> Range<i64> {
        let milliseconds = |period: Period| i64::from(period.0) * self.period_ms();
        milliseconds(periods.start)..milliseconds(periods.end)
    }

    fn period_ms(&self) -> i64 {
        i64::from(self.tier.seconds()) * 1_000
    }

    /// The rows of the pages of a column for whose least and greatest value `may` returns `true`.
    fn pages(
        &self,
        group: usize,
        column: usize,
        rows: usize,
        may: impl Fn(i64, i64) -> bool,
    ) -> Vec<Range<usize>> {
        let all = || std::iter::once(0..rows).collect::<Vec<_>>();
        let column_index = self
            .footer
            .column_index()
            .and_then(|index| index.get(group)?.get(column));
        let offset_index = self
            .footer
            .offset_index()
            .and_then(|index| index.get(group)?.get(column));
        let (Some(column_index), Some(offset_index)) = (column_index, offset_index) else {
            return all();
        };
        let firsts: Vec<usize> = offset_index
            .page_locations()
            .iter()
            .map(|page| usize::try_from(page.first_row_index).unwrap_or(0))
            .chain([rows])
            .collect();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for (page, rows) in firsts.windows(2).map(|pair| pair[0]..pair[1]).enumerate() {
            if page_bounds(column_index, page).is_none_or(|(min, max)| may(min, max)) {
                match ranges.last_mut().filter(|last| last.end == rows.start) {
                    Some(last) => last.end = rows.end,
                    None => ranges.push(rows),
                }
            }
        }
        ranges
    }
}

fn page_bounds(column_index: &ColumnIndexMetaData, page: usize) -> Option<(i64, i64)> {
    match column_index {
        ColumnIndexMetaData::INT32(index) => Some((index.min_value(page)?, index.max_value(page)?))
            .map(|(min, max)| (unsigned(*min), unsigned(*max))),
        ColumnIndexMetaData::INT64(index) => {
            Some((*index.min_value(page)?, *index.max_value(page)?))
        }
        _ => None,
    }
}

/// The least and the greatest value of a column in a row group, if the statistics have them.
fn chunk_bounds(group: &RowGroupMetaData, column: usize) -> Option<(i64, i64)> {
    match group.column(column).statistics()? {
        Statistics::Int32(values) => {
            Some((unsigned(*values.min_opt()?), unsigned(*values.max_opt()?)))
        }
        Statistics::Int64(values) => Some((*values.min_opt()?, *values.max_opt()?)),
        _ => None,
    }
}

/// All columns of 32 bits are unsigned.
fn unsigned(value: i32) -> i64 {
    value.cast_unsigned().into()
}

/// The intersection of two lists of rising ranges.
fn intersection(left: &[Range<usize>], right: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut left = left.iter().peekable();
    let mut right = right.iter().peekable();
    let mut shared = Vec::new();
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let range = a.start.max(b.start)..a.end.min(b.end);
        if range.start < range.end {
            shared.push(range);
        }
        if a.end < b.end {
            left.next()
        } else {
            right.next()
        };
    }
    shared
}

/// A running scan.
pub(crate) struct Cursor<'a> {
    segment: Arc<Segment>,
    scan: Scan<'a>,
    /// By the table's columns.
    wanted: Vec<bool>,
    next_group: usize,
    group: Option<Group>,
    scratch: Scratch,
}

/// The row group that is being read.
struct Group {
    ts: PeriodReader,
    /// By the table's columns; `None` for those that were not requested.
    keys: Vec<Option<ColumnReaderImpl<Int32Type>>>,
    values: ColumnReaderImpl<Int64Type>,
    /// The row at which all readers are.
    row: usize,
    /// The remaining ranges of rows, last first.
    ranges: Vec<Range<usize>>,
}

/// The source of a row group's periods.
enum PeriodReader {
    /// All rows have this one, by the bounds of the column.
    One(u32),
    Column(Box<ColumnReaderImpl<Int64Type>>),
}

/// Decoded values of the columns that have another type in a batch.
#[derive(Default)]
struct Scratch {
    int32: Vec<i32>,
    int64: Vec<i64>,
}

impl Cursor<'_> {
    /// Replaces the rows of `batch` by the next ones. Returns `false` at the end of the scan.
    pub(crate) fn next(&mut self, batch: &mut Batch) -> Result<bool, StoreError> {
        batch.clear();
        let segment = self.segment.clone();
        decode_checked(&segment.path, || {
            while batch.row_count() < BATCH_ROWS {
                let ready = self
                    .group
                    .as_ref()
                    .is_some_and(|group| !group.ranges.is_empty());
                if !ready && !self.begin_group()? {
                    break;
                }
                self.read_range(batch)?;
            }
            Ok(batch.row_count() > 0)
        })
    }

    /// Opens the next row group with rows that may match, if there is one.
    fn begin_group(&mut self) -> ParquetResult<bool> {
        self.group = None;
        while self.next_group < self.segment.footer.num_row_groups() {
            let index = self.next_group;
            self.next_group += 1;
            let mut ranges = self.segment.rows_in_group(index, &self.scan);
            ranges.reverse();
            if !ranges.is_empty() {
                let column = |column: usize| self.segment.column_pages(index, column);
                let keys = self.wanted.iter().zip(1..).map(|(wanted, index)| {
                    if !wanted {
                        return Ok(None);
                    }
                    open_column::<Int32Type>(&self.segment, index, column(index)?).map(Some)
                });
                let last = self.wanted.len() + 1;
                self.group = Some(Group {
                    ts: self.segment.period_reader(index)?,
                    keys: keys.collect::<ParquetResult<_>>()?,
                    values: open_column(&self.segment, last, column(last)?)?,
                    row: 0,
                    ranges,
                });
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds rows of the first range, as many as fit in the batch.
    fn read_range(&mut self, batch: &mut Batch) -> ParquetResult<()> {
        let Some(group) = &mut self.group else {
            return Ok(());
        };
        let Some(range) = group.ranges.pop() else {
            return Ok(());
        };
        let skipped = range.start - group.row;
        let count = range.len().min(BATCH_ROWS - batch.row_count());
        group.row = range.start + count;
        if group.row < range.end {
            group.ranges.push(group.row..range.end);
        }
        let Scratch { int32, int64 } = &mut self.scratch;
        match &mut group.ts {
            PeriodReader::One(period) => batch.ts.resize(batch.ts.len() + count, *period),
            PeriodReader::Column(column) => {
                int64.clear();
                read(column, skipped, count, int64)?;
                push_periods(int64, self.segment.period_ms(), &mut batch.ts)?;
            }
        }
        for (column, reader) in self.segment.sum_table.columns().iter().zip(&mut group.keys) {
            let Some(reader) = reader else { continue };
            let mut read_u32 = |values: &mut Vec<u32>| {
                let mut signed = reuse(values, u32::cast_signed);
                let result = read(reader, skipped, count, &mut signed);
                *values = reuse(&mut signed, i32::cast_unsigned);
                result
            };
            match column {
                Column::Task => read_u32(&mut batch.task)?,
                Column::Node => read_u32(&mut batch.node)?,
                Column::Worker => {
                    let before = batch.worker.len();
                    read_u32(&mut batch.worker)?;
                    check_bits(batch.worker[before..].iter().copied(), WorkerNumber::MAX.0)?;
                }
                Column::Kind => {
                    int32.clear();
                    read(reader, skipped, count, int32)?;
                    push_kinds(int32, &mut batch.kind)?;
                }
            }
        }
        let mut signed = reuse(&mut batch.values, u64::cast_signed);
        let result = read(&mut group.values, skipped, count, &mut signed);
        batch.values = reuse(&mut signed, i64::cast_unsigned);
        result
    }
}

impl Segment {
    fn period_reader(&self, group: usize) -> ParquetResult<PeriodReader> {
        match chunk_bounds(self.footer.row_group(group), 0) {
            Some((first, last)) if first == last => {
                let mut period = Vec::new();
                push_periods(&[first], self.period_ms(), &mut period)?;
                Ok(PeriodReader::One(period[0]))
            }
            _ => {
                let column = open_column(self, 0, self.column_pages(group, 0)?)?;
                Ok(PeriodReader::Column(Box::new(column)))
            }
        }
    }

    /// The pages of a column in a row group, read at once.
    fn column_pages(&self, group: usize, column: usize) -> ParquetResult<Pages> {
        let row_group = self.footer.row_group(group);
        let chunk = row_group.column(column);
        let (start, length) = chunk.byte_range();
        let bytes = ChunkBytes::read(&self.object, start, length)?;
        let locations = self
            .footer
            .offset_index()
            .and_then(|index| index.get(group)?.get(column))
            .map(|index| index.page_locations().clone());
        let rows = usize::try_from(row_group.num_rows())?;
        Pages::new(bytes, chunk, rows, locations)
    }
}

fn open_column<T: DataType>(
    segment: &Segment,
    column: usize,
    pages: Pages,
) -> ParquetResult<ColumnReaderImpl<T>> {
    let description = segment.footer.file_metadata().schema_descr().column(column);
    Ok(ColumnReaderImpl::new(description, Box::new(pages)))
}

/// Converts values to another type of the same size. Rust does this in place and at no cost, so that
/// values are decoded directly into the columns of a batch.
fn reuse<T, U>(values: &mut Vec<T>, change: impl Fn(T) -> U) -> Vec<U> {
    std::mem::take(values).into_iter().map(change).collect()
}

/// Skips `skipped` values and appends the next `count` to `values`.
fn read<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    skipped: usize,
    count: usize,
    values: &mut Vec<T::T>,
) -> ParquetResult<()> {
    let before = values.len();
    if skipped > 0 && reader.skip_records(skipped)? != skipped {
        return Err(ends_early());
    }
    let (read, _, _) = reader.read_records(count, None, None, values)?;
    if read != count || values.len() - before != count {
        Err(ends_early())
    } else {
        Ok(())
    }
}

fn ends_early() -> ParquetError {
    ParquetError::EOF("a column ends too early".into())
}

fn push_periods(milliseconds: &[i64], period_ms: i64, periods: &mut Vec<u32>) -> ParquetResult<()> {
    // Rows of a period are adjacent, so most values repeat the one before.
    let mut last = -1;
    let mut period = 0;
    for value in milliseconds {
        if *value != last {
            let whole = value % period_ms == 0;
            let number = u32::try_from(value / period_ms).ok().filter(|_| whole);
            period = number.ok_or_else(|| outside("period", *value))?;
            last = *value;
        }
        periods.push(period);
    }
    Ok(())
}

fn push_kinds(values: &[i32], kinds: &mut Vec<u8>) -> ParquetResult<()> {
    check_bits(
        values.iter().map(|value| value.cast_unsigned()),
        Fields::KIND_MAX.into(),
    )?;
    kinds.extend(values.iter().map(|kind| *kind as u8));
    Ok(())
}

/// Checks that no value has bits outside of `bits`.
fn check_bits(values: impl Iterator<Item = u32>, bits: u32) -> ParquetResult<()> {
    let all_bits = values.fold(0, |all, value| all | value);
    match all_bits & !bits {
        0 => Ok(()),
        _ => Err(outside("number", i64::from(all_bits))),
    }
}

fn outside(what: &str, value: i64) -> ParquetError {
    ParquetError::General(format!("{value} is no valid {what} of its column"))
}
