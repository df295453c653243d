//! Parquet schemas and properties of the sum tables.

use std::sync::Arc;

use parquet::basic::{self, Encoding, ZstdLevel};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, Type};

use super::super::manifest::FORMAT;
use crate::sums::table::{Column, SumTable};
use crate::sums::tier::Tier;

/// Rows of a page: the least that is read for one task.
const PAGE_ROWS: usize = 4_096;

/// The default level of zstd; reading is no slower than at lower levels.
const ZSTD_LEVEL: i32 = 3;

/// The level of files that are soon merged: as small as with [`ZSTD_LEVEL`], because keys are plain, in a
/// third less time.
const ZSTD_LEVEL_FRESH: i32 = 1;

/// How a file is encoded and compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compression {
    /// For a sealing, which runs next to ingest. Keys are plain, because looking each up in a dictionary
    /// takes longer than compressing runs of equal ones: 64 instead of 100 ns a row of samples, at
    /// 1.72 bytes either way.
    Sealed,
    /// For a merge, whose files are kept.
    Merged,
}

/// The name of the column of periods.
pub(super) const TS: &str = "ts";

impl SumTable {
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

    pub(super) fn properties(self, tier: Tier, compression: Compression) -> Arc<WriterProperties> {
        let mut properties = common_properties(&self.name(tier))
            .set_compression(self.codec(compression))
            .set_data_page_row_count_limit(PAGE_ROWS)
            .set_write_batch_size(PAGE_ROWS)
            .set_statistics_enabled(match compression {
                // Such files are soon merged, and only other programs read statistics of all columns.
                Compression::Sealed => EnabledStatistics::None,
                Compression::Merged => EnabledStatistics::Chunk,
            });
        for (name, encoding) in self.encodings(compression) {
            let column = ColumnPath::from(name);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, encoding);
        }
        // Only these are used to select pages.
        let mut selecting = vec![TS, self.task_name()];
        if compression == Compression::Merged && self.columns().contains(&Column::Worker) {
            selecting.push(self.column_name(Column::Worker));
        }
        for name in selecting {
            let column = ColumnPath::from(name);
            properties = properties.set_column_statistics_enabled(column, EnabledStatistics::Page);
        }
        Arc::new(properties.build())
    }

    fn codec(self, compression: Compression) -> basic::Compression {
        match (compression, self) {
            (Compression::Sealed, _) => zstd(ZSTD_LEVEL_FRESH),
            // With `encodings`, zstd would save a third of the size, and take a sixth of the time of a query.
            (Compression::Merged, SumTable::Durations) => basic::Compression::UNCOMPRESSED,
            (Compression::Merged, _) => zstd(ZSTD_LEVEL),
        }
    }

    /// Columns without a dictionary, and their encodings.
    fn encodings(self, compression: Compression) -> Vec<(&'static str, Encoding)> {
        match (compression, self) {
            (Compression::Sealed, _) => {
                let keys = self
                    .columns()
                    .iter()
                    .map(|column| self.column_name(*column));
                [TS].into_iter()
                    .chain(keys)
                    .map(|name| (name, Encoding::PLAIN))
                    .collect()
            }
            // With many tasks of one name, the next bucket is close: an hour of 5 M tasks takes 0.24 bytes
            // a row, against 1.66 as indexes in a dictionary with zstd.
            (_, SumTable::Durations) => vec![(self.node_name(), Encoding::DELTA_BINARY_PACKED)],
            // PackedWeights places in a dictionary of 2^14 nodes are no whole bytes, among which zstd would
            // find what repeats: plain ones take 0.17 bytes a row less, and no look-up on either side.
            (_, SumTable::Samples | SumTable::SamplesAll) => {
                vec![(self.node_name(), Encoding::PLAIN)]
            }
            _ => Vec::new(),
        }
    }
}

fn zstd(level: i32) -> basic::Compression {
    basic::Compression::ZSTD(ZstdLevel::try_new(level).expect("zstd has that level"))
}

/// Names of the facts in a file's footer.
const TABLE_FACT: &str = "emberline.table";
const FORMAT_FACT: &str = "emberline.format";

/// Checks that a file is one of that table in this format. Some tables have the same columns.
pub(super) fn check_facts(footer: &ParquetMetaData, table: &str) -> Result<(), String> {
    let facts = footer.file_metadata().key_value_metadata();
    let fact = |key: &str| {
        let found = facts.into_iter().flatten().find(|fact| fact.key == key);
        found
            .and_then(|fact| fact.value.as_deref())
            .unwrap_or("none")
    };
    let format = fact(FORMAT_FACT);
    if format != FORMAT.to_string() {
        return Err(format!(
            "it has format {format}; this version reads format {FORMAT}"
        ));
    }
    match fact(TABLE_FACT) {
        found if found == table => Ok(()),
        found => Err(format!("it is a file of table {found}")),
    }
}

/// The properties of all tables.
pub(super) fn common_properties(table: &str) -> parquet::file::properties::WriterPropertiesBuilder {
    let facts = vec![
        key_value(TABLE_FACT, table.to_owned()),
        key_value(FORMAT_FACT, FORMAT.to_string()),
    ];
    WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(zstd(ZSTD_LEVEL))
        .set_created_by("emberline".to_owned())
        // The writers divide rows into row groups.
        .set_max_row_group_row_count(None)
        .set_key_value_metadata(Some(facts))
}

fn key_value(key: &str, value: String) -> parquet::file::metadata::KeyValue {
    parquet::file::metadata::KeyValue {
        key: key.to_owned(),
        value: Some(value),
    }
}
