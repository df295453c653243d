//! What task guards write for the agent's threads: [names by number](NameId), and for each thread a
//! [cell](ThreadCell) with its current task and a [ring](Row) of rows.

mod cell;
mod names;
mod ring;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) use self::cell::ThreadCell;
pub(crate) use self::names::{NameId, TaskContext, name, name_id};
pub(crate) use self::ring::{
    LocalTaskId, PhaseRow, ROWS_BEYOND_STARTS, ROWS_FOR_ENDS, ROWS_FOR_KNOWN_ENDS, ResultRow,
    RingSlot, Row, TaskIds, TaskRow,
};
use crate::fork::PerProcess;
use crate::spill::SpillSum;
use crate::sync::lock;

static CELLS: PerProcess<Mutex<Vec<Arc<ThreadCell>>>> = PerProcess::new();

/// Rises with every new cell, so that the sampler reads the list only after it has grown.
static CELLS_VERSION: AtomicU64 = AtomicU64::new(0);

pub(crate) fn register(cell: &Arc<ThreadCell>) {
    lock(CELLS.get()).push(cell.clone());
    CELLS_VERSION.fetch_add(1, Ordering::Release);
}

pub(crate) fn cells_version() -> u64 {
    CELLS_VERSION.load(Ordering::Acquire)
}

/// Calls `each` for every cell. Returns `None` if a thread is registering right now; the caller
/// retries later, so that no host thread waits for the agent.
pub(crate) fn try_each_cell(mut each: impl FnMut(&Arc<ThreadCell>)) -> Option<()> {
    let cells = CELLS.get().try_lock().ok()?;
    cells.iter().for_each(&mut each);
    Some(())
}

/// An item that a thread has left since the last drain.
pub(crate) enum Drained<'a> {
    Row(&'a ThreadCell, Row),
    Sum(SpillSum),
}

/// Takes everything that threads have written and returns the number of lost rows. Drops the cells
/// of threads that are gone once they are empty.
pub(crate) fn drain(mut each: impl FnMut(Drained<'_>)) -> u64 {
    let cells: Vec<Arc<ThreadCell>> = lock(CELLS.get()).clone();
    let mut lost = 0;
    let mut any_gone = false;
    for cell in cells {
        // Read before the ring, so that everything the thread wrote before it ended is in the ring.
        any_gone |= cell.gone.load(Ordering::Acquire);
        let mut rows = lock(&cell.rows);
        for _ in 0..rows.slots() {
            let Ok(RingSlot(row)) = rows.pop() else { break };
            each(Drained::Row(&cell, row));
        }
        cell.spill.take(|sum| each(Drained::Sum(sum)));
        lost += cell.lost.swap(0, Ordering::Relaxed);
    }
    if any_gone {
        lock(CELLS.get())
            .retain(|cell| !cell.gone.load(Ordering::Acquire) || !lock(&cell.rows).is_empty());
    }
    lost
}
