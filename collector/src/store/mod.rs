//! What stays: a log of what was acknowledged, and tables made from it.

mod compact;
mod detail;
mod error;
mod inspect;
mod links;
mod list_scan;
mod lists;
mod load;
mod lock;
mod maintain;
mod manifest;
mod newest;
mod objects;
mod plan;
mod record_lists;
mod retention;
mod row;
mod seal;
mod seal_records;
mod seal_windows;
mod segment;
mod table;
mod tables;
mod tier;
pub(crate) mod wal;

pub use error::StoreError;
pub(crate) use list_scan::RowScan;
pub(crate) use lists::SealedTask;
pub(crate) use load::Loaded;
pub(crate) use lock::DirectoryLock;
pub(crate) use manifest::{FileEntry, LostLog, Manifest};
pub(crate) use newest::NewestScan;
pub(crate) use objects::Objects;
pub(crate) use plan::{Coverage, Piece, Plan};
pub use retention::Retention;
pub(crate) use row::{Fields, Key, Row, WorkerNumber, sort_and_sum};
pub(crate) use seal::Sealing;
pub(crate) use segment::{Batch, ListRow, Scan};
pub(crate) use table::{Column, Counting, Measure, TableName};
pub(crate) use tables::{Tables, TaskScan};
pub(crate) use tier::{Period, Second, Tier};

pub use inspect::{
    Compacted, FilesInfo, Problem, StoreInfo, TableInfo, TableSum, Verified, compact, info, verify,
};

#[cfg(test)]
pub(crate) mod tests;
