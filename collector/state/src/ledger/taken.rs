//! Input of a sealing, taken from the ledger.

use std::sync::Arc;

use profiler_core::TaskTotals;
use profiler_core::hash::KeyedMap;

use super::TaskKey;
use super::snapshot::{Chunk, RowPosition};
use store::rows::{LostTask, TaskRow};

/// Rows that a sealing writes: new rows of `tasks`, and all rows of `running`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LedgerBatch {
    /// Rows for `tasks`.
    pub ended: Vec<Arc<TaskRow>>,
    /// All open rows: running ones, and lost ones whose true end may still arrive.
    pub open: Vec<Arc<TaskRow>>,
    /// Tasks that are in tables as lost, or will be with this sealing.
    pub lost_tasks: Vec<LostTask>,
    /// Ended tasks without rows.
    pub totals: Vec<Arc<TaskTotals>>,
}

/// Rows taken by [`Ledger::take_for_sealing`](super::Ledger::take_for_sealing). Of ended rows only the chunks,
/// because others wait for the ledger meanwhile.
#[derive(Debug)]
pub struct TakenRows {
    pub(super) chunks: Vec<Arc<Chunk>>,
    pub(super) open: Vec<Arc<TaskRow>>,
    pub(super) lost_tasks: Vec<LostTask>,
    pub(super) totals: Vec<Arc<TaskTotals>>,
    /// Those of the rows in the chunks. Only to be dropped, which takes a while.
    pub(super) places: KeyedMap<TaskKey, RowPosition>,
}

impl TakenRows {
    /// The rows. To be called without the ledger's lock.
    pub fn into_batch(self) -> LedgerBatch {
        let TakenRows {
            chunks,
            open,
            lost_tasks,
            totals,
            places,
        } = self;
        drop(places);
        let ended = chunks
            .iter()
            .flat_map(|chunk| chunk.rows.values().cloned())
            .collect();
        LedgerBatch {
            ended,
            open,
            lost_tasks,
            totals,
        }
    }
}
