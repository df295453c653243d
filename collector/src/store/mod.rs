//! Storage: a write-ahead log of acknowledged flushes, and tables made from it.

// Without a client, nothing is in a bucket.
#[cfg_attr(not(feature = "s3"), allow(dead_code))]
pub(crate) mod bucket;
mod compact;
mod error;
mod guard;
mod inspect;
mod links;
mod list_scan;
mod lists;
mod load;
mod lock;
mod maintain;
mod manifest;
mod newest_tasks;
mod objects;
mod plan;
mod retention;
mod row;
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
pub(crate) mod wal;

#[cfg(feature = "s3")]
pub use bucket::use_s3_client;
pub use bucket::{Ack, PlaceError, StoreName, StorePlace};
pub(crate) use bucket::{BucketOperation, BucketTraffic};
pub use error::StoreError;
pub(crate) use guard::StoreGuard;
pub(crate) use list_scan::RowScan;
pub(crate) use lists::{FrameRow, NodeRow, SealedTask};
pub(crate) use load::StoredState;
pub(crate) use lock::DirectoryLock;
pub(crate) use maintain::needs_maintenance;
pub(crate) use manifest::{FileEntry, LostLog, Manifest};
pub(crate) use newest_tasks::NewestTaskScan;
#[cfg(any(test, feature = "simulation"))]
pub(crate) use objects::Durability;
pub(crate) use objects::{Listed, Objects};
pub(crate) use plan::{Coverage, Piece, Plan};
pub use retention::Retention;
#[cfg(test)]
pub(crate) use row::Row;
pub(crate) use row::WorkerNumber;
pub(crate) use seal::{SealBatch, TreeSize, UnsealedTree};
#[cfg(emberline_fuzzing)]
pub(crate) use segment::is_decoding;
pub(crate) use segment::{
    Batch, ColumnKind, ListColumn, ListKind, ListRow, Scan, Values, encode_columns, kinds,
};
pub(crate) use table::{Column, Measure, SumTable, TableName};
pub(crate) use tables::{Tables, TaskScan};
#[cfg(test)]
pub(crate) use task_sums::{DurationRows, TaskNode, TaskNodes};
pub(crate) use task_sums::{TaskTree, task_nodes};
pub(crate) use tier::{Period, Second, Tier};
pub(crate) use transfer_sums::{TransferMeasure, transfer_counts, transfer_measure};
pub(crate) use union::{Numbers, TopNumber, UNION_STORES_MAX, UnionPart, fits_union};
pub(crate) use versions::Versions;

pub use inspect::{
    CompactionReport, FilesInfo, Problem, StoreInfo, StoreLocation, TableInfo, TableSum,
    Verification, compact, info, verify,
};
pub(crate) use inspect::{OpenStore, lost};
pub use snapshot::{
    SnapshotFile, SnapshotStacks, SnapshotTable, StoreSnapshot, VerifiedFile, VerifiedFiles,
};

#[cfg(test)]
pub(crate) mod tests;
