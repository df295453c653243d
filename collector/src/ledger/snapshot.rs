//! The ledger's rows as one question sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::{TaskTotals, Timestamp};

use crate::rows::TaskRow;
use crate::store::Manifest;

/// The position of an ended row: its stop, then its arrival.
pub(super) type RowPosition = (Timestamp, u64);

/// Ended rows whose stops are in one second.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) rows: BTreeMap<RowPosition, Arc<TaskRow>>,
    /// The earliest start of the rows.
    pub(super) start_min: Timestamp,
}

/// What one question reads: complete and immutable.
#[derive(Debug)]
pub(crate) struct TaskSnapshot {
    /// Its table `tasks` has the ended tasks that are not here.
    pub(crate) manifest: Arc<Manifest>,
    /// Running tasks, and lost ones whose true end may still arrive.
    pub(super) open: Vec<Arc<TaskRow>>,
    pub(super) chunks: Vec<Arc<Chunk>>,
    /// Tasks without rows.
    pub(crate) sums: Vec<Arc<TaskTotals>>,
    pub(super) aggregated: u64,
}

impl TaskSnapshot {
    /// Running rows dropped for lack of room, in the ledger's whole life.
    pub(crate) fn aggregated(&self) -> u64 {
        self.aggregated
    }

    /// The rows that are in no table; among them all that overlap the requested range.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Arc<TaskRow>> {
        self.open.iter().chain(self.chunks.iter().flat_map(|chunk| chunk.rows.values()))
    }
}
