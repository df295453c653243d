//! Storage: a write-ahead log of acknowledged flushes, and tables made from it.
//!
//! Reading order: `rows` and `packed` (the values), `wal` (the log), `sums` and `lists` (rows, columns and tiers of the
//! tables; `sums::plan`: the periods that a query reads), `segment` (their Parquet files), `objects` (where files are: on
//! a disk or in a `bucket`), `manifest` and `versions` (which files count), `tables` (reads, and the next version), `seal`
//! (memory becomes tables), `load` (the start), `upkeep` (compaction, retention, checks), `union` (several stores as one),
//! `snapshot` (for query engines).

#![allow(
    missing_docs,
    reason = "a face for our own crates: names that speak for themselves need no sentence"
)]

// Without a client, nothing is in a bucket.
#[cfg_attr(not(feature = "s3"), allow(dead_code))]
pub mod bucket;
mod error;
mod guard;
pub mod late_hours;
mod lists;
mod load;
mod lock;
mod manifest;
mod objects;
pub mod packed;
pub mod rows;
mod seal;
mod segment;
mod snapshot;
mod sums;
mod tables;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
mod union;
mod upkeep;
mod versions;
pub mod wal;

#[cfg(feature = "s3")]
pub use bucket::use_s3_client;
pub use bucket::{Ack, PlaceError, StoreName, StorePlace};
pub use bucket::{BucketOperation, BucketTraffic};
pub use error::StoreError;
pub use guard::StoreGuard;
pub use lists::list_scan::RowScan;
pub use lists::newest_tasks::NewestTaskScan;
pub use lists::{FrameRow, NodeRow, SealedTask};
pub use load::StoredState;
pub use lock::DirectoryLock;
pub use manifest::{FileEntry, LostLog, Manifest};
#[cfg(any(test, feature = "testing"))]
pub use objects::Durability;
pub use objects::{Listed, Objects};
pub use seal::{SealBatch, TreeSize, UnsealedTree};
#[cfg(emberline_fuzzing)]
pub use segment::is_decoding;
pub use segment::{
    Batch, ColumnKind, ListColumn, ListKind, ListRow, Scan, Values, encode_columns, kinds,
};
pub use sums::cluster::{
    ClusterRequest, ClusterSum, NoClusterSum, SamplePiece, StoreSamples, SumCluster,
};
pub use sums::plan::{Coverage, DataSpan, Piece, Plan};
pub use sums::row::Row;
pub use sums::row::WorkerNumber;
pub use sums::table::{Column, Measure, SumTable, TableName};
pub use sums::task_sums::{DurationRows, TaskNode, TaskNodes};
pub use sums::task_sums::{TaskTree, task_nodes};
pub use sums::tier::{Period, Second, Tier};
pub use sums::transfer_sums::{TransferMeasure, transfer_counts, transfer_measure};
pub use tables::{Tables, TaskScan};
pub use union::{Numbers, TopNumber, UNION_STORES_MAX, UnionPart, fits_union};
pub use upkeep::maintain::needs_maintenance;
pub use upkeep::retention::Retention;
pub use versions::Versions;

pub use snapshot::{
    SnapshotFile, SnapshotStacks, SnapshotTable, StoreSnapshot, VerifiedFile, VerifiedFiles,
};
pub use upkeep::inspect::{
    CompactionReport, FilesInfo, Problem, StoreInfo, StoreLocation, TableInfo, TableSum,
    Verification, compact, info, verify,
};
pub use upkeep::inspect::{OpenStore, lost};

#[cfg(test)]
pub mod tests;
