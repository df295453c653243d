//! Files of tables. They are Parquet, which only this module knows.

mod arrow;
mod bloom;
mod bytes;
mod column;
mod list;
mod pages;
mod read;
mod schema;
mod workers;
mod write;

use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::ParquetError;

use super::error::StoreError;

pub(crate) use column::list_table;
pub use column::{ColumnKind, ListColumn, ListKind, ListRow, Values, kinds};
pub(crate) use column::{Columns, next};
pub use list::encode_columns;
pub(crate) use list::{ListSegment, ListWriter};
pub(crate) use read::{ALL_COLUMNS, Cursor, Segment, open_checked, value_at};
pub use read::{Batch, Scan};
pub(crate) use schema::Compression;
pub(crate) use workers::WorkerRanges;
pub(crate) use write::{EncodedFile, SameRowTier, SegmentWriter};

/// Runs a function that decodes a file. The checksum was verified before, so an error or a panic means
/// that the file was written wrong or changed since. Either is damage and must not end the process.
fn decode_checked<T>(
    path: &str,
    decode: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, StoreError> {
    #[cfg(emberline_fuzzing)]
    DECODING.set(true);
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    #[cfg(emberline_fuzzing)]
    DECODING.set(false);
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

#[cfg(emberline_fuzzing)]
std::thread_local! {
    /// Whether the thread is in [`decode_checked`], where a panic is damage.
    static DECODING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(emberline_fuzzing)]
pub fn is_decoding() -> bool {
    DECODING.get()
}

#[cfg(test)]
mod tests;
