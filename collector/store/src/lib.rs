//! Storage: a write-ahead log of acknowledged flushes, and tables made from it.

#![allow(
    missing_docs,
    reason = "a face for our own crates: names that speak for themselves need no sentence"
)]

// Without a client, nothing is in a bucket.
#[cfg_attr(not(feature = "s3"), allow(dead_code))]
pub mod bucket;
mod compact;
mod error;
mod guard;
mod inspect;
pub mod late_hours;
mod links;
mod list_scan;
mod lists;
mod load;
mod lock;
mod maintain;
mod manifest;
mod newest_tasks;
mod objects;
pub mod packed;
mod plan;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod recorder;
mod retention;
mod row;
pub mod rows;
mod seal;
mod seal_telemetry;
mod seal_windows;
mod segment;
mod snapshot;
mod table;
mod tables;
mod task_json;
mod task_sums;
mod telemetry_lists;
mod tier;
mod transfer_sums;
mod union;
mod versions;
pub mod wal;

#[cfg(feature = "s3")]
pub use bucket::use_s3_client;
pub use bucket::{Ack, PlaceError, StoreName, StorePlace};
pub use bucket::{BucketOperation, BucketTraffic};
pub use error::StoreError;
pub use guard::StoreGuard;
pub use list_scan::RowScan;
pub use lists::{FrameRow, NodeRow, SealedTask};
pub use load::StoredState;
pub use lock::DirectoryLock;
pub use maintain::needs_maintenance;
pub use manifest::{FileEntry, LostLog, Manifest};
pub use newest_tasks::NewestTaskScan;
#[cfg(any(test, feature = "testing"))]
pub use objects::Durability;
pub use objects::{Listed, Objects};
pub use plan::{Coverage, Piece, Plan};
pub use retention::Retention;
pub use row::Row;
pub use row::WorkerNumber;
pub use seal::{SealBatch, TreeSize, UnsealedTree};
#[cfg(emberline_fuzzing)]
pub use segment::is_decoding;
pub use segment::{
    Batch, ColumnKind, ListColumn, ListKind, ListRow, Scan, Values, encode_columns, kinds,
};
pub use table::{Column, Measure, SumTable, TableName};
pub use tables::{Tables, TaskScan};
pub use task_sums::{DurationRows, TaskNode, TaskNodes};
pub use task_sums::{TaskTree, task_nodes};
pub use tier::{Period, Second, Tier};
pub use transfer_sums::{TransferMeasure, transfer_counts, transfer_measure};
pub use union::{Numbers, TopNumber, UNION_STORES_MAX, UnionPart, fits_union};
pub use versions::Versions;

pub use inspect::{
    CompactionReport, FilesInfo, Problem, StoreInfo, StoreLocation, TableInfo, TableSum,
    Verification, compact, info, verify,
};
pub use inspect::{OpenStore, lost};
pub use snapshot::{
    SnapshotFile, SnapshotStacks, SnapshotTable, StoreSnapshot, VerifiedFile, VerifiedFiles,
};

#[cfg(test)]
pub mod tests;
