//! A flush, checked whole before anything of it is used.

use std::sync::{Arc, RwLock};

use profiler_core::wire::{Translation, WireError, decode_cycle, decode_task, v1};
use profiler_core::{Delta, TaskRecord, Ticks, TimeRange, Timestamp, Window};

use prost::Message as _;

use super::SessionCell;
use crate::hot::StoredWindow;
use crate::limits::{AHEAD_MAX, WAL_RECORD_BYTES_MAX, nanoseconds};
use crate::store::wal;
use crate::sync::read;
use crate::tree::Tree;

/// A flush that was refused; nothing of it is stored.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum FlushError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("a flush's seq is 0; it must be at least 1")]
    NoSeq,
    #[error("the flush has {count} tasks; at most {limit} are allowed")]
    TooManyTasks { count: usize, limit: usize },
    #[error(
        "the cycle starts {ahead_ms} ms after the collector's now; at most {} ms are allowed: the \
         clock's offset is wrong",
        AHEAD_MAX.as_millis()
    )]
    Ahead { ahead_ms: u64 },
    #[error("the flush takes {bytes} bytes in the log; at most {WAL_RECORD_BYTES_MAX} are allowed")]
    TooLarge { bytes: usize },
    #[error("the cycle's times and the clock's offset give a time that cannot be expressed")]
    Time,
}

/// A flush in the collector's terms: its nodes, its names, its clock.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Checked {
    pub(crate) seq: u64,
    /// `None` if the flush only told of tasks.
    pub(crate) window: Option<StoredWindow>,
    /// Every weight of the window is a multiple of it.
    pub(crate) quantum_ns: u64,
    pub(crate) tasks: Vec<TaskRecord>,
    pub(crate) account: v1::Account,
    pub(crate) clock: v1::Clock,
}

/// What a flush is checked against.
#[derive(Clone, Copy)]
pub(crate) struct Checks<'a> {
    pub(crate) cell: &'a SessionCell,
    pub(crate) translation: &'a Translation,
    pub(crate) tree: &'a RwLock<Tree>,
    pub(crate) now: Timestamp,
    pub(crate) tasks_max: usize,
}

impl Checks<'_> {
    /// Brings a flush into the collector's terms.
    pub(crate) fn check(&self, flush: &v1::Flush) -> Result<Checked, FlushError> {
        if flush.seq == 0 {
            return Err(FlushError::NoSeq);
        }
        let clock = flush.clock.ok_or(WireError::Missing { what: "the flush's clock" })?;
        let account = flush.account.ok_or(WireError::Missing { what: "the flush's account" })?;
        let (count, limit) = (flush.tasks.len(), self.tasks_max);
        if count > limit {
            return Err(FlushError::TooManyTasks { count, limit });
        }
        let window = flush.cycle.as_ref().map(|cycle| self.window(cycle, clock)).transpose()?;
        let tasks = self.tasks(&flush.tasks, clock.offset_ns)?;
        let quantum_ns = flush.cycle.as_ref().map_or(1, |cycle| cycle.quantum_ns);
        Ok(Checked { seq: flush.seq, window, quantum_ns, tasks, account, clock })
    }

    /// What is logged of a flush that was checked.
    pub(crate) fn record(&self, checked: &Checked) -> Result<Vec<u8>, FlushError> {
        let record = wal::Flush::of(&self.cell.worker, self.cell.epoch, self.now, checked);
        let bytes = record.encoded_len();
        if bytes > WAL_RECORD_BYTES_MAX {
            return Err(FlushError::TooLarge { bytes });
        }
        Ok(record.encode_to_vec())
    }

    fn window(&self, cycle: &v1::Cycle, clock: v1::Clock) -> Result<StoredWindow, FlushError> {
        let (raw, delta) = decode_cycle(cycle, self.translation.marks().nodes)?;
        let range = shifted_whole(raw, clock.offset_ns).ok_or(FlushError::Time)?;
        let ahead_ns = range.start().since_ns(self.now);
        if ahead_ns > nanoseconds(AHEAD_MAX).unsigned_abs() {
            return Err(FlushError::Ahead { ahead_ms: ahead_ns / 1_000_000 });
        }
        let entries = delta.entries().iter().map(|(node, state, nanoseconds)| {
            let node = self.translation.node(*node);
            let node = node.expect("decode_cycle lets only nodes of the dictionary pass");
            (node, *state, *nanoseconds)
        });
        // The copy has no spare room, and these are what the memory of the hot window holds.
        let delta: Delta = entries.collect::<Delta>().clone();
        Ok(StoredWindow {
            window: Window { worker: self.cell.worker.clone(), range, delta },
            epoch: self.cell.epoch,
            raw_start: raw.start(),
            clock_error_ns: clock.error_ns,
            ticks: Ticks {
                made: cycle.ticks,
                expected: cycle.ticks_expected,
                saved: cycle.ticks_saved,
            },
        })
    }

    fn tasks(&self, tasks: &[v1::Task], offset_ns: i64) -> Result<Vec<TaskRecord>, FlushError> {
        let names: Vec<Arc<str>> = {
            let tree = read(self.tree);
            let names = tasks.iter().map(|task| match self.translation.string(task.name) {
                Some(id) => Ok(tree.string(id).clone()),
                None => Err(WireError::OutOfRange {
                    what: "the name of a task",
                    index: task.name.into(),
                    count: self.translation.marks().strings.into(),
                }),
            });
            names.collect::<Result<_, _>>()?
        };
        let records = tasks.iter().zip(names).map(|(task, name)| {
            let mut record = decode_task(task, name)?;
            record.start = record.start.shifted(offset_ns);
            record.stop = record.stop.map(|stop| stop.shifted(offset_ns));
            Ok(record)
        });
        records.collect()
    }
}

/// `range` moved, or `None` if its length would change at the edge of what can be expressed.
fn shifted_whole(range: TimeRange, offset_ns: i64) -> Option<TimeRange> {
    let moved = range.shifted(offset_ns)?;
    (moved.length_ns() == range.length_ns()).then_some(moved)
}
