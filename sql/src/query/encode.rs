//! Rows in the forms of answers.

use std::borrow::Cow;
use std::sync::Arc;

use anyhow::Context as _;
use api::time::format_time;
use api::{SqlAnswer, SqlCell, SqlColumn, SqlFormat};
use datafusion::arrow::array::{Array, ArrayRef, AsArray as _, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, Float64Type, Int64Type, Schema,
    TimeUnit, UInt64Type,
};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::parquet::arrow::ArrowWriter;

use super::{Facts, Rows};

/// Times in CSV: RFC 3339 in UTC.
const TIME_FORMAT: &str = "%Y-%m-%dT%H:%M:%S%.fZ";

/// Encodes the rows.
pub(super) fn encode(rows: &Rows, facts: &Facts, format: SqlFormat) -> anyhow::Result<Vec<u8>> {
    match format {
        SqlFormat::Json => json(rows, facts),
        SqlFormat::Csv => csv(rows),
        SqlFormat::Parquet => parquet(&plain(rows)?),
    }
}

fn json(rows: &Rows, facts: &Facts) -> anyhow::Result<Vec<u8>> {
    let column = |field: &Arc<Field>| SqlColumn {
        name: field.name().clone(),
        type_name: type_name(field.data_type()),
    };
    let mut cells = Vec::new();
    for batch in &rows.batches {
        let by_column: Vec<Vec<SqlCell>> = batch
            .columns()
            .iter()
            .map(values)
            .collect::<anyhow::Result<_>>()?;
        let mut columns: Vec<_> = by_column.into_iter().map(Vec::into_iter).collect();
        for _ in 0..batch.num_rows() {
            cells.push(columns.iter_mut().filter_map(Iterator::next).collect());
        }
    }
    let answer = SqlAnswer {
        columns: rows.schema.fields().iter().map(column).collect(),
        rows: cells,
        truncated: rows.is_truncated,
        data_until: format_time(facts.data_until.unix_ns()),
        data_until_ns: facts.data_until.unix_ns(),
        corrupt_files: facts.corrupt_files.iter().cloned().collect(),
    };
    Ok(serde_json::to_vec(&answer)?)
}

/// The name of a type for people.
fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".to_owned(),
        DataType::Timestamp(..) => "timestamp".to_owned(),
        DataType::Boolean => "boolean".to_owned(),
        DataType::Null => "null".to_owned(),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => "double".to_owned(),
        data_type if data_type.is_integer() => "integer".to_owned(),
        data_type if data_type.is_decimal() => "decimal".to_owned(),
        data_type => data_type.to_string().to_lowercase(),
    }
}

/// The cells of a column.
fn values(column: &ArrayRef) -> anyhow::Result<Vec<SqlCell>> {
    let data_type = column.data_type();
    if data_type.is_unsigned_integer() {
        let numbers = cast(column, &DataType::UInt64)?;
        return Ok(cells(
            numbers.as_primitive::<UInt64Type>(),
            SqlCell::Unsigned,
        ));
    }
    if data_type.is_signed_integer() {
        let numbers = cast(column, &DataType::Int64)?;
        return Ok(cells(numbers.as_primitive::<Int64Type>(), SqlCell::Integer));
    }
    if data_type.is_floating() {
        let numbers = cast(column, &DataType::Float64)?;
        return Ok(cells(
            numbers.as_primitive::<Float64Type>(),
            SqlCell::Number,
        ));
    }
    if let DataType::Decimal32(_, 0) | DataType::Decimal64(_, 0) | DataType::Decimal128(_, 0) =
        data_type
    {
        let numbers = cast(column, &DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))?;
        return Ok(cells(
            numbers.as_primitive::<Decimal128Type>(),
            whole_number,
        ));
    }
    if data_type.is_decimal() {
        let numbers = cast(column, &DataType::Float64)?;
        return Ok(cells(
            numbers.as_primitive::<Float64Type>(),
            SqlCell::Number,
        ));
    }
    if *data_type == DataType::Boolean {
        return Ok(cells(column.as_boolean(), SqlCell::Boolean));
    }
    if let DataType::Timestamp(unit, _) = data_type {
        let numbers = cast(column, &DataType::Int64)?;
        let nanoseconds = nanoseconds(*unit);
        return Ok(cells(numbers.as_primitive::<Int64Type>(), |number: i64| {
            SqlCell::Text(format_time(number.saturating_mul(nanoseconds)))
        }));
    }
    let options = FormatOptions::new();
    let formatter = ArrayFormatter::try_new(column, &options)?;
    (0..column.len())
        .map(|row: usize| {
            if column.is_null(row) {
                return Ok(SqlCell::Null);
            }
            Ok(SqlCell::Text(formatter.value(row).try_to_string()?))
        })
        .collect()
}

/// A whole number of any size. JSON's readers lose digits of those past 64 bits.
fn whole_number(number: i128) -> SqlCell {
    match (i64::try_from(number), u64::try_from(number)) {
        (Ok(number), _) => SqlCell::Integer(number),
        (_, Ok(number)) => SqlCell::Unsigned(number),
        _ => SqlCell::Number(number as f64),
    }
}

fn cells<T>(
    values: impl IntoIterator<Item = Option<T>>,
    cell: impl Fn(T) -> SqlCell,
) -> Vec<SqlCell> {
    values
        .into_iter()
        .map(|value| value.map_or(SqlCell::Null, &cell))
        .collect()
}

/// Nanoseconds of a unit of time.
fn nanoseconds(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// A line of names, then a line for each row. `NULL` is nothing and an empty text is `""`, which writers of arrow do
/// not tell apart.
fn csv(rows: &Rows) -> anyhow::Result<Vec<u8>> {
    let options = FormatOptions::new()
        .with_timestamp_format(Some(TIME_FORMAT))
        .with_timestamp_tz_format(Some(TIME_FORMAT));
    let fields = rows.schema.fields().iter();
    let names: Vec<String> = fields
        .map(|field| quoted(field.name()).into_owned())
        .collect();
    let mut content = names.join(",");
    content.push('\n');
    for batch in &rows.batches {
        let columns = batch.columns();
        let formatters = columns
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect::<Result<Vec<_>, _>>()?;
        // A column of the type of NULL has no list of nulls.
        let nulls: Vec<_> = columns
            .iter()
            .map(|column| column.logical_nulls())
            .collect();
        for row in 0..batch.num_rows() {
            for (number, (nulls, formatter)) in nulls.iter().zip(&formatters).enumerate() {
                if number > 0 {
                    content.push(',');
                }
                if !nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                    content.push_str(&quoted(&formatter.value(row).try_to_string()?));
                }
            }
            content.push('\n');
        }
    }
    Ok(content.into_bytes())
}

/// A field of CSV, in quotes where it needs them.
fn quoted(text: &str) -> Cow<'_, str> {
    if text.is_empty() || text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text.into()
    }
}

/// Rows with plain texts: not all readers of files have views, and none has intervals.
fn plain(rows: &Rows) -> anyhow::Result<Rows> {
    let field = |field: &Arc<Field>| {
        let data_type = match field.data_type() {
            DataType::Utf8View | DataType::Interval(_) => DataType::Utf8,
            other => other.clone(),
        };
        field.as_ref().clone().with_data_type(data_type)
    };
    let schema = Arc::new(Schema::new(
        rows.schema.fields().iter().map(field).collect::<Vec<_>>(),
    ));
    let batches = rows
        .batches
        .iter()
        .map(|batch: &RecordBatch| {
            let fields = schema.fields().iter();
            let columns = batch
                .columns()
                .iter()
                .zip(fields)
                .map(|(column, field)| cast(column, field.data_type()));
            Ok(RecordBatch::try_new(
                schema.clone(),
                columns.collect::<Result<_, _>>()?,
            )?)
        })
        .collect::<anyhow::Result<_>>()?;
    Ok(Rows {
        schema,
        batches,
        is_truncated: rows.is_truncated,
    })
}

fn parquet(rows: &Rows) -> anyhow::Result<Vec<u8>> {
    let mut content = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut content, rows.schema.clone(), None)?;
    for batch in &rows.batches {
        writer.write(batch).context("writing Parquet")?;
    }
    writer.close().context("writing Parquet")?;
    Ok(content)
}
