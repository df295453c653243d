//! Data that task guards write for the agent's threads: [names by number](NameId), and for each
//! thread a [cell](ThreadCell) with its current task and a [ring](Row) of rows.

mod cell;
mod early;
mod names;
mod ring;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) use self::cell::ThreadCell;
pub(crate) use self::early::{EarlyAccount, EarlyTime, EarlyTimes, Moment};
pub(crate) use self::names::{NameId, TaskContext, name, name_id};
pub(crate) use self::ring::{
    LocalTaskId, PhaseRow, ROWS_BEYOND_STARTS, ROWS_FOR_ENDS, ROWS_FOR_KNOWN_ENDS, ResultRow,
    RingSlot, Row, TaskIds, TaskRow,
};
use crate::fork::PerProcess;
use crate::spill::SpillSum;
use crate::sync::lock;
use crate::threads::ThreadIdentity;

/// The cells of all threads, in parts with a lock each: a thread that registers takes one that nobody
/// holds. With one lock, a thousand threads that all want to run waited a scheduling round for each
/// of them that registered.
static CELLS: PerProcess<Cells> = PerProcess::new();
const PARTS: usize = 64;

#[derive(Debug)]
struct Cells([Mutex<Vec<Arc<ThreadCell>>>; PARTS]);

impl Default for Cells {
    fn default() -> Cells {
        Cells([const { Mutex::new(Vec::new()) }; PARTS])
    }
}

/// Rises with every new cell, so that the sampler reads the list only after it has grown.
static CELLS_VERSION: AtomicU64 = AtomicU64::new(0);

pub(crate) fn register(cell: &Arc<ThreadCell>) {
    let Cells(parts) = CELLS.get();
    let first = cell.thread.id as usize % PARTS;
    let from_first = parts[first..].iter().chain(&parts[..first]);
    match from_first.flat_map(|part| part.try_lock()).next() {
        Some(mut part) => part.push(cell.clone()),
        None => lock(&parts[first]).push(cell.clone()),
    }
    CELLS_VERSION.fetch_add(1, Ordering::Release);
}

pub(crate) fn cells_version() -> u64 {
    CELLS_VERSION.load(Ordering::Acquire)
}

/// Calls `each` for every cell. Returns `None` if some were left out, because a thread is registering
/// right now; the caller retries later, so that neither waits for the other.
pub(crate) fn try_each_cell(mut each: impl FnMut(&Arc<ThreadCell>)) -> Option<()> {
    let mut all = Some(());
    for part in &CELLS.get().0 {
        match part.try_lock() {
            Ok(cells) => cells.iter().for_each(&mut each),
            Err(_) => all = None,
        }
    }
    all
}

/// A thread that ended before the sampler had its cell.
#[derive(Clone, Debug)]
pub(crate) struct EndedThread {
    pub(crate) thread: Arc<ThreadIdentity>,
    pub(crate) early: Arc<EarlyAccount>,
}

/// Most ended threads that wait for the sampler's next tick. The time of further ones is not counted.
const ENDED_MAX: usize = 4_096;

static ENDED: PerProcess<Mutex<Vec<EndedThread>>> = PerProcess::new();

/// Takes the threads that ended before the sampler had their cells, which are dropped by now. Their
/// time is the caller's to count.
pub(crate) fn take_ended() -> Vec<EndedThread> {
    std::mem::take(&mut *lock(ENDED.get()))
}

/// An item that a thread has left since the last drain.
pub(crate) enum Drained<'a> {
    Row(&'a ThreadCell, Row),
    Sum(SpillSum),
}

/// Takes everything that threads have written and returns the number of lost rows. Drops the cells
/// of threads that are gone once they are empty.
pub(crate) fn drain(mut each: impl FnMut(Drained<'_>)) -> u64 {
    let mut cells: Vec<Arc<ThreadCell>> = Vec::new();
    for part in &CELLS.get().0 {
        cells.extend(lock(part).iter().cloned());
    }
    let mut lost = 0;
    let mut any_gone = false;
    for cell in cells {
        // Read before the ring, so that everything the thread wrote before it ended is in the ring.
        any_gone |= cell.gone.load(Ordering::Acquire);
        let mut rows = lock(&cell.rows);
        for _ in 0..rows.slots() {
            let Some(RingSlot(row)) = rows.pop() else { break };
            each(Drained::Row(&cell, row));
        }
        cell.spill.take(|sum| each(Drained::Sum(sum)));
        lost += cell.lost.swap(0, Ordering::Relaxed);
    }
    if any_gone {
        CELLS.get().0.iter().for_each(drop_finished);
    }
    lost
}

/// Drops the cells of threads that are gone and whose rows were all read. The sampler gets the
/// accounts of those that it has not seen.
fn drop_finished(part: &Mutex<Vec<Arc<ThreadCell>>>) {
    let mut ended = lock(ENDED.get());
    lock(part).retain(|cell| {
        let is_finished = cell.gone.load(Ordering::Acquire) && lock(&cell.rows).is_empty();
        if is_finished && ended.len() < ENDED_MAX {
            ended.extend(cell.claim_ended());
        }
        !is_finished
    });
}
