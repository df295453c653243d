//! Bloom filters, which exclude row groups that do not have a text.

use std::sync::Arc;

use parquet::bloom_filter::Sbbf;
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::WriterPropertiesBuilder;
use parquet::schema::types::ColumnPath;

use super::super::objects::Object;
use super::bytes::FileBytes;

/// Rate of false positives.
const FALSE_POSITIVES: f64 = 0.01;

/// Enables a column's filter, for `distinct` texts in a row group.
pub(super) fn enable(
    properties: WriterPropertiesBuilder,
    column: ColumnPath,
    distinct: u64,
) -> WriterPropertiesBuilder {
    properties
        .set_column_bloom_filter_enabled(column.clone(), true)
        .set_column_bloom_filter_fpp(column.clone(), FALSE_POSITIVES)
        .set_column_bloom_filter_max_ndv(column, distinct)
}

/// Reads the filter of a column in a row group, if it has one.
pub(super) fn read(chunk: &ColumnChunkMetaData, object: &Arc<Object>) -> Result<Option<Sbbf>> {
    match chunk.bloom_filter_offset() {
        Some(_) => Sbbf::read_from_column_chunk(chunk, &FileBytes(object.clone())),
        None => Ok(None),
    }
}

/// Memory of the filter once it is read.
pub(super) fn bytes(chunk: &ColumnChunkMetaData) -> usize {
    chunk
        .bloom_filter_length()
        .and_then(|bytes| usize::try_from(bytes).ok())
        .unwrap_or(0)
}
