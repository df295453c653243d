//! Sealing: rows in memory become tables, and the log is cut behind them. One thread does this, and
//! maintains the tables.
//!
//! The log is cut at a moment at which nothing is being applied. The rows in memory then, with the
//! acknowledged sequence numbers of the sessions, are exactly those of the files before the cut. These
//! files are removed once the tables hold it.

use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use profiler_core::Timestamp;

use crate::CollectorState;
use crate::ingest::Ingest;
use crate::ledger::{LedgerBatch, TakenRows};
use crate::tree::{self, Forgotten, LockedTree};
use base::heartbeat::{self, ThreadPulse};
use base::limits::{
    IDLE_NAMES_AFTER, IDLE_NAMES_HASTE, MAINTAIN_EVERY, SEAL_RETRY_AFTER, SWEEP_EVERY, nanoseconds,
};
use base::priority::Priority;
use base::sync::{Condvar, Mutex, lock, rank, read, write};
use shares::{Accounts, RetainedPart};
use store::late_hours::LateHours;
use store::rows::{SessionRecord, StoredWindow, TelemetryBatch};
use store::{Manifest, Retention, SealBatch, StoreError, task_nodes};

/// Name of the thread that seals.
const THREAD_NAME: &str = "emberline-store";

/// How much lower the thread's priority is. Agents wait for ingest, so ingest goes first: where there is not
/// enough CPU for both, sealing gets a third as much. Not lower, because ingest waits for locks of this thread.
const PRIORITY_STEPS: i32 = 5;

/// A sealing that failed. Its rows stay in memory and in the log.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("cannot cut the log")]
    Log(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The rows of one sealing, taken at one moment.
struct Unsealed {
    windows: Vec<Arc<StoredWindow>>,
    ledger: TakenRows,
    sessions: Vec<SessionRecord>,
    telemetry: TelemetryBatch,
}

/// Seals and maintains.
#[derive(Debug)]
pub struct Sealer {
    state: Arc<CollectorState>,
    ingest: Arc<Ingest>,
    accounts: Arc<Accounts>,
    retention: Retention,
    /// Held during a sealing.
    sealing: Mutex<(), rank::Sealing>,
    /// When idle names were last looked for, in nanoseconds since the Unix epoch.
    names_checked_at: AtomicI64,
}

impl Sealer {
    pub fn new(
        state: Arc<CollectorState>,
        ingest: Arc<Ingest>,
        accounts: Arc<Accounts>,
        retention: Retention,
    ) -> Sealer {
        let names_checked_at = AtomicI64::new(state.clock.now().unix_ns());
        Sealer {
            state,
            ingest,
            accounts,
            retention,
            sealing: Mutex::default(),
            names_checked_at,
        }
    }

    /// Seals all rows in memory, and what is open now, and forgets idle names. Returns whether there was anything new.
    ///
    /// # Errors
    /// If the log or the tables cannot be written; the next call retries with the same rows.
    pub fn seal(&self) -> Result<bool, SealError> {
        let _one_at_a_time = lock(&self.sealing);
        // Before the rows are taken: what changes later is for the next sealing.
        let lives_changed = self.state.lives_changed.swap(false, Ordering::AcqRel);
        let sealed = self.seal_rows(lives_changed);
        if sealed.is_err() {
            self.state.lives_changed.store(true, Ordering::Release);
        }
        self.forget_idle_names();
        sealed
    }

    /// Forgets names and stacks that nothing has used for a while, if it is time for that.
    fn forget_idle_names(&self) {
        let state = &*self.state;
        let now_ns = state.clock.now().unix_ns();
        let elapsed_ns = now_ns.saturating_sub(self.names_checked_at.load(Ordering::Relaxed));
        let (held, is_half_full) = {
            let tree = read(&state.tree);
            (tree.held_count() as usize, tree.is_half_full())
        };
        let after = if is_half_full {
            IDLE_NAMES_HASTE
        } else {
            IDLE_NAMES_AFTER
        };
        let is_small = held < state.limits.idle_nodes_min && !is_half_full;
        if is_small || elapsed_ns < nanoseconds(after) {
            return;
        }
        self.names_checked_at.store(now_ns, Ordering::Relaxed);
        let mut end = state.tables.sealed_tree();
        if let Some(log) = &self.ingest.log {
            let logged = log.logged_tree();
            end.frames = end.frames.min(logged.frames);
            end.nodes = end.nodes.min(logged.nodes);
        }
        if let Some(forgotten) = tree::forget_idle(&state.tree, state.names_of_sessions(), end) {
            let Forgotten {
                nodes_before,
                nodes,
                symbol_bytes_before,
                symbol_bytes,
            } = forgotten;
            self.accounts.note_forgotten(
                RetainedPart::new(nodes, nodes_before),
                RetainedPart::new(symbol_bytes, symbol_bytes_before),
            );
            tracing::debug!(?forgotten, "idle names left memory");
        }
    }

    fn seal_rows(&self, lives_changed: bool) -> Result<bool, SealError> {
        let state = &*self.state;
        let is_ledger_sealed = read(&state.ledger).ended_bytes() == 0;
        let is_telemetry_sealed = !read(&state.telemetry).has_unsealed();
        let has_no_rows =
            read(&state.windows).count() == 0 && is_ledger_sealed && is_telemetry_sealed;
        if has_no_rows && !lives_changed {
            // Hours may be left of flushes that were admitted and could not be logged.
            *lock(&self.ingest.late) = LateHours::default();
            state.tables.publish_losses()?;
            return Ok(false);
        }
        let take = || self.take_for_sealing();
        let (wal_from, unsealed) = match &self.ingest.log {
            Some(log) => log.cut(take)?,
            None => (0, take()),
        };
        let LedgerBatch {
            ended,
            open,
            lost_tasks,
            totals,
        } = unsealed.ledger.into_batch();
        // These may add nodes, which are then among the unsealed ones.
        let task_nodes = task_nodes(&mut LockedTree(&state.tree), &ended, &totals);
        let batch = SealBatch {
            windows: &unsealed.windows,
            tasks: &ended,
            totals: &totals,
            task_nodes: &task_nodes,
            running: &open,
            lost_tasks: &lost_tasks,
            sessions: &unsealed.sessions,
            telemetry: &unsealed.telemetry,
            tree: &tree::unsealed(&state.tree, state.tables.sealed_tree()),
            wal_from,
        };
        state.tables.seal(batch, &mut |manifest| {
            let windows = write(&state.windows).sealed(manifest.clone());
            let rows = write(&state.ledger).sealed(manifest.clone());
            let telemetry = write(&state.telemetry).sealed(manifest.clone());
            drop((windows, rows, telemetry));
        })?;
        lock(&self.ingest.late).sealed();
        self.ingest.unsealed_shares.sealed();
        self.ingest.sealed.notify_waiters();
        if let Some(log) = &self.ingest.log {
            log.remove_before(wal_from)?;
        }
        Ok(true)
    }

    fn take_for_sealing(&self) -> Unsealed {
        let state = &*self.state;
        let sessions = lock(&state.registry).all();
        lock(&self.ingest.late).take_for_sealing();
        self.ingest.unsealed_shares.take_for_sealing();
        let sessions = sessions.iter().map(|cell| cell.record()).collect();
        // A lock each, because those of one expression are all released at its end.
        let windows = write(&state.windows).take_for_sealing();
        let ledger = write(&state.ledger).take_for_sealing(state.clock.now());
        let telemetry = write(&state.telemetry).take_for_sealing();
        Unsealed {
            windows,
            ledger,
            sessions,
            telemetry,
        }
    }

    /// Merges small files, drops expired ones, deletes garbage.
    pub fn maintain(&self, now: Timestamp, retention: &Retention) -> Result<(), StoreError> {
        let state = &*self.state;
        let done = state
            .tables
            .maintain(now, retention, &mut |manifest: &Arc<Manifest>| {
                state.show_manifest(manifest);
                state.events.damage(manifest, state.clock.now());
            })?;
        tracing::debug!(?done, "tables maintained");
        Ok(())
    }

    /// Stops the log, then the thread. Seals what is in memory if the tables outlive the process, but
    /// returns after `at_most`: the log has the rows too, and what the next start finds of an
    /// unfinished sealing is garbage.
    pub fn end(self: &Arc<Sealer>, thread: SealerThread, at_most: Duration) {
        thread.signal();
        if let Some(log) = &self.ingest.log {
            log.close();
        }
        let sealer = self.clone();
        let (ended, end) = mpsc::channel();
        let last = thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(move || {
                thread.join();
                if let Some(log) = &sealer.ingest.log {
                    let sealed = sealer.seal();
                    if let Err(error) = &sealed {
                        report("the last sealing failed; the log holds its rows", error);
                    }
                    log.release(sealed.is_ok());
                }
                // The store stays locked while anybody holds the log.
                drop(sealer);
                // The receiver may have given up.
                let _ = ended.send(());
            });
        if let Err(error) = last {
            return tracing::warn!(%error, "no last sealing; the log holds its rows");
        }
        if end.recv_timeout(at_most).is_err() {
            tracing::warn!(
                "the last sealing took over {at_most:?} and was left; the log holds its rows"
            );
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn retention(&self) -> Retention {
        self.retention
    }
}

/// The thread that seals and maintains until it is stopped.
#[derive(Debug)]
pub struct SealerThread {
    stop: Arc<StopSignal>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct StopSignal {
    is_set: Mutex<bool, rank::StopSignal>,
    changed: Condvar,
}

impl StopSignal {
    /// Waits for at most that long. Returns whether the signal is set.
    fn wait(&self, at_most: Duration) -> bool {
        *self
            .changed
            .wait_timeout_while(lock(&self.is_set), at_most, |is_set: &mut bool| !*is_set)
    }
}

impl SealerThread {
    pub fn start(sealer: &Arc<Sealer>) -> io::Result<SealerThread> {
        let stop = Arc::new(StopSignal::default());
        let signal = stop.clone();
        let sealer = Arc::downgrade(sealer);
        let thread = thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(move || seal_until_stopped(&signal, &sealer))?;
        Ok(SealerThread {
            stop,
            thread: Some(thread),
        })
    }

    /// Makes the thread end after its current step.
    fn signal(&self) {
        *lock(&self.stop.is_set) = true;
        self.stop.changed.notify_one();
    }

    /// Whether the thread has ended by itself.
    #[cfg(any(test, feature = "testing"))]
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(mut self) {
        let ended = self.thread.take().map(JoinHandle::join);
        if ended.is_some_and(|ended| ended.is_err()) {
            tracing::error!("the store's thread panicked: a bug of Emberline");
        }
    }
}

/// Makes the calling thread, and those that it starts, give way to ingest.
pub fn give_way() {
    Priority::lowered_by(PRIORITY_STEPS).apply();
}

fn seal_until_stopped(stop: &StopSignal, sealer: &Weak<Sealer>) {
    give_way();
    let _pulse = ThreadPulse::of_store();
    let mut seal_at = None;
    let mut maintain_at = None;
    let mut pause = SWEEP_EVERY;
    while !stop.wait(pause) {
        heartbeat::beat();
        let Some(sealer) = sealer.upgrade() else {
            return;
        };
        let state = &sealer.state;
        // It never owns the store again, which was logged when it was found.
        if state.tables.taken_over().is_some() {
            return;
        }
        let limits = &state.limits;
        pause = SWEEP_EVERY.min(limits.seal_every);
        let now = Instant::now();
        let due = *seal_at.get_or_insert(now + limits.seal_every);
        let is_much = state.unsealed_bytes() > limits.unsealed_bytes_max;
        if due <= now || is_much || lock(&sealer.ingest.late).is_full() {
            let sealed = sealer.seal();
            let next = if sealed.is_ok() {
                limits.seal_every
            } else {
                SEAL_RETRY_AFTER
            };
            // Streams may already wait for the next sealing.
            if sealed.is_ok() && state.unsealed_bytes() > limits.unsealed_bytes_max {
                pause = Duration::ZERO;
            }
            seal_at = Some(now + next);
            if let Err(error) = sealed
                && state.tables.taken_over().is_none()
            {
                report("sealing failed; it will be retried", &error);
            }
        }
        if *maintain_at.get_or_insert(now) <= now {
            maintain_at = Some(now + MAINTAIN_EVERY.min(limits.seal_every));
            if let Err(error) = sealer.maintain(state.clock.now(), &sealer.retention) {
                report(
                    "maintenance of the tables failed; it will be retried",
                    &error,
                );
            }
        }
    }
}

/// Logs an error with its causes.
fn report(what: &'static str, error: &dyn std::error::Error) {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    tracing::error!(reason = text, what);
}
