//! What is asked of running agents: the settings they shall work by, and what their threads are
//! doing. What an agent says to it comes over its stream like everything else.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::wire::{
    AppliedSettings, ThreadDump, decode_applied, decode_thread_dump, encode_settings, v1,
};
use profiler_core::{Epoch, Settings, SettingsChange, ThreadSnapshot, Timestamp, WorkerId};
use tokio::sync::{mpsc, oneshot, watch};

use crate::collector::{Attachment, Collector, TakenOver};
use crate::limits::AGENT_QUESTIONS_MAX;
use crate::session::{Presence, Session, SessionCell};
use crate::sync::lock;

/// The settings that workers shall have, by what was asked for. In memory: a collector that is
/// started again asks for nothing, and agents stay as they are.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    /// For workers without an own wish, now and later.
    all: Wish,
    workers: BTreeMap<WorkerId, Wish>,
    last_revision: u64,
}

/// What one worker shall change; revision 0 is nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Wish {
    pub(crate) revision: u64,
    pub(crate) change: SettingsChange,
}

impl Wish {
    fn then(self, later: Wish) -> Wish {
        Wish { revision: later.revision, change: self.change.then(later.change) }
    }
}

impl Wishes {
    /// Wishes for a change in these workers; `None` for all, those that come later too.
    pub(crate) fn add(
        &mut self,
        workers: Option<&[WorkerId]>,
        change: SettingsChange,
        now: Timestamp,
    ) {
        // Agents outlive a collector, and still say the revisions of the one before.
        let now = now.unix_ns().unsigned_abs();
        self.last_revision = (self.last_revision + 1).max(now);
        let wish = Wish { revision: self.last_revision, change };
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
    pub(crate) fn of(&self, worker: &WorkerId) -> Wish {
        self.workers.get(worker).copied().unwrap_or(self.all)
    }

    /// Forgets workers that are not among `known`.
    fn forget_but(&mut self, known: &[WorkerId]) {
        self.workers.retain(|worker, _| known.binary_search(worker).is_ok());
    }
}

/// A session's way to ask its agent.
#[derive(Debug)]
pub(crate) struct Asker {
    settings: watch::Sender<v1::Settings>,
    questions: mpsc::Sender<u64>,
    /// Of the last question.
    last_id: u64,
    /// Questions that wait for their answer.
    waiting: Vec<(u64, oneshot::Sender<AgentAnswer>)>,
}

/// What a stream has to say to its agent beside answers.
#[derive(Debug)]
pub(crate) struct Orders {
    settings: watch::Receiver<v1::Settings>,
    questions: mpsc::Receiver<u64>,
}

/// A way to ask, and its other end.
pub(crate) fn asker() -> (Asker, Orders) {
    let (settings, wanted) = watch::channel(v1::Settings::default());
    let (questions, asked) = mpsc::channel(AGENT_QUESTIONS_MAX);
    let asker = Asker { settings, questions, last_id: 0, waiting: Vec::new() };
    (asker, Orders { settings: wanted, questions: asked })
}

impl Orders {
    /// What to say next; `None` if nothing will come any more. Nothing is lost if it is not awaited
    /// to its end.
    pub(crate) async fn next(&mut self) -> Option<v1::collector_message::Kind> {
        use v1::collector_message::Kind;
        tokio::select! {
            changed = self.settings.changed() => {
                changed.ok()?;
                Some(Kind::Settings(*self.settings.borrow_and_update()))
            }
            id = self.questions.recv() => {
                Some(Kind::ThreadDumpRequest(v1::ThreadDumpRequest { id: id? }))
            }
        }
    }
}

/// What an agent said to a question: the stacks, by nodes of the collector's tree, or why not.
pub(crate) type AgentAnswer = Result<ThreadDump, String>;

/// A question to one agent.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) worker: WorkerId,
    pub(crate) epoch: Epoch,
    pub(crate) answer: oneshot::Receiver<AgentAnswer>,
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
    /// Gives a session's new stream its orders.
    pub(crate) fn give_orders(&self, cell: &SessionCell, session: &mut Session) -> Orders {
        let (asker, orders) = asker();
        session.asker = Some(asker);
        session.applied = None;
        self.tell_settings(cell, session);
        orders
    }

    fn tell_settings(&self, cell: &SessionCell, session: &Session) {
        let wish = lock(&self.wishes).of(&cell.worker);
        if let Some(asker) = &session.asker
            && wish.revision > asker.settings.borrow().revision
        {
            asker.settings.send_replace(encode_settings(wish.revision, wish.change));
        }
    }

    /// Wishes for a change in these workers (none: in all, and in those that come later), and tells
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
            self.tell_settings(&cell, &session);
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
                    applied: wish.is_met_by(said),
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
    pub(crate) fn settings_news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Takes in what an agent works by. What cannot be is noted and else passed over.
    pub(crate) fn applied(
        &self,
        attachment: &Attachment,
        message: v1::AppliedSettings,
        received_at: Timestamp,
    ) -> Result<(), TakenOver> {
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
    pub(crate) fn ask_stacks(&self, workers: &[String]) -> Vec<Asked> {
        let mut asked = Vec::new();
        for cell in self.chosen(workers) {
            let mut session = lock(&cell.state);
            if session.presence == Presence::Connected
                && let Some(asker) = &mut session.asker
            {
                let answer = asker.ask();
                asked.push(Asked { worker: cell.worker.clone(), epoch: cell.epoch, answer });
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
    ) -> Result<(), TakenOver> {
        let mut session = self.held(attachment, received_at)?;
        let Some(waiting) = session.asker.as_mut().and_then(|asker| asker.take(message.id)) else {
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

impl Wish {
    /// Whether an agent that said this works by it.
    pub(crate) fn is_met_by(&self, applied: Option<&AppliedSettings>) -> bool {
        self.revision == 0 || applied.is_some_and(|applied| applied.revision == self.revision)
    }
}

impl Asker {
    fn ask(&mut self) -> oneshot::Receiver<AgentAnswer> {
        let (sender, answer) = oneshot::channel();
        self.waiting.retain(|(_, waiting)| !waiting.is_closed());
        self.last_id += 1;
        let id = self.last_id;
        if self.waiting.len() < AGENT_QUESTIONS_MAX && self.questions.try_send(id).is_ok() {
            self.waiting.push((id, sender));
        } else {
            let _ = sender.send(Err("too many questions at once; ask again in a while".into()));
        }
        answer
    }

    fn take(&mut self, id: u64) -> Option<oneshot::Sender<AgentAnswer>> {
        let index = self.waiting.iter().position(|(waiting, _)| *waiting == id)?;
        Some(self.waiting.remove(index).1)
    }
}

/// The agent's answer by the collector's nodes.
fn translated(session: &Session, message: &v1::ThreadDump) -> AgentAnswer {
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
        let mut wishes = Wishes::default();
        assert_eq!(wishes.of(&a), Wish::default());
        let now = Timestamp::from_unix_ns;
        wishes.add(Some(std::slice::from_ref(&a)), interval(5), now(1));
        wishes.add(None, OFF, now(1));
        let both = Wish { revision: 2, change: interval(5).then(OFF) };
        assert_eq!(wishes.of(&a), both);
        assert_eq!(wishes.of(&b), Wish { revision: 2, change: OFF });
        wishes.add(Some(std::slice::from_ref(&b)), interval(7), now(90));
        assert_eq!(wishes.of(&b), Wish { revision: 90, change: interval(7).then(OFF) });
        assert_eq!(wishes.of(&a), both, "another worker's wish is none of its own");
        wishes.forget_but(&[b]);
        assert_eq!(wishes.of(&a), Wish { revision: 2, change: OFF });
    }

    #[test]
    fn questions_are_bounded_and_those_given_up_make_room() {
        let (mut asker, mut orders) = asker();
        let mut answers: Vec<_> = (0..AGENT_QUESTIONS_MAX).map(|_| asker.ask()).collect();
        assert!(asker.ask().try_recv().unwrap().is_err(), "one too many");
        answers.remove(3);
        orders.questions.try_recv().unwrap();
        let mut another = asker.ask();
        assert!(another.try_recv().is_err(), "it waits");
        let id = asker.waiting.last().unwrap().0;
        let empty = ThreadDump { threads: Vec::new(), omitted: 0 };
        asker.take(id).unwrap().send(Ok(empty.clone())).unwrap();
        assert_eq!(another.try_recv(), Ok(Ok(empty)));
        assert!(asker.take(id).is_none(), "an answer is given once");
    }
}
