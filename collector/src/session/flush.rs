//! Validation of flushes: a flush is checked whole before any of it is used.

use std::sync::RwLock;

use profiler_core::wire::{
    Translation, WireError, decode_cycle, decode_task, decode_telemetry, decode_threads, v1,
};
use profiler_core::{
    Delta, Epoch, FrameKind, TaskRecord, Telemetry, Ticks, TimeRange, Timestamp, WorkerId,
};

use prost::Message as _;

use crate::late_hours::late_hours;
use crate::limits::{AHEAD_MAX, BEHIND_MAX, LATE_HOURS_MAX, WAL_RECORD_BYTES_MAX, nanoseconds};
use crate::packed::PackedWeights;
use crate::rows::{CheckedFlush, StoredWindow};
use crate::store::wal;
use crate::sync::read;
use crate::tree::Tree;

/// Why a node of a decoded cycle can be translated.
const KNOWN_NODE: &str = "decoding rejects nodes outside of the dictionary";

/// A rejected flush; none of it is stored.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum FlushError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("a flush's seq is 0; it must be at least 1")]
    NoSeq,
    #[error("the flush has {count} tasks and sums of tasks; at most {limit} are allowed")]
    TooManyTasks { count: usize, limit: usize },
    #[error(
        "{what} {ahead_ms} ms after the collector's now; at most {} ms are allowed: the clock's \
         offset is wrong",
        AHEAD_MAX.as_millis()
    )]
    Ahead { what: &'static str, ahead_ms: u64 },
    #[error(
        "{what} {behind_s} s before the collector's now; at most {} s are allowed: the clock or its \
         offset is wrong",
        BEHIND_MAX.as_secs()
    )]
    Behind { what: &'static str, behind_s: u64 },
    #[error(
        "the flush has late data from {hours} different hours; at most {LATE_HOURS_MAX} are allowed"
    )]
    TooManyHours { hours: usize },
    #[error("the flush takes {bytes} bytes in the log; at most {WAL_RECORD_BYTES_MAX} are allowed")]
    TooLarge { bytes: usize },
    #[error("node {node} of the time by thread is not a thread")]
    NoThread { node: u32 },
    #[error("the cycle's times and the clock's offset give a time that cannot be expressed")]
    Time,
}

/// Validates the flushes of one session.
#[derive(Clone, Copy)]
pub(crate) struct FlushChecker<'a> {
    pub(crate) worker: &'a WorkerId,
    pub(crate) epoch: Epoch,
    pub(crate) translation: &'a Translation,
    pub(crate) tree: &'a RwLock<Tree>,
    pub(crate) now: Timestamp,
    pub(crate) tasks_max: usize,
}

impl FlushChecker<'_> {
    /// Translates a flush into the collector's terms.
    pub(crate) fn check(&self, flush: &v1::Flush) -> Result<CheckedFlush, FlushError> {
        if flush.seq == 0 {
            return Err(FlushError::NoSeq);
        }
        let clock = flush.clock.ok_or(WireError::Missing { what: "the flush's clock" })?;
        let account = flush.account.ok_or(WireError::Missing { what: "the flush's account" })?;
        let count = flush.tasks.len() + flush.totals.len();
        let limit = self.tasks_max;
        if count > limit {
            return Err(FlushError::TooManyTasks { count, limit });
        }
        let window = flush.cycle.as_ref().map(|cycle| self.window(cycle, clock)).transpose()?;
        let tasks = self.tasks(&flush.tasks, clock.offset_ns)?;
        let mut telemetry = self.telemetry(flush, clock.offset_ns)?;
        let totals = std::mem::take(&mut telemetry.totals);
        let seq = flush.seq;
        let checked = CheckedFlush { seq, window, tasks, telemetry, totals, account, clock };
        self.check_times(&checked)?;
        Ok(checked)
    }

    /// Rejects times that only a wrong clock can produce: such rows would be kept forever, or make
    /// any number of files.
    fn check_times(&self, checked: &CheckedFlush) -> Result<(), FlushError> {
        let check = |what, point: Timestamp| {
            let ahead_ns = point.since_ns(self.now);
            let behind_ns = self.now.since_ns(point);
            if ahead_ns > nanoseconds(AHEAD_MAX).unsigned_abs() {
                return Err(FlushError::Ahead { what, ahead_ms: ahead_ns / 1_000_000 });
            }
            if behind_ns > nanoseconds(BEHIND_MAX).unsigned_abs() {
                return Err(FlushError::Behind { what, behind_s: behind_ns / 1_000_000_000 });
            }
            Ok(())
        };
        if let Some(stored) = &checked.window {
            check("the cycle starts", stored.range.start())?;
        }
        for stop in checked.tasks.iter().filter_map(|task| task.stop) {
            check("a task ends", stop)?;
        }
        for sum in &checked.totals {
            check("summed tasks end", sum.second)?;
        }
        for transfer in &checked.telemetry.transfers {
            check("a transfer ends", transfer.stop)?;
        }
        for sample in &checked.telemetry.resources {
            check("resources were measured", sample.at)?;
        }
        match late_hours(checked, self.now).len() {
            hours if hours > LATE_HOURS_MAX => Err(FlushError::TooManyHours { hours }),
            _ => Ok(()),
        }
    }

    /// The log record of a checked flush.
    pub(crate) fn record(&self, checked: &CheckedFlush) -> Result<Vec<u8>, FlushError> {
        let flush = wal::Flush::of(self.worker, self.epoch, self.now, checked);
        // Encoded once to learn its length. The limit on messages bounds the wasted work.
        let record = flush.encode_to_vec();
        match record.len() {
            bytes if bytes > WAL_RECORD_BYTES_MAX => Err(FlushError::TooLarge { bytes }),
            _ => Ok(record),
        }
    }

    fn window(&self, cycle: &v1::Cycle, clock: v1::Clock) -> Result<StoredWindow, FlushError> {
        let nodes = self.translation.marks().nodes;
        let (raw, samples) = decode_cycle(cycle, nodes)?;
        let threads = decode_threads(cycle, nodes)?;
        let range = shifted_whole(raw, clock.offset_ns).ok_or(FlushError::Time)?;
        let tree = read(self.tree);
        self.check_threads(&tree, &threads)?;
        let packed = |delta: &Delta| {
            let entries = delta.entries().iter().map(|(node, state, nanoseconds)| {
                let node = self.translation.node(*node).expect(KNOWN_NODE);
                (node, *state, *nanoseconds)
            });
            PackedWeights::of(entries, cycle.quantum_ns, |node| tree.task_of(node))
        };
        Ok(StoredWindow {
            worker: self.worker.clone(),
            range,
            samples: packed(&samples),
            epoch: self.epoch,
            raw_start: raw.start(),
            clock_error_ns: clock.error_ns,
            ticks: Ticks {
                made: cycle.ticks,
                expected: cycle.ticks_expected,
                throttled: cycle.ticks_throttled,
            },
            threads: packed(&threads),
        })
    }

    /// Checks that every node of the time by thread is a thread, so that no sample counts as one.
    fn check_threads(&self, tree: &Tree, threads: &Delta) -> Result<(), FlushError> {
        threads.entries().iter().try_for_each(|(given, _, _)| {
            match tree.kind(self.translation.node(*given).expect(KNOWN_NODE)) {
                // Past the limit on nodes, threads share one.
                Some(FrameKind::Thread | FrameKind::Overflow) => Ok(()),
                _ => Err(FlushError::NoThread { node: given.0 }),
            }
        })
    }

    fn tasks(&self, tasks: &[v1::Task], offset_ns: i64) -> Result<Vec<TaskRecord>, FlushError> {
        let tree = read(self.tree);
        let text = |index| Some(tree.string(self.translation.string(index)?).clone());
        let records = tasks.iter().map(|task| {
            let mut record = decode_task(task, &text)?;
            record.start = record.start.shifted(offset_ns);
            record.stop = record.stop.map(|stop| stop.shifted(offset_ns));
            Ok(record)
        });
        records.collect()
    }

    /// The flush's telemetry, with every time by the collector's clock.
    fn telemetry(&self, flush: &v1::Flush, offset_ns: i64) -> Result<Telemetry, FlushError> {
        let v1::Flush { totals, transfers, resources, expected, runs, .. } = flush;
        let others = transfers.len() + resources.len() + expected.len() + runs.len();
        if totals.len() + others == 0 {
            return Ok(Telemetry::default());
        }
        let mut telemetry = {
            let tree = read(self.tree);
            let text = |index| Some(tree.string(self.translation.string(index)?).clone());
            decode_telemetry(flush, &text)?
        };
        let shift = |time: &mut Timestamp| *time = time.shifted(offset_ns);
        telemetry.totals.iter_mut().for_each(|sum| shift(&mut sum.second));
        for transfer in &mut telemetry.transfers {
            shift(&mut transfer.start);
            shift(&mut transfer.stop);
        }
        telemetry.resources.iter_mut().for_each(|sample| shift(&mut sample.at));
        telemetry.expected.iter_mut().for_each(|expected| shift(&mut expected.since));
        for run in &mut telemetry.runs {
            shift(&mut run.start);
            run.stop.iter_mut().for_each(shift);
        }
        Ok(telemetry)
    }
}

/// `range` shifted; `None` if it would be cut at the limits of a timestamp.
fn shifted_whole(range: TimeRange, offset_ns: i64) -> Option<TimeRange> {
    let moved = range.shifted(offset_ns)?;
    (moved.length_ns() == range.length_ns()).then_some(moved)
}
