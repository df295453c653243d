//! Columns of the counting tables, as Parquet has them.

use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, Type};

use super::super::table::{Column, Counting};
use super::super::tier::Tier;

/// Rows of a page: what is read at least for one task.
const PAGE_ROWS: usize = 4_096;

/// What zstd does at its default, and no slower to read than less.
const ZSTD_LEVEL: i32 = 3;

/// Name of the column of periods.
pub(super) const TS: &str = "ts";

impl Counting {
    pub(super) const fn column_name(self, column: Column) -> &'static str {
        match column {
            Column::Task => self.task_name(),
            Column::Worker => "worker",
            Column::Kind => self.kind_name(),
            Column::Node => self.node_name(),
        }
    }

    /// The file's schema: `ts`, the keys, the sum; all required.
    pub(super) fn schema(self) -> Arc<Type> {
        let mut text = format!("message table {{ REQUIRED INT64 {TS} (TIMESTAMP(MILLIS,true));");
        for column in self.columns() {
            let bits = if *column == Column::Kind { 8 } else { 32 };
            let name = self.column_name(*column);
            text.push_str(&format!(" REQUIRED INT32 {name} (INTEGER({bits},false));"));
        }
        let value = self.value_name();
        text.push_str(&format!(" REQUIRED INT64 {value} (INTEGER(64,false)); }}"));
        Arc::new(parse_message_type(&text).expect("the text is a schema"))
    }

    pub(super) fn properties(self, tier: Tier) -> Arc<WriterProperties> {
        let table = self.name(tier);
        let mut properties = common_properties(&table)
            .set_data_page_row_count_limit(PAGE_ROWS)
            .set_write_batch_size(PAGE_ROWS)
            .set_statistics_enabled(EnabledStatistics::Chunk);
        // Packed places in a dictionary of 2^14 nodes are no whole bytes, among which zstd would find
        // what repeats: plain ones take 0.17 bytes a row less, and no look-up on either side.
        if let Counting::Samples | Counting::SamplesAll = self {
            let node = ColumnPath::from(self.node_name());
            properties = properties
                .set_column_dictionary_enabled(node.clone(), false)
                .set_column_encoding(node, Encoding::PLAIN);
        }
        // Only these are looked at before a page is read.
        let properties = [TS, self.task_name()].into_iter().fold(properties, |properties, name| {
            properties
                .set_column_statistics_enabled(ColumnPath::from(name), EnabledStatistics::Page)
        });
        Arc::new(properties.build())
    }
}

/// What all tables share.
pub(super) fn common_properties(table: &str) -> parquet::file::properties::WriterPropertiesBuilder {
    let level = ZstdLevel::try_new(ZSTD_LEVEL).expect("zstd has that level");
    let fact = |key: &str, value: String| parquet::file::metadata::KeyValue {
        key: key.to_owned(),
        value: Some(value),
    };
    let facts = vec![
        fact("emberline.table", table.to_owned()),
        fact("emberline.format", super::super::manifest::FORMAT.to_string()),
    ];
    WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::ZSTD(level))
        .set_created_by("emberline".to_owned())
        // Rows are cut into groups by the writer of each table.
        .set_max_row_group_row_count(None)
        .set_key_value_metadata(Some(facts))
}
