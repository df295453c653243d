//! The types of columns in Arrow, as readers of the Parquet files see them.

use arrow_schema::{DataType, Field, Schema, TimeUnit};

use super::column::{ListColumn, ListKind};
use super::schema::TS;
use crate::sums::table::{Column, SumTable};

impl ListColumn {
    /// The column in a schema of Arrow.
    pub fn arrow_field(&self) -> Field {
        let (data_type, is_optional) = match self.kind {
            ListKind::Text | ListKind::KeyText => (DataType::Utf8, false),
            ListKind::Flag => (DataType::Boolean, false),
            ListKind::Number32 => (DataType::UInt32, false),
            ListKind::Number64 => (DataType::UInt64, false),
            ListKind::Time => (time_type(), false),
            ListKind::OptionalNumber64 => (DataType::UInt64, true),
            ListKind::OptionalSigned64 => (DataType::Int64, true),
            ListKind::OptionalTime => (time_type(), true),
            ListKind::Fraction => (DataType::Float64, false),
        };
        Field::new(self.name, data_type, is_optional)
    }
}

fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

impl SumTable {
    /// The table's schema in Arrow.
    pub fn arrow_schema(self) -> Schema {
        let ts = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
        let mut fields = vec![Field::new(TS, ts, false)];
        for column in self.columns() {
            let data_type = if *column == Column::Kind {
                DataType::UInt8
            } else {
                DataType::UInt32
            };
            fields.push(Field::new(self.column_name(*column), data_type, false));
        }
        fields.push(Field::new(self.value_name(), DataType::UInt64, false));
        Schema::new(fields)
    }
}
