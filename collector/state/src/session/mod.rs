//! Sessions: one life of one agent, its progress, and whether it is connected.
//!
//! A message is validated whole ([`FlushChecker::check`]) before any of it is applied. In between,
//! the log makes a flush durable, under the session's [`CommitLock`].

mod flush;
mod hello;
mod refused;
mod registry;
mod staged;
mod thread_time;

use std::collections::VecDeque;
use std::sync::Arc;

use profiler_core::wire::{AppliedSettings, Translation, v1};
use profiler_core::{Epoch, Ticks, Timestamp, WorkerId};
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::agent_control::AgentControl;
use base::limits::{DATA_AHEAD_MAX, nanoseconds};
use base::sync::{Mutex, lock, rank};
use shares::{Account, Quota, QuotaExceeded, SessionSlot};
use store::rows::{AgentInfo, Disconnect, DisconnectReason, FlushFacts, SessionRecord};

pub use flush::{FlushChecker, FlushError, Retained};
pub use hello::{HelloError, check_hello};
use refused::RefusedWeight;
pub(crate) use registry::is_pushed;
pub use registry::{NoRoom, OpenSession, Registry};
pub use staged::{StagedFlush, StagedImport, StagedRoom};
pub use thread_time::ThreadTimeLeft;

/// A session and its immutable key.
#[derive(Debug)]
pub struct SessionCell {
    pub worker: WorkerId,
    pub epoch: Epoch,
    pub state: Mutex<Session, rank::Session>,
    /// Serializes updates of `acked_seq`. Async and fair, because it is held across the log's sync;
    /// `state` must not be.
    pub commit_lock: Arc<tokio::sync::Mutex<()>>,
}

impl SessionCell {
    /// The end of a stream. Without an agent, nothing can be lost.
    pub fn disconnect(&self, at: Timestamp, reason: DisconnectReason) -> Disconnect {
        let reason = if self.worker.has_agent() {
            reason
        } else {
            DisconnectReason::Clean
        };
        Disconnect { at, reason }
    }

    /// The part of the session that a sealing stores.
    pub fn record(&self) -> SessionRecord {
        let session = lock(&self.state);
        SessionRecord {
            worker: self.worker.clone(),
            epoch: self.epoch,
            agent: session.agent.clone(),
            acked_seq: session.acked_seq,
            stored_ns: session.stored_ns,
            ticks: session.ticks,
            account: session.account(),
            clock: session.clock,
            first_seen: session.first_seen,
            last_seen: session.last_seen,
            disconnect: match session.presence {
                Presence::Gone(disconnect) => Some(disconnect),
                Presence::Connected | Presence::Away(_) => None,
            },
        }
    }
}

/// A held [`SessionCell::commit_lock`].
pub type CommitLock = OwnedMutexGuard<()>;

/// The state of one (worker, epoch).
#[derive(Debug, Default)]
pub struct Session {
    pub agent: Arc<AgentInfo>,
    /// Shared with the check of a flush.
    pub translation: Arc<Translation>,
    /// Highest sequence number that was applied.
    pub acked_seq: u64,
    /// The flush that the present stream must add next. Above `acked_seq + 1` after refused flushes, and
    /// if the agent was answered by a collector whose data this one no longer has.
    next_seq: u64,
    /// Applied weight.
    pub stored_ns: u64,
    thread_time_left: ThreadTimeLeft,
    /// Flushes that are to be applied.
    checked: VecDeque<CheckedThreadTime>,
    pub staged: StagedImport,
    /// Of the last flush that was applied.
    account: Option<v1::LossAccount>,
    refused: RefusedWeight,
    pub clock: Option<v1::Clock>,
    /// How far the last window was ahead of the collector's clock when it came; 0 within [`DATA_AHEAD_MAX`].
    pub data_ahead_ns: u64,
    pub ticks: Ticks,
    /// Number of messages that were rejected, whole or in part.
    pub rejected: u64,
    pub last_rejection: Option<String>,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub presence: Presence,
    /// The settings that the agent reported last.
    pub applied: Option<AppliedSettings>,
    /// While a stream is open.
    pub control: Option<AgentControl>,
    /// The number of streams so far, so that an older stream knows that it is stale.
    generation: u64,
    /// Used or dropped to end the stream that holds the other end.
    stream: Option<oneshot::Sender<Displaced>>,
    /// The identity of the last stream; `None` if there was none since the collector started.
    owner: Option<Arc<Account>>,
    /// Until the session has ended.
    slot: Option<SessionSlot>,
}

/// The thread time after a checked flush, which holds once it is applied.
#[derive(Clone, Copy, Debug)]
pub struct CheckedThreadTime {
    pub seq: u64,
    pub thread_time_left: ThreadTimeLeft,
}

/// The session made room for one of an identity with fewer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("all sessions are taken, and this one made room for an agent of another identity")]
pub struct Displaced;

/// Whether an agent is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Presence {
    /// Its stream is open.
    #[default]
    Connected,
    /// Its stream ended without Goodbye. It may reconnect and find its tasks running.
    Away(Disconnect),
    /// It sent Goodbye, was away for too long, or the worker lives on under another epoch. Its
    /// running tasks have ended as lost.
    Gone(Disconnect),
}

/// The part of a session that flushes are checked against. Nothing of it changes until the next flush or
/// dictionary of the stream that has the session's [`CommitLock`].
#[derive(Debug, Default)]
pub struct FlushBasis {
    pub translation: Arc<Translation>,
    /// Highest sequence number that was applied.
    pub acked_seq: u64,
    /// The flush that must come next.
    pub next_seq: u64,
    /// Thread time that the flushes before it have left.
    pub thread_time_left: ThreadTimeLeft,
    /// Why an earlier flush of the same import was refused.
    pub refusal: Option<String>,
}

impl FlushBasis {
    /// Checks that no earlier flush of the same import was refused.
    pub fn check_whole(&self) -> Result<(), FlushError> {
        match &self.refusal {
            Some(reason) => Err(FlushError::RefusedBefore(reason.clone())),
            None => Ok(()),
        }
    }

    /// For the flush after a checked one.
    pub fn advance(&mut self, seq: u64, thread_time_left: ThreadTimeLeft) {
        self.acked_seq = seq;
        self.next_seq = seq.saturating_add(1);
        self.thread_time_left = thread_time_left;
    }
}

impl Presence {
    /// How the last stream ended; `None` while one is open.
    pub fn disconnect(self) -> Option<Disconnect> {
        match self {
            Presence::Connected => None,
            Presence::Away(disconnect) | Presence::Gone(disconnect) => Some(disconnect),
        }
    }
}

impl Session {
    /// Assigns the session to a new stream and ends the previous one. The stream's agent was answered up
    /// to `answered_seq`. Returns the new stream's number, and a receiver that resolves when it is taken
    /// over itself.
    pub fn take_over(
        &mut self,
        answered_seq: u64,
        now: Timestamp,
    ) -> (u64, oneshot::Receiver<Displaced>) {
        self.next_seq = self.received_seq().max(answered_seq).saturating_add(1);
        self.refused.note_stream(answered_seq);
        self.staged.resume();
        let (sender, taken_over) = oneshot::channel();
        self.note_seen(now);
        self.generation += 1;
        self.stream = Some(sender);
        self.presence = Presence::Connected;
        (self.generation, taken_over)
    }

    /// The flush after which a stream continues.
    pub fn received_seq(&self) -> u64 {
        self.staged.last_seq().unwrap_or(self.acked_seq)
    }

    /// Keeps checked flushes of an import until its last one.
    pub fn stage(&mut self, flushes: Vec<StagedFlush>) {
        self.staged.flushes.extend(flushes);
        self.next_seq = self.received_seq().saturating_add(1);
    }

    /// Makes it the session of an identity. `slot` is `None` if it is already.
    pub fn adopt(
        &mut self,
        account: &Arc<Account>,
        slot: Option<SessionSlot>,
    ) -> Result<(), QuotaExceeded> {
        match slot {
            Some(slot) => self.slot = Some(slot),
            None if self.counts_for(account) => {}
            // It has ended meanwhile, or another identity took it over.
            None => self.slot = Some(account.open_session()?),
        }
        self.owner = Some(account.clone());
        Ok(())
    }

    /// Whether it is one of the sessions that this identity has.
    pub fn counts_for(&self, account: &Account) -> bool {
        self.slot.as_ref().is_some_and(|slot| slot.is_of(account))
    }

    /// The identity of its last stream.
    pub fn owner(&self) -> Option<&Arc<Account>> {
        self.owner.as_ref()
    }

    /// Its agent will not continue it. Whether its stream is open does not matter.
    pub fn end(&mut self, disconnect: Disconnect) {
        self.presence = Presence::Gone(disconnect);
        self.slot = None;
        self.staged = StagedImport::default();
    }

    /// Drops what only describes its agent or saves it work: the agent sends it again.
    fn forget_agent(&mut self) {
        self.agent = Arc::default();
        self.translation = Arc::default();
    }

    /// Drops the names of an agent that has ended: should it come back, it sends them again.
    pub fn forget_ended_agent(&mut self) {
        if matches!(self.presence, Presence::Gone(_)) && self.control.is_none() {
            self.translation = Arc::default();
        }
    }

    /// Ends its stream, if one is open.
    pub fn displace(&mut self) {
        // The stream may have ended meanwhile.
        let _ = self.stream.take().map(|stream| stream.send(Displaced));
        self.control = None;
        self.owner
            .iter()
            .for_each(|owner| owner.note_refusal(Quota::Sessions));
    }

    /// Records a sign of life.
    pub fn note_seen(&mut self, now: Timestamp) {
        // A clock at 1970 is not set, so its time means nothing.
        if self.last_seen == Timestamp::default() {
            self.first_seen = now;
        }
        self.last_seen = self.last_seen.max(now);
    }

    /// Whether the stream of that generation owns the session.
    pub fn is_owned_by(&self, generation: u64) -> bool {
        self.generation == generation && self.presence == Presence::Connected
    }

    /// Restores a stored session, except for the agent's description, which this returns: the registry
    /// limits its size.
    pub fn restore(&mut self, record: SessionRecord) -> AgentInfo {
        self.acked_seq = record.acked_seq;
        self.stored_ns = record.stored_ns;
        self.ticks = record.ticks;
        self.account = record.account;
        self.refused = RefusedWeight::of(record.account.map_or(0, |it| it.lost_rejected_ns));
        self.clock = record.clock;
        self.thread_time_left = ThreadTimeLeft::since(record.first_seen);
        self.first_seen = record.first_seen;
        self.last_seen = record.last_seen;
        self.presence = record
            .disconnect
            .map_or(Presence::Connected, Presence::Gone);
        Arc::unwrap_or_clone(record.agent)
    }

    /// State that the next flush must fit.
    pub fn flush_basis(&self) -> FlushBasis {
        FlushBasis {
            translation: self.translation.clone(),
            acked_seq: self.acked_seq,
            next_seq: self.next_seq,
            thread_time_left: self.thread_time_left,
            refusal: self.staged.refusal().map(str::to_owned),
        }
    }

    /// Records the flushes that are to be applied next, instead of earlier ones that could not be logged.
    pub fn note_checked(&mut self, checked: VecDeque<CheckedThreadTime>) {
        self.checked = checked;
    }

    /// Records that the next flush is refused. It does not count as acknowledged: an agent that does not
    /// learn of the refusal must send it again, to be refused again and to count what it lost.
    pub fn refuse_next_flush(&mut self, weight_ns: u64) {
        self.refused.add(self.next_seq, weight_ns);
        self.next_seq = self.next_seq.saturating_add(1);
    }

    /// The agent's last account, with the refusals of which that does not tell yet. `None` if there is
    /// neither.
    pub fn account(&self) -> Option<v1::LossAccount> {
        let refused_ns = self.refused.total_ns();
        if self.account.is_none() && refused_ns == 0 {
            return None;
        }
        let account = self.account.unwrap_or_default();
        let later_ns = self.refused.after(self.acked_seq);
        Some(v1::LossAccount {
            accepted_ns: account.accepted_ns.saturating_add(later_ns),
            lost_rejected_ns: account.lost_rejected_ns.max(refused_ns),
            ..account
        })
    }

    /// Counts a refusal and keeps its reason, for people.
    pub fn note_refusal(&mut self, reason: &str) {
        self.rejected += 1;
        self.last_rejection = Some(reason.to_owned());
    }

    /// Records when a window ends that came at `now`.
    pub fn note_window(&mut self, stop: Timestamp, now: Timestamp) {
        let ahead_ns = stop.since_ns(now);
        let is_ahead = ahead_ns > nanoseconds(DATA_AHEAD_MAX).unsigned_abs();
        self.data_ahead_ns = if is_ahead { ahead_ns } else { 0 };
    }

    /// Records a flush that is applied.
    pub fn note_applied(&mut self, flush: &FlushFacts) {
        self.acked_seq = flush.seq;
        self.next_seq = flush.seq.saturating_add(1);
        self.account = Some(flush.account);
        self.refused.note_account();
        self.clock = Some(flush.clock);
        self.stored_ns = self.stored_ns.saturating_add(flush.weight_ns);
        while self
            .checked
            .front()
            .is_some_and(|checked| checked.seq < flush.seq)
        {
            self.checked.pop_front();
        }
        // A flush that is read from the log was checked in an earlier life of the collector.
        self.thread_time_left = self
            .checked
            .pop_front()
            .map_or(ThreadTimeLeft::since(self.first_seen), |checked| {
                checked.thread_time_left
            });
        self.ticks += flush.ticks;
    }
}
