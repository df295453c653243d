//! Events: tasks, workers, runs, damage, blocked ingest.
//!
//! Events of tasks are only made while there are subscribers; otherwise they cost one atomic load.
//! The others are rarer, and the last of them are kept, those of runs apart.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use profiler_core::{Epoch, Timestamp, WorkerId};
use tokio::sync::broadcast::{self, Receiver, Sender};

use crate::ingest_status::IngestBlocked;
use crate::session::{Session, SessionCell, is_pushed};
use crate::telemetry::RunChange;
use base::limits::{
    EVENT_SUBSCRIBERS_MAX, EVENT_WORKERS_MAX, EVENTS_RECENT_MAX, EVENTS_RUNS_RECENT_MAX,
    EVENTS_WAITING_MAX,
};
use base::sync::{Mutex, lock, rank};
use shares::SlotPool;
use store::Manifest;
use store::rows::{Disconnect, RunRow, TaskRow};

/// Those of one identity, and those that are left to others.
const SUBSCRIBERS_MAX: usize = SlotPool::capacity(EVENT_SUBSCRIBERS_MAX);

/// The newest events among which one of the same kind and second is looked for.
const EVENTS_MERGED_MAX: usize = 8;

/// A kind of event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    TaskStarted,
    TaskEnded,
    WorkerConnected,
    WorkerAway,
    WorkerGone,
    /// It connected while another life of the same worker was connected.
    WorkerDuplicated,
    RunStarted,
    RunStopped,
    Damage,
    IngestStopped,
    IngestResumed,
}

impl EventKind {
    pub const ALL: [EventKind; 11] = [
        EventKind::TaskStarted,
        EventKind::TaskEnded,
        EventKind::WorkerConnected,
        EventKind::WorkerAway,
        EventKind::WorkerGone,
        EventKind::WorkerDuplicated,
        EventKind::RunStarted,
        EventKind::RunStopped,
        EventKind::Damage,
        EventKind::IngestStopped,
        EventKind::IngestResumed,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            EventKind::TaskStarted => "task_started",
            EventKind::TaskEnded => "task_ended",
            EventKind::WorkerConnected => "worker_connected",
            EventKind::WorkerAway => "worker_away",
            EventKind::WorkerGone => "worker_gone",
            EventKind::WorkerDuplicated => "worker_duplicated",
            EventKind::RunStarted => "run_started",
            EventKind::RunStopped => "run_stopped",
            EventKind::Damage => "corruption",
            EventKind::IngestStopped => "ingest_stopped",
            EventKind::IngestResumed => "ingest_resumed",
        }
    }
}

/// The subject of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    Task(Box<TaskRow>),
    Worker(Box<WorkerIdentity>),
    Run(Arc<RunRow>),
    Damage {
        name: String,
        reason: String,
    },
    /// The period that begins or has ended.
    IngestStatus(Box<IngestBlocked>),
}

/// A life of a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerIdentity {
    pub worker: WorkerId,
    pub epoch: Epoch,
    pub host: String,
    pub pid: u32,
    pub labels: BTreeMap<String, String>,
    pub last_seen: Timestamp,
    /// `None` while it is connected.
    pub disconnect: Option<Disconnect>,
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// From 1 in each life of the collector.
    pub id: u64,
    pub kind: EventKind,
    /// When the collector learned of it.
    pub at: Timestamp,
    pub subject: Subject,
    /// Further pushed series of which the same was learned in that second. Only of events that are kept:
    /// subscribers get one for each.
    pub others: Vec<WorkerIdentity>,
}

impl Event {
    /// All its workers.
    pub fn workers(&self) -> impl Iterator<Item = &WorkerIdentity> {
        let first = match &self.subject {
            Subject::Worker(first) => Some(&**first),
            _ => None,
        };
        first.into_iter().chain(&self.others)
    }

    /// Whether a series of an event like it belongs to it.
    fn takes(&self, kind: EventKind, at: Timestamp) -> bool {
        self.kind == kind
            && self.at.second() == at.second()
            && self.others.len() + 1 < EVENT_WORKERS_MAX
            && self
                .workers()
                .next()
                .is_some_and(|first| is_pushed(&first.worker))
    }
}

/// Sends events to subscribers. See the module's documentation.
#[derive(Debug)]
pub struct Events {
    /// During the replay of the log, whose events were reported before.
    is_paused: AtomicBool,
    subscribers: Arc<AtomicUsize>,
    state: Mutex<State, rank::Events>,
}

#[derive(Debug)]
struct State {
    last_id: u64,
    recent: VecDeque<Arc<Event>>,
    /// Those of workers and of runs, apart: there may be many, which must not displace others.
    recent_workers: VecDeque<Arc<Event>>,
    recent_runs: VecDeque<Arc<Event>>,
    /// `None` before the first subscriber, and after the server ended.
    sender: Option<Sender<Arc<Event>>>,
    is_closed: bool,
    /// Ids of damaged files that were reported.
    damaged: BTreeSet<u64>,
}

/// One subscriber. Its queue is bounded: missed events are counted.
#[derive(Debug)]
pub struct Subscription {
    pub receiver: Receiver<Arc<Event>>,
    subscribers: Arc<AtomicUsize>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.subscribers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Events {
    fn default() -> Events {
        let state = State {
            last_id: 0,
            recent: VecDeque::new(),
            recent_workers: VecDeque::new(),
            recent_runs: VecDeque::new(),
            sender: None,
            is_closed: false,
            damaged: BTreeSet::new(),
        };
        Events {
            is_paused: AtomicBool::new(false),
            subscribers: Arc::default(),
            state: Mutex::new(state),
        }
    }
}

impl Events {
    /// Suppresses or resumes events.
    pub fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Whether there are subscribers.
    pub fn has_subscribers(&self) -> bool {
        self.subscribers.load(Ordering::Relaxed) > 0 && !self.is_paused.load(Ordering::Relaxed)
    }

    /// Subscribes to later events; `None` past [`SUBSCRIBERS_MAX`] subscribers, or if the server ends.
    pub fn subscribe(&self) -> Option<Subscription> {
        let mut state = lock(&self.state);
        if state.is_closed || self.subscribers.load(Ordering::Relaxed) >= SUBSCRIBERS_MAX {
            return None;
        }
        let sender = state
            .sender
            .get_or_insert_with(|| Sender::new(EVENTS_WAITING_MAX));
        let receiver = sender.subscribe();
        self.subscribers.fetch_add(1, Ordering::Relaxed);
        Some(Subscription {
            receiver,
            subscribers: self.subscribers.clone(),
        })
    }

    /// Ends all subscriptions and accepts no more.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.sender = None;
    }

    /// The last events that are not about tasks, the newest first.
    pub fn recent(&self, limit: usize) -> Vec<Arc<Event>> {
        let state = lock(&self.state);
        let mut events: Vec<_> = state
            .recent
            .iter()
            .chain(&state.recent_workers)
            .chain(&state.recent_runs)
            .cloned()
            .collect();
        events.sort_unstable_by_key(|event| std::cmp::Reverse(event.id));
        events.truncate(limit);
        events
    }

    /// Reports the start or end of a task.
    pub fn task(&self, row: TaskRow, at: Timestamp) {
        let kind = match row.record.stop {
            None => EventKind::TaskStarted,
            Some(_) => EventKind::TaskEnded,
        };
        self.send(kind, Subject::Task(Box::new(row)), at);
    }

    pub fn worker(&self, kind: EventKind, cell: &SessionCell, session: &Session, at: Timestamp) {
        let agent = &session.agent;
        let facts = WorkerIdentity {
            worker: cell.worker.clone(),
            epoch: cell.epoch,
            host: agent.host.clone(),
            pid: agent.pid,
            labels: agent.labels.clone(),
            last_seen: session.last_seen,
            disconnect: session.presence.disconnect(),
        };
        self.send(kind, Subject::Worker(Box::new(facts)), at);
    }

    pub fn run(&self, change: RunChange, at: Timestamp) {
        let (kind, run) = match change {
            RunChange::Started(run) => (EventKind::RunStarted, run),
            RunChange::Stopped(run) => (EventKind::RunStopped, run),
        };
        self.send(kind, Subject::Run(run), at);
    }

    /// Marks the lost files of a version as reported.
    pub fn note_lost(&self, manifest: &Manifest) {
        lock(&self.state).damaged = manifest.lost.iter().map(|lost| lost.file.id).collect();
    }

    /// Reports the files that a version lists as lost and the previous version did not.
    pub fn damage(&self, manifest: &Manifest, at: Timestamp) {
        let known = std::mem::take(&mut lock(&self.state).damaged);
        for lost in manifest
            .lost
            .iter()
            .filter(|lost| !known.contains(&lost.file.id))
        {
            self.damaged(lost.file.path(), lost.reason.clone(), at);
        }
        self.note_lost(manifest);
    }

    /// Reports damaged data.
    pub fn damaged(&self, name: String, reason: String, at: Timestamp) {
        self.send(EventKind::Damage, Subject::Damage { name, reason }, at);
    }

    /// Reports that ingest stopped or resumed.
    pub fn ingest(&self, kind: EventKind, blocked: IngestBlocked, at: Timestamp) {
        self.send(kind, Subject::IngestStatus(Box::new(blocked)), at);
    }

    fn send(&self, kind: EventKind, subject: Subject, at: Timestamp) {
        let is_kept = !matches!(subject, Subject::Task(_));
        let has_subscribers = self.has_subscribers();
        if self.is_paused.load(Ordering::Relaxed) || (!is_kept && !has_subscribers) {
            return;
        }
        let mut state = lock(&self.state);
        state.last_id += 1;
        let event = Arc::new(Event {
            id: state.last_id,
            kind,
            at,
            subject,
            others: Vec::new(),
        });
        if is_kept {
            state.keep(&event);
        }
        if let Some(sender) = state.sender.as_ref().filter(|_| has_subscribers) {
            // Fails only if the last subscriber has just left.
            let _: Result<usize, broadcast::error::SendError<_>> = sender.send(event);
        }
    }
}

impl State {
    fn keep(&mut self, event: &Arc<Event>) {
        let (recent, most) = match &event.subject {
            Subject::Run(_) => (&mut self.recent_runs, EVENTS_RUNS_RECENT_MAX),
            Subject::Worker(_) => (&mut self.recent_workers, EVENTS_RECENT_MAX),
            Subject::Task(_) | Subject::Damage { .. } | Subject::IngestStatus(_) => {
                (&mut self.recent, EVENTS_RECENT_MAX)
            }
        };
        if let Subject::Worker(series) = &event.subject
            && is_pushed(&series.worker)
            && let Some(earlier) = recent
                .iter_mut()
                .rev()
                .take(EVENTS_MERGED_MAX)
                .find(|earlier: &&mut Arc<Event>| earlier.takes(event.kind, event.at))
        {
            Arc::make_mut(earlier).others.push((**series).clone());
            return;
        }
        if recent.len() >= most {
            recent.pop_front();
        }
        recent.push_back(event.clone());
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::{RunId, RunMarker};

    use super::*;
    use crate::testing::at;

    fn damage(events: &Events, count: usize) {
        for n in 0..count {
            events.damaged(n.to_string(), String::new(), Timestamp::default());
        }
    }

    #[test]
    fn a_subscriber_receives_later_events_and_the_number_missed() {
        let events = Events::default();
        damage(&events, 3);
        let mut subscription = events.subscribe().unwrap();
        assert!(subscription.receiver.try_recv().is_err());
        damage(&events, EVENTS_WAITING_MAX + 5);
        let missed = subscription.receiver.try_recv().unwrap_err();
        assert_eq!(missed, broadcast::error::TryRecvError::Lagged(5));
        assert_eq!(subscription.receiver.try_recv().unwrap().id, 9);
        events.close();
        assert!(events.subscribe().is_none());
    }

    #[test]
    fn runs_do_not_displace_other_events() {
        let events = Events::default();
        damage(&events, 1);
        let run = RunMarker {
            id: RunId(1),
            name: "nightly".into(),
            start: at(0),
            stop: None,
        };
        let run = Arc::new(RunRow::marked(None, Epoch(1), run));
        for _ in 0..EVENTS_RECENT_MAX {
            events.run(RunChange::Started(run.clone()), at(1));
            events.run(RunChange::Stopped(run.clone()), at(2));
        }
        let kept = events.recent(usize::MAX);
        assert_eq!(kept.len(), EVENTS_RUNS_RECENT_MAX + 1);
        assert_eq!(kept.last().unwrap().id, 1, "the damage is still there");
        let newest = 2 * EVENTS_RECENT_MAX as u64 + 1;
        assert!(
            kept.iter()
                .take(9)
                .map(|event| event.id)
                .eq((newest - 8..=newest).rev())
        );
        assert_eq!(events.recent(1)[0].id, newest);
    }

    #[test]
    fn series_of_one_second_are_one_event_and_displace_no_others() {
        let events = Events::default();
        damage(&events, 1);
        let mut subscription = events.subscribe().unwrap();
        let cell = |worker: String| SessionCell {
            worker: WorkerId(worker.into()),
            epoch: Epoch(1),
            state: Mutex::default(),
            commit_lock: Arc::default(),
        };
        let session = Session::default();
        let series = EVENT_WORKERS_MAX + 3;
        for number in 0..series {
            for kind in [EventKind::WorkerGone, EventKind::WorkerConnected] {
                let cell = cell(format!("pyroscope:s{number}"));
                events.worker(kind, &cell, &session, at(1));
            }
        }
        for number in 0..EVENTS_RECENT_MAX - 5 {
            let agent = cell(format!("w{number}"));
            events.worker(EventKind::WorkerGone, &agent, &session, at(1));
        }
        let pushed = cell("pyroscope:s".to_owned());
        events.worker(EventKind::WorkerGone, &pushed, &session, at(2));
        let kept = events.recent(usize::MAX);
        assert_eq!(kept.len(), EVENTS_RECENT_MAX + 1);
        assert_eq!(kept.last().unwrap().id, 1, "the damage is still there");
        let merged: Vec<usize> = kept
            .iter()
            .rev()
            .map(|event| event.workers().count())
            .collect();
        assert_eq!(merged[..5], [0, EVENT_WORKERS_MAX, EVENT_WORKERS_MAX, 3, 3]);
        assert!(merged[5..].iter().all(|workers| *workers == 1));
        let received = subscription.receiver.try_recv().unwrap();
        assert_eq!(received.others, []);
        assert_eq!(
            subscription.receiver.len(),
            2 * series + EVENTS_RECENT_MAX - 5
        );
    }

    #[test]
    fn recent_events_are_kept_and_subscribers_are_limited() {
        let events = Events::default();
        damage(&events, EVENTS_RECENT_MAX + 7);
        let ids = |limit| {
            events
                .recent(limit)
                .iter()
                .map(|event| event.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            ids(2),
            [EVENTS_RECENT_MAX as u64 + 7, EVENTS_RECENT_MAX as u64 + 6]
        );
        assert_eq!(ids(usize::MAX).len(), EVENTS_RECENT_MAX);
        events.pause(true);
        damage(&events, 1);
        assert_eq!(ids(1), [EVENTS_RECENT_MAX as u64 + 7]);
        let held: Vec<_> = (0..SUBSCRIBERS_MAX).map(|_| events.subscribe()).collect();
        assert!(held.iter().all(Option::is_some) && events.subscribe().is_none());
        drop(held);
        assert!(events.subscribe().is_some());
    }
}
