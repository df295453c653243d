//! One life of one agent: what it said of itself, what of its data was taken in, and whether its
//! stream is there.
//!
//! What a message claims is checked whole ([`FlushChecker::check`]) before anything of it is applied.
//! Between the two a log makes a flush durable, in the session's [`CommitLock`].

mod flush;
mod hello;
mod registry;

use std::sync::{Arc, Mutex};

use profiler_core::wire::{AppliedSettings, Translation, v1};
use profiler_core::{Epoch, Ticks, Timestamp, WorkerId};
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::agent_control::AgentControl;
use crate::rows::{AgentInfo, CheckedFlush, SessionRecord};
use crate::sync::lock;

pub(crate) use flush::FlushChecker;
pub(crate) use hello::{HelloError, check_hello};
pub(crate) use registry::{NoRoom, Registry};

/// A session with what never changes of it.
#[derive(Debug)]
pub(crate) struct SessionCell {
    pub(crate) worker: WorkerId,
    pub(crate) epoch: Epoch,
    pub(crate) state: Mutex<Session>,
    /// Held by whoever changes the mark, until it is known whether it has changed: it is awaited,
    /// where `state` is only locked. First come, first served.
    pub(crate) commit_lock: Arc<tokio::sync::Mutex<()>>,
}

impl SessionCell {
    /// The part of the session that a sealing stores.
    pub(crate) fn record(&self) -> SessionRecord {
        let session = lock(&self.state);
        SessionRecord {
            worker: self.worker.clone(),
            epoch: self.epoch,
            agent: session.agent.clone(),
            acked_seq: session.acked_seq,
            stored_ns: session.stored_ns,
            ticks: session.ticks,
            account: session.account,
            clock: session.clock,
            first_seen: session.first_seen,
            last_seen: session.last_seen,
        }
    }
}

/// See [`SessionCell::commit_lock`].
pub(crate) type CommitLock = OwnedMutexGuard<()>;

/// What is known of one (worker, epoch).
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) agent: AgentInfo,
    pub(crate) translation: Translation,
    /// Highest sequence number that was applied or refused.
    pub(crate) acked_seq: u64,
    /// Weight that was applied.
    pub(crate) stored_ns: u64,
    pub(crate) account: Option<v1::LossAccount>,
    pub(crate) clock: Option<v1::Clock>,
    pub(crate) ticks: Ticks,
    /// Flushes and dictionaries that were refused, and why the last one was.
    pub(crate) refused: u64,
    pub(crate) last_refusal: Option<String>,
    pub(crate) first_seen: Timestamp,
    pub(crate) last_seen: Timestamp,
    pub(crate) presence: Presence,
    /// What the agent said last that it works by.
    pub(crate) applied: Option<AppliedSettings>,
    /// While its stream is open.
    pub(crate) control: Option<AgentControl>,
    /// Counts the streams of this session, so that an older one knows that it is.
    generation: u64,
    /// Dropped to end the stream that holds the other end.
    stream: Option<oneshot::Sender<()>>,
}

/// Whether an agent is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Presence {
    /// Its stream is open.
    #[default]
    Connected,
    /// Its stream ended without Goodbye, at this time; it may come back and find its tasks running.
    Away(Timestamp),
    /// It said Goodbye, or was away for too long, or the worker lives on under another epoch: what
    /// still ran has ended as lost.
    Gone(Timestamp),
}

impl Session {
    /// A stream takes the session; the one before it is told to end. Gives the new one's number, and
    /// what resolves when it is taken over itself.
    pub(crate) fn take_over(&mut self, now: Timestamp) -> (u64, oneshot::Receiver<()>) {
        let (sender, taken_over) = oneshot::channel();
        self.note_seen(now);
        self.generation += 1;
        self.stream = Some(sender);
        self.presence = Presence::Connected;
        (self.generation, taken_over)
    }

    /// The agent gave a sign of life.
    pub(crate) fn note_seen(&mut self, now: Timestamp) {
        // A clock that stands at 1970 tells nothing anyway.
        if self.last_seen == Timestamp::default() {
            self.first_seen = now;
        }
        self.last_seen = self.last_seen.max(now);
    }

    /// Whether the stream of that generation still holds the session.
    pub(crate) fn is_owned_by(&self, generation: u64) -> bool {
        self.generation == generation && self.presence == Presence::Connected
    }

    /// Restores a stored session, except for the agent's description, which this returns: the registry
    /// limits its size.
    pub(crate) fn restore(&mut self, record: SessionRecord) -> AgentInfo {
        self.acked_seq = record.acked_seq;
        self.stored_ns = record.stored_ns;
        self.ticks = record.ticks;
        self.account = record.account;
        self.clock = record.clock;
        self.first_seen = record.first_seen;
        self.last_seen = record.last_seen;
        record.agent
    }

    /// Records a refusal, for people to read.
    pub(crate) fn note_refusal(&mut self, reason: &str) {
        self.refused += 1;
        self.last_refusal = Some(reason.to_owned());
    }

    /// Records a flush that is being stored.
    pub(crate) fn note_applied(&mut self, checked: &CheckedFlush) {
        self.acked_seq = checked.seq;
        self.account = Some(checked.account);
        self.clock = Some(checked.clock);
        if let Some(stored) = &checked.window {
            let weight_ns = stored.samples.total_ns();
            self.stored_ns = self.stored_ns.saturating_add(weight_ns);
            self.ticks += stored.ticks;
        }
    }
}
