//! Writes a sum table's file from sorted rows.

use std::iter::repeat_n;

use bytes::Bytes;
use parquet::column::writer::{get_column_writer, get_typed_column_writer};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{
    SerializedFileWriter, SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite,
};
use parquet::schema::types::ColumnDescPtr;
use profiler_core::NodeId;

use super::schema::Compression;
use super::workers::WorkerRanges;
use crate::sums::row::{Fields, Key, WorkerNumber};
use crate::sums::table::{Column, SumTable};
use crate::sums::tier::{Period, Tier};
use base::heartbeat;
use base::id_set::IdSet;

/// Rows of a row group, which has whole [`Key::group`]s.
const GROUP_ROWS_TARGET: usize = 1 << 17;

/// Most rows of a row group: a larger group of periods is split.
const GROUP_ROWS_MAX: usize = 1 << 18;

/// Rows from which on columns have room for a whole row group, and for what a window adds to it. Grown step by step,
/// they would leave as much free memory as they have, which the allocator keeps for a second.
const GROUP_ROOM_FROM: usize = 1 << 12;
const GROUP_ROOM: usize = GROUP_ROWS_MAX + GROUP_ROWS_MAX / 16;

/// A file that is ready to be written.
#[derive(Clone, Debug)]
pub(crate) struct EncodedFile {
    pub content: Bytes,
    pub rows: u64,
    /// First period, or id.
    pub from: Period,
    /// The one after the last.
    pub to: Period,
}

/// Encodes rows in memory: files are small, because callers start another file past a size.
pub(crate) struct SegmentWriter {
    sum_table: SumTable,
    tier: Tier,
    file: SerializedFileWriter<Vec<u8>>,
    same_row_files: Vec<SameRowFile>,
    /// Rows of the unfinished row group, by column.
    rows: Columns,
    /// Index in `rows` of the first row of the last group of periods.
    group_at: usize,
    written: u64,
    /// First period and the one after the last, of the finished row groups.
    span: Option<(u32, u32)>,
    /// The workers of a file that is kept; `None` for others.
    workers: Option<IdSet>,
}

/// Rows, by column.
#[derive(Default)]
struct Columns {
    ts: Vec<u32>,
    task: Vec<i32>,
    worker: Vec<i32>,
    kind: Vec<i32>,
    node: Vec<i32>,
    value: Vec<i64>,
}

impl Columns {
    fn push(&mut self, fields: Fields, sums: &[(NodeId, u64)]) {
        let count = self.ts.len();
        if count >= GROUP_ROOM_FROM && self.ts.capacity() < GROUP_ROOM {
            self.reserve(GROUP_ROOM - count);
        }
        self.ts.extend(repeat_n(fields.ts.0, sums.len()));
        self.task
            .extend(repeat_n(fields.task.0.cast_signed(), sums.len()));
        self.worker
            .extend(repeat_n(fields.worker.0.cast_signed(), sums.len()));
        self.kind
            .extend(repeat_n(i32::from(fields.kind), sums.len()));
        self.node
            .extend(sums.iter().map(|(node, _)| node.0.cast_signed()));
        self.value
            .extend(sums.iter().map(|(_, value)| value.cast_signed()));
    }

    fn reserve(&mut self, more: usize) {
        self.ts.reserve_exact(more);
        for column in [
            &mut self.task,
            &mut self.worker,
            &mut self.kind,
            &mut self.node,
        ] {
            column.reserve_exact(more);
        }
        self.value.reserve_exact(more);
    }

    fn drain(&mut self, count: usize) {
        self.ts.drain(..count);
        for column in [
            &mut self.task,
            &mut self.worker,
            &mut self.kind,
            &mut self.node,
        ] {
            column.drain(..count);
        }
        self.value.drain(..count);
    }

    /// The key of a row.
    fn key(&self, row: usize, tier: Tier) -> Option<Key> {
        let fields = Fields {
            ts: Period(*self.ts.get(row)?),
            task: NodeId(self.task[row].cast_unsigned()),
            worker: WorkerNumber(self.worker[row].cast_unsigned()),
            kind: u8::try_from(self.kind[row]).expect("it was pushed as u8"),
            node: self.node[row].cast_unsigned(),
        };
        Some(Key::new(tier, fields))
    }
}

/// A coarser tier of which one period contains all rows of a writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SameRowTier {
    pub tier: Tier,
    pub period: Period,
}

/// The file of such a tier: it differs from the writer's own file in `ts` alone, so the other columns are
/// encoded once for both.
struct SameRowFile {
    of: SameRowTier,
    file: SerializedFileWriter<Vec<u8>>,
}

/// Writing to memory cannot fail, and the columns match the schema.
const ENCODES: &str = "rows of a sum table can be encoded";

impl SegmentWriter {
    pub(crate) fn new(sum_table: SumTable, tier: Tier, compression: Compression) -> SegmentWriter {
        SegmentWriter::with_tiers(sum_table, tier, &[], compression)
    }

    /// Writes the files of `same_row_tiers` too.
    pub(crate) fn with_tiers(
        sum_table: SumTable,
        tier: Tier,
        same_row_tiers: &[SameRowTier],
        compression: Compression,
    ) -> SegmentWriter {
        let new_file = |tier| {
            let properties = sum_table.properties(tier, compression);
            let file = SerializedFileWriter::new(Vec::new(), sum_table.schema(), properties);
            file.expect(ENCODES)
        };
        SegmentWriter {
            sum_table,
            tier,
            file: new_file(tier),
            same_row_files: same_row_tiers
                .iter()
                .map(|of: &SameRowTier| SameRowFile {
                    of: *of,
                    file: new_file(of.tier),
                })
                .collect(),
            rows: Columns::default(),
            group_at: 0,
            written: 0,
            span: None,
            workers: (compression == Compression::Merged
                && sum_table.columns().contains(&Column::Worker))
            .then(IdSet::default),
        }
    }

    /// Adds a row, which must follow the one before in the order of [`Key`].
    pub(crate) fn push(&mut self, fields: Fields, value: u64) {
        self.push_nodes(fields, &[(NodeId(fields.node), value)]);
    }

    /// Adds rows that differ in their nodes alone, in rising order; `fields.node` is ignored. They must
    /// follow the row before.
    pub(crate) fn push_nodes(&mut self, fields: Fields, sums: &[(NodeId, u64)]) {
        let count = self.rows.ts.len();
        debug_assert!(sums.is_sorted_by(|a, b| a.0 < b.0), "{sums:?}");
        debug_assert!(
            sums.iter().take(1).all(|(node, _)| {
                let key = Key::new(
                    self.tier,
                    Fields {
                        node: node.0,
                        ..fields
                    },
                );
                count == 0 || self.rows.key(count - 1, self.tier) < Some(key)
            }),
            "{fields:?} {sums:?} does not follow the row before"
        );
        let group = |ts: u32| ts / self.tier.periods_in_group();
        if self
            .rows
            .ts
            .last()
            .is_some_and(|last| group(*last) != group(fields.ts.0))
        {
            self.group_at = count;
        }
        self.rows.push(fields, sums);
        if self.rows.ts.len() > GROUP_ROWS_TARGET && self.group_at > 0 {
            self.flush(self.group_at);
        }
        while self.rows.ts.len() >= GROUP_ROWS_MAX {
            self.flush(GROUP_ROWS_MAX);
        }
    }

    /// Bytes of the finished row groups.
    pub(crate) fn bytes(&self) -> usize {
        self.file.bytes_written()
    }

    /// The same of this file and those of the coarser tiers.
    pub(crate) fn bytes_of_all(&self) -> usize {
        let coarser = self.same_row_files.iter();
        self.bytes() + coarser.map(|same| same.file.bytes_written()).sum::<usize>()
    }

    /// Finishes the file; `None` if it has no rows.
    pub(crate) fn finish(self) -> Option<EncodedFile> {
        self.finish_all()
            .into_iter()
            .next()
            .map(|(_, written)| written)
    }

    /// Finishes the file and those of the coarser tiers; none if they have no rows.
    pub(crate) fn finish_all(mut self) -> Vec<(Tier, EncodedFile)> {
        self.flush(self.rows.ts.len());
        let Some((from, to)) = self.span else {
            return Vec::new();
        };
        if let Some(workers) = &self.workers {
            let fact = WorkerRanges::of(workers).fact();
            self.file.append_key_value_metadata(fact);
        }
        let rows = self.written;
        let own = (self.tier, encoded_file(self.file, from, to, rows));
        let coarser = self
            .same_row_files
            .into_iter()
            .map(|SameRowFile { of, file }| {
                let SameRowTier { tier, period } = of;
                (
                    tier,
                    encoded_file(file, period.0, period.0.saturating_add(1), rows),
                )
            });
        [own].into_iter().chain(coarser).collect()
    }

    /// Writes the first `count` rows as a row group.
    fn flush(&mut self, count: usize) {
        heartbeat::beat();
        let (Some(first), Some(last)) = (
            self.rows.ts[..count].iter().min(),
            self.rows.ts[..count].iter().max(),
        ) else {
            return;
        };
        let (from, to) = self.span.unwrap_or((u32::MAX, 0));
        self.span = Some((from.min(*first), to.max(last.saturating_add(1))));

        let mut groups = RowGroups::start(&mut self.file, &mut self.same_row_files);
        let period_ms =
            |tier: Tier, period: u32| i64::from(period) * i64::from(tier.seconds()) * 1_000;
        let own = self.rows.ts[..count]
            .iter()
            .map(|ts| period_ms(self.tier, *ts))
            .collect();
        groups.write_ts(own, |of| vec![period_ms(of.tier, of.period.0); count]);
        for column in self.sum_table.columns() {
            let values = match column {
                Column::Task => &self.rows.task,
                Column::Worker => &self.rows.worker,
                Column::Kind => &self.rows.kind,
                Column::Node => &self.rows.node,
            };
            groups.write::<Int32Type>(&values[..count]);
        }
        groups.write::<Int64Type>(&self.rows.value[..count]);
        groups.close();
        if let Some(workers) = &mut self.workers {
            for run in self.rows.worker[..count].chunk_by(|a, b| a == b) {
                workers.insert(run[0].cast_unsigned());
            }
        }
        self.written += count as u64;
        self.rows.drain(count);
        self.group_at = 0;
    }
}

fn encoded_file(
    mut file: SerializedFileWriter<Vec<u8>>,
    from: u32,
    to: u32,
    rows: u64,
) -> EncodedFile {
    file.finish().expect(ENCODES);
    let content = std::mem::take(file.inner_mut()).into();
    EncodedFile {
        content,
        rows,
        from: Period(from),
        to: Period(to),
    }
}

/// The same row group in a file and in those of coarser tiers.
struct RowGroups<'a> {
    own: SerializedRowGroupWriter<'a, Vec<u8>>,
    coarser: Vec<(SameRowTier, SerializedRowGroupWriter<'a, Vec<u8>>)>,
    properties: WriterPropertiesPtr,
    /// The remaining columns of the file.
    columns: std::vec::IntoIter<ColumnDescPtr>,
}

impl<'a> RowGroups<'a> {
    fn start(
        file: &'a mut SerializedFileWriter<Vec<u8>>,
        same_row_files: &'a mut [SameRowFile],
    ) -> RowGroups<'a> {
        let properties = file.properties().clone();
        let columns = file.schema_descr().columns().to_vec().into_iter();
        let coarser = same_row_files
            .iter_mut()
            .map(|same| (same.of, same.file.next_row_group().expect(ENCODES)))
            .collect();
        let own = file.next_row_group().expect(ENCODES);
        RowGroups {
            own,
            coarser,
            properties,
            columns,
        }
    }

    /// Writes `ts`, the first column, in which the files differ.
    fn write_ts(&mut self, own: Vec<i64>, of_tier: impl Fn(SameRowTier) -> Vec<i64>) {
        self.columns.next();
        write_column::<Int64Type>(&mut self.own, &own);
        for (of, group) in &mut self.coarser {
            write_column::<Int64Type>(group, &of_tier(*of));
        }
    }

    /// Writes the next column to all files.
    fn write<T: DataType>(&mut self, values: &[T::T]) {
        let column = self
            .columns
            .next()
            .expect("the schema has a column for each");
        if self.coarser.is_empty() {
            return write_column::<T>(&mut self.own, values);
        }
        let mut pages = TrackedWrite::new(Vec::new());
        let closed = {
            let pages = Box::new(SerializedPageWriter::new(&mut pages));
            let writer = get_column_writer(column, self.properties.clone(), pages);
            let mut writer = get_typed_column_writer::<T>(writer);
            writer.write_batch(values, None, None).expect(ENCODES);
            writer.close().expect(ENCODES)
        };
        let pages = Bytes::from(pages.into_inner().expect(ENCODES));
        self.own
            .append_column(&pages, closed.clone())
            .expect(ENCODES);
        for (_, group) in &mut self.coarser {
            group.append_column(&pages, closed.clone()).expect(ENCODES);
        }
    }

    fn close(self) {
        self.own.close().expect(ENCODES);
        for (_, group) in self.coarser {
            group.close().expect(ENCODES);
        }
    }
}

fn write_column<T: DataType>(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, values: &[T::T]) {
    let mut column = group.next_column().expect(ENCODES).expect(ENCODES);
    column
        .typed::<T>()
        .write_batch(values, None, None)
        .expect(ENCODES);
    column.close().expect(ENCODES);
}
