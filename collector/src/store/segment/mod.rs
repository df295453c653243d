//! Files of tables. They are Parquet, which only this module knows.

mod bloom;
mod bytes;
mod column;
mod list;
mod read;
mod schema;
mod write;

use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::ParquetError;

use super::error::StoreError;

pub(crate) use column::{
    ColumnKind, Columns, ListColumn, ListKind, ListRow, Values, kinds, list_table, next,
};
pub(crate) use list::{ListSegment, ListWriter};
pub(crate) use read::{ALL_COLUMNS, Batch, Cursor, Scan, Segment};
pub(crate) use schema::Compression;
pub(crate) use write::{EncodedFile, SameRowTier, SegmentWriter};

/// Runs a function that decodes a file. The checksum was verified before, so an error or a panic means
/// that the file was written wrong or changed since. Either is damage and must not end the process.
fn decode_checked<T>(
    path: &str,
    decode: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, StoreError> {
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    let decoded =
        decoded.unwrap_or_else(|_| Err(ParquetError::General("it cannot be decoded".into())));
    decoded.map_err(|error| match error {
        ParquetError::External(error) => match error.downcast::<StoreError>() {
            Ok(error) => *error,
            Err(error) => StoreError::damaged(path, error),
        },
        error => StoreError::damaged(path, error),
    })
}

#[cfg(test)]
mod tests;
