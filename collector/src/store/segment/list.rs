//! Files of the tables that are lists: rows of texts and numbers that stand for themselves.

use std::ops::Range;
use std::sync::Arc;

use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, Type};
use rustc_hash::FxHashSet;

use super::super::error::StoreError;
use super::super::manifest::FileEntry;
use super::super::objects::{Object, Objects};
use super::super::table::TableName;
use super::super::tier::Period;
use super::bytes::{ChunkBytes, FileBytes};
use super::read::check_file;
use super::schema::common_properties;
use super::write::Written;
use super::{bloom, decoding};

/// Rows of a row group, which is what is read at least, and held of each input of a merge.
const GROUP_ROWS: usize = 1 << 14;

/// Most distinct texts of one column of one row group that are held once.
const SHARED_TEXTS_MAX: usize = 4_096;

/// A column of a list: its name and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListColumn {
    pub(crate) name: &'static str,
    pub(crate) kind: ListKind,
}

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListKind {
    Text,
    /// A text by which rows are looked up: with a bloom filter.
    KeyText,
    Flag,
    Number32,
    Number64,
    /// Nanoseconds since the Unix epoch.
    Time,
    OptionalNumber64,
    OptionalSigned64,
    OptionalTime,
}

/// The values of a column.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Values {
    Texts(Vec<Arc<str>>),
    Flags(Vec<bool>),
    Numbers32(Vec<u32>),
    /// Unsigned ones as their bits.
    Numbers64(Vec<i64>),
    Optionals64(Vec<Option<i64>>),
}

/// A row of a list.
pub(crate) trait ListRow: Sized {
    const COLUMNS: &'static [ListColumn];

    /// The rows, by column.
    fn encode(rows: &[Self]) -> Vec<Values>;

    /// The rows from columns, which are of the right kinds and of one length.
    ///
    /// # Errors
    /// What is wrong with a value that no row has.
    fn decode(columns: Columns) -> Result<Vec<Self>, String>;

    /// The number or second by which files of the table are told apart.
    fn place(&self) -> Range<u32>;
}

/// Columns that are taken one after the other.
pub(crate) struct Columns {
    columns: std::vec::IntoIter<Values>,
}

macro_rules! take {
    ($name:ident, $variant:ident, $of:ty) => {
        pub(crate) fn $name(&mut self) -> std::vec::IntoIter<$of> {
            match self.columns.next() {
                Some(Values::$variant(values)) => values.into_iter(),
                other => unreachable!("columns are read by their kinds: {other:?}"),
            }
        }
    };
}

impl Columns {
    take!(texts, Texts, Arc<str>);
    take!(flags, Flags, bool);
    take!(numbers32, Numbers32, u32);
    take!(numbers64, Numbers64, i64);
    take!(optionals64, Optionals64, Option<i64>);
}

impl ListKind {
    fn field(self, name: &str) -> String {
        const NUMBER: &str = "INTEGER(64,false)";
        const SIGNED: &str = "INTEGER(64,true)";
        const TIME: &str = "TIMESTAMP(NANOS,true)";
        let (repetition, physical, logical) = match self {
            ListKind::Text | ListKind::KeyText => ("REQUIRED", "BYTE_ARRAY", Some("STRING")),
            ListKind::Flag => ("REQUIRED", "BOOLEAN", None),
            ListKind::Number32 => ("REQUIRED", "INT32", Some("INTEGER(32,false)")),
            ListKind::Number64 => ("REQUIRED", "INT64", Some(NUMBER)),
            ListKind::Time => ("REQUIRED", "INT64", Some(TIME)),
            ListKind::OptionalNumber64 => ("OPTIONAL", "INT64", Some(NUMBER)),
            ListKind::OptionalSigned64 => ("OPTIONAL", "INT64", Some(SIGNED)),
            ListKind::OptionalTime => ("OPTIONAL", "INT64", Some(TIME)),
        };
        let logical = logical.map_or(String::new(), |logical| format!(" ({logical})"));
        format!(" {repetition} {physical} {name}{logical};")
    }
}

fn schema(columns: &[ListColumn]) -> Arc<Type> {
    let fields: String = columns.iter().map(|column| column.kind.field(column.name)).collect();
    let text = format!("message table {{{fields} }}");
    Arc::new(parse_message_type(&text).expect("the text is a schema"))
}

fn properties(table: TableName, columns: &[ListColumn]) -> Arc<WriterProperties> {
    let properties =
        common_properties(&table.name()).set_statistics_enabled(EnabledStatistics::Chunk);
    let keys = columns.iter().filter(|column| column.kind == ListKind::KeyText);
    let properties = keys.fold(properties, |properties, column| {
        let path = ColumnPath::from(column.name);
        bloom::enable(properties, path, GROUP_ROWS as u64)
    });
    Arc::new(properties.build())
}

/// Encodes the rows of a list, in memory.
pub(crate) struct ListWriter<R> {
    file: SerializedFileWriter<Vec<u8>>,
    rows: Vec<R>,
    written: u64,
    span: Option<(u32, u32)>,
}

const ENCODES: &str = "rows of a list can be encoded";

impl<R: ListRow> ListWriter<R> {
    pub(crate) fn new(table: TableName) -> ListWriter<R> {
        let (schema, properties) = (schema(R::COLUMNS), properties(table, R::COLUMNS));
        let file = SerializedFileWriter::new(Vec::new(), schema, properties).expect(ENCODES);
        ListWriter { file, rows: Vec::new(), written: 0, span: None }
    }

    pub(crate) fn push(&mut self, row: R) {
        let place = row.place();
        let (from, to) = self.span.unwrap_or((u32::MAX, 0));
        self.span = Some((from.min(place.start), to.max(place.end)));
        self.rows.push(row);
        if self.rows.len() == GROUP_ROWS {
            self.flush();
        }
    }

    /// Bytes of the row groups that are done.
    pub(crate) fn bytes(&self) -> usize {
        self.file.bytes_written()
    }

    /// The file; `None` if there was no row.
    pub(crate) fn finish(mut self) -> Option<Written> {
        self.flush();
        let (from, to) = self.span?;
        self.file.finish().expect(ENCODES);
        let content = std::mem::take(self.file.inner_mut()).into();
        Some(Written { content, rows: self.written, from: Period(from), to: Period(to) })
    }

    fn flush(&mut self) {
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

fn write_values(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &Values,
) -> ParquetResult<()> {
    let mut column = group.next_column()?.expect(ENCODES);
    match values {
        Values::Texts(texts) => {
            let texts: Vec<ByteArray> = texts.iter().map(|text| (&**text).into()).collect();
            column.typed::<ByteArrayType>().write_batch(&texts, None, None)?
        }
        Values::Flags(flags) => column.typed::<BoolType>().write_batch(flags, None, None)?,
        Values::Numbers32(numbers) => {
            let numbers: Vec<i32> = numbers.iter().map(|number| number.cast_signed()).collect();
            column.typed::<Int32Type>().write_batch(&numbers, None, None)?
        }
        Values::Numbers64(numbers) => {
            column.typed::<Int64Type>().write_batch(numbers, None, None)?
        }
        Values::Optionals64(numbers) => {
            let present: Vec<i64> = numbers.iter().flatten().copied().collect();
            let levels: Vec<i16> = numbers.iter().map(|number| number.is_some().into()).collect();
            column.typed::<Int64Type>().write_batch(&present, Some(&levels), None)?
        }
    };
    column.close()
}

/// A list's file, checked and open.
#[derive(Debug)]
pub(crate) struct ListSegment {
    path: String,
    object: Arc<Object>,
    footer: ParquetMetaData,
    columns: &'static [ListColumn],
}

impl ListSegment {
    /// Opens a file, and compares its checksum first.
    pub(crate) fn open<R: ListRow>(
        objects: &Objects,
        entry: &FileEntry,
    ) -> Result<ListSegment, StoreError> {
        let path = entry.path();
        let object = Arc::new(objects.open(&path)?);
        check_file(&object, entry)?;
        let footer = decoding(&path, || {
            ParquetMetaDataReader::new().parse_and_finish(&FileBytes(object.clone()))
        })?;
        if footer.file_metadata().schema() != schema(R::COLUMNS).as_ref() {
            return Err(StoreError::damaged(path, "it has other columns than its table"));
        }
        let groups = footer.row_groups().iter().map(|group| group.num_rows().max(0));
        let rows = groups.map(i64::unsigned_abs).sum::<u64>();
        if rows != entry.rows {
            let reason = format!("it has {rows} rows where {} were written", entry.rows);
            return Err(StoreError::damaged(path, reason));
        }
        Ok(ListSegment { path, object, footer, columns: R::COLUMNS })
    }

    pub(crate) fn group_count(&self) -> usize {
        self.footer.num_row_groups()
    }

    /// The rows of a row group.
    pub(crate) fn group<R: ListRow>(&self, index: usize) -> Result<Vec<R>, StoreError> {
        decoding(&self.path, || {
            let group = self.footer.row_group(index);
            let columns = (0..self.columns.len()).map(|column| self.column(group, column));
            let columns: Vec<Values> = columns.collect::<ParquetResult<_>>()?;
            let rows = R::decode(Columns { columns: columns.into_iter() });
            let rows = rows.map_err(ParquetError::General)?;
            let expected = usize::try_from(group.num_rows())?;
            match rows.len() == expected {
                true => Ok(rows),
                false => Err(ParquetError::EOF("a column ends too early".into())),
            }
        })
    }

    /// Least and greatest value of a column of numbers or times in a row group.
    pub(crate) fn number_bounds(&self, group: usize, column: &str) -> Option<(i64, i64)> {
        match self.statistics(group, column)? {
            Statistics::Int64(values) => Some((*values.min_opt()?, *values.max_opt()?)),
            _ => None,
        }
    }

    /// Whether a column of texts may have that text in a row group: by its bounds, and by the bloom
    /// filter if it has one.
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
        let Some(index) = self.index_of(column) else { return Ok(true) };
        let chunk = self.footer.row_group(group).column(index);
        decoding(&self.path, || bloom::may_hold(chunk, &self.object, text))
    }

    fn index_of(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|listed| listed.name == column)
    }

    fn statistics(&self, group: usize, column: &str) -> Option<&Statistics> {
        self.footer.row_group(group).column(self.index_of(column)?).statistics()
    }

    fn column(&self, group: &RowGroupMetaData, index: usize) -> ParquetResult<Values> {
        let chunk = group.column(index);
        let rows = usize::try_from(group.num_rows())?;
        let (start, length) = chunk.byte_range();
        let bytes = Arc::new(ChunkBytes::read(&self.object, start, length)?);
        let pages = Box::new(SerializedPageReader::new(bytes, chunk, rows, None)?);
        let description = chunk.column_descr_ptr();
        Ok(match self.columns[index].kind {
            ListKind::Text | ListKind::KeyText => {
                Values::Texts(shared_texts(&required::<ByteArrayType>(
                    ColumnReaderImpl::new(description, pages),
                    rows,
                )?)?)
            }
            ListKind::Flag => Values::Flags(required::<BoolType>(
                ColumnReaderImpl::new(description, pages),
                rows,
            )?),
            ListKind::Number32 => {
                let reader = ColumnReaderImpl::new(description, pages);
                let numbers = required::<Int32Type>(reader, rows)?;
                Values::Numbers32(numbers.into_iter().map(i32::cast_unsigned).collect())
            }
            ListKind::Number64 | ListKind::Time => {
                let reader = ColumnReaderImpl::new(description, pages);
                Values::Numbers64(required::<Int64Type>(reader, rows)?)
            }
            ListKind::OptionalNumber64 | ListKind::OptionalSigned64 | ListKind::OptionalTime => {
                Values::Optionals64(optional(ColumnReaderImpl::new(description, pages), rows)?)
            }
        })
    }
}

fn required<T: DataType>(mut reader: ColumnReaderImpl<T>, rows: usize) -> ParquetResult<Vec<T::T>> {
    let mut values = Vec::with_capacity(rows.min(GROUP_ROWS));
    reader.read_records(rows, None, None, &mut values)?;
    Ok(values)
}

fn optional(
    mut reader: ColumnReaderImpl<Int64Type>,
    rows: usize,
) -> ParquetResult<Vec<Option<i64>>> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    let mut values = values.into_iter();
    let next = levels.into_iter().map(|level| if level == 1 { values.next() } else { None });
    Ok(next.collect())
}

/// The texts, each of the more frequent ones once in memory.
fn shared_texts(values: &[ByteArray]) -> ParquetResult<Vec<Arc<str>>> {
    let mut known: FxHashSet<Arc<str>> = FxHashSet::default();
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
