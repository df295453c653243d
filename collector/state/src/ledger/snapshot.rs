//! The ledger's rows as one query sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::{TaskTotals, TimeRange, Timestamp};

use store::Manifest;
use store::rows::{ByStart, NewestTasks, TaskFilter, TaskRow, overlaps};

/// Rows that may arrive in a chunk. Few in tests, so that a second has several chunks.
const CHUNK_ROWS_MAX: u64 = if cfg!(test) { 4 } else { 4_096 };

/// The position of an ended row: its stop, then its arrival.
pub(super) type RowPosition = (Timestamp, u64);

/// The place of a chunk: the second of its rows' stops, then the block of their arrivals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ChunkKey {
    second: i64,
    block: u64,
}

impl ChunkKey {
    pub(super) fn of(place: RowPosition) -> ChunkKey {
        let (stop, arrival) = place;
        ChunkKey {
            second: stop.second(),
            block: arrival / CHUNK_ROWS_MAX,
        }
    }

    /// At or before all chunks with that stop or later ones.
    pub(super) fn first_of(stop: Timestamp) -> ChunkKey {
        ChunkKey {
            second: stop.second(),
            block: 0,
        }
    }
}

/// Ended rows whose stops are in one second, and that arrived one after another.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) rows: BTreeMap<RowPosition, Arc<TaskRow>>,
    /// The earliest start of the rows.
    pub(super) start_min: Timestamp,
    /// At or before the row that answers list first. Rows that were removed count too.
    pub(super) newest: ByStart,
}

/// Snapshot that one query reads: complete and immutable.
#[derive(Debug)]
pub struct TaskSnapshot {
    /// Its table `tasks` has the ended tasks that are not here.
    pub manifest: Arc<Manifest>,
    /// Running tasks, and lost ones whose true end may still arrive.
    pub(super) open: Vec<Arc<TaskRow>>,
    pub(super) chunks: Vec<Arc<Chunk>>,
    /// Tasks without rows.
    pub sums: Vec<Arc<TaskTotals>>,
    pub(super) aggregated: u64,
}

impl TaskSnapshot {
    /// Running rows dropped for lack of room, in the ledger's whole life.
    pub fn aggregated(&self) -> u64 {
        self.aggregated
    }

    /// The rows that are in no table; among them all that overlap the requested range.
    pub fn rows(&self) -> impl Iterator<Item = &Arc<TaskRow>> {
        self.open
            .iter()
            .chain(self.chunks.iter().flat_map(|chunk| chunk.rows.values()))
    }

    /// Counts the rows that overlap the range and that the filter keeps, and selects the newest of them.
    pub fn select_newest(
        &self,
        range: TimeRange,
        filter: &TaskFilter,
        selecting: &mut NewestTasks,
    ) {
        let is_kept = |row: &&Arc<TaskRow>| overlaps(row, range) && filter.keeps(row);
        self.open
            .iter()
            .filter(is_kept)
            .for_each(|row| selecting.offer(row));
        let keeps_all = *filter == TaskFilter::default();
        let mut chunks: Vec<&Chunk> = self.chunks.iter().map(Arc::as_ref).collect();
        chunks.sort_unstable_by_key(|chunk| chunk.newest);
        for chunk in chunks {
            if !(keeps_all && chunk.is_within(range)) {
                chunk
                    .rows
                    .values()
                    .filter(is_kept)
                    .for_each(|row| selecting.offer(row));
                continue;
            }
            selecting.count(chunk.rows.len() as u64);
            if !selecting.wants(chunk.newest) {
                continue;
            }
            for (&(stop, _), row) in chunk.rows.iter().rev() {
                match selecting.wanted_from() {
                    // This row and the earlier ones started no later than they stopped.
                    Some(from) if stop < from => break,
                    _ if selecting.wants(ByStart::of(&row.record)) => {
                        selecting.keep(row.clone());
                    }
                    _ => {}
                }
            }
        }
    }
}

impl Chunk {
    fn last_stop(&self) -> Option<Timestamp> {
        self.rows.last_key_value().map(|(&(stop, _), _)| stop)
    }

    /// Whether all rows overlap the range: they stopped in it.
    fn is_within(&self, range: TimeRange) -> bool {
        let first = self.rows.first_key_value().map(|(&(stop, _), _)| stop);
        first.is_some_and(|stop| range.start() <= stop)
            && self.last_stop().is_some_and(|stop| stop < range.stop())
    }
}
