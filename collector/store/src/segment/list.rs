//! Files of lists: the tables with rows of texts and numbers that are not summed.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use parquet::bloom_filter::Sbbf;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type,
};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, Type};
use profiler_core::hash::KeyedSet;

use super::super::error::StoreError;
use super::super::manifest::FileEntry;
use super::super::objects::{Object, Objects};
use super::bytes::{ChunkBytes, FileBytes};
use super::column::{Columns, ListColumn, ListKind, ListRow, Values};
use super::pages::Pages;
use super::read::open_checked;
use super::schema::{check_facts, common_properties};
use super::write::EncodedFile;
use super::{bloom, decode_checked};
use crate::sums::table::TableName;
use crate::sums::tier::Period;
use base::heartbeat;

/// Rows of a row group: the least that is read, and in memory for each input of a merge.
const GROUP_ROWS: usize = 1 << 14;

/// Fewer rows between two matches are read too, because skipping them takes longer.
const GAP_ROWS_MIN: usize = 32;

/// Most distinct strings of one column of one row group that rows share.
const SHARED_TEXTS_MAX: usize = 4_096;

fn schema<'a>(columns: impl IntoIterator<Item = &'a ListColumn>) -> Arc<Type> {
    let fields: String = columns
        .into_iter()
        .map(|column| column.kind.field(column.name))
        .collect();
    let text = format!("message table {{{fields} }}");
    Arc::new(parse_message_type(&text).expect("the text is a schema"))
}

fn properties<'a>(
    table: &str,
    columns: impl IntoIterator<Item = &'a ListColumn>,
) -> Arc<WriterProperties> {
    let properties = common_properties(table).set_statistics_enabled(EnabledStatistics::Chunk);
    let keys = columns
        .into_iter()
        .filter(|column| column.kind == ListKind::KeyText);
    let properties = keys.fold(properties, |properties, column| {
        let path = ColumnPath::from(column.name);
        bloom::enable(properties, path, GROUP_ROWS as u64)
    });
    Arc::new(properties.build())
}

/// Encodes rows of a list in memory.
pub(crate) struct ListWriter<R> {
    file: SerializedFileWriter<Vec<u8>>,
    rows: Vec<R>,
    written: u64,
    span: Option<(u32, u32)>,
}

const ENCODES: &str = "rows of a list can be encoded";

impl<R: ListRow> ListWriter<R> {
    pub(crate) fn new(table: TableName) -> ListWriter<R> {
        let schema = schema(R::COLUMNS);
        let properties = properties(&table.name(), R::COLUMNS);
        let file = SerializedFileWriter::new(Vec::new(), schema, properties).expect(ENCODES);
        ListWriter {
            file,
            rows: Vec::new(),
            written: 0,
            span: None,
        }
    }

    pub(crate) fn push(&mut self, row: R) {
        let span = row.span();
        let (from, to) = self.span.unwrap_or((u32::MAX, 0));
        self.span = Some((from.min(span.start), to.max(span.end)));
        self.rows.push(row);
        if self.rows.len() == GROUP_ROWS {
            self.flush();
        }
    }

    /// Bytes of the finished row groups.
    pub(crate) fn bytes(&self) -> usize {
        self.file.bytes_written()
    }

    /// Finishes the file; `None` if it has no rows.
    pub(crate) fn finish(mut self) -> Option<EncodedFile> {
        self.flush();
        let (from, to) = self.span?;
        self.file.finish().expect(ENCODES);
        let content = std::mem::take(self.file.inner_mut()).into();
        Some(EncodedFile {
            content,
            rows: self.written,
            from: Period(from),
            to: Period(to),
        })
    }

    fn flush(&mut self) {
        heartbeat::beat();
        if self.rows.is_empty() {
            return;
        }
        let mut group = self.file.next_row_group().expect(ENCODES);
        for values in R::encode(&self.rows) {
            write_values(&mut group, &values).expect(ENCODES);
        }
        group.close().expect(ENCODES);
        self.written += self.rows.len() as u64;
        self.rows.clear();
    }
}

/// Encodes columns of equal length as a file of one row group, for other programs.
pub fn encode_columns(table: &str, columns: &[(ListColumn, Values)]) -> Vec<u8> {
    let declared = || columns.iter().map(|(column, _)| column);
    let properties = properties(table, declared());
    let mut file =
        SerializedFileWriter::new(Vec::new(), schema(declared()), properties).expect(ENCODES);
    let mut group = file.next_row_group().expect(ENCODES);
    for (_, values) in columns {
        write_values(&mut group, values).expect(ENCODES);
    }
    group.close().expect(ENCODES);
    file.finish().expect(ENCODES);
    std::mem::take(file.inner_mut())
}

fn write_values(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &Values,
) -> ParquetResult<()> {
    let mut column = group.next_column()?.expect(ENCODES);
    match values {
        Values::Texts(texts) => {
            let texts: Vec<ByteArray> = texts.iter().map(|text| (&**text).into()).collect();
            column
                .typed::<ByteArrayType>()
                .write_batch(&texts, None, None)?
        }
        Values::Flags(flags) => column.typed::<BoolType>().write_batch(flags, None, None)?,
        Values::Numbers32(numbers) => {
            let numbers: Vec<i32> = numbers.iter().map(|number| number.cast_signed()).collect();
            column
                .typed::<Int32Type>()
                .write_batch(&numbers, None, None)?
        }
        Values::Numbers64(numbers) => column
            .typed::<Int64Type>()
            .write_batch(numbers, None, None)?,
        Values::Optionals64(numbers) => {
            let present: Vec<i64> = numbers.iter().flatten().copied().collect();
            let levels: Vec<i16> = numbers
                .iter()
                .map(|number| number.is_some().into())
                .collect();
            column
                .typed::<Int64Type>()
                .write_batch(&present, Some(&levels), None)?
        }
        Values::Fractions(numbers) => column
            .typed::<DoubleType>()
            .write_batch(numbers, None, None)?,
    };
    column.close()
}

/// An open file of a list with a verified checksum.
#[derive(Debug)]
pub(crate) struct ListSegment {
    path: String,
    object: Arc<Object>,
    footer: ParquetMetaData,
    columns: &'static [ListColumn],
    /// Bloom filters of the lookup column by row group; read at the first lookup.
    filters: OnceLock<Vec<Option<Sbbf>>>,
}

impl ListSegment {
    /// Opens a file and verifies its checksum.
    pub(crate) fn open<R: ListRow>(
        objects: &Objects,
        entry: &FileEntry,
    ) -> Result<ListSegment, StoreError> {
        let path = entry.path();
        let object = Arc::new(open_checked(objects, entry)?);
        let footer = decode_checked(&path, || {
            ParquetMetaDataReader::new().parse_and_finish(&FileBytes(object.clone()))
        })?;
        check_facts(&footer, &entry.table.name())
            .map_err(|reason| StoreError::damaged(&*path, reason))?;
        if footer.file_metadata().schema() != schema(R::COLUMNS).as_ref() {
            return Err(StoreError::damaged(
                path,
                "its columns differ from those of its table",
            ));
        }
        let groups = footer
            .row_groups()
            .iter()
            .map(|group| group.num_rows().max(0));
        let rows = groups.map(i64::unsigned_abs).sum::<u64>();
        if rows != entry.rows {
            let reason = format!("it has {rows} rows; {} were written", entry.rows);
            return Err(StoreError::damaged(path, reason));
        }
        Ok(ListSegment {
            path,
            object,
            footer,
            columns: R::COLUMNS,
            filters: OnceLock::new(),
        })
    }

    pub(crate) fn group_count(&self) -> usize {
        self.footer.num_row_groups()
    }

    /// Memory of the footer, and of the filters once they are read.
    pub(crate) fn memory_bytes(&self) -> usize {
        let groups = self.footer.row_groups().iter();
        let filters = groups.flat_map(RowGroupMetaData::columns).map(bloom::bytes);
        self.footer.memory_size() + filters.sum::<usize>()
    }

    /// The ids that a row group of a table with ids may have: only its own rows if no id of the file is left out.
    pub(crate) fn ids(&self, entry: &FileEntry, group: usize) -> Range<u32> {
        let Range { start, end } = entry.from.0..entry.to.0;
        if u64::from(end - start) != entry.rows {
            return start..end;
        }
        let before = (0..group)
            .map(|group| self.all_rows(group).len())
            .sum::<usize>();
        let first = start.saturating_add(u32::try_from(before).unwrap_or(u32::MAX));
        let rows = u32::try_from(self.all_rows(group).len()).unwrap_or(u32::MAX);
        first..first.saturating_add(rows).min(end)
    }

    /// The range of all rows of a row group.
    pub(crate) fn all_rows(&self, group: usize) -> Range<usize> {
        0..usize::try_from(self.footer.row_group(group).num_rows()).unwrap_or(0)
    }

    /// Reads the rows of a row group.
    pub(crate) fn group<R: ListRow>(&self, index: usize) -> Result<Vec<R>, StoreError> {
        self.rows(index, &[self.all_rows(index)])
    }

    /// Reads the rows in rising ranges of a row group.
    pub(crate) fn rows<R: ListRow>(
        &self,
        index: usize,
        ranges: &[Range<usize>],
    ) -> Result<Vec<R>, StoreError> {
        decode_checked(&self.path, || {
            let group = self.footer.row_group(index);
            let columns: Vec<Values> = (0..self.columns.len())
                .map(|column| self.column(group, column, ranges))
                .collect::<ParquetResult<_>>()?;
            let rows: usize = ranges.iter().map(Range::len).sum();
            R::decode(&mut Columns::new(columns, rows)).map_err(ParquetError::General)
        })
    }

    /// The rows among `ranges` of a row group in which a column has a text, and a few between them.
    pub(crate) fn rows_with_text(
        &self,
        group: usize,
        ranges: &[Range<usize>],
        column: &str,
        text: &str,
    ) -> Result<Vec<Range<usize>>, StoreError> {
        let Some(index) = self.index_of(column) else {
            return Ok(ranges.to_vec());
        };
        decode_checked(&self.path, || {
            let group = self.footer.row_group(group);
            let values: Vec<ByteArray> =
                required(self.reader::<ByteArrayType>(group, index)?, ranges)?;
            Ok(ranges_of(
                ranges,
                values.iter().map(|value| value.data() == text.as_bytes()),
            ))
        })
    }

    /// The rows among `ranges` of a row group in which a column of times or numbers has a matching value
    /// or none, and a few between them.
    pub(crate) fn rows_with_number(
        &self,
        group: usize,
        ranges: &[Range<usize>],
        column: &str,
        is_wanted: impl Fn(i64) -> bool,
    ) -> Result<Vec<Range<usize>>, StoreError> {
        let Some(index) = self.index_of(column) else {
            return Ok(ranges.to_vec());
        };
        let values = decode_checked(&self.path, || {
            self.column(self.footer.row_group(group), index, ranges)
        });
        Ok(match values? {
            Values::Numbers64(values) => ranges_of(ranges, values.into_iter().map(is_wanted)),
            Values::Optionals64(values) => ranges_of(
                ranges,
                values.into_iter().map(|value| value.is_none_or(&is_wanted)),
            ),
            _ => ranges.to_vec(),
        })
    }

    /// Whether a column's text matches, by row of a row group; `true` for an unknown column.
    pub(crate) fn texts_where(
        &self,
        group: usize,
        column: &str,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<bool>, StoreError> {
        let all = self.all_rows(group);
        let rows = all.len();
        let Some(index) = self.index_of(column) else {
            return Ok(vec![true; rows]);
        };
        decode_checked(&self.path, || {
            let reader = self.reader::<ByteArrayType>(self.footer.row_group(group), index)?;
            let texts: Vec<ByteArray> = required(reader, &[all])?;
            check_length(
                texts.iter().map(|text| is_wanted(text.data())).collect(),
                rows,
            )
        })
    }

    /// The values of a column of times or numbers, by row of a row group; none for another kind of column.
    pub(crate) fn numbers(
        &self,
        group: usize,
        column: &str,
    ) -> Result<Vec<Option<i64>>, StoreError> {
        let Some(index) = self.index_of(column) else {
            return Ok(Vec::new());
        };
        let all = self.all_rows(group);
        let rows = all.len();
        decode_checked(&self.path, || {
            match self.column(self.footer.row_group(group), index, &[all])? {
                Values::Numbers64(values) => {
                    check_length(values.into_iter().map(Some).collect(), rows)
                }
                Values::Optionals64(values) => check_length(values, rows),
                _ => Ok(Vec::new()),
            }
        })
    }

    /// The ranges of the matching rows of a row group, with a few rows between them.
    pub(crate) fn ranges_where(
        &self,
        group: usize,
        is_wanted: impl Iterator<Item = bool>,
    ) -> Vec<Range<usize>> {
        ranges_of(&[self.all_rows(group)], is_wanted)
    }

    /// The least and the greatest value of a column of numbers or times in a row group.
    pub(crate) fn number_bounds(&self, group: usize, column: &str) -> Option<(i64, i64)> {
        match self.statistics(group, column)? {
            Statistics::Int64(values) => Some((*values.min_opt()?, *values.max_opt()?)),
            _ => None,
        }
    }

    /// Whether a row group may have a text in a column: by the bounds, and by the Bloom filter if the
    /// column has one.
    pub(crate) fn may_hold(
        &self,
        group: usize,
        column: &str,
        text: &str,
    ) -> Result<bool, StoreError> {
        if let Some(Statistics::ByteArray(values)) = self.statistics(group, column) {
            let bounds = values.min_opt().zip(values.max_opt());
            let text = text.as_bytes();
            if bounds.is_some_and(|(min, max)| text < min.data() || text > max.data()) {
                return Ok(false);
            }
        }
        let Some(index) = self.index_of(column) else {
            return Ok(true);
        };
        if self.columns[index].kind != ListKind::KeyText {
            return Ok(true);
        }
        let filters = match self.filters.get() {
            Some(filters) => filters,
            None => {
                let groups = self.footer.row_groups().iter();
                let read = || groups.map(|group| bloom::read(group.column(index), &self.object));
                let read = decode_checked(&self.path, || read().collect::<ParquetResult<_>>())?;
                self.filters.get_or_init(|| read)
            }
        };
        Ok(filters[group]
            .as_ref()
            .is_none_or(|filter| filter.check(text)))
    }

    fn index_of(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|listed| listed.name == column)
    }

    fn statistics(&self, group: usize, column: &str) -> Option<&Statistics> {
        self.footer
            .row_group(group)
            .column(self.index_of(column)?)
            .statistics()
    }

    fn reader<T: DataType>(
        &self,
        group: &RowGroupMetaData,
        index: usize,
    ) -> ParquetResult<ColumnReaderImpl<T>> {
        let chunk = group.column(index);
        let rows = usize::try_from(group.num_rows())?;
        let (start, length) = chunk.byte_range();
        let bytes = ChunkBytes::read(&self.object, start, length)?;
        let pages = Pages::new(bytes, chunk, rows, None)?;
        Ok(ColumnReaderImpl::new(
            chunk.column_descr_ptr(),
            Box::new(pages),
        ))
    }

    fn column(
        &self,
        group: &RowGroupMetaData,
        index: usize,
        ranges: &[Range<usize>],
    ) -> ParquetResult<Values> {
        Ok(match self.columns[index].kind {
            ListKind::Text | ListKind::KeyText => {
                let texts = required(self.reader::<ByteArrayType>(group, index)?, ranges)?;
                Values::Texts(shared_texts(&texts)?)
            }
            ListKind::Fraction => {
                Values::Fractions(required(self.reader::<DoubleType>(group, index)?, ranges)?)
            }
            ListKind::Flag => {
                Values::Flags(required(self.reader::<BoolType>(group, index)?, ranges)?)
            }
            ListKind::Number32 => {
                let numbers = required(self.reader::<Int32Type>(group, index)?, ranges)?;
                Values::Numbers32(numbers.into_iter().map(i32::cast_unsigned).collect())
            }
            ListKind::Number64 | ListKind::Time => {
                Values::Numbers64(required(self.reader::<Int64Type>(group, index)?, ranges)?)
            }
            ListKind::OptionalNumber64 | ListKind::OptionalSigned64 | ListKind::OptionalTime => {
                Values::Optionals64(optional(self.reader(group, index)?, ranges)?)
            }
        })
    }
}

/// Reads rising ranges of a column and skips the rows between them.
fn each_range<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    ranges: &[Range<usize>],
    mut read: impl FnMut(&mut ColumnReaderImpl<T>, usize) -> ParquetResult<()>,
) -> ParquetResult<()> {
    let mut at = 0;
    for range in ranges {
        let skipped = range.start - at;
        if skipped > 0 && reader.skip_records(skipped)? != skipped {
            return Err(ParquetError::EOF("a column ends too early".into()));
        }
        read(reader, range.len())?;
        at = range.end;
    }
    Ok(())
}

fn required<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    ranges: &[Range<usize>],
) -> ParquetResult<Vec<T::T>> {
    let count: usize = ranges.iter().map(Range::len).sum();
    let mut values = Vec::with_capacity(count.min(GROUP_ROWS));
    each_range(&mut reader, ranges, |reader, count| {
        reader
            .read_records(count, None, None, &mut values)
            .map(|_| ())
    })?;
    Ok(values)
}

fn optional(
    mut reader: ColumnReaderImpl<Int64Type>,
    ranges: &[Range<usize>],
) -> ParquetResult<Vec<Option<i64>>> {
    let mut levels = Vec::new();
    let mut values = Vec::new();
    each_range(&mut reader, ranges, |reader, count| {
        reader
            .read_records(count, Some(&mut levels), None, &mut values)
            .map(|_| ())
    })?;
    let mut values = values.into_iter();
    let next = levels
        .into_iter()
        .map(|level| if level == 1 { values.next() } else { None });
    Ok(next.collect())
}

/// Checks that there is a value for each row.
fn check_length<T>(values: Vec<T>, rows: usize) -> ParquetResult<Vec<T>> {
    if values.len() != rows {
        return Err(ParquetError::EOF("a column ends too early".into()));
    }
    Ok(values)
}

/// The ranges of matching rows, with the gaps that are too short to skip.
fn ranges_of(ranges: &[Range<usize>], is_wanted: impl Iterator<Item = bool>) -> Vec<Range<usize>> {
    let mut merged: Vec<Range<usize>> = Vec::new();
    for (row, is_wanted) in ranges.iter().cloned().flatten().zip(is_wanted) {
        if is_wanted {
            match merged
                .last_mut()
                .filter(|last| row - last.end < GAP_ROWS_MIN)
            {
                Some(last) => last.end = row + 1,
                None => merged.push(row..row + 1),
            }
        }
    }
    merged
}

/// The texts. Rows share frequent ones.
fn shared_texts(values: &[ByteArray]) -> ParquetResult<Vec<Arc<str>>> {
    let mut known: KeyedSet<Arc<str>> = KeyedSet::default();
    let texts = values.iter().map(|value| {
        let text = std::str::from_utf8(value.data())?;
        if let Some(text) = known.get(text) {
            return Ok(text.clone());
        }
        let text: Arc<str> = text.into();
        if known.len() < SHARED_TEXTS_MAX {
            known.insert(text.clone());
        }
        Ok(text)
    });
    texts.collect()
}
