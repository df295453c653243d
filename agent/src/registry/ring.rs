//! The rows that task guards write into their thread's ring.

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use profiler_core::{Outcome, TaskId, Timestamp};

use super::names::NameId;
use crate::detail::Detail;

/// Rows that one thread can write before the agent drains its ring, every 25 to 75 ms. Rows past
/// it are counted as lost: a guard never waits. A ring has memory for the rows that wait in it only.
pub(super) const RING_ROWS: usize = 4096;

/// Rows reserved for phases and the ends of tasks. The row of an end is the whole record, so when
/// tasks come fast their starts can be omitted without loss.
pub(crate) const ROWS_BEYOND_STARTS: usize = RING_ROWS / 2;

/// Rows reserved for the ends of tasks.
pub(crate) const ROWS_FOR_ENDS: usize = RING_ROWS / 4;

/// Rows reserved for the ends of tasks whose start was written: a task that was reported as
/// started must be reported as ended. Other ends are summed in the [`Spill`](super::spill::Spill).
pub(crate) const ROWS_FOR_KNOWN_ENDS: usize = RING_ROWS / 8;

/// A row that a guard writes for the ledger.
#[derive(Debug)]
pub(crate) enum Row {
    Task(TaskRow),
    Phase(PhaseRow),
    Result(ResultRow),
}

/// A row in a ring. It has a cache line of its own, because the symbolizer has read the old content
/// and the line is not in the writer's cache.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct RingSlot(pub(crate) Row);

const _: () = assert!(size_of::<RingSlot>() == 64);

/// The whole record of a task at its start or stop.
#[derive(Clone, Debug)]
pub(crate) struct TaskRow {
    pub(crate) id: LocalTaskId,
    pub(crate) parent: Option<LocalTaskId>,
    pub(crate) start: Timestamp,
    /// Equals `start` while the task runs.
    pub(crate) stop: Timestamp,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) detail: Option<Box<Detail>>,
    pub(crate) name: NameId,
    pub(crate) outcome: Outcome,
}

impl TaskRow {
    /// `None` while the task runs.
    pub(crate) fn stop(&self) -> Option<Timestamp> {
        (self.outcome != Outcome::Running).then_some(self.stop)
    }
}

/// A task was in a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PhaseRow {
    pub(crate) task: LocalTaskId,
    pub(crate) phase: NameId,
    pub(crate) start: Timestamp,
    pub(crate) stop: Timestamp,
}

/// The size or type of a task's result, set by a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ResultRow {
    pub(crate) task: LocalTaskId,
    pub(crate) bytes: Option<u64>,
    pub(crate) type_name: NameId,
}

/// A task's number, unique in this process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct LocalTaskId(NonZeroU64);

impl From<LocalTaskId> for TaskId {
    fn from(LocalTaskId(number): LocalTaskId) -> TaskId {
        TaskId(number.get())
    }
}

/// Numbers that a thread takes at a time, because incrementing a counter that all threads share is
/// slow.
const TASK_IDS_PER_BLOCK: u64 = 256;

static NEXT_TASK: AtomicU64 = AtomicU64::new(1);

/// One thread's block of task numbers.
#[derive(Default, Debug)]
pub(crate) struct TaskIds(Range<u64>);

impl TaskIds {
    pub(crate) fn next(&mut self) -> LocalTaskId {
        loop {
            if let Some(id) = self.0.next().and_then(NonZeroU64::new) {
                return LocalTaskId(id);
            }
            let first = NEXT_TASK.fetch_add(TASK_IDS_PER_BLOCK, Ordering::Relaxed);
            self.0 = first..first.saturating_add(TASK_IDS_PER_BLOCK);
        }
    }
}
