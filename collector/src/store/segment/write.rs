//! Writing a counting table's file from rows in order.

use bytes::Bytes;
use parquet::data_type::{Int32Type, Int64Type};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};

use super::super::row::{Fields, Row};
use super::super::table::{Column, Counting};
use super::super::tier::{Period, Tier};

/// Rows of a row group, which holds whole [`Key::group`](super::super::row::Key::group)s.
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
    /// Rows that are in no row group yet.
    rows: Vec<Row>,
    /// Where the last group begins in `rows`.
    group_at: usize,
    written: u64,
    /// First period and the one after the last, of the row groups that are written.
    span: Option<(u32, u32)>,
}

/// Memory cannot fail, and the columns are written as the schema says.
const ENCODES: &str = "rows of a counting table can be encoded";

impl SegmentWriter {
    pub(crate) fn new(counting: Counting, tier: Tier) -> SegmentWriter {
        let (schema, properties) = (counting.schema(), counting.properties(tier));
        SegmentWriter {
            counting,
            tier,
            file: SerializedFileWriter::new(Vec::new(), schema, properties).expect(ENCODES),
            rows: Vec::new(),
            group_at: 0,
            written: 0,
            span: None,
        }
    }

    /// Adds a row, whose key must be greater than that of the one before.
    pub(crate) fn push(&mut self, row: Row) {
        if let Some(last) = self.rows.last() {
            debug_assert!(last.key < row.key, "{:?} {:?}", last.key, row.key);
            if last.key.group() != row.key.group() {
                self.group_at = self.rows.len();
            }
        }
        self.rows.push(row);
        if self.rows.len() > GROUP_ROWS_TARGET && self.group_at > 0 {
            self.flush(self.group_at);
        } else if self.rows.len() == GROUP_ROWS_MAX {
            self.flush(GROUP_ROWS_MAX);
        }
    }

    /// Bytes of the row groups that are done.
    pub(crate) fn bytes(&self) -> usize {
        self.file.bytes_written()
    }

    /// The file; `None` if there was no row.
    pub(crate) fn finish(mut self) -> Option<Written> {
        self.flush(self.rows.len());
        let (from, to) = self.span?;
        self.file.finish().expect(ENCODES);
        let content = std::mem::take(self.file.inner_mut());
        Some(Written {
            content: content.into(),
            rows: self.written,
            from: Period(from),
            to: Period(to),
        })
    }

    /// Writes the first `count` rows as a row group.
    fn flush(&mut self, count: usize) {
        let rows = &self.rows[..count];
        if rows.is_empty() {
            return;
        }
        let fields: Vec<Fields> = rows.iter().map(|row| row.key.fields(self.tier)).collect();
        let periods = fields.iter().map(|fields| fields.ts.0);
        let (first, last) = periods
            .fold((u32::MAX, 0), |(first, last), period| (first.min(period), last.max(period)));
        let (from, to) = self.span.unwrap_or((u32::MAX, 0));
        self.span = Some((from.min(first), to.max(last.saturating_add(1))));

        let mut group = self.file.next_row_group().expect(ENCODES);
        let period_ms = i64::from(self.tier.seconds()) * 1_000;
        let ts = fields.iter().map(|fields| i64::from(fields.ts.0) * period_ms).collect();
        write_int64(&mut group, ts);
        for column in self.counting.columns() {
            let values = fields.iter().map(|fields| match column {
                Column::Task => fields.task.0,
                Column::Worker => fields.worker.0,
                Column::Kind => fields.kind.into(),
                Column::Node => fields.node,
            });
            write_int32(&mut group, values.map(u32::cast_signed).collect());
        }
        write_int64(&mut group, rows.iter().map(|row| row.value.cast_signed()).collect());
        group.close().expect(ENCODES);
        self.written += count as u64;
        self.rows.drain(..count);
        self.group_at = 0;
    }
}

fn write_int32(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, values: Vec<i32>) {
    let mut column = group.next_column().expect(ENCODES).expect(ENCODES);
    column.typed::<Int32Type>().write_batch(&values, None, None).expect(ENCODES);
    column.close().expect(ENCODES);
}

fn write_int64(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, values: Vec<i64>) {
    let mut column = group.next_column().expect(ENCODES).expect(ENCODES);
    column.typed::<Int64Type>().write_batch(&values, None, None).expect(ENCODES);
    column.close().expect(ENCODES);
}
