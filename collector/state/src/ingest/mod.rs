//! Ingest: what each message of an agent's stream does.
//!
//! A flush is checked whole, logged, applied, then acknowledged. From the check until it is applied, its
//! session's commit lock is held. So no other flush and no other stream of the session comes between,
//! however long the log takes. Imports are stored whole, with [their last flush](import).

mod control;
mod dictionary;
mod ends;
mod import;
mod moved;
mod owner;
mod phases;
mod pushed;
mod received;
mod rejection;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use profiler_core::wire::v1::{self, collector_message::Kind};
use profiler_core::{Epoch, Timestamp, WorkerId};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::timeout;

use crate::CollectorState;
use crate::agent_control::ControlStream;
use crate::commit::{AcceptedFlushes, Apply, Log};
use crate::events::EventKind;
use crate::ingest_status::{IngestBlocked, IngestHealth, IngestStatus, StatusChange, disk_bytes};
use crate::session::{
    CheckedThreadTime, CommitLock, Displaced, FlushChecker, HelloError, NoRoom, OpenSession,
    Presence, Session, SessionCell, check_hello,
};
use crate::tree::TreeLock;
use base::limits::{
    LARGE_MESSAGES_AT_ONCE, LATE_HOURS_MAX, SEALING_WAIT_MAX, UNSEALED_BYTES_FULL,
    UNSEALED_BYTES_FULL_FOR_OTHERS, UNSEALED_BYTES_SLOW, nanoseconds,
};
use base::log_limit::{Admitted, LineLimit};
use base::sync::{Mutex, MutexGuard, lock, rank, write};
use shares::{Account, Quota, QuotaExceeded, SessionSlot, Turns, UnsealedShares};
use store::Retention;
use store::late_hours::{Hours, LateHours, late_hours};
use store::rows::{AgentInfo, CheckedFlush, Disconnect, DisconnectReason, RunRow};
use store::wal::{Hello, NotLogged};

pub use control::{PendingThreadDump, SettingsView};
pub use dictionary::KnownNames;
#[cfg(any(test, feature = "testing"))]
pub use dictionary::{PendingDictionary, SliceOutcome};
pub(crate) use import::is_last;
use import::{Imports, NoRoomForImport};
pub use received::ReceivedFlush;

/// Any agent can cause these lines.
static DUPLICATED: LineLimit = LineLimit::new();

/// The state as streams change it, and the log that makes their flushes durable.
#[derive(Debug)]
pub struct Ingest {
    pub state: Arc<CollectorState>,
    /// `None` if data is kept in memory only.
    pub log: Option<Arc<Log>>,
    pub late: Mutex<LateHours, rank::LateHours>,
    pub status: Mutex<IngestStatus, rank::IngestStatus>,
    /// Notified after each sealing, which frees memory.
    pub sealed: Notify,
    /// Notified when an agent reports the settings that it applied.
    settings_changed: watch::Sender<()>,
    /// Large messages that may be decoded, checked or applied at once.
    pub large_turns: Arc<Turns>,
    pub unsealed_shares: UnsealedShares,
    imports: Imports,
    grace_ns: i64,
    /// Older data is refused.
    retention: Retention,
}

/// An attach that failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AttachError {
    #[error(transparent)]
    Hello(#[from] HelloError),
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error(transparent)]
    Quota(#[from] QuotaExceeded),
    #[error(transparent)]
    NotLogged(#[from] NotLogged),
}

/// The stream no longer owns its session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("another stream of the same worker and epoch took over")]
pub struct StaleStream;

/// A flush that does not continue its stream. Nothing changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("flush {seq} is out of order; the next one is {next_seq}")]
pub struct OutOfOrder {
    seq: u64,
    next_seq: u64,
}

/// Why a stream ends at a flush that was neither stored nor rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StreamError {
    #[error(transparent)]
    Stale(#[from] StaleStream),
    #[error(transparent)]
    OutOfOrder(#[from] OutOfOrder),
    #[error(transparent)]
    NotLogged(#[from] NotLogged),
    #[error(transparent)]
    NoRoomForImport(#[from] NoRoomForImport),
}

/// The result of checking the first flushes of a queue.
enum Verdict {
    /// Reply to the first flush; no state changes.
    Answer(Kind),
    /// The first flushes of the queue, at least one, are to be stored.
    Store(Vec<CheckedFlush>, LogRecords),
}

/// The log record of each flush; empty records without a log.
type LogRecords = Vec<Vec<u8>>;

/// A stream's ownership of its session.
#[derive(Clone, Debug)]
pub struct Attachment {
    pub cell: Arc<SessionCell>,
    /// The number of the stream in its session.
    pub generation: u64,
    /// The identity of the stream.
    pub account: Arc<Account>,
}

impl Attachment {
    /// The session, unless another stream took it over.
    pub fn session(&self, received_at: Timestamp) -> Result<MutexGuard<'_, Session>, StaleStream> {
        let mut session = lock(&self.cell.state);
        if !session.is_owned_by(self.generation) {
            return Err(StaleStream);
        }
        session.last_seen = session.last_seen.max(received_at);
        Ok(session)
    }
}

/// A stream after a valid Hello.
#[derive(Debug)]
pub struct OpenStream {
    pub attachment: Attachment,
    /// Resolves when another stream takes the session over, or when it made room for another one.
    pub taken_over: oneshot::Receiver<Displaced>,
    pub welcome: v1::Welcome,
    pub control: ControlStream,
}

/// Data of an agent at the start of its stream.
struct Resume {
    account: Arc<Account>,
    /// `None` if the session counts for the account already.
    slot: Option<SessionSlot>,
    agent: AgentInfo,
    /// The flush up to which it was answered.
    answered_seq: u64,
}

impl Apply for CollectorState {
    fn tree(&self) -> &TreeLock {
        &self.tree
    }

    fn apply(
        &self,
        AcceptedFlushes {
            cell,
            flushes,
            commit_lock,
            import_lock,
        }: AcceptedFlushes,
    ) {
        CollectorState::apply(self, &cell, flushes);
        drop((commit_lock, import_lock));
    }

    fn forget_open(&self, cell: &SessionCell) {
        CollectorState::forget_open(self, &cell.worker, cell.epoch);
    }

    fn put_run(&self, run: RunRow) {
        CollectorState::put_run(self, run);
    }
}

impl Ingest {
    /// Ingest into `state`. `late` has the late hours that are in memory already.
    pub fn new(
        state: Arc<CollectorState>,
        log: Option<Arc<Log>>,
        late: LateHours,
        grace: Duration,
        retention: &Retention,
    ) -> Ingest {
        Ingest {
            state,
            log,
            late: Mutex::new(late),
            status: Mutex::default(),
            sealed: Notify::new(),
            settings_changed: watch::Sender::new(()),
            large_turns: Turns::new(LARGE_MESSAGES_AT_ONCE),
            unsealed_shares: UnsealedShares::default(),
            imports: Imports::default(),
            grace_ns: nanoseconds(grace),
            retention: *retention,
        }
    }

    /// Attaches a stream of an identity to the session of its Hello. Waits until a flush of the session's
    /// previous stream is applied or has failed.
    pub async fn attach(
        &self,
        account: &Arc<Account>,
        hello: v1::Hello,
        received_at: Timestamp,
    ) -> Result<OpenStream, AttachError> {
        let agent_sent_at_ns = hello.sent_at_ns;
        let answered_seq = hello.answered_seq;
        let (worker, epoch, agent) = check_hello(hello)?;
        self.check_room(account)?;
        loop {
            self.check_owner(&worker, epoch, account)?;
            let slot = self.session_slot(&worker, epoch, account)?;
            let cell = self.open_session(&worker, epoch, account)?;
            let commit_lock = cell.commit_lock.clone().lock_owned().await;
            if let Some(log) = &self.log {
                let hello = Hello::of(&worker, epoch, received_at, &agent);
                log.log_hello(&account.identity, hello).await?;
            }
            let account = account.clone();
            let resume = Resume {
                account,
                slot,
                agent: agent.clone(),
                answered_seq,
            };
            if let Some(mut open) = self.take_over(cell, &commit_lock, resume, received_at)? {
                open.welcome.receipt = Some(self.receipt(agent_sent_at_ns, received_at));
                return Ok(open);
            }
        }
    }

    /// Counts a session for an identity; `None` if it counts already.
    fn session_slot(
        &self,
        worker: &WorkerId,
        epoch: Epoch,
        account: &Arc<Account>,
    ) -> Result<Option<SessionSlot>, QuotaExceeded> {
        let cell = lock(&self.state.registry).get(worker, epoch).cloned();
        let counts = cell.is_some_and(|cell| lock(&cell.state).counts_for(account));
        if counts {
            Ok(None)
        } else {
            account.open_session().map(Some)
        }
    }

    /// The session of a life of a worker. Ends those that make room for it.
    fn open_session(
        &self,
        worker: &WorkerId,
        epoch: Epoch,
        account: &Account,
    ) -> Result<Arc<SessionCell>, NoRoom> {
        let opened = lock(&self.state.registry).open(worker, epoch, account);
        let OpenSession { cell, evicted } =
            opened.inspect_err(|_| account.note_refusal(Quota::Sessions))?;
        for evicted in &evicted {
            let mut session = lock(&evicted.state);
            if !matches!(session.presence, Presence::Gone(_)) {
                session.displace();
                let at = self.state.clock.now();
                let disconnect = Disconnect {
                    at,
                    reason: DisconnectReason::Rejected,
                };
                self.state.end_life(evicted, &mut session, disconnect);
            }
            drop(session);
            lock(&self.state.registry).note_evicted_end(evicted);
        }
        Ok(cell)
    }

    /// Assigns a session to a new stream; `None` if the session was evicted meanwhile.
    fn take_over(
        &self,
        cell: Arc<SessionCell>,
        _commit_lock: &CommitLock,
        Resume {
            account,
            slot,
            agent,
            answered_seq,
        }: Resume,
        received_at: Timestamp,
    ) -> Result<Option<OpenStream>, QuotaExceeded> {
        let state = &*self.state;
        let worker = &cell.worker;
        let epoch = cell.epoch;
        let mut registry = lock(&state.registry);
        if !registry
            .get(worker, epoch)
            .is_some_and(|held| Arc::ptr_eq(held, &cell))
        {
            return Ok(None);
        }
        let others = registry.of_worker(worker);
        // Locked before the registry is released, so that the session cannot be evicted in between.
        let mut session = lock(&cell.state);
        session.adopt(&account, slot)?;
        registry.set_agent(&mut session, agent);
        drop(registry);
        let (generation, taken_over) = session.take_over(answered_seq, received_at);
        let control = self.open_control(&cell, &mut session);
        write(&state.ledger).resume_lost(worker, epoch);
        write(&state.telemetry).resume_lost_runs(worker, epoch);
        state
            .events
            .worker(EventKind::WorkerConnected, &cell, &session, received_at);
        let marks = session.translation.marks();
        let welcome = v1::Welcome {
            acked_seq: session.received_seq(),
            stored_ns: session.stored_ns,
            strings: marks.strings,
            frames: marks.frames,
            nodes: marks.nodes,
            receipt: None,
        };
        drop(session);
        let mut connected = 0;
        for other in others.iter().filter(|other| other.epoch != epoch) {
            let mut session = lock(&other.state);
            match session.presence {
                Presence::Connected => connected += 1,
                // A worker that lives on under a new epoch does not return under the old one.
                Presence::Away(disconnect) => state.end_life(other, &mut session, disconnect),
                Presence::Gone(_) => {}
            }
        }
        if connected > 0 {
            self.report_duplicate(&cell, connected, received_at);
        }
        let attachment = Attachment {
            cell,
            generation,
            account,
        };
        Ok(Some(OpenStream {
            attachment,
            taken_over,
            welcome,
            control,
        }))
    }

    /// Reports that other agents with the id of a new one are connected: their time counts as one
    /// worker's.
    fn report_duplicate(&self, cell: &SessionCell, others: usize, at: Timestamp) {
        let session = lock(&cell.state);
        self.state
            .events
            .worker(EventKind::WorkerDuplicated, cell, &session, at);
        if let Some(Admitted { suppressed }) = DUPLICATED.admit() {
            let worker = &*cell.worker.0;
            let epoch = cell.epoch;
            tracing::warn!(
                worker,
                %epoch,
                others,
                suppressed,
                "other agents with the same worker id are connected: their data is summed"
            );
        }
    }

    /// Whether flushes of an identity are accepted at present.
    fn check_room(&self, account: &Account) -> Result<(), NotLogged> {
        let is_greedy = self.unsealed_shares.is_greedy(account);
        let bytes = if is_greedy {
            UNSEALED_BYTES_FULL
        } else {
            UNSEALED_BYTES_FULL_FOR_OTHERS
        };
        if self.state.unsealed_bytes() > bytes {
            account.note_refusal(Quota::UnsealedBytes);
            return Err(NotLogged::Behind { bytes });
        }
        self.log.as_ref().map_or(Ok(()), |log| log.check_room())
    }

    /// Like [`Ingest::check_room`], after waiting for a sealing that is behind. Identities wait that sent
    /// most of what is to be sealed; the others only once there is no room left.
    async fn wait_for_room(&self, account: &Account) -> Result<(), NotLogged> {
        let sealed = self.sealed.notified();
        let is_greedy = self.unsealed_shares.is_greedy(account);
        let slow = if is_greedy {
            UNSEALED_BYTES_SLOW
        } else {
            UNSEALED_BYTES_FULL
        };
        if self.state.unsealed_bytes() > slow {
            account.note_delay(Quota::UnsealedBytes);
            // Sealed or timed out: the check below decides.
            let _ = timeout(SEALING_WAIT_MAX, sealed).await;
        }
        self.check_room(account)
    }

    /// Stores the first of the waiting flushes exactly once. A flush at or below the acknowledged
    /// sequence number is acknowledged again and changes nothing. The flushes behind the first come
    /// along while they can be stored too: all of them become durable, or none.
    ///
    /// Removes the answered flushes from `waiting`, at least one, and returns their answers. An
    /// acknowledged flush is logged (with a log) and applied.
    pub async fn receive_flushes(
        &self,
        attachment: &Attachment,
        waiting: &mut VecDeque<ReceivedFlush>,
    ) -> Result<Vec<Kind>, StreamError> {
        let commit_lock = attachment.cell.commit_lock.clone().lock_owned().await;
        let waiting_bytes = waiting.iter().map(ReceivedFlush::bytes).sum();
        let verdict = self
            .large_turns
            .run(&attachment.account, waiting_bytes, || {
                self.check(attachment, waiting.make_contiguous())
            })
            .await;
        let (mut flushes, mut records) = match verdict? {
            Verdict::Answer(kind) => {
                waiting.pop_front();
                return Ok(vec![kind]);
            }
            Verdict::Store(flushes, records) => (flushes, records),
        };
        if attachment.cell.worker.is_import() {
            let staged = import::staged(flushes, records);
            return self
                .receive_import(attachment, commit_lock, staged, waiting)
                .await;
        }
        self.wait_for_room(&attachment.account).await?;
        // Each flush alone is below the limit on late hours; all of them together may not be.
        let mut hours = Hours::new();
        let mut count = 0;
        for (flush, received) in flushes.iter().zip(waiting.iter()) {
            let more = late_hours(flush, received.at);
            if count > 0 && hours.union(&more).count() > LATE_HOURS_MAX {
                break;
            }
            hours.extend(more);
            count += 1;
        }
        flushes.truncate(count);
        records.truncate(count);
        if !lock(&self.late).admit(&hours) {
            return Err(NotLogged::Late.into());
        }
        let bytes = waiting.iter().take(count).map(ReceivedFlush::bytes).sum();
        self.unsealed_shares.note(&attachment.account, bytes);
        let accepted = AcceptedFlushes {
            cell: attachment.cell.clone(),
            flushes,
            commit_lock,
            import_lock: None,
        };
        self.commit(&attachment.account, accepted, records).await?;
        Ok(self.acknowledge(waiting.drain(..count)))
    }

    /// Logs flushes, if there is a log, and applies them.
    async fn commit(
        &self,
        account: &Account,
        accepted: AcceptedFlushes,
        records: LogRecords,
    ) -> Result<(), NotLogged> {
        match &self.log {
            Some(log) => log.commit(&account.identity, accepted, records).await,
            None => {
                Apply::apply(&*self.state, accepted);
                Ok(())
            }
        }
    }

    /// The acknowledgments of these flushes.
    fn acknowledge(&self, received: impl Iterator<Item = ReceivedFlush>) -> Vec<Kind> {
        received
            .map(|ReceivedFlush { flush, at, .. }: ReceivedFlush| {
                let receipt = Some(self.receipt(flush.sent_at_ns, at));
                Kind::Ack(v1::Ack {
                    seq: flush.seq,
                    receipt,
                })
            })
            .collect()
    }

    /// Stores one flush.
    #[cfg(any(test, feature = "testing"))]
    pub async fn receive_flush(
        &self,
        attachment: &Attachment,
        flush: &v1::Flush,
        at: Timestamp,
    ) -> Result<Kind, StreamError> {
        let mut waiting = VecDeque::from([ReceivedFlush {
            flush: flush.clone(),
            at,
            charge: None,
            translation: None,
        }]);
        let mut answers = self.receive_flushes(attachment, &mut waiting).await?;
        assert_eq!((answers.len(), waiting.len()), (1, 0));
        Ok(answers.remove(0))
    }

    /// Checks the first of the waiting flushes, and those behind it while they can be stored. The first
    /// that cannot is checked again when it is at the front, because the answer to it depends on whether
    /// the flushes before it become durable.
    fn check(
        &self,
        attachment: &Attachment,
        waiting: &[ReceivedFlush],
    ) -> Result<Verdict, StreamError> {
        let last = waiting.last().expect("the caller has a flush");
        // The session is unlocked during the check, which takes tens of milliseconds for a large flush.
        let mut basis = attachment.session(last.at)?.flush_basis();
        let mut flushes: Vec<CheckedFlush> = Vec::new();
        let mut records = LogRecords::new();
        let mut thread_times = VecDeque::new();
        for ReceivedFlush {
            flush,
            at,
            translation,
            ..
        } in waiting
        {
            let seq = flush.seq;
            let receipt = || Some(self.receipt(flush.sent_at_ns, *at));
            if seq != 0 && seq <= basis.acked_seq {
                if flushes.is_empty() {
                    return Ok(Verdict::Answer(Kind::Ack(v1::Ack {
                        seq,
                        receipt: receipt(),
                    })));
                }
                break;
            }
            let next_seq = basis.next_seq;
            if seq != next_seq {
                if flushes.is_empty() {
                    return Err(OutOfOrder { seq, next_seq }.into());
                }
                break;
            }
            let checker = FlushChecker {
                worker: &attachment.cell.worker,
                epoch: attachment.cell.epoch,
                basis: &basis,
                translation: translation.as_ref().unwrap_or(&basis.translation),
                tree: &self.state.tree,
                now: *at,
                kept: self.kept(&attachment.cell.worker),
                tasks_max: self.state.limits.flush_tasks_max,
            };
            let translated = basis
                .check_whole()
                .and_then(|()| checker.check(flush))
                .or_else(|error| checker.check_as_sent(flush, error));
            let checked = translated.and_then(|mut checked| {
                self.state.cut_phases(&attachment.cell.worker, &mut checked);
                self.check_import(&attachment.cell, [&checked])?;
                // The size of its record is the measure of an import's memory.
                let is_logged = self.log.is_some() || attachment.cell.worker.is_import();
                let record = is_logged.then(|| checker.record(&checked)).transpose()?;
                let thread_time_left = checker.thread_time_left(&checked)?;
                Ok((checked, record.unwrap_or_default(), thread_time_left))
            });
            match checked {
                Ok((checked, record, thread_time_left)) => {
                    basis.advance(seq, thread_time_left);
                    thread_times.push_back(CheckedThreadTime {
                        seq,
                        thread_time_left,
                    });
                    flushes.push(checked);
                    records.push(record);
                }
                Err(error) if flushes.is_empty() => {
                    let answer = self.refuse_flush(attachment, &waiting[0], &error)?;
                    return Ok(Verdict::Answer(answer));
                }
                Err(_) => break,
            }
        }
        attachment.session(last.at)?.note_checked(thread_times);
        Ok(Verdict::Store(flushes, records))
    }

    /// Marks a run through the API. Returns when it is as durable as an acknowledged flush.
    pub async fn mark_run(&self, run: RunRow) -> Result<(), NotLogged> {
        match &self.log {
            Some(log) => log.mark_run(run).await,
            None => {
                self.state.put_run(run);
                Ok(())
            }
        }
    }

    /// Whether ingest is blocked, and why. Reports a change since the last call.
    pub fn blocked(&self) -> Option<IngestBlocked> {
        // Gathered before the status is locked, because that takes other locks, and uses a full disk.
        let now = self.state.clock.now();
        let log = self
            .log
            .as_ref()
            .map(|log| log.health())
            .unwrap_or_default();
        let folder = lock(&self.status)
            .folder
            .clone()
            .filter(|_| log.full.is_some());
        let disk_bytes = folder.and_then(|folder| disk_bytes(&folder));
        let taken_over = self.state.tables.taken_over();
        let health = IngestHealth {
            log,
            taken_over: taken_over.map(|error| error.to_string()),
            disk_bytes,
            unsealed_bytes: self.state.unsealed_bytes(),
        };
        let mut status = lock(&self.status);
        let change = status.update(&health, &self.state.limits, now);
        match change {
            Some(StatusChange::Stopped(blocked)) => {
                self.state
                    .events
                    .ingest(EventKind::IngestStopped, blocked, now);
            }
            Some(StatusChange::Resumed(blocked)) => {
                self.state
                    .events
                    .ingest(EventKind::IngestResumed, blocked, now);
            }
            None => {}
        }
        status.blocked().cloned()
    }

    /// Why ingest is blocked, as of the last call of [`Ingest::blocked`].
    pub fn blocked_reason(&self) -> Option<String> {
        lock(&self.status)
            .blocked()
            .map(|blocked| blocked.reason.clone())
    }

    fn receipt(&self, agent_sent_at_ns: i64, received_at: Timestamp) -> v1::Receipt {
        v1::Receipt {
            agent_sent_at_ns,
            received_at_ns: received_at.unix_ns(),
            sent_at_ns: self.state.clock.now().unix_ns(),
        }
    }
}
