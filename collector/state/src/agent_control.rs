//! The desired settings of agents, and the channel on which a session sends requests to its agent.

use std::collections::{BTreeMap, VecDeque};
use std::mem::discriminant;
use std::sync::Arc;
use std::task::Poll;

use profiler_core::wire::v1::collector_message::Kind;
use profiler_core::wire::{AppliedSettings, ThreadDump, v1};
use profiler_core::{SettingsChange, Timestamp, WorkerId};
use tokio::sync::{Notify, oneshot};

use base::limits::AGENT_REQUESTS_MAX;
use base::sync::{Mutex, lock, rank};

/// The settings that were requested for workers. They are in memory only: a restarted collector
/// requests nothing, and agents keep their settings.
#[derive(Debug, Default)]
pub struct DesiredSettings {
    /// For workers without a change of their own, now and later.
    all: DesiredChange,
    workers: BTreeMap<WorkerId, DesiredChange>,
    last_revision: u64,
}

/// The settings that one worker should change. Revision 0 changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DesiredChange {
    pub revision: u64,
    pub change: SettingsChange,
}

impl DesiredChange {
    fn then(self, later: DesiredChange) -> DesiredChange {
        DesiredChange {
            revision: later.revision,
            change: self.change.then(later.change),
        }
    }

    /// Whether an agent that reported `applied` has this change.
    pub fn is_applied_by(&self, applied: Option<&AppliedSettings>) -> bool {
        self.revision == 0 || applied.is_some_and(|applied| applied.revision == self.revision)
    }
}

impl DesiredSettings {
    /// Adds a change for these workers; `None` for all workers, including later ones.
    pub fn add(&mut self, workers: Option<&[WorkerId]>, change: SettingsChange, now: Timestamp) {
        // Agents outlive a collector and report the revisions of the one before. The time exceeds those.
        let now = now.unix_ns().unsigned_abs();
        self.last_revision = (self.last_revision + 1).max(now);
        let change = DesiredChange {
            revision: self.last_revision,
            change,
        };
        match workers {
            None => {
                self.all = self.all.then(change);
                self.workers
                    .values_mut()
                    .for_each(|known| *known = known.then(change));
            }
            Some(workers) => {
                for worker in workers {
                    let known = self.of(worker);
                    self.workers.insert(worker.clone(), known.then(change));
                }
            }
        }
    }

    /// The change for that worker.
    pub fn of(&self, worker: &WorkerId) -> DesiredChange {
        self.workers.get(worker).copied().unwrap_or(self.all)
    }

    /// Drops the changes of workers that are not among `known`, which is sorted.
    pub fn retain_workers(&mut self, known: &[WorkerId]) {
        self.workers
            .retain(|worker, _| known.binary_search(worker).is_ok());
    }
}

/// A session's end of the channel to its agent.
#[derive(Debug)]
pub struct AgentControl {
    mailbox: Arc<Mailbox>,
    /// Id of the last request.
    last_id: u64,
    /// Requests without an answer yet.
    pending: Vec<(u64, oneshot::Sender<ThreadDumpResult>)>,
    /// The latest request for symbols, if it is not answered yet.
    pending_symbols: Option<(u64, oneshot::Sender<v1::SymbolPiece>)>,
}

/// The stream's end: messages for the agent, apart from answers to its own messages.
#[derive(Debug)]
pub struct ControlStream {
    mailbox: Arc<Mailbox>,
}

/// Messages that the stream has not taken. Nearly always empty, for ten thousand agents: a channel of tokio for each
/// kind of message has 3 kB.
#[derive(Debug, Default)]
struct Mailbox {
    waiting: Mutex<Waiting, rank::AgentMailbox>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The latest, which replaces earlier ones.
    settings: Option<v1::Settings>,
    sent_revision: u64,
    requests: VecDeque<Kind>,
    /// An end is gone.
    is_closed: bool,
}

impl Mailbox {
    /// Returns whether there was room: up to [`AGENT_REQUESTS_MAX`] requests of a kind wait.
    fn push(&self, request: Kind) -> bool {
        let mut waiting = lock(&self.waiting);
        let of_kind = waiting
            .requests
            .iter()
            .filter(|other| discriminant(*other) == discriminant(&request))
            .count();
        if waiting.is_closed || of_kind >= AGENT_REQUESTS_MAX {
            return false;
        }
        waiting.requests.push_back(request);
        drop(waiting);
        self.arrived.notify_one();
        true
    }

    /// The next message; `Ready(None)` after the last one.
    fn take(&self) -> Poll<Option<Kind>> {
        let mut waiting = lock(&self.waiting);
        let settings = waiting.settings.take().map(Kind::Settings);
        let next = settings.or_else(|| waiting.requests.pop_front());
        if next.is_none() && !waiting.is_closed {
            return Poll::Pending;
        }
        Poll::Ready(next)
    }

    fn close(&self) {
        lock(&self.waiting).is_closed = true;
        self.arrived.notify_one();
    }
}

/// An agent's answer to a request for a thread dump, by nodes of the collector's tree, or the reason
/// why there is none.
pub type ThreadDumpResult = Result<ThreadDump, String>;

/// Both ends of a new channel to an agent.
pub fn control_channel() -> (AgentControl, ControlStream) {
    let mailbox = Arc::<Mailbox>::default();
    let control = AgentControl {
        mailbox: mailbox.clone(),
        last_id: 0,
        pending: Vec::new(),
        pending_symbols: None,
    };
    (control, ControlStream { mailbox })
}

impl ControlStream {
    /// The next message for the agent; `None` when the session closed the channel. Cancel-safe.
    pub async fn next(&mut self) -> Option<Kind> {
        loop {
            if let Poll::Ready(next) = self.mailbox.take() {
                return next;
            }
            // `notify_one` stores a permit, so no message is missed.
            self.mailbox.arrived.notified().await;
        }
    }
}

impl Drop for ControlStream {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

impl Drop for AgentControl {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

impl AgentControl {
    /// Revision of the settings that were sent last.
    pub fn sent_revision(&self) -> u64 {
        lock(&self.mailbox.waiting).sent_revision
    }

    pub fn send_settings(&self, settings: v1::Settings) {
        let mut waiting = lock(&self.mailbox.waiting);
        waiting.sent_revision = settings.revision;
        waiting.settings = Some(settings);
        drop(waiting);
        self.mailbox.arrived.notify_one();
    }

    /// Requests a thread dump. The answer is an error if [`AGENT_REQUESTS_MAX`] requests are pending.
    pub fn request_thread_dump(&mut self) -> oneshot::Receiver<ThreadDumpResult> {
        let (sender, answer) = oneshot::channel();
        self.pending.retain(|(_, pending)| !pending.is_closed());
        self.last_id += 1;
        let id = self.last_id;
        let request = Kind::ThreadDumpRequest(v1::ThreadDumpRequest { id });
        if self.pending.len() < AGENT_REQUESTS_MAX && self.mailbox.push(request) {
            self.pending.push((id, sender));
        } else {
            let _ = sender.send(Err("too many requests at once; retry later".into()));
        }
        answer
    }

    /// Requests a piece of the symbols of a module. An earlier request for symbols is abandoned.
    pub fn request_symbols(
        &mut self,
        build_id: &str,
        offset: u64,
    ) -> oneshot::Receiver<v1::SymbolPiece> {
        let (sender, answer) = oneshot::channel();
        self.last_id += 1;
        let id = self.last_id;
        let request = Kind::SymbolRequest(v1::SymbolRequest {
            id,
            build_id: build_id.to_owned(),
            offset,
        });
        // Without room the sender is dropped, which the requester notices.
        self.pending_symbols = self.mailbox.push(request).then_some((id, sender));
        answer
    }

    /// The request for symbols of that id, which is no longer pending then.
    pub fn take_pending_symbols(&mut self, id: u64) -> Option<oneshot::Sender<v1::SymbolPiece>> {
        self.pending_symbols
            .take_if(|(pending, _)| *pending == id)
            .map(|(_, sender)| sender)
    }

    /// The pending request of that id, which is no longer pending then.
    pub fn take_pending(&mut self, id: u64) -> Option<oneshot::Sender<ThreadDumpResult>> {
        let index = self
            .pending
            .iter()
            .position(|(pending, _)| *pending == id)?;
        Some(self.pending.remove(index).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_once;

    /// Ten thousand agents have one each, in which nothing waits.
    #[test]
    fn an_idle_channel_takes_little_memory() {
        let mut ends = None;
        let measured = allocation_counter::measure(|| ends = Some(control_channel()));
        assert!(measured.bytes_current <= 256, "{measured:?}");
    }

    #[test]
    fn the_latest_settings_come_first_and_requests_before_the_end() {
        let (mut control, mut stream) = control_channel();
        let settings = |revision| v1::Settings {
            revision,
            ..v1::Settings::default()
        };
        let _dump = control.request_thread_dump();
        let _piece = control.request_symbols("b1", 7);
        control.send_settings(settings(1));
        control.send_settings(settings(2));
        assert_eq!(control.sent_revision(), 2);
        drop(control);
        let kinds: Vec<Kind> = std::iter::from_fn(|| at_once(stream.next())).collect();
        let symbols = v1::SymbolRequest {
            id: 2,
            build_id: "b1".to_owned(),
            offset: 7,
        };
        assert_eq!(
            kinds,
            [
                Kind::Settings(settings(2)),
                Kind::ThreadDumpRequest(v1::ThreadDumpRequest { id: 1 }),
                Kind::SymbolRequest(symbols),
            ]
        );
    }

    #[test]
    fn a_stream_that_is_gone_gets_no_requests() {
        let (mut control, stream) = control_channel();
        drop(stream);
        assert!(control.request_thread_dump().try_recv().unwrap().is_err());
        assert!(control.request_symbols("b1", 0).try_recv().is_err());
        assert_eq!(lock(&control.mailbox.waiting).requests.len(), 0);
    }

    fn interval(nanoseconds: u64) -> SettingsChange {
        SettingsChange {
            interval_ns: Some(nanoseconds),
            ..Default::default()
        }
    }

    const OFF: SettingsChange = SettingsChange {
        interval_ns: None,
        enabled: Some(false),
        states: None,
    };

    #[test]
    fn a_change_for_all_applies_to_later_workers_and_to_those_with_their_own() {
        let [a, b] = ["a", "b"].map(|id| WorkerId(id.into()));
        let mut desired = DesiredSettings::default();
        assert_eq!(desired.of(&a), DesiredChange::default());
        let now = Timestamp::from_unix_ns;
        desired.add(Some(std::slice::from_ref(&a)), interval(5), now(1));
        desired.add(None, OFF, now(1));
        let both = DesiredChange {
            revision: 2,
            change: interval(5).then(OFF),
        };
        assert_eq!(desired.of(&a), both);
        assert_eq!(
            desired.of(&b),
            DesiredChange {
                revision: 2,
                change: OFF
            }
        );
        desired.add(Some(std::slice::from_ref(&b)), interval(7), now(90));
        let later = DesiredChange {
            revision: 90,
            change: interval(7).then(OFF),
        };
        assert_eq!(desired.of(&b), later);
        assert_eq!(
            desired.of(&a),
            both,
            "a change for another worker does not apply"
        );
        desired.retain_workers(&[b]);
        assert_eq!(
            desired.of(&a),
            DesiredChange {
                revision: 2,
                change: OFF
            }
        );
    }

    #[test]
    fn requests_are_bounded_and_abandoned_ones_make_room() {
        let (mut control, mut stream) = control_channel();
        let mut answers: Vec<_> = (0..AGENT_REQUESTS_MAX)
            .map(|_| control.request_thread_dump())
            .collect();
        assert!(
            control.request_thread_dump().try_recv().unwrap().is_err(),
            "one too many"
        );
        answers.remove(3);
        assert!(at_once(stream.next()).is_some());
        let mut another = control.request_thread_dump();
        assert!(another.try_recv().is_err(), "it is pending");
        let id = control.pending.last().unwrap().0;
        let empty = ThreadDump {
            threads: Vec::new(),
            omitted: 0,
        };
        control
            .take_pending(id)
            .unwrap()
            .send(Ok(empty.clone()))
            .unwrap();
        assert_eq!(another.try_recv(), Ok(Ok(empty)));
        assert!(
            control.take_pending(id).is_none(),
            "a request is answered once"
        );
    }
}
