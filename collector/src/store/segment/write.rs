//! Writing a counting table's file from rows in order.

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

use super::super::row::{Fields, Key, WorkerNumber};
use super::super::table::{Column, Counting};
use super::super::tier::{Period, Tier};
use super::schema::Effort;

/// Rows of a row group, which holds whole [`Key::group`]s.
const GROUP_ROWS_TARGET: usize = 1 << 17;

/// Most rows of a row group: a larger group is split.
const GROUP_ROWS_MAX: usize = 1 << 18;

/// A file that is ready to be put in its place.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) content: Bytes,
    pub(crate) rows: u64,
    /// First period, or id.
    pub(crate) from: Period,
    /// The one after the last.
    pub(crate) to: Period,
}

/// Encodes rows, in memory: a file is small, as its writer makes another when it is not.
pub(crate) struct SegmentWriter {
    counting: Counting,
    tier: Tier,
    file: SerializedFileWriter<Vec<u8>>,
    twins: Vec<Twin>,
    /// Rows that are in no row group yet, by column.
    rows: Columns,
    /// Where the last group of periods begins in `rows`.
    group_at: usize,
    written: u64,
    /// First period and the one after the last, of the row groups that are written.
    span: Option<(u32, u32)>,
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
        self.ts.extend(repeat_n(fields.ts.0, sums.len()));
        self.task.extend(repeat_n(fields.task.0.cast_signed(), sums.len()));
        self.worker.extend(repeat_n(fields.worker.0.cast_signed(), sums.len()));
        self.kind.extend(repeat_n(i32::from(fields.kind), sums.len()));
        self.node.extend(sums.iter().map(|(node, _)| node.0.cast_signed()));
        self.value.extend(sums.iter().map(|(_, value)| value.cast_signed()));
    }

    fn drain(&mut self, count: usize) {
        self.ts.drain(..count);
        for column in [&mut self.task, &mut self.worker, &mut self.kind, &mut self.node] {
            column.drain(..count);
        }
        self.value.drain(..count);
    }

    /// What the rows are in order of.
    fn key(&self, row: usize, tier: Tier) -> Option<Key> {
        let fields = Fields {
            ts: Period(*self.ts.get(row)?),
            task: NodeId(self.task[row].cast_unsigned()),
            worker: WorkerNumber(self.worker[row].cast_unsigned()),
            kind: u8::try_from(self.kind[row]).expect("it was one"),
            node: self.node[row].cast_unsigned(),
        };
        Some(Key::new(tier, fields))
    }
}

/// The file of a coarser tier, all of whose rows are of one period: it differs from the writer's own in
/// `ts` alone, so the other columns are encoded once for both.
struct Twin {
    tier: Tier,
    period: Period,
    file: SerializedFileWriter<Vec<u8>>,
}

/// Memory cannot fail, and the columns are written as the schema says.
const ENCODES: &str = "rows of a counting table can be encoded";

impl SegmentWriter {
    pub(crate) fn new((counting, tier): (Counting, Tier), effort: Effort) -> SegmentWriter {
        let (schema, properties) = (counting.schema(), counting.properties(tier, effort));
        SegmentWriter {
            counting,
            tier,
            file: SerializedFileWriter::new(Vec::new(), schema, properties).expect(ENCODES),
            twins: Vec::new(),
            rows: Columns::default(),
            group_at: 0,
            written: 0,
            span: None,
        }
    }

    /// Writes the same rows as those of one period of other tiers too: these must hold all periods of
    /// the rows.
    pub(crate) fn with_twins(mut self, periods: &[(Tier, Period)], effort: Effort) -> Self {
        self.twins.extend(periods.iter().map(|(tier, period)| {
            let properties = self.counting.properties(*tier, effort);
            let file = SerializedFileWriter::new(Vec::new(), self.counting.schema(), properties);
            Twin { tier: *tier, period: *period, file: file.expect(ENCODES) }
        }));
        self
    }

    /// Adds a row, which must come after the one before in the order of [`Key`].
    pub(crate) fn push(&mut self, fields: Fields, value: u64) {
        self.push_nodes(fields, &[(NodeId(fields.node), value)]);
    }

    /// Adds rows that differ in nothing but their nodes, which rise: `fields` without its own. They must
    /// come after the row before.
    pub(crate) fn push_nodes(&mut self, fields: Fields, sums: &[(NodeId, u64)]) {
        let count = self.rows.ts.len();
        debug_assert!(sums.is_sorted_by(|a, b| a.0 < b.0), "{sums:?}");
        debug_assert!(
            sums.iter().take(1).all(|(node, _)| {
                let key = Key::new(self.tier, Fields { node: node.0, ..fields });
                count == 0 || self.rows.key(count - 1, self.tier) < Some(key)
            }),
            "{fields:?} {sums:?} does not come after the row before"
        );
        let group = |ts: u32| ts / self.tier.periods_in_group();
        if self.rows.ts.last().is_some_and(|last| group(*last) != group(fields.ts.0)) {
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

    /// Bytes of the row groups that are done.
    pub(crate) fn bytes(&self) -> usize {
        self.file.bytes_written()
    }

    /// The file; `None` if there was no row.
    pub(crate) fn finish(self) -> Option<Written> {
        self.finish_all().into_iter().next().map(|(_, written)| written)
    }

    /// The file and its twins; nothing if there was no row.
    pub(crate) fn finish_all(mut self) -> Vec<(Tier, Written)> {
        self.flush(self.rows.ts.len());
        let Some((from, to)) = self.span else { return Vec::new() };
        let rows = self.written;
        let written = |mut file: SerializedFileWriter<Vec<u8>>, from, to| {
            file.finish().expect(ENCODES);
            let content = std::mem::take(file.inner_mut()).into();
            Written { content, rows, from: Period(from), to: Period(to) }
        };
        let own = (self.tier, written(self.file, from, to));
        let twins = self.twins.into_iter().map(|Twin { tier, period, file }| {
            (tier, written(file, period.0, period.0.saturating_add(1)))
        });
        [own].into_iter().chain(twins).collect()
    }

    /// Writes the first `count` rows as a row group.
    fn flush(&mut self, count: usize) {
        let (Some(first), Some(last)) =
            (self.rows.ts[..count].iter().min(), self.rows.ts[..count].iter().max())
        else {
            return;
        };
        let (from, to) = self.span.unwrap_or((u32::MAX, 0));
        self.span = Some((from.min(*first), to.max(last.saturating_add(1))));

        let mut groups = Groups::begin(&mut self.file, &mut self.twins);
        let period_ms =
            |tier: Tier, period: u32| i64::from(period) * i64::from(tier.seconds()) * 1_000;
        let own = self.rows.ts[..count].iter().map(|ts| period_ms(self.tier, *ts)).collect();
        groups.write_ts(own, |tier, period| vec![period_ms(tier, period.0); count]);
        for column in self.counting.columns() {
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
        self.written += count as u64;
        self.rows.drain(count);
        self.group_at = 0;
    }
}

/// A row group of a file and of its twins.
struct Groups<'a> {
    own: SerializedRowGroupWriter<'a, Vec<u8>>,
    twins: Vec<(Tier, Period, SerializedRowGroupWriter<'a, Vec<u8>>)>,
    properties: WriterPropertiesPtr,
    /// The file's columns, from the next one.
    columns: std::vec::IntoIter<ColumnDescPtr>,
}

impl<'a> Groups<'a> {
    fn begin(file: &'a mut SerializedFileWriter<Vec<u8>>, twins: &'a mut [Twin]) -> Groups<'a> {
        let (properties, columns) =
            (file.properties().clone(), file.schema_descr().columns().to_vec());
        let twins = twins.iter_mut().map(|Twin { tier, period, file }| {
            (*tier, *period, file.next_row_group().expect(ENCODES))
        });
        let twins = twins.collect();
        let own = file.next_row_group().expect(ENCODES);
        Groups { own, twins, properties, columns: columns.into_iter() }
    }

    /// Writes the first column, in which they differ.
    fn write_ts(&mut self, own: Vec<i64>, of_twin: impl Fn(Tier, Period) -> Vec<i64>) {
        self.columns.next();
        write_column::<Int64Type>(&mut self.own, &own);
        for (tier, period, group) in &mut self.twins {
            write_column::<Int64Type>(group, &of_twin(*tier, *period));
        }
    }

    /// Writes the next column of all.
    fn write<T: DataType>(&mut self, values: &[T::T]) {
        let column = self.columns.next().expect("the schema has a column for each");
        if self.twins.is_empty() {
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
        self.own.append_column(&pages, closed.clone()).expect(ENCODES);
        for (_, _, group) in &mut self.twins {
            group.append_column(&pages, closed.clone()).expect(ENCODES);
        }
    }

    fn close(self) {
        self.own.close().expect(ENCODES);
        for (_, _, group) in self.twins {
            group.close().expect(ENCODES);
        }
    }
}

fn write_column<T: DataType>(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, values: &[T::T]) {
    let mut column = group.next_column().expect(ENCODES).expect(ENCODES);
    column.typed::<T>().write_batch(values, None, None).expect(ENCODES);
    column.close().expect(ENCODES);
}
