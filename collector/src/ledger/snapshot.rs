//! The ledger's rows as one question sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::{TaskTotals, Timestamp};

use crate::rows::TaskRow;
use crate::store::Manifest;

/// Where an ended row stands: its stop, then its arrival.
pub(super) type Place = (Timestamp, u64);

/// Ended rows whose stops lie in one second.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) rows: BTreeMap<Place, Arc<TaskRow>>,
    /// No row here started earlier.
    pub(super) start_min: Timestamp,
}

/// What a reader works with: it is complete, and does not change.
#[derive(Debug)]
pub(crate) struct TaskSnapshot {
    /// Its table `tasks` has the ended tasks that are not here.
    pub(crate) manifest: Arc<Manifest>,
    /// Running tasks, and those that we ended for their worker and that may yet change.
    pub(super) open: Vec<Arc<TaskRow>>,
    pub(super) chunks: Vec<Arc<Chunk>>,
    /// Tasks of which there is no row.
    pub(crate) sums: Vec<Arc<TaskTotals>>,
    pub(super) aggregated: u64,
}

impl TaskSnapshot {
    /// Running rows that there was no room for, over the ledger's whole life.
    pub(crate) fn aggregated(&self) -> u64 {
        self.aggregated
    }

    /// The rows that are in no table; among them all that overlap the range that was asked for.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Arc<TaskRow>> {
        self.open.iter().chain(self.chunks.iter().flat_map(|chunk| chunk.rows.values()))
    }
}
