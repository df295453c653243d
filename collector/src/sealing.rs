//! From memory to tables, again and again: what was taken in becomes rows, the log is cut behind it,
//! and the tables are kept in order. One thread does this for each collector.
//!
//! The log is cut at a moment at which nothing is applied. What is in memory then, the marks of the
//! sessions with it, is exactly what the files before the cut hold: these go once the tables have it.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use profiler_core::Timestamp;

use crate::collector::Collector;
use crate::late_hours::LateHours;
use crate::ledger::LedgerBatch;
use crate::limits::{MAINTAIN_EVERY, SEAL_RETRY_AFTER, SWEEP_EVERY};
use crate::rows::{SessionRecord, StoredWindow, TelemetryBatch};
use crate::session::SessionCell;
use crate::store::{Manifest, Retention, SealBatch, StoreError, task_nodes};
use crate::sync::{lock, read, write};
use crate::tree;

/// Name of the thread that seals.
const THREAD_NAME: &str = "emberline-store";

/// How far that thread steps back behind those that take in, for which agents wait: it gets a third of
/// what they do where there is not enough for both, and all that they leave. Not less, as they wait for
/// its locks now and then.
const NICENESS: i32 = 5;

/// Why nothing was sealed; it stays in memory and in the log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    #[error("the log could not be cut")]
    Log(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a sealing is made of, taken at one moment.
struct Taken {
    windows: Vec<Arc<StoredWindow>>,
    ledger: LedgerBatch,
    sessions: Vec<SessionRecord>,
    records: TelemetryBatch,
}

impl Collector {
    /// Makes tables of all that is in memory. Gives whether there was anything.
    ///
    /// # Errors
    /// If log or tables cannot be written; the next call tries the same again.
    pub(crate) fn seal(&self) -> Result<bool, SealError> {
        let _one_at_a_time = lock(&self.sealing);
        let is_ledger_sealed = read(&self.ledger).ended_bytes() == 0;
        let are_records_sealed = !read(&self.records).has_unsealed();
        if read(&self.hot).count() == 0 && is_ledger_sealed && are_records_sealed {
            // Of hours that were admitted and could not be logged.
            *lock(&self.late) = LateHours::default();
            return Ok(false);
        }
        let take = || self.take_for_sealing();
        let (wal_from, taken) = match &self.log {
            Some(log) => log.cut(take)?,
            None => (0, take()),
        };
        let LedgerBatch { ended, totals, .. } = &taken.ledger;
        // These may add nodes, which are then among the unsealed ones.
        let task_nodes = task_nodes(&mut *write(&self.tree), ended, totals);
        let batch = SealBatch {
            windows: &taken.windows,
            tasks: ended,
            totals,
            task_nodes: &task_nodes,
            running: &taken.ledger.open,
            lost_tasks: &taken.ledger.settled,
            sessions: &taken.sessions,
            telemetry: &taken.records,
            tree: &tree::unsealed(&self.tree, self.tables.sealed_tree()),
            wal_from,
        };
        self.tables.seal(batch, &mut |manifest| {
            let windows = write(&self.hot).sealed(manifest.clone());
            let rows = write(&self.ledger).sealed(manifest.clone());
            let records = write(&self.records).sealed(manifest.clone());
            drop((windows, rows, records));
        })?;
        lock(&self.late).sealed();
        self.freed.notify_waiters();
        if let Some(log) = &self.log {
            log.remove_before(wal_from)?;
        }
        Ok(true)
    }

    fn take_for_sealing(&self) -> Taken {
        let sessions = lock(&self.registry).all();
        let record = |cell: &Arc<SessionCell>| cell.record();
        lock(&self.late).take_for_sealing();
        Taken {
            sessions: sessions.iter().map(record).collect(),
            windows: write(&self.hot).take_for_sealing(),
            ledger: write(&self.ledger).take_for_sealing(self.clock.now()),
            records: write(&self.records).take_for_sealing(),
        }
    }

    /// From here on readers see this version, whose tables hold the same as those of the one before.
    pub(crate) fn show_manifest(&self, manifest: &Arc<Manifest>) {
        write(&self.hot).set_manifest(manifest.clone());
        write(&self.ledger).set_manifest(manifest.clone());
        write(&self.records).set_manifest(manifest.clone());
    }

    /// Merges small files, drops old ones, deletes garbage.
    pub(crate) fn maintain(&self, now: Timestamp, retention: &Retention) -> Result<(), StoreError> {
        let done = self.tables.maintain(now, retention, &mut |manifest: &Arc<Manifest>| {
            self.show_manifest(manifest);
            self.events.damage(manifest, self.clock.now());
        })?;
        tracing::debug!(?done, "the tables were looked after");
        Ok(())
    }

    /// Ends what writes: nothing is taken in any more, and what is in memory goes into tables, if
    /// these outlive the process.
    pub(crate) fn end(&self, sealer: Sealer) {
        sealer.stop();
        let Some(log) = &self.log else { return };
        log.close();
        if let Err(error) = self.seal() {
            report("the last sealing failed; the log has what it lacks", &error);
        }
    }

    /// Bytes in memory that a sealing would free.
    pub(crate) fn unsealed_bytes(&self) -> usize {
        let rows = read(&self.ledger).ended_bytes() + read(&self.records).bytes();
        read(&self.hot).bytes() + rows
    }
}

/// The thread that seals and maintains, until it is told to stop.
#[derive(Debug)]
pub(crate) struct Sealer {
    stopping: Arc<Stopping>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Stopping {
    is_stopping: Mutex<bool>,
    changed: Condvar,
}

impl Stopping {
    /// Waits for a moment; gives whether to stop.
    fn wait(&self, at_most: Duration) -> bool {
        let going_on = |is_stopping: &mut bool| !*is_stopping;
        let waited = self.changed.wait_timeout_while(lock(&self.is_stopping), at_most, going_on);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Sealer {
    pub(crate) fn start(collector: &Arc<Collector>) -> io::Result<Sealer> {
        let stopping = Arc::new(Stopping::default());
        let (stop, weak) = (stopping.clone(), Arc::downgrade(collector));
        let thread = thread::Builder::new().name(THREAD_NAME.to_owned());
        let thread = thread.spawn(move || work(&stop, &weak))?;
        Ok(Sealer { stopping, thread: Some(thread) })
    }

    /// Ends the thread once it is done with what it is at.
    pub(crate) fn stop(mut self) {
        *lock(&self.stopping.is_stopping) = true;
        self.stopping.changed.notify_one();
        let ended = self.thread.take().map(JoinHandle::join);
        if ended.is_some_and(|ended| ended.is_err()) {
            tracing::error!("the store's thread ended by a panic: a bug of Emberline");
        }
    }
}

fn work(stopping: &Stopping, collector: &Weak<Collector>) {
    // Linux counts a thread as a process here; `None` is the calling one.
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "sealing does not step back behind taking in");
    }
    let (mut seal_at, mut maintain_at) = (None, None);
    let mut pause = SWEEP_EVERY;
    while !stopping.wait(pause) {
        let Some(collector) = collector.upgrade() else { return };
        let limits = &collector.limits;
        pause = SWEEP_EVERY.min(limits.seal_every);
        let now = Instant::now();
        let due = *seal_at.get_or_insert(now + limits.seal_every);
        let is_much = collector.unsealed_bytes() > limits.unsealed_bytes_max;
        if due <= now || is_much || lock(&collector.late).is_full() {
            let sealed = collector.seal();
            let next = if sealed.is_ok() { limits.seal_every } else { SEAL_RETRY_AFTER };
            // Streams may wait for the next one already.
            if sealed.is_ok() && collector.unsealed_bytes() > limits.unsealed_bytes_max {
                pause = Duration::ZERO;
            }
            seal_at = Some(now + next);
            if let Err(error) = sealed {
                report("sealing into tables failed; it is tried again", &error);
            }
        }
        if *maintain_at.get_or_insert(now) <= now {
            maintain_at = Some(now + MAINTAIN_EVERY.min(limits.seal_every));
            if let Err(error) = collector.maintain(collector.clock.now(), &collector.retention) {
                report("looking after the tables failed; it is tried again", &error);
            }
        }
    }
}

/// Logs an error with its causes.
pub(crate) fn report(what: &'static str, error: &dyn std::error::Error) {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    tracing::error!(reason = text, what);
}
