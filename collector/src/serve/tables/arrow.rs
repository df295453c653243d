//! Tables as files of Arrow IPC, with the types that Parquet's columns have. They are not compressed, so
//! that every reader opens them and may map them into memory.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampNanosecondArray, UInt32Array, UInt64Array,
};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, Field, Schema};

use super::Table;
use store::{ListKind, Values};

/// Rows of a record batch. Texts of a batch are limited to 2 GiB by the format.
const BATCH_ROWS: usize = 1 << 14;

const ENCODES: &str = "memory takes columns of equal length with the types of their schema";

impl Table {
    pub(super) fn arrow(&self) -> Vec<u8> {
        let mut file = Vec::new();
        self.write_arrow(&mut file).expect(ENCODES);
        file
    }

    fn write_arrow(&self, file: &mut Vec<u8>) -> Result<(), ArrowError> {
        let fields = self.columns.iter().map(|(column, _)| column.arrow_field());
        let schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
        let mut writer = FileWriter::try_new(file, &schema)?;
        for first in (0..self.rows).step_by(BATCH_ROWS) {
            let rows = first..self.rows.min(first + BATCH_ROWS);
            let columns = self.columns.iter();
            let arrays = columns.map(|(column, values)| array(column.kind, values, rows.clone()));
            writer.write(&RecordBatch::try_new(schema.clone(), arrays.collect())?)?;
        }
        writer.finish()
    }
}

fn array(kind: ListKind, values: &Values, rows: Range<usize>) -> ArrayRef {
    match values {
        Values::Texts(texts) => Arc::new(StringArray::from_iter_values(&texts[rows])),
        Values::Flags(flags) => Arc::new(BooleanArray::from(flags[rows].to_vec())),
        Values::Numbers32(numbers) => Arc::new(UInt32Array::from(numbers[rows].to_vec())),
        Values::Numbers64(numbers) => {
            numbers_64(kind, numbers[rows].iter().map(|number| Some(*number)))
        }
        Values::Optionals64(numbers) => numbers_64(kind, numbers[rows].iter().copied()),
        Values::Fractions(numbers) => Arc::new(Float64Array::from(numbers[rows].to_vec())),
    }
}

/// Numbers of 64 bits, which columns hold as signed ones.
fn numbers_64(kind: ListKind, numbers: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    match kind {
        ListKind::Time | ListKind::OptionalTime => {
            Arc::new(numbers.collect::<TimestampNanosecondArray>().with_timezone("UTC"))
        }
        ListKind::OptionalSigned64 => Arc::new(numbers.collect::<Int64Array>()),
        _ => {
            let unsigned = numbers.map(|number| number.map(i64::cast_unsigned));
            Arc::new(unsigned.collect::<UInt64Array>())
        }
    }
}
