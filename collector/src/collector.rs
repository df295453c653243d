//! The collector itself: sessions, tree, hot window and ledger, and what each message does to them.
//!
//! Locks are taken in one order, ingest → log → registry → session → (tree | hot | ledger | records | wishes,
//! one at a time), and none is held across an await. A flush is applied under its own session's lock, so that
//! it is whole as far as its agent can see; the shared ones are taken only for the moment of each
//! change. From its check until it is applied a flush has its session's *commit_lock*, which is awaited: no
//! other flush and no other stream comes between, however long the log takes.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use profiler_core::wire::v1::{self, collector_message::Kind};
use profiler_core::{Outcome, TaskRecord, Timestamp, WorkerId};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::timeout;

use crate::agent_control::{ControlStream, DesiredSettings};
use crate::clock::Clock;
use crate::commit::{AcceptedFlushes, Log};
use crate::events::{EventKind, Events};
use crate::ingest_status::IngestStatus;
use crate::late_hours::{Hours, LateHours, late_hours};
use crate::ledger::Ledger;
use crate::limits::{
    GRACE, LATE_HOURS_MAX, Limits, MEMORY_TABLES_BYTES_MAX, RUNS_MAX, SEALING_WAIT_MAX,
    TRANSLATION_KEPT, UNSEALED_BYTES_FULL, UNSEALED_BYTES_SLOW, nanoseconds,
};
use crate::rows::{AgentInfo, CheckedFlush, RunRow, TaskRow};
use crate::session::{
    CommitLock, FlushChecker, HelloError, NoRoom, Presence, Registry, Session, SessionCell,
    check_hello,
};
use crate::shapes::Shapes;
use crate::store::wal::{Hello, NotLogged};
use crate::store::{Objects, Retention, StoreError, Tables};
use crate::sync::{lock, read, write};
use crate::telemetry::UnsealedTelemetry;
use crate::tree::Tree;
use crate::windows::UnsealedWindows;

/// Receives, merges, holds, answers. [`Collector::bind`] makes one and opens its port.
#[derive(Debug)]
pub struct Collector {
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    pub(crate) tables: Arc<Tables>,
    pub(crate) retention: Retention,
    /// Held throughout a sealing.
    pub(crate) sealing: Mutex<()>,
    /// Each time that a sealing has freed memory.
    pub(crate) freed: Notify,
    pub(crate) tree: RwLock<Tree>,
    pub(crate) shapes: Shapes,
    pub(crate) hot: RwLock<UnsealedWindows>,
    pub(crate) ledger: RwLock<Ledger>,
    pub(crate) records: RwLock<UnsealedTelemetry>,
    pub(crate) events: Events,
    pub(crate) registry: Mutex<Registry>,
    /// How many flushes were applied since the start.
    pub(crate) flushes: AtomicU64,
    /// Taken alone.
    pub(crate) late: Mutex<LateHours>,
    pub(crate) wishes: Mutex<DesiredSettings>,
    /// Each time an agent says what it works by.
    pub(crate) news: watch::Sender<()>,
    /// Where acknowledged flushes are kept; `None`: in memory only.
    pub(crate) log: Option<Log>,
    pub(crate) ingest: Mutex<IngestStatus>,
    grace_ns: i64,
}

/// What a collector is made from, beside its address.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    pub(crate) retention: Retention,
    pub(crate) grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let (clock, limits, retention) = Default::default();
        Settings { clock, limits, retention, grace: GRACE }
    }
}

/// Why a stream could not become a session's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum AttachError {
    #[error(transparent)]
    Hello(#[from] HelloError),
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error(transparent)]
    NotLogged(#[from] NotLogged),
}

/// The session is another stream's by now; this one has nothing more to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("another stream of the same worker and epoch took over")]
pub(crate) struct StaleStream;

/// Why a stream ends at a flush, which is neither stored nor refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum StreamError {
    #[error(transparent)]
    StaleStream(#[from] StaleStream),
    #[error(transparent)]
    NotLogged(#[from] NotLogged),
}

/// A flush, and when it came.
#[derive(Debug)]
pub(crate) struct ReceivedFlush {
    pub(crate) flush: v1::Flush,
    pub(crate) at: Timestamp,
}

/// What the check of the first flushes of a queue leads to.
enum Verdict {
    /// Of the first one, which changes nothing.
    Answer(Kind),
    /// As many of the first ones are to be stored as there are here, at least one; and the record of
    /// each to be logged before, if there is a log.
    Store(Vec<CheckedFlush>, Vec<Vec<u8>>),
}

/// A stream's hold on its session.
#[derive(Clone, Debug)]
pub(crate) struct Attachment {
    pub(crate) cell: Arc<SessionCell>,
    /// Which of the session's streams it is.
    pub(crate) generation: u64,
}

/// What a Hello leads to.
#[derive(Debug)]
pub(crate) struct OpenStream {
    pub(crate) attachment: Attachment,
    /// Resolves when another stream takes the session over.
    pub(crate) taken_over: oneshot::Receiver<()>,
    pub(crate) welcome: v1::Welcome,
    pub(crate) control: ControlStream,
}

/// How a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DisconnectReason {
    /// With Goodbye: what still runs was never ended by its worker.
    Goodbye,
    /// Without: the agent may come back.
    CutOff,
}

impl Collector {
    /// A collector that keeps nothing on disk.
    pub(crate) fn new(settings: Settings) -> Collector {
        let in_memory = Objects::memory();
        let mut collector =
            Collector::over(settings, in_memory).expect("an empty store in memory opens");
        let bytes_max = &mut collector.retention.bytes_max;
        *bytes_max = MEMORY_TABLES_BYTES_MAX.min(*bytes_max);
        collector
    }

    /// A collector with what is in tables, and no log.
    pub(crate) fn over(settings: Settings, objects: Objects) -> Result<Collector, StoreError> {
        let Settings { clock, limits, retention, grace } = settings;
        let (tables, loaded) = Tables::open(objects)?;
        let manifest = loaded.manifest.clone();
        let tree = Tree::new(limits.tree_nodes_max, limits.symbol_bytes_max);
        let collector = Collector {
            clock,
            tables: Arc::new(tables),
            retention,
            sealing: Mutex::default(),
            freed: Notify::new(),
            tree: RwLock::new(tree),
            shapes: Shapes::default(),
            hot: RwLock::new(UnsealedWindows::new(manifest.clone())),
            ledger: RwLock::new(Ledger::new(manifest.clone(), limits.ledger_rows_max)),
            records: RwLock::new(UnsealedTelemetry::new(manifest, RUNS_MAX)),
            events: Events::new(),
            registry: Mutex::new(Registry::new(limits.sessions_max, limits.label_bytes_max)),
            late: Mutex::default(),
            flushes: AtomicU64::new(0),
            wishes: Mutex::new(DesiredSettings::default()),
            news: watch::Sender::new(()),
            log: None,
            ingest: Mutex::default(),
            grace_ns: nanoseconds(grace),
            limits,
        };
        collector.restore(loaded);
        Ok(collector)
    }

    /// Gives the session of a Hello to the stream that it came on, and the answer to it. Waits until
    /// it is known what became of a flush of the stream before.
    pub(crate) async fn attach(
        &self,
        hello: v1::Hello,
        received_at: Timestamp,
    ) -> Result<OpenStream, AttachError> {
        let agent_sent_at_ns = hello.sent_at_ns;
        let (worker, epoch, agent) = check_hello(hello)?;
        self.check_room()?;
        loop {
            let cell = lock(&self.registry).open(&worker, epoch)?;
            let commit_lock = cell.commit_lock.clone().lock_owned().await;
            if let Some(log) = &self.log {
                log.log_hello(Hello::of(&worker, epoch, received_at, &agent)).await?;
            }
            let agent = agent.clone();
            if let Some(mut attached) = self.take(cell, &commit_lock, agent, received_at)? {
                attached.welcome.receipt = Some(self.receipt(agent_sent_at_ns, received_at));
                return Ok(attached);
            }
        }
    }

    /// Gives a session to a new stream; `None` if the session was forgotten meanwhile.
    fn take(
        &self,
        cell: Arc<SessionCell>,
        _turn: &CommitLock,
        agent: AgentInfo,
        received_at: Timestamp,
    ) -> Result<Option<OpenStream>, NoRoom> {
        let (worker, epoch) = (&cell.worker, cell.epoch);
        let mut registry = lock(&self.registry);
        if !Arc::ptr_eq(&registry.open(worker, epoch)?, &cell) {
            return Ok(None);
        }
        let others = registry.of_worker(worker);
        // Taken before the registry is let go, so that it cannot be forgotten in between.
        let mut session = lock(&cell.state);
        registry.set_agent(&mut session, agent);
        drop(registry);
        let (generation, taken_over) = session.take(received_at);
        let control = self.open_control(&cell, &mut session);
        write(&self.ledger).run_again(worker, epoch);
        write(&self.records).runs_go_on(worker, epoch);
        self.events.worker(EventKind::WorkerConnected, &cell, &session, received_at);
        let marks = session.translation.marks();
        let welcome = v1::Welcome {
            acked_seq: session.acked_seq,
            stored_ns: session.stored_ns,
            strings: marks.strings,
            frames: marks.frames,
            nodes: marks.nodes,
            receipt: None,
        };
        drop(session);
        // A worker that lives on under a new epoch does not come back under the old one.
        for other in others.iter().filter(|other| other.epoch != epoch) {
            let mut session = lock(&other.state);
            if let Presence::Away(since) = session.presence {
                self.end_life(other, &mut session, since);
            }
        }
        let attachment = Attachment { cell, generation };
        Ok(Some(OpenStream { attachment, taken_over, welcome, control }))
    }

    /// Takes in a dictionary; a wrong one is answered with a refusal, a right one not at all.
    pub(crate) fn dictionary(
        &self,
        attachment: &Attachment,
        dictionary: &v1::Dictionary,
        received_at: Timestamp,
    ) -> Result<Option<Kind>, StaleStream> {
        let mut session = self.held(attachment, received_at)?;
        let applied = write(&self.tree).apply(dictionary, &mut session.translation);
        let refusal = applied.err().map(|error| {
            // A dictionary says no time, so there is nothing to tell the agent's clock.
            refuse(&mut session, 0, error.to_string(), None)
        });
        Ok(refusal)
    }

    /// Whether anything is taken in at present.
    fn check_room(&self) -> Result<(), NotLogged> {
        if self.unsealed_bytes() > UNSEALED_BYTES_FULL {
            return Err(NotLogged::Behind { bytes: UNSEALED_BYTES_FULL });
        }
        self.log.as_ref().map_or(Ok(()), Log::check_room)
    }

    /// As [`Collector::check_room`], after a wait for a sealing that lags behind.
    async fn wait_for_room(&self) -> Result<(), NotLogged> {
        let freed = self.freed.notified();
        if self.unsealed_bytes() > UNSEALED_BYTES_SLOW {
            // Whether it came to its end or not: how much there is now is looked at again.
            let _ = timeout(SEALING_WAIT_MAX, freed).await;
        }
        self.check_room()
    }

    /// Takes the first of the waiting flushes in, once: one at or below the mark is acked again and
    /// changes nothing. Acked only when it is logged, if there is a log, and applied. Those behind it
    /// come along if they can be stored as well: they are safe together or not at all. Gives the
    /// answers to those that it took out of `waiting`, at least one.
    pub(crate) async fn flushes(
        &self,
        attachment: &Attachment,
        waiting: &mut VecDeque<ReceivedFlush>,
    ) -> Result<Vec<Kind>, StreamError> {
        let commit_lock = attachment.cell.commit_lock.clone().lock_owned().await;
        let waiting_now = &*waiting.make_contiguous();
        let (mut checked, mut records) = match self.check(attachment, waiting_now)? {
            Verdict::Answer(kind) => {
                waiting.pop_front();
                return Ok(vec![kind]);
            }
            Verdict::Store(checked, records) => (checked, records),
        };
        self.wait_for_room().await?;
        // Together they may be about more late hours than are ever taken in, where none is by itself.
        let (mut hours, mut count) = (Hours::new(), 0);
        for (checked, received) in checked.iter().zip(waiting.iter()) {
            let more = late_hours(checked, received.at);
            if count > 0 && hours.union(&more).count() > LATE_HOURS_MAX {
                break;
            }
            hours.extend(more);
            count += 1;
        }
        checked.truncate(count);
        records.truncate(count);
        if !lock(&self.late).admit(&hours) {
            return Err(NotLogged::Late.into());
        }
        let cell = attachment.cell.clone();
        let accepted = AcceptedFlushes { cell, checked, commit_lock };
        match &self.log {
            Some(log) => log.commit(accepted, records).await?,
            None => self.apply(accepted),
        }
        let ack = |ReceivedFlush { flush, at }: ReceivedFlush| {
            let receipt = Some(self.receipt(flush.sent_at_ns, at));
            Kind::Ack(v1::Ack { seq: flush.seq, receipt })
        };
        Ok(waiting.drain(..count).map(ack).collect())
    }

    /// Takes in one flush.
    #[cfg(test)]
    pub(crate) async fn flush(
        &self,
        attachment: &Attachment,
        flush: &v1::Flush,
        at: Timestamp,
    ) -> Result<Kind, StreamError> {
        let mut waiting = VecDeque::from([ReceivedFlush { flush: flush.clone(), at }]);
        let mut answers = self.flushes(attachment, &mut waiting).await?;
        assert_eq!((answers.len(), waiting.len()), (1, 0));
        Ok(answers.remove(0))
    }

    /// FlushChecker the first of the waiting flushes, and those behind it while they can be stored: any
    /// other one is looked at again when it is the first, for what it leads to depends on whether
    /// these become safe.
    fn check(
        &self,
        attachment: &Attachment,
        waiting: &[ReceivedFlush],
    ) -> Result<Verdict, StaleStream> {
        let last = waiting.last().expect("the caller has a flush");
        let mut session = self.held(attachment, last.at)?;
        let (mut all, mut records) = (Vec::new(), Vec::new());
        for ReceivedFlush { flush, at } in waiting {
            let mark = all.last().map_or(session.acked_seq, |checked: &CheckedFlush| checked.seq);
            let seq = flush.seq;
            let receipt = || Some(self.receipt(flush.sent_at_ns, *at));
            if seq != 0 && seq <= mark {
                if all.is_empty() {
                    return Ok(Verdict::Answer(Kind::Ack(v1::Ack { seq, receipt: receipt() })));
                }
                break;
            }
            let checks = FlushChecker {
                cell: &attachment.cell,
                translation: &session.translation,
                tree: &self.tree,
                now: *at,
                tasks_max: self.limits.flush_tasks_max,
            };
            let checked = checks.check(flush).and_then(|checked| {
                let record = self.log.as_ref().map(|_| checks.record(&checked)).transpose()?;
                Ok((checked, record.unwrap_or_default()))
            });
            match checked {
                Ok((checked, record)) => {
                    all.push(checked);
                    records.push(record);
                }
                Err(error) if all.is_empty() => {
                    // The mark advances over it: it would be as wrong the next time.
                    session.acked_seq = session.acked_seq.max(seq);
                    let answer = refuse(&mut session, seq, error.to_string(), receipt());
                    return Ok(Verdict::Answer(answer));
                }
                Err(_) => break,
            }
        }
        Ok(Verdict::Store(all, records))
    }

    /// Applies flushes that are safe, or need not be. Their commit_lock ends here.
    pub(crate) fn apply(&self, accepted: AcceptedFlushes) {
        let AcceptedFlushes { cell, checked, commit_lock } = accepted;
        let mut session = lock(&cell.state);
        let count = checked.len() as u64;
        for checked in checked {
            debug_assert!(
                session.acked_seq < checked.seq,
                "nothing else is applied in its commit_lock"
            );
            session.note_applied(&checked);
            self.store(&cell, checked);
        }
        // They were on their way when their stream ended: what they told of as running will not go on.
        if let Presence::Gone(since) = session.presence {
            self.end_life(&cell, &mut session, since);
        }
        drop(session);
        drop(commit_lock);
        self.flushes.fetch_add(count, Ordering::Relaxed);
    }

    /// Puts a checked flush where questions find it. The hot window's lock is held for one insertion,
    /// the ledger's for the rows of this flush.
    pub(crate) fn store(&self, cell: &SessionCell, checked: CheckedFlush) {
        if let Some(window) = checked.window {
            write(&self.hot).insert(window);
        }
        if !checked.telemetry.is_empty() {
            let (worker, epoch) = (&cell.worker, cell.epoch);
            let changes = write(&self.records).insert(worker, epoch, checked.telemetry);
            changes.into_iter().for_each(|change| self.events.run(change, self.clock.now()));
        }
        if !checked.tasks.is_empty() || !checked.totals.is_empty() {
            self.tell_tasks(cell, &checked.tasks);
            let mut ledger = write(&self.ledger);
            checked.totals.into_iter().for_each(|totals| ledger.count(totals));
            for record in checked.tasks {
                let worker = cell.worker.clone();
                ledger.upsert(TaskRow { worker, epoch: cell.epoch, record });
            }
        }
    }

    /// Tells of tasks that begin or end by records that are about to be taken in, if anybody listens.
    fn tell_tasks(&self, cell: &SessionCell, records: &[TaskRecord]) {
        if !self.events.is_heard() {
            return;
        }
        let (worker, epoch) = (&cell.worker, cell.epoch);
        let is_new = {
            let ledger = read(&self.ledger);
            let is_new = |task: &TaskRecord| !ledger.is_running(worker, epoch, task.id);
            records.iter().map(is_new).collect::<Vec<_>>()
        };
        for (record, is_new) in records.iter().zip(is_new) {
            // One that runs on was told of when it started.
            if is_new || record.stop.is_some() {
                let row = TaskRow { worker: worker.clone(), epoch, record: record.clone() };
                self.events.task(row, self.clock.now());
            }
        }
    }

    /// Puts in a run that is logged, or need not be.
    pub(crate) fn put_run(&self, run: RunRow) {
        let change = write(&self.records).put_run(run);
        change.into_iter().for_each(|change| self.events.run(change, self.clock.now()));
    }

    /// A stream ended. If it was the session's, the agent is away.
    pub(crate) fn detach(
        &self,
        attachment: &Attachment,
        departure: DisconnectReason,
        now: Timestamp,
    ) {
        let cell = &attachment.cell;
        let mut session = lock(&cell.state);
        if !session.is_held_by(attachment.generation) {
            return;
        }
        session.presence = Presence::Away(now);
        // Who waits for an answer need wait no longer.
        session.control = None;
        self.events.worker(EventKind::WorkerAway, cell, &session, now);
        if departure == DisconnectReason::Goodbye || self.grace_ns == 0 {
            self.end_life(cell, &mut session, now);
        }
    }

    /// Does what time asks for: ends the lives of agents that are away for longer than the grace,
    /// gives back memory.
    pub(crate) fn sweep(&self, now: Timestamp) {
        let sessions = lock(&self.registry).all();
        for cell in sessions {
            let mut session = lock(&cell.state);
            match session.presence {
                Presence::Away(since) if since.shifted(self.grace_ns) <= now => {
                    self.end_life(&cell, &mut session, since);
                }
                Presence::Gone(since) if since.shifted(nanoseconds(TRANSLATION_KEPT)) <= now => {
                    session.translation = Default::default();
                }
                _ => {}
            }
        }
    }

    /// The agent will not say how its tasks ended.
    fn end_life(&self, cell: &SessionCell, session: &mut Session, since: Timestamp) {
        let was_gone = matches!(session.presence, Presence::Gone(_));
        session.presence = Presence::Gone(since);
        if !was_gone {
            self.events.worker(EventKind::WorkerGone, cell, session, self.clock.now());
        }
        let last_seen = session.last_seen;
        if self.events.is_heard() {
            let running = read(&self.ledger).running_of(&cell.worker, cell.epoch);
            for row in running {
                let mut row = Arc::unwrap_or_clone(row);
                row.record.stop = Some(last_seen.max(row.record.start));
                row.record.outcome = Outcome::Lost;
                self.events.task(row, self.clock.now());
            }
        }
        let runs = write(&self.records).end_runs_as_lost(&cell.worker, cell.epoch, last_seen);
        runs.into_iter().for_each(|change| self.events.run(change, self.clock.now()));
        let lost = write(&self.ledger).end_as_lost(&cell.worker, cell.epoch, last_seen);
        if lost > 0 {
            tracing::info!(worker = &*cell.worker.0, epoch = %cell.epoch, lost, "tasks ended as lost");
        }
    }

    /// The session, if it is still this stream's.
    pub(crate) fn held<'a>(
        &self,
        attachment: &'a Attachment,
        received_at: Timestamp,
    ) -> Result<MutexGuard<'a, Session>, StaleStream> {
        let mut session = lock(&attachment.cell.state);
        if !session.is_held_by(attachment.generation) {
            return Err(StaleStream);
        }
        session.last_seen = session.last_seen.max(received_at);
        Ok(session)
    }

    fn receipt(&self, agent_sent_at_ns: i64, received_at: Timestamp) -> v1::Receipt {
        v1::Receipt {
            agent_sent_at_ns,
            received_at_ns: received_at.unix_ns(),
            sent_at_ns: self.clock.now().unix_ns(),
        }
    }

    /// Whether any agent has told of a task of that name, in its stacks or in the ledger. Past the
    /// limits on names that is not known for sure; then it counts as known.
    pub(crate) fn knows_task(&self, name: &str) -> bool {
        let is_in_tree = {
            let tree = read(&self.tree);
            tree.task_names().contains(name) || tree.may_be_unnamed(name)
        };
        is_in_tree || read(&self.ledger).knows_name(name)
    }

    /// Names of all tasks, from stacks and from the ledger.
    pub(crate) fn task_names(&self) -> BTreeSet<Arc<str>> {
        let mut names = read(&self.ledger).names();
        names.extend(read(&self.tree).task_names().iter().cloned());
        names
    }

    /// Ids of all workers: of those with a session, and of those with rows in tables.
    pub(crate) fn workers(&self) -> Vec<WorkerId> {
        let mut workers = lock(&self.registry).workers();
        workers.extend(self.tables.worker_ids());
        workers.sort_unstable();
        workers.dedup();
        workers
    }
}

/// Refuses a message, and says how much of the dictionary is held.
fn refuse(session: &mut Session, seq: u64, reason: String, receipt: Option<v1::Receipt>) -> Kind {
    session.note_refusal(&reason);
    let marks = session.translation.marks();
    Kind::Refusal(v1::Refusal {
        seq,
        reason,
        strings: marks.strings,
        frames: marks.frames,
        nodes: marks.nodes,
        receipt,
    })
}

#[cfg(test)]
mod tests;
