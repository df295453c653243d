//! What is asked of running agents: the settings they shall work by, and what their threads are
//! doing. What an agent says to it comes over its stream like everything else.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::wire::{
    AppliedSettings, ThreadDump, decode_applied, decode_thread_dump, encode_settings, v1,
};
use profiler_core::{Epoch, Settings, SettingsChange, ThreadSnapshot, Timestamp, WorkerId};
use tokio::sync::{mpsc, oneshot, watch};

use crate::collector::{Attachment, Collector, StaleStream};
use crate::limits::AGENT_REQUESTS_MAX;
use crate::session::{Presence, Session, SessionCell};
use crate::sync::lock;

/// The settings that workers shall have, by what was asked for. In memory: a collector that is
/// started again asks for nothing, and agents stay as they are.
#[derive(Debug, Default)]
pub(crate) struct DesiredSettings {
    /// For workers without an own wish, now and later.
    all: DesiredChange,
    workers: BTreeMap<WorkerId, DesiredChange>,
    last_revision: u64,
}

/// What one worker shall change; revision 0 is nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct DesiredChange {
    pub(crate) revision: u64,
    pub(crate) change: SettingsChange,
}

impl DesiredChange {
    fn then(self, later: DesiredChange) -> DesiredChange {
        DesiredChange { revision: later.revision, change: self.change.then(later.change) }
    }
}

impl DesiredSettings {
    /// DesiredSettings for a change in these workers; `None` for all, those that come later too.
    pub(crate) fn add(
        &mut self,
        workers: Option<&[WorkerId]>,
        change: SettingsChange,
        now: Timestamp,
    ) {
        // Agents outlive a collector, and still say the revisions of the one before.
        let now = now.unix_ns().unsigned_abs();
        self.last_revision = (self.last_revision + 1).max(now);
        let wish = DesiredChange { revision: self.last_revision, change };
        match workers {
            None => {
                self.all = self.all.then(wish);
                self.workers.values_mut().for_each(|known| *known = known.then(wish));
            }
            Some(workers) => {
                for worker in workers {
                    let known = self.of(worker);
                    self.workers.insert(worker.clone(), known.then(wish));
                }
            }
        }
    }

    /// What that worker shall change.
    pub(crate) fn of(&self, worker: &WorkerId) -> DesiredChange {
        self.workers.get(worker).copied().unwrap_or(self.all)
    }

    /// Forgets workers that are not among `known`.
    fn forget_but(&mut self, known: &[WorkerId]) {
        self.workers.retain(|worker, _| known.binary_search(worker).is_ok());
    }
}

/// A session's end of the channel to its agent.
#[derive(Debug)]
pub(crate) struct AgentControl {
    settings: watch::Sender<v1::Settings>,
    dump_requests: mpsc::Sender<u64>,
    /// Id of the last request.
    last_id: u64,
    /// Requests without a response yet.
    pending: Vec<(u64, oneshot::Sender<ThreadDumpResult>)>,
}

/// The stream's end: what to send to the agent, apart from responses to its messages.
#[derive(Debug)]
pub(crate) struct ControlStream {
    settings: watch::Receiver<v1::Settings>,
    dump_requests: mpsc::Receiver<u64>,
}

/// Both ends of a new channel to an agent.
pub(crate) fn control_channel() -> (AgentControl, ControlStream) {
    let (settings_sender, settings) = watch::channel(v1::Settings::default());
    let (dump_sender, dump_requests) = mpsc::channel(AGENT_REQUESTS_MAX);
    let control = AgentControl {
        settings: settings_sender,
        dump_requests: dump_sender,
        last_id: 0,
        pending: Vec::new(),
    };
    (control, ControlStream { settings, dump_requests })
}

impl ControlStream {
    /// The next message for the agent; `None` when the session closed the channel. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<v1::collector_message::Kind> {
        use v1::collector_message::Kind;
        tokio::select! {
            changed = self.settings.changed() => {
                changed.ok()?;
                Some(Kind::Settings(*self.settings.borrow_and_update()))
            }
            id = self.dump_requests.recv() => {
                Some(Kind::ThreadDumpRequest(v1::ThreadDumpRequest { id: id? }))
            }
        }
    }
}

/// An agent's response to a request for a thread dump, by nodes of the collector's tree, or the reason
/// why there is none.
pub(crate) type ThreadDumpResult = Result<ThreadDump, String>;

/// A question to one agent.
#[derive(Debug)]
pub(crate) struct PendingThreadDump {
    pub(crate) worker: WorkerId,
    pub(crate) epoch: Epoch,
    pub(crate) answer: oneshot::Receiver<ThreadDumpResult>,
}

/// One connected agent, or a worker without one, and the settings it shall have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SettingsView {
    pub(crate) worker: WorkerId,
    /// `None`: no agent of the worker is connected.
    pub(crate) epoch: Option<Epoch>,
    pub(crate) settings: Option<Settings>,
    /// Whether it works by what was asked for.
    pub(crate) applied: bool,
}

impl Collector {
    /// Gives a session's new stream its control.
    pub(crate) fn open_control(&self, cell: &SessionCell, session: &mut Session) -> ControlStream {
        let (control, stream) = control_channel();
        session.control = Some(control);
        session.applied = None;
        self.send_settings(cell, session);
        stream
    }

    fn send_settings(&self, cell: &SessionCell, session: &Session) {
        let wish = lock(&self.wishes).of(&cell.worker);
        if let Some(control) = &session.control
            && wish.revision > control.settings.borrow().revision
        {
            control.settings.send_replace(encode_settings(wish.revision, wish.change));
        }
    }

    /// DesiredSettings for a change in these workers (none: in all, and in those that come later), and tells
    /// those that are there.
    pub(crate) fn change_settings(&self, workers: &[String], change: SettingsChange) {
        let chosen: Vec<WorkerId> = workers.iter().map(|id| WorkerId(id.as_str().into())).collect();
        let known = self.workers();
        let mut wishes = lock(&self.wishes);
        wishes.forget_but(&known);
        wishes.add((!chosen.is_empty()).then_some(&chosen), change, self.clock.now());
        drop(wishes);
        for cell in self.chosen(workers) {
            let session = lock(&cell.state);
            self.send_settings(&cell, &session);
        }
    }

    /// How far the connected agents of these workers (none: of all) are with their settings. A worker
    /// that was named is in the list though none is connected.
    pub(crate) fn settings(&self, workers: &[String]) -> Vec<SettingsView> {
        let mut views = Vec::new();
        for cell in self.chosen(workers) {
            let session = lock(&cell.state);
            if session.presence == Presence::Connected {
                let wish = lock(&self.wishes).of(&cell.worker);
                let said = session.applied.as_ref();
                views.push(SettingsView {
                    worker: cell.worker.clone(),
                    epoch: Some(cell.epoch),
                    settings: said.map(|applied| applied.settings),
                    applied: wish.is_applied_by(said),
                });
            }
        }
        for id in workers {
            if !views.iter().any(|view| *view.worker.0 == **id) {
                let worker = WorkerId(id.as_str().into());
                views.push(SettingsView { worker, epoch: None, settings: None, applied: false });
            }
        }
        views
    }

    /// Resolves after the next message that says what an agent works by.
    pub(crate) fn settings_changes(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Takes in what an agent works by. What cannot be is noted and else passed over.
    pub(crate) fn applied(
        &self,
        attachment: &Attachment,
        message: v1::AppliedSettings,
        received_at: Timestamp,
    ) -> Result<(), StaleStream> {
        let mut session = self.held(attachment, received_at)?;
        match decode_applied(message) {
            Ok(applied) => session.applied = Some(applied),
            Err(error) => session.note_refusal(&error.to_string()),
        }
        drop(session);
        self.news.send_replace(());
        Ok(())
    }

    /// Asks the connected agents of these workers (none: of all) what their threads are doing.
    pub(crate) fn request_thread_dumps(&self, workers: &[String]) -> Vec<PendingThreadDump> {
        let mut asked = Vec::new();
        for cell in self.chosen(workers) {
            let mut session = lock(&cell.state);
            if session.presence == Presence::Connected
                && let Some(control) = &mut session.control
            {
                let answer = control.request_thread_dump();
                asked.push(PendingThreadDump {
                    worker: cell.worker.clone(),
                    epoch: cell.epoch,
                    answer,
                });
            }
        }
        asked
    }

    /// Takes in an answer. One that nobody waits for any more is passed over.
    pub(crate) fn stacks(
        &self,
        attachment: &Attachment,
        message: &v1::ThreadDump,
        received_at: Timestamp,
    ) -> Result<(), StaleStream> {
        let mut session = self.held(attachment, received_at)?;
        let Some(waiting) =
            session.control.as_mut().and_then(|control| control.take_pending(message.id))
        else {
            return Ok(());
        };
        let answer = match message.unavailable.is_empty() {
            true => translated(&session, message),
            false => Err(profiler_core::limits::bounded_name(&message.unavailable).into_owned()),
        };
        // Who asked may have gone away.
        let _ = waiting.send(answer);
        Ok(())
    }

    fn chosen(&self, workers: &[String]) -> Vec<Arc<SessionCell>> {
        let mut cells = lock(&self.registry).all();
        cells.retain(|cell| workers.is_empty() || workers.iter().any(|w| **w == *cell.worker.0));
        cells
    }
}

impl DesiredChange {
    /// Whether an agent that said this works by it.
    pub(crate) fn is_applied_by(&self, applied: Option<&AppliedSettings>) -> bool {
        self.revision == 0 || applied.is_some_and(|applied| applied.revision == self.revision)
    }
}

impl AgentControl {
    fn request_thread_dump(&mut self) -> oneshot::Receiver<ThreadDumpResult> {
        let (sender, answer) = oneshot::channel();
        self.pending.retain(|(_, pending)| !pending.is_closed());
        self.last_id += 1;
        let id = self.last_id;
        if self.pending.len() < AGENT_REQUESTS_MAX && self.dump_requests.try_send(id).is_ok() {
            self.pending.push((id, sender));
        } else {
            let _ = sender.send(Err("too many requests at once; retry later".into()));
        }
        answer
    }

    fn take_pending(&mut self, id: u64) -> Option<oneshot::Sender<ThreadDumpResult>> {
        let index = self.pending.iter().position(|(pending, _)| *pending == id)?;
        Some(self.pending.remove(index).1)
    }
}

/// The agent's answer by the collector's nodes.
fn translated(session: &Session, message: &v1::ThreadDump) -> ThreadDumpResult {
    let translation = &session.translation;
    let stacks = decode_thread_dump(message, translation.marks().nodes);
    let stacks = stacks.map_err(|error| format!("its answer cannot be used: {error}"))?;
    let thread = |thread: ThreadSnapshot| {
        let node = translation.node(thread.node);
        ThreadSnapshot {
            node: node.expect("decode_thread_dump lets only known nodes pass"),
            ..thread
        }
    };
    Ok(ThreadDump { threads: stacks.threads.into_iter().map(thread).collect(), ..stacks })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(nanoseconds: u64) -> SettingsChange {
        SettingsChange { interval_ns: Some(nanoseconds), ..Default::default() }
    }

    const OFF: SettingsChange =
        SettingsChange { interval_ns: None, enabled: Some(false), states: None };

    #[test]
    fn a_wish_for_all_reaches_workers_with_their_own_and_those_that_come_later() {
        let [a, b] = ["a", "b"].map(|id| WorkerId(id.into()));
        let mut wishes = DesiredSettings::default();
        assert_eq!(wishes.of(&a), DesiredChange::default());
        let now = Timestamp::from_unix_ns;
        wishes.add(Some(std::slice::from_ref(&a)), interval(5), now(1));
        wishes.add(None, OFF, now(1));
        let both = DesiredChange { revision: 2, change: interval(5).then(OFF) };
        assert_eq!(wishes.of(&a), both);
        assert_eq!(wishes.of(&b), DesiredChange { revision: 2, change: OFF });
        wishes.add(Some(std::slice::from_ref(&b)), interval(7), now(90));
        assert_eq!(wishes.of(&b), DesiredChange { revision: 90, change: interval(7).then(OFF) });
        assert_eq!(wishes.of(&a), both, "another worker's wish is none of its own");
        wishes.forget_but(&[b]);
        assert_eq!(wishes.of(&a), DesiredChange { revision: 2, change: OFF });
    }

    #[test]
    fn questions_are_bounded_and_those_given_up_make_room() {
        let (mut control, mut stream) = control_channel();
        let mut answers: Vec<_> =
            (0..AGENT_REQUESTS_MAX).map(|_| control.request_thread_dump()).collect();
        assert!(control.request_thread_dump().try_recv().unwrap().is_err(), "one too many");
        answers.remove(3);
        stream.dump_requests.try_recv().unwrap();
        let mut another = control.request_thread_dump();
        assert!(another.try_recv().is_err(), "it waits");
        let id = control.pending.last().unwrap().0;
        let empty = ThreadDump { threads: Vec::new(), omitted: 0 };
        control.take_pending(id).unwrap().send(Ok(empty.clone())).unwrap();
        assert_eq!(another.try_recv(), Ok(Ok(empty)));
        assert!(control.take_pending(id).is_none(), "an answer is given once");
    }
}
