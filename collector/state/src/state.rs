//! Everything that queries are answered from.
//!
//! A query takes `&CollectorState`. There is no path from here to the log: only [`Ingest`](crate::ingest) has
//! both.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use profiler_core::{Epoch, TaskRecord, WorkerId};

use crate::agent_control::DesiredSettings;
use crate::events::{EventKind, Events};
use crate::forward::Forwards;
use crate::ledger::{Ledger, end_lost};
use crate::session::{Presence, Registry, Session, SessionCell};
use crate::shapes::{NamedTree, ShapeCache};
use crate::task_counters::TaskCounters;
use crate::telemetry::UnsealedTelemetry;
use crate::tree::{Excerpt, Tree, TreeLock, recall};
use crate::windows::UnsealedWindows;
use base::clock::Clock;
use base::id_set::IdSet;
use base::limits::{Limits, RUNS_MAX};
use base::log_limit::{Admitted, LineLimit};
use base::sync::{Mutex, RwLock, lock, rank, read, write};
use naming::Naming;
use shares::Account;
use store::rows::{CheckedFlush, Disconnect, DisconnectReason, Names, RunRow, TaskRow};
use store::{Manifest, Objects, StoreError, StoredState, SumCluster, Tables};

/// Rows of a flush that the ledger takes at once. Readers and other flushes wait for one slice at most.
const LEDGER_SLICE_ROWS: usize = 1_024;

/// Time between two slices, in which those who wait get the ledger: without it, the thread that has just
/// unlocked it would nearly always be the first to lock it again.
const LEDGER_SLICE_GAP: Duration = Duration::from_micros(50);

/// Any agent can cause these lines.
static LOST: LineLimit = LineLimit::new();
static ENDED: LineLimit = LineLimit::new();
static INVALID_BUILD_IDS: LineLimit = LineLimit::new();

/// The collector's data: tables, what is in no table yet, and the sessions of the agents.
#[derive(Debug)]
pub struct CollectorState {
    pub clock: Clock,
    pub limits: Limits,
    pub tables: Arc<Tables>,
    pub registry: Mutex<Registry, rank::Registry>,
    pub desired: Mutex<DesiredSettings, rank::DesiredSettings>,
    pub tree: TreeLock,
    pub shapes: ShapeCache,
    pub naming: Naming,
    pub windows: RwLock<UnsealedWindows, rank::Windows>,
    pub ledger: RwLock<Ledger, rank::Ledger>,
    pub telemetry: RwLock<UnsealedTelemetry, rank::Telemetry>,
    pub events: Events,
    /// Flushes applied since the start.
    pub flushes: AtomicU64,
    /// Frames since the start that lost an invalid build id.
    pub invalid_build_ids: AtomicU64,
    /// Phases of tasks since the start that were cut to a plausible length.
    pub cut_phases: AtomicU64,
    /// Whether an agent has moved or ended since the last sealing: the tables show it as it was before.
    pub lives_changed: AtomicBool,
    pub task_counters: TaskCounters,
    /// Data to be forwarded to other servers.
    pub forwards: Forwards,
    /// Sums large tables, if there is one.
    pub cluster: OnceLock<Arc<dyn SumCluster>>,
}

impl CollectorState {
    /// Opens the tables in `objects` and restores what they hold of the tree, the sessions, the running
    /// tasks and the runs.
    pub fn open(
        clock: Clock,
        limits: Limits,
        objects: Objects,
        naming: Naming,
    ) -> Result<CollectorState, StoreError> {
        let (tables, loaded) = Tables::open_by(clock.clone(), objects)?;
        tracing::info!(
            files = loaded.manifest.files.len(),
            nodes = loaded.nodes.len(),
            workers = loaded.workers.len(),
            sessions = loaded.sessions.len(),
            "tables loaded"
        );
        let state = CollectorState::over(clock, limits, tables, naming);
        state.restore(loaded);
        Ok(state)
    }

    /// Like [`CollectorState::open`], without changing the store, which another process may be using.
    pub fn open_read_only(
        clock: Clock,
        limits: Limits,
        objects: Objects,
    ) -> Result<CollectorState, StoreError> {
        let (tables, loaded) = Tables::open_read_only(objects)?;
        let state = CollectorState::over(clock, limits, tables, Naming::default());
        state.restore(loaded);
        Ok(state)
    }

    /// The state over these tables, without what they hold.
    pub fn over(clock: Clock, limits: Limits, tables: Tables, naming: Naming) -> CollectorState {
        let manifest = tables.manifest();
        CollectorState {
            clock,
            tables: Arc::new(tables),
            registry: Mutex::new(Registry::new(limits.sessions_max, limits.label_bytes_max)),
            desired: Mutex::default(),
            tree: TreeLock::new(Tree::new(limits.tree_nodes_max, limits.symbol_bytes_max)),
            shapes: ShapeCache::default(),
            naming,
            windows: RwLock::new(UnsealedWindows::new(manifest.clone())),
            ledger: RwLock::new(Ledger::new(manifest.clone(), limits.ledger_rows_max)),
            telemetry: RwLock::new(UnsealedTelemetry::new(manifest, RUNS_MAX)),
            events: Events::default(),
            flushes: AtomicU64::new(0),
            invalid_build_ids: AtomicU64::new(0),
            cut_phases: AtomicU64::new(0),
            lives_changed: AtomicBool::new(false),
            task_counters: TaskCounters::default(),
            forwards: Forwards::default(),
            cluster: OnceLock::new(),
            limits,
        }
    }

    /// Counts and logs frames whose build id was left out.
    pub fn note_invalid_build_ids(&self, frames: u64, sender: &Account) {
        if frames == 0 {
            return;
        }
        self.invalid_build_ids.fetch_add(frames, Ordering::Relaxed);
        if let Some(Admitted { suppressed }) = INVALID_BUILD_IDS.admit() {
            let identity = &sender.identity;
            tracing::warn!(%identity, frames, suppressed, "invalid build ids were left out");
        }
    }

    fn restore(&self, loaded: StoredState) {
        self.events.note_lost(&loaded.manifest);
        for report in loaded.reports {
            self.events
                .damaged("store".to_owned(), report, self.clock.now());
        }
        write(&self.tree).restore_all(loaded.frames, loaded.nodes);
        for record in loaded.sessions {
            let mut registry = lock(&self.registry);
            let (cell, _) = registry.restore_session(&record.worker, record.epoch);
            let mut session = lock(&cell.state);
            let agent = session.restore(record);
            registry.set_agent(&mut session, agent);
        }
        let running = loaded.running.into_iter().map(Arc::unwrap_or_clone);
        write(&self.ledger).restore(running, loaded.lost_tasks, self.clock.now());
        write(&self.telemetry).restore(loaded.runs, loaded.expected);
    }

    /// Applies flushes of one session. Its commit lock keeps its agent out until then; readers see its
    /// session meanwhile, and a flush in it after the flush's rows. All locks are held for one change each.
    pub fn apply(&self, cell: &SessionCell, flushes: Vec<CheckedFlush>) {
        let count = flushes.len() as u64;
        for flush in flushes {
            let facts = flush.facts();
            let session = lock(&cell.state);
            debug_assert!(
                session.acked_seq < facts.seq,
                "the caller holds the commit lock"
            );
            self.forwards.note(cell, &session.agent, &flush);
            let owner = session.owner().cloned();
            drop(session);
            self.insert(cell, owner.as_ref(), flush);
            let mut applied = lock(&cell.state);
            applied.note_applied(&facts);
            if let Some(stop) = facts.window_stop {
                applied.note_window(stop, self.clock.now());
            }
        }
        let mut session = lock(&cell.state);
        // The stream ended for good meanwhile: the running tasks of the flushes are lost.
        if let Presence::Gone(disconnect) = session.presence {
            self.end_life(cell, &mut session, disconnect);
        }
        drop(session);
        self.flushes.fetch_add(count, Ordering::Relaxed);
    }

    /// Inserts the rows of a checked flush.
    pub fn insert(&self, cell: &SessionCell, owner: Option<&Arc<Account>>, flush: CheckedFlush) {
        if let Some(window) = flush.window {
            write(&self.windows).insert(window);
        }
        if !flush.telemetry.is_empty() {
            if let Some(owner) = owner {
                self.add_links(owner, &flush.telemetry.transfers);
            }
            let sender = owner.map(|account| &account.identity);
            let changes =
                write(&self.telemetry).insert(&cell.worker, cell.epoch, flush.telemetry, sender);
            changes
                .into_iter()
                .for_each(|change| self.events.run(change, self.clock.now()));
        }
        if !flush.tasks.is_empty() || !flush.totals.is_empty() {
            self.report_tasks(cell, &flush.tasks);
            let sender = owner.map(|account| &account.identity);
            let totals = flush.totals.iter();
            totals.for_each(|totals| self.task_counters.count_sum(totals, sender));
            flush
                .tasks
                .iter()
                .for_each(|task| self.task_counters.count(task, sender));
            if let Some(owner) = owner {
                self.add_task_nodes(owner, &flush.tasks, &flush.totals);
            }
            let mut ledger = write(&self.ledger);
            flush
                .totals
                .into_iter()
                .for_each(|totals| ledger.count(totals));
            drop(ledger);
            self.insert_tasks(cell, owner, flush.tasks);
        }
    }

    /// Inserts tasks in slices, which others see one by one.
    fn insert_tasks(
        &self,
        cell: &SessionCell,
        owner: Option<&Arc<Account>>,
        tasks: Vec<TaskRecord>,
    ) {
        let mut tasks = tasks.into_iter();
        while tasks.len() > 0 {
            let mut ledger = write(&self.ledger);
            for record in tasks.by_ref().take(LEDGER_SLICE_ROWS) {
                let worker = cell.worker.clone();
                ledger.upsert_of(
                    owner,
                    TaskRow {
                        worker,
                        epoch: cell.epoch,
                        record,
                    },
                );
            }
            drop(ledger);
            if tasks.len() > 0 {
                thread::sleep(LEDGER_SLICE_GAP);
            }
        }
    }

    /// Sends events for the starts and ends in `records`, which are not in the ledger yet. Does nothing
    /// without subscribers.
    fn report_tasks(&self, cell: &SessionCell, records: &[TaskRecord]) {
        if !self.events.has_subscribers() {
            return;
        }
        let is_new: Vec<bool> = {
            let ledger = read(&self.ledger);
            records
                .iter()
                .map(|task: &TaskRecord| !ledger.is_running(&cell.worker, cell.epoch, task.id))
                .collect()
        };
        for (record, is_new) in records.iter().zip(is_new) {
            // The start of a task that is still running was reported before.
            if is_new || record.stop.is_some() {
                let worker = cell.worker.clone();
                let row = TaskRow {
                    worker,
                    epoch: cell.epoch,
                    record: record.clone(),
                };
                self.events.task(row, self.clock.now());
            }
        }
    }

    /// Inserts or replaces a run.
    pub fn put_run(&self, run: RunRow) {
        let change = write(&self.telemetry).put_run(run, None);
        change
            .into_iter()
            .for_each(|change| self.events.run(change, self.clock.now()));
    }

    /// Ends the life of an agent that will not report how its tasks and runs ended: they are lost.
    pub fn end_life(&self, cell: &SessionCell, session: &mut Session, disconnect: Disconnect) {
        let was_gone = matches!(session.presence, Presence::Gone(_));
        session.end(disconnect);
        self.lives_changed.store(true, Ordering::Release);
        if !was_gone {
            warn_of_end(cell, session, disconnect.reason);
            self.events
                .worker(EventKind::WorkerGone, cell, session, self.clock.now());
        }
        let last_seen = session.last_seen;
        let has_subscribers = self.events.has_subscribers();
        if has_subscribers || self.forwards.tasks.is_enabled() {
            let running = read(&self.ledger).running_of(&cell.worker, cell.epoch);
            for row in running {
                let mut row = Arc::unwrap_or_clone(row);
                end_lost(&mut row.record, last_seen);
                self.forwards.note_task(cell, &row.record);
                if has_subscribers {
                    self.events.task(row, self.clock.now());
                }
            }
        }
        let runs = write(&self.telemetry).end_runs_as_lost(&cell.worker, cell.epoch, last_seen);
        runs.into_iter()
            .for_each(|change| self.events.run(change, self.clock.now()));
        let lost = write(&self.ledger).end_as_lost(&cell.worker, cell.epoch, last_seen);
        if lost > 0
            && let Some(Admitted { suppressed }) = LOST.admit()
        {
            let worker = &*cell.worker.0;
            tracing::info!(worker, epoch = %cell.epoch, lost, suppressed, "tasks ended as lost");
        }
    }

    /// Forgets the running tasks, open runs and expected tasks of an agent that has moved.
    pub fn forget_open(&self, worker: &WorkerId, epoch: Epoch) {
        write(&self.ledger).forget_open_tasks(worker, epoch);
        write(&self.telemetry).forget_open(worker, epoch);
        self.lives_changed.store(true, Ordering::Release);
    }

    /// The tree with the names of what agents did not name.
    pub fn named_tree(&self) -> NamedTree<'_> {
        NamedTree {
            tree: &self.tree,
            naming: &self.naming,
        }
    }

    /// Excerpt of the tree for these nodes, with names.
    pub fn excerpt(&self, nodes: IdSet) -> Excerpt {
        recall(&self.tree, &self.tables, &nodes);
        Excerpt::of(&self.tree, nodes).named(&self.naming)
    }

    /// Shows readers a version whose tables hold the same as the one before, or less by expired data.
    pub fn show_manifest(&self, manifest: &Arc<Manifest>) {
        write(&self.windows).set_manifest(manifest.clone());
        write(&self.ledger).set_manifest(manifest.clone());
        write(&self.telemetry).set_manifest(manifest.clone());
    }

    /// Bytes in memory that a sealing would free.
    pub fn unsealed_bytes(&self) -> usize {
        let windows = read(&self.windows).bytes();
        let ledger = read(&self.ledger).ended_bytes();
        let telemetry = read(&self.telemetry).bytes();
        windows + ledger + telemetry
    }

    /// Whether the stacks or the ledger have a task of that name. Past the limits on names that cannot
    /// be known; then every name counts as known.
    pub fn knows_task(&self, name: &str) -> bool {
        let is_in_tree = {
            let tree = read(&self.tree);
            tree.task_names().contains(name) || tree.may_be_unnamed(name)
        };
        is_in_tree || read(&self.ledger).knows_name(name)
    }

    /// Names of all tasks, from stacks and from the ledger.
    pub fn task_names(&self) -> BTreeSet<Arc<str>> {
        let mut names = read(&self.ledger).names();
        names.extend(read(&self.tree).task_names().iter().cloned());
        names
    }

    /// Ids of all workers with a session or with rows in tables.
    pub fn workers(&self) -> Vec<WorkerId> {
        let mut workers = lock(&self.registry).workers();
        workers.extend(self.tables.worker_ids());
        workers.sort_unstable();
        workers.dedup();
        workers
    }

    /// The sessions of these workers; of all if none is named.
    pub fn sessions(&self, workers: &Names) -> Vec<Arc<SessionCell>> {
        let mut cells = lock(&self.registry).all();
        cells.retain(|cell| workers.keeps(&cell.worker.0));
        cells
    }
}

/// Logs the end of a life that no Goodbye announced.
fn warn_of_end(cell: &SessionCell, session: &Session, reason: DisconnectReason) {
    let agent = &session.agent;
    let Some(next_step) = reason.next_step(agent.pid, &agent.host) else {
        return;
    };
    if let Some(Admitted { suppressed }) = ENDED.admit() {
        tracing::warn!(
            worker = &*cell.worker.0,
            epoch = %cell.epoch,
            reason = reason.name(),
            cause = reason.cause(),
            next_step,
            suppressed,
            "worker is gone"
        );
    }
}
