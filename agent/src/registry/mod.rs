//! Data that task guards write for the agent's threads: [names by number](NameId), and for each
//! thread a [cell](ThreadCell) with its current task and a [ring](Row) of rows.

mod cell;
mod change;
mod early;
mod names;
mod ring;
mod spill;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

pub(crate) use self::cell::ThreadCell;
#[cfg(sampler)]
pub(crate) use self::change::Change;
#[cfg(sampler)]
pub(crate) use self::early::{EarlyAccount, EarlyTime, EarlyTimes, Moment, Usage};
pub(crate) use self::names::{NameId, TaskContext, name, name_id};
pub(crate) use self::ring::{
    LocalTaskId, PhaseRow, ROWS_BEYOND_STARTS, ROWS_FOR_ENDS, ROWS_FOR_KNOWN_ENDS, ResultRow,
    RingSlot, Row, TaskIds, TaskRow,
};
pub(crate) use self::spill::SpillSum;
use crate::fork::PerProcess;
use system::push_list::{Elements, PushList};
use system::sync::lock;

/// The cells of all threads.
///
/// A thread registers without a lock and without memory: with more threads than processors, the one
/// that holds a lock may not run for a second, and until then the sampler knew no task of any thread.
static CELLS: PerProcess<Cells> = PerProcess::new();

#[derive(Debug)]
struct Cells {
    /// Registered since the sampler last took them.
    new_for_sampler: PushList<ThreadCell>,
    /// Registered since the last drain.
    new_for_drain: PushList<ThreadCell>,
    /// All others. Only the thread that drains locks it, and one that starts a sampler.
    drained: Mutex<Vec<Arc<ThreadCell>>>,
}

impl Default for Cells {
    fn default() -> Cells {
        Cells {
            new_for_sampler: PushList::new(|cell: &ThreadCell| &cell.sampler_link),
            new_for_drain: PushList::new(|cell: &ThreadCell| &cell.drain_link),
            drained: Mutex::default(),
        }
    }
}

impl Cells {
    fn add_new(&self, drained: &mut Vec<Arc<ThreadCell>>) {
        drained.extend(self.new_for_drain.take());
    }
}

pub(crate) fn register(cell: &Arc<ThreadCell>) {
    let cells = CELLS.get();
    cells.new_for_sampler.push(cell);
    cells.new_for_drain.push(cell);
}

/// Takes the cells that were registered since the last call, the oldest first. For the sampler only.
pub(crate) fn take_new_cells() -> Elements<ThreadCell> {
    CELLS.get().new_for_sampler.take()
}

/// All cells, new ones included. A sampler that starts needs those that an earlier one has taken, too.
pub(crate) fn all_cells() -> Vec<Arc<ThreadCell>> {
    let cells = CELLS.get();
    let mut drained = lock(&cells.drained);
    cells.add_new(&mut drained);
    drained.clone()
}

/// An item that a thread has left since the last drain.
pub(crate) enum Drained<'a> {
    Row(&'a ThreadCell, Row),
    Sum(SpillSum),
}

/// Counts of what threads could not write since the last drain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Unwritten {
    /// Lost rows.
    pub(crate) lost: u64,
    /// Tasks without a row of their start: that of their end, or a sum, has all of it.
    pub(crate) silent_starts: u64,
}

/// Takes everything that threads have written and counts what they could not write. Drops the cells
/// of threads that are gone once they are empty and nobody else has them: so the sampler never frees
/// memory.
pub(crate) fn drain(mut each: impl FnMut(Drained<'_>)) -> Unwritten {
    let cells = CELLS.get();
    let mut drained = lock(&cells.drained);
    cells.add_new(&mut drained);
    let mut unwritten = Unwritten::default();
    drained.retain(|cell| {
        // Read before the ring, so that everything the thread wrote before it ended is in the ring.
        let is_gone = cell.gone.load(Ordering::Acquire);
        let mut rows = lock(&cell.rows);
        for _ in 0..rows.slots() {
            let Some(RingSlot(row)) = rows.pop() else {
                break;
            };
            each(Drained::Row(cell, row));
        }
        cell.spill.take(|sum| each(Drained::Sum(sum)));
        unwritten.lost += cell.lost.swap(0, Ordering::Relaxed);
        unwritten.silent_starts += cell.silent_starts.swap(0, Ordering::Relaxed);
        let is_finished = is_gone && rows.is_empty();
        !is_finished || Arc::strong_count(cell) > 1
    });
    unwritten
}
