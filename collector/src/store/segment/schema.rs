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

/// Of files that are soon merged: as small as with [`ZSTD_LEVEL`], in a third less time with plain keys.
const ZSTD_LEVEL_FRESH: i32 = 1;

/// What a file is written for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    /// By a sealing, which goes on beside taking in. Keys are plain, for to look each up in a
    /// dictionary takes longer than to compress runs of equal ones: 64 instead of 100 ns a row of
    /// samples, at 1.72 bytes either way.
    Sealed,
    /// To stay.
    Merged,
}

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

    pub(super) fn properties(self, tier: Tier, effort: Effort) -> Arc<WriterProperties> {
        let mut properties = common_properties(&self.name(tier))
            .set_compression(self.compression(effort))
            .set_data_page_row_count_limit(PAGE_ROWS)
            .set_write_batch_size(PAGE_ROWS)
            .set_statistics_enabled(match effort {
                // Such files are soon merged, and only other readers look at those of other columns.
                Effort::Sealed => EnabledStatistics::None,
                Effort::Merged => EnabledStatistics::Chunk,
            });
        for (name, encoding) in self.encodings(effort) {
            let column = ColumnPath::from(name);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, encoding);
        }
        // Only these are looked at before a page is read.
        let properties = [TS, self.task_name()].into_iter().fold(properties, |properties, name| {
            properties
                .set_column_statistics_enabled(ColumnPath::from(name), EnabledStatistics::Page)
        });
        Arc::new(properties.build())
    }

    fn compression(self, effort: Effort) -> Compression {
        match (effort, self) {
            (Effort::Sealed, _) => zstd(ZSTD_LEVEL_FRESH),
            // Of what `encodings` leaves of an hour, zstd would save a third, and take a sixth of the time of
            // a question. With both a row takes less than before: 1.5 bytes instead of 2.5.
            (Effort::Merged, Counting::Durations) => Compression::UNCOMPRESSED,
            (Effort::Merged, _) => zstd(ZSTD_LEVEL),
        }
    }

    /// Columns that have no dictionary, and how they are encoded instead.
    fn encodings(self, effort: Effort) -> Vec<(&'static str, Encoding)> {
        match (effort, self) {
            (Effort::Sealed, _) => {
                let keys = self.columns().iter().map(|column| self.column_name(*column));
                [TS].into_iter().chain(keys).map(|name| (name, Encoding::PLAIN)).collect()
            }
            // Of many tasks of one name, the next bucket is one of the next few: an hour of 5 M tasks takes
            // 0.24 bytes a row so, and 1.66 as places in a dictionary with zstd.
            (_, Counting::Durations) => vec![(self.node_name(), Encoding::DELTA_BINARY_PACKED)],
            // PackedWeights places in a dictionary of 2^14 nodes are no whole bytes, among which zstd would
            // find what repeats: plain ones take 0.17 bytes a row less, and no look-up on either side.
            (_, Counting::Samples | Counting::SamplesAll) => {
                vec![(self.node_name(), Encoding::PLAIN)]
            }
            _ => Vec::new(),
        }
    }
}

fn zstd(level: i32) -> Compression {
    Compression::ZSTD(ZstdLevel::try_new(level).expect("zstd has that level"))
}

/// What all tables share.
pub(super) fn common_properties(table: &str) -> parquet::file::properties::WriterPropertiesBuilder {
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
        .set_compression(zstd(ZSTD_LEVEL))
        .set_created_by("emberline".to_owned())
        // Rows are cut into groups by the writer of each table.
        .set_max_row_group_row_count(None)
        .set_key_value_metadata(Some(facts))
}
