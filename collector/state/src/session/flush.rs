//! Validation of flushes: a flush is checked whole before any of it is used.

use std::sync::Arc;
use std::time::Duration;

use profiler_core::wire::{
    Translation, WireError, decode_cycle, decode_task, decode_telemetry, decode_threads, v1,
};
use profiler_core::{
    Delta, Epoch, FrameKind, TaskRecord, Telemetry, Ticks, TimeRange, Timestamp, WorkerId,
};

use prost::Message as _;

use super::FlushBasis;
use super::thread_time::{CountedCycle, ThreadTime, ThreadTimeLeft, threads_max};
use crate::tree::{Tree, TreeLock};
use base::limits::{
    AHEAD_MAX, BEHIND_MAX, CYCLE_LATE_MAX, CYCLE_THREADS_MAX, LATE_HOURS_MAX, WAL_RECORD_BYTES_MAX,
    nanoseconds,
};
use base::sync::read;
use store::late_hours::late_hours;
use store::packed::PackedWeights;
use store::rows::{CheckedFlush, StoredWindow};
use store::wal;

/// Why a node of a decoded cycle can be translated.
const KNOWN_NODE: &str = "decoding rejects nodes outside of the dictionary";

/// A rejected flush; none of it is stored.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlushError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the flush has {count} tasks and sums of tasks; at most {limit} are allowed")]
    TooManyTasks { count: usize, limit: usize },
    #[error(
        "{what} {ahead_ms} ms after the collector's now; at most {} ms are allowed: the clock or its \
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
        "{what} {behind_h} hours before the collector's now, but its {option} is {kept_h} hours, so nothing would \
         be kept; {instead}"
    )]
    Expired {
        what: &'static str,
        behind_h: u64,
        /// The longest retention.
        option: &'static str,
        kept_h: u64,
        /// The way on.
        instead: &'static str,
    },
    #[error(
        "{worker:?} has the profile {run:?} of that time, with which this one would be added up; import it with \
         another --run, or with another --worker or --time"
    )]
    SecondProfile { worker: String, run: String },
    /// The reason for which an earlier flush of the same import was refused.
    #[error("{0}")]
    RefusedBefore(String),
    #[error(
        "the flush has late data from {hours} different hours; at most {LATE_HOURS_MAX} are allowed"
    )]
    TooManyHours { hours: usize },
    #[error("the flush takes {bytes} bytes in the log; at most {WAL_RECORD_BYTES_MAX} are allowed")]
    TooLarge { bytes: usize },
    #[error("node {node} of the time by thread is not a thread")]
    NoThread { node: u32 },
    #[error(
        "the cycle of {length_s} s has {weight_s} thread-seconds; at most {limit_s} are allowed: no \
         process has that many threads"
    )]
    Weight {
        length_s: u64,
        weight_s: u64,
        limit_s: u64,
    },
    #[error(
        "the cycle of {length_s} s has {weight_s} thread-seconds; at most {limit_s} are left to a worker that \
         has shown {shown} threads"
    )]
    ThreadTime {
        length_s: u64,
        weight_s: u64,
        limit_s: u64,
        shown: usize,
    },
    #[error("the cycle's times and the clock's offset give a time that cannot be expressed")]
    Time,
}

/// How long data of a worker is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retained {
    /// The setting that says it.
    pub option: &'static str,
    pub time: Duration,
}

impl Retained {
    pub fn longest(self, other: Retained) -> Retained {
        if other.time > self.time { other } else { self }
    }
}

/// Validates the flushes of one session.
#[derive(Clone, Copy)]
pub struct FlushChecker<'a> {
    pub worker: &'a WorkerId,
    pub epoch: Epoch,
    pub basis: &'a FlushBasis,
    /// The names and stacks that the flush refers to.
    pub translation: &'a Translation,
    pub tree: &'a TreeLock,
    pub now: Timestamp,
    pub kept: Retained,
    pub tasks_max: usize,
}

impl FlushChecker<'_> {
    /// Translates a flush into the collector's terms.
    pub fn check(&self, flush: &v1::Flush) -> Result<CheckedFlush, FlushError> {
        let clock = flush.clock.ok_or(WireError::Missing {
            what: "the flush's clock",
        })?;
        let account = flush.account.ok_or(WireError::Missing {
            what: "the flush's account",
        })?;
        let count = flush.tasks.len() + flush.totals.len();
        let limit = self.tasks_max;
        if count > limit {
            return Err(FlushError::TooManyTasks { count, limit });
        }
        let window = flush
            .cycle
            .as_ref()
            .map(|cycle| self.window(cycle, clock))
            .transpose()?;
        let tasks = self.tasks(&flush.tasks, clock.offset_ns)?;
        let mut telemetry = self.telemetry(flush, clock.offset_ns)?;
        let totals = std::mem::take(&mut telemetry.totals);
        let seq = flush.seq;
        let checked = CheckedFlush {
            seq,
            window,
            tasks,
            telemetry,
            totals,
            account,
            clock,
        };
        self.check_times(&checked)?;
        Ok(checked)
    }

    /// Translates a flush whose offset is wrong by the time at which it was sent: the collector's clock was set back
    /// after the agent had measured the offset. `error` is that of [`FlushChecker::check`], and stays if the flush is
    /// not right by that time either.
    pub fn check_as_sent(
        &self,
        flush: &v1::Flush,
        error: FlushError,
    ) -> Result<CheckedFlush, FlushError> {
        let is_sent_after = |cycle: &v1::Cycle| cycle.stop_ns <= flush.sent_at_ns;
        let (FlushError::Ahead { .. }, Some(clock)) = (&error, flush.clock) else {
            return Err(error);
        };
        if !flush.cycle.as_ref().is_none_or(is_sent_after) {
            return Err(error);
        }
        let offset_ns = self.now.unix_ns().saturating_sub(flush.sent_at_ns);
        let measured = v1::Flush {
            clock: Some(v1::Clock { offset_ns, ..clock }),
            ..flush.clone()
        };
        self.check(&measured).map_err(|_| error)
    }

    /// Rejects times that only a wrong clock can produce: such rows would be kept forever, or make
    /// any number of files.
    fn check_times(&self, checked: &CheckedFlush) -> Result<(), FlushError> {
        if let Some(stored) = &checked.window {
            let [start, stop] = [stored.range.start(), stored.range.stop()];
            if self.worker.has_agent() {
                self.check_ahead("the cycle starts", start)?;
                self.check_clock("the cycle starts", start)?;
                // What is merged of a long time comes with tasks that end late in it.
                self.check_kept("the cycle ends", stop)?;
            } else {
                self.check_time("the profile starts", start)?;
            }
            // A cycle lasts a while, so it may end later than any may start.
            self.check_ahead("the cycle ends", stop.shifted(-nanoseconds(CYCLE_LATE_MAX)))?;
        }
        for task in &checked.tasks {
            match task.stop {
                Some(stop) => self.check_time("a task ends", stop)?,
                None => self.check_ahead("a task starts", task.start)?,
            }
        }
        for sum in &checked.totals {
            self.check_time("summed tasks end", sum.second)?;
        }
        for transfer in &checked.telemetry.transfers {
            self.check_time("a transfer ends", transfer.stop)?;
        }
        for sample in &checked.telemetry.resources {
            self.check_time("resources were measured", sample.at)?;
        }
        for expected in &checked.telemetry.expected {
            self.check_ahead("tasks are expected", expected.since)?;
        }
        for run in &checked.telemetry.runs {
            self.check_ahead("a run starts", run.start)?;
            run.stop
                .map_or(Ok(()), |stop| self.check_ahead("a run ends", stop))?;
        }
        match late_hours(checked, self.now).len() {
            hours if hours > LATE_HOURS_MAX => Err(FlushError::TooManyHours { hours }),
            _ => Ok(()),
        }
    }

    fn check_time(&self, what: &'static str, point: Timestamp) -> Result<(), FlushError> {
        self.check_ahead(what, point)?;
        self.check_clock(what, point)?;
        self.check_kept(what, point)
    }

    /// A long past start is no error: a task or run may be that old. Only ends make files.
    fn check_ahead(&self, what: &'static str, point: Timestamp) -> Result<(), FlushError> {
        let ahead_ns = point.since_ns(self.now);
        if ahead_ns <= nanoseconds(AHEAD_MAX).unsigned_abs() {
            return Ok(());
        }
        let ahead_ms = ahead_ns / 1_000_000;
        Err(FlushError::Ahead { what, ahead_ms })
    }

    /// Refuses a time of an agent that only a wrong clock can have.
    fn check_clock(&self, what: &'static str, point: Timestamp) -> Result<(), FlushError> {
        let behind_ns = self.now.since_ns(point);
        if behind_ns <= nanoseconds(BEHIND_MAX).unsigned_abs() || !self.worker.has_agent() {
            return Ok(());
        }
        let behind_s = behind_ns / 1_000_000_000;
        Err(FlushError::Behind { what, behind_s })
    }

    /// Refuses data that would be acknowledged and then dropped.
    fn check_kept(&self, what: &'static str, point: Timestamp) -> Result<(), FlushError> {
        let Retained { option, time } = self.kept;
        let behind_ns = self.now.since_ns(point);
        if behind_ns <= nanoseconds(time).unsigned_abs() {
            return Ok(());
        }
        Err(FlushError::Expired {
            what,
            behind_h: behind_ns / 1_000_000_000 / 3_600,
            option,
            kept_h: time.as_secs() / 3_600,
            instead: if self.worker.is_import() {
                "import it with a later --time"
            } else {
                "send data sooner, or start the collector with a longer retention"
            },
        })
    }

    /// The log record of a checked flush.
    pub fn record(&self, checked: &CheckedFlush) -> Result<Vec<u8>, FlushError> {
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
        check_weight(raw, &samples)?;
        check_weight(raw, &threads)?;
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

    /// The worker's thread time after the flush. Pushed and imported profiles may have any.
    ///
    /// # Errors
    /// [`FlushError::ThreadTime`] if its threads cannot have spent that much.
    pub fn thread_time_left(&self, checked: &CheckedFlush) -> Result<ThreadTimeLeft, FlushError> {
        let before = self.basis.thread_time_left;
        let Some(window) = checked.window.as_ref().filter(|_| self.worker.has_agent()) else {
            return Ok(before);
        };
        let time = ThreadTime {
            samples_ns: window.samples.total_ns(),
            by_thread_ns: window.threads.total_ns(),
        };
        let cycle = CountedCycle {
            range: window.range,
            received_at: self.now,
            threads: threads_max(self.translation),
            time,
        };
        before.after(cycle).map_err(|limit_ns| {
            let weight_ns = time.samples_ns.max(time.by_thread_ns);
            let [length_s, weight_s, limit_s] =
                [window.range.length_ns(), weight_ns, limit_ns].map(|time| time / 1_000_000_000);
            FlushError::ThreadTime {
                length_s,
                weight_s,
                limit_s,
                shown: self.translation.threads().count(),
            }
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
        let records = tasks.iter().map(|task| {
            let mut record = decode_task(task, &|index| self.text(&tree, index))?;
            record.start = record.start.shifted(offset_ns);
            record.stop = record.stop.map(|stop| stop.shifted(offset_ns));
            Ok(record)
        });
        records.collect()
    }

    fn text(&self, tree: &Tree, index: u32) -> Option<Arc<str>> {
        Some(tree.string(self.translation.string(index)?).clone())
    }

    /// The flush's telemetry, with every time by the collector's clock.
    fn telemetry(&self, flush: &v1::Flush, offset_ns: i64) -> Result<Telemetry, FlushError> {
        let v1::Flush {
            totals,
            transfers,
            resources,
            expected,
            runs,
            ..
        } = flush;
        let others = transfers.len() + resources.len() + expected.len() + runs.len();
        if totals.len() + others == 0 {
            return Ok(Telemetry::default());
        }
        let mut telemetry = {
            let tree = read(self.tree);
            decode_telemetry(flush, &|index| self.text(&tree, index))?
        };
        let shift = |time: &mut Timestamp| *time = time.shifted(offset_ns);
        telemetry
            .totals
            .iter_mut()
            .for_each(|sum| shift(&mut sum.second));
        for transfer in &mut telemetry.transfers {
            shift(&mut transfer.start);
            shift(&mut transfer.stop);
        }
        telemetry
            .resources
            .iter_mut()
            .for_each(|sample| shift(&mut sample.at));
        telemetry
            .expected
            .iter_mut()
            .for_each(|expected| shift(&mut expected.since));
        for run in &mut telemetry.runs {
            shift(&mut run.start);
            run.stop.iter_mut().for_each(shift);
        }
        Ok(telemetry)
    }
}

/// Checks that a process can have spent that weight in a cycle. One message with more would bury the
/// time of all others.
fn check_weight(range: TimeRange, weights: &Delta) -> Result<(), FlushError> {
    let length_ns = range.length_ns();
    let limit_ns = weight_limit_ns(length_ns);
    let weight_ns = weights.total().total_ns();
    if weight_ns > limit_ns {
        let [length_s, weight_s, limit_s] =
            [length_ns, weight_ns, limit_ns].map(|time| time / 1_000_000_000);
        return Err(FlushError::Weight {
            length_s,
            weight_s,
            limit_s,
        });
    }
    Ok(())
}

/// The most weight that a process can have spent in a time, part of which may be counted late.
fn weight_limit_ns(elapsed_ns: u64) -> u64 {
    let counted_ns = elapsed_ns.saturating_add(nanoseconds(CYCLE_LATE_MAX).unsigned_abs());
    counted_ns.saturating_mul(CYCLE_THREADS_MAX)
}

/// `range` shifted; `None` if it would be cut at the limits of a timestamp.
fn shifted_whole(range: TimeRange, offset_ns: i64) -> Option<TimeRange> {
    let moved = range.shifted(offset_ns)?;
    (moved.length_ns() == range.length_ns()).then_some(moved)
}
