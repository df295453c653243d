//! A task from its start to its end.

use std::sync::Arc;

use profiler_core::{Outcome, PHASES, TaskId, TaskRecord, Timestamp};

use super::thread::{ScopeNumber, THREAD, TaskRef, Thread};
use crate::clock;
use crate::detail::{self, Detail};
use crate::observe::{self, Observed};
use crate::registry::{
    self, LocalTaskId, NameId, ROWS_BEYOND_STARTS, ROWS_FOR_KNOWN_ENDS, Row, TaskRow,
};
use crate::threads::ThreadIdentity;
use crate::wanted::WantedBy;

/// The phase in which a task waits to be started.
const QUEUE: NameId = NameId::of_phase(0);
const _: () = assert!(matches!(PHASES[0].as_bytes(), b"queue"));

/// Optional properties of a task at its start.
#[derive(Debug, Default)]
pub(super) struct TaskOptions {
    pub(super) key: Option<Arc<str>>,
    /// `None` for the current task of the thread on which it starts.
    pub(super) parent: Option<TaskRef>,
    pub(super) detail: Option<Box<Detail>>,
    pub(super) queued: Option<QueueTime>,
    /// `None` for most tasks.
    #[expect(
        clippy::box_collection,
        reason = "a builder is moved where it is made: one pointer"
    )]
    pub(super) earlier: Option<Box<Vec<EarlierPhase>>>,
}

/// A phase before the start of its task.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlierPhase {
    pub(super) phase: NameId,
    /// From the phase's start to the task's.
    pub(super) ago_ns: u64,
    pub(super) length_ns: u64,
}

impl EarlierPhase {
    /// Reports the phase of a task that started at `start`.
    fn push(self, thread: &Thread, task: TaskRef, start: Timestamp) {
        let since = before(start, self.ago_ns);
        let stop = before(start, self.ago_ns.saturating_sub(self.length_ns));
        thread.push_phase(task, self.phase, Some(since), stop);
    }
}

/// Returns the time `length_ns` before `time`.
fn before(time: Timestamp, length_ns: u64) -> Timestamp {
    let length_ns = i64::try_from(length_ns).unwrap_or(i64::MAX);
    time.shifted(length_ns.saturating_neg())
}

/// How long a task waited to be started.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueueTime {
    Since(Timestamp),
    ForNs(u64),
}

impl QueueTime {
    /// Returns when the wait of a task that started at `start` began.
    fn since(self, start: Timestamp) -> Timestamp {
        match self {
            QueueTime::Since(since) => since.min(start),
            QueueTime::ForNs(length_ns) => before(start, length_ns),
        }
    }
}

/// A task that has started and not ended.
#[derive(Debug)]
pub(super) struct Running {
    id: LocalTaskId,
    parent: Option<LocalTaskId>,
    start: Timestamp,
    pub(super) key: Option<Arc<str>>,
    detail: Option<Box<Detail>>,
    /// Set if the observer saw the start, so that it sees the end too. Boxed, because a guard is moved
    /// where it is made.
    observed: Option<Box<Observed>>,
    /// The thread of the start, only if the task may end on another one: changing a shared reference
    /// count is slow.
    thread: Option<Arc<ThreadIdentity>>,
    name: NameId,
    /// Whether an agent ran when it started.
    recorded: bool,
    /// Whether the ring had room for its start, so that its end must be written too.
    start_written: bool,
}

impl Running {
    /// Starts a task that may end on another thread: it is reported to the agent and the observer, and
    /// samples are not affected. `None` on a thread whose locals are already gone.
    pub(super) fn begin(name: NameId, mut options: TaskOptions) -> Option<Running> {
        THREAD
            .try_with(|thread: &Thread| {
                let started = StartedTask::begin(thread, name, Some(&options));
                let origin = Some(thread.link().cell.thread.clone());
                let mut running = Running {
                    thread: origin,
                    ..started.running(name, Some(&mut options))
                };
                running.announce_start(thread, &options);
                running
            })
            .ok()
    }

    /// Reports the start to the observer, and the queue time and phases before it.
    fn announce_start(&mut self, thread: &Thread, options: &TaskOptions) {
        if WantedBy::now().observer() {
            let record = self.record(None, Outcome::Running);
            self.observed = observe::task_began(&record).map(Box::new);
        }
        if let Some(queued) = options.queued {
            let since = Some(queued.since(self.start));
            thread.push_phase(self.task(), QUEUE, since, self.start);
        }
        for phase in options.earlier.iter().flat_map(|all| all.iter()) {
            phase.push(thread, self.task(), self.start);
        }
    }

    /// Ends the task; called once. The end is lost on a thread whose locals are already gone. Without an
    /// agent no row is written: it would wait for the next agent, which does not know the task.
    pub(super) fn end(&mut self, outcome: Outcome) {
        let _ = THREAD.try_with(|thread| self.end_on(thread, outcome));
    }

    #[inline]
    fn end_on(&mut self, thread: &Thread, outcome: Outcome) {
        let wanted = WantedBy::now();
        let to_agent = self.recorded && wanted.agent();
        if !to_agent && self.observed.is_none() {
            return;
        }
        let stop = clock::now();
        thread.end_phases_of(self.id, stop);
        if self.observed.is_some() && wanted.observer() {
            self.announce_end(stop, outcome);
        }
        if to_agent {
            self.write_end(thread, stop, outcome);
        }
    }

    #[cold]
    fn announce_end(&mut self, stop: Timestamp, outcome: Outcome) {
        if let Some(observed) = self.observed.take() {
            let record = self.record(Some(stop), outcome);
            observe::task_ended(*observed, record, self.detail.as_deref());
        }
    }

    #[inline(always)]
    fn write_end(&mut self, thread: &Thread, stop: Timestamp, outcome: Outcome) {
        let Running {
            id,
            parent,
            start,
            name,
            start_written,
            ..
        } = *self;
        let mut link = thread.link();
        // The agent does not wait for this end, because the start had no room either.
        if !start_written && link.room() <= ROWS_FOR_KNOWN_ENDS {
            let cell = link.cell.clone();
            // The first sum allocates.
            drop(link);
            return cell.spill.add_task(name, outcome, start, stop);
        }
        let origin = self.thread.take();
        if let Some(origin) = origin.filter(|origin| !Arc::ptr_eq(origin, &link.cell.thread)) {
            self.detail().started_on = Some(origin);
        }
        let key = self.key.take();
        let detail = self.detail.take();
        link.push(Row::Task(TaskRow {
            id,
            parent,
            start,
            stop,
            key,
            detail,
            name,
            outcome,
        }));
    }

    /// Returns the task as the observer sees it.
    fn record(&self, stop: Option<Timestamp>, outcome: Outcome) -> TaskRecord {
        let here = || {
            THREAD
                .try_with(|thread| thread.link().cell.thread.clone())
                .ok()
        };
        let thread = self.thread.clone().or_else(here);
        TaskRecord {
            id: self.id.into(),
            name: registry::name(self.name),
            key: self.key.clone().unwrap_or_default(),
            thread_id: thread.as_ref().map_or(0, |thread| thread.id),
            thread_name: thread.map_or_else(Arc::default, |thread| thread.name.clone()),
            parent: self.parent.map(TaskId::from),
            start: self.start,
            stop,
            outcome,
            cause: self
                .detail
                .as_ref()
                .and_then(|it| it.cause.clone())
                .unwrap_or_default(),
            detail: detail::task_detail(self.detail.as_deref(), Vec::new()),
        }
    }

    pub(super) fn task(&self) -> TaskRef {
        TaskRef {
            id: Some(self.id),
            name: self.name,
        }
    }

    /// Sets the cause of a failure, if there is one.
    pub(super) fn set_cause(&mut self, cause: Option<Arc<str>>) {
        if cause.is_some() {
            self.detail().cause = cause;
        }
    }

    /// Returns the optional details, to be extended.
    pub(super) fn detail(&mut self) -> &mut Detail {
        self.detail.get_or_insert_default()
    }
}

/// The start of a task. It is not yet a [`Running`], because a struct that is moved right after it was
/// written is slow to read back.
struct StartedTask {
    id: LocalTaskId,
    parent: Option<LocalTaskId>,
    start: Timestamp,
    recorded: bool,
    start_written: bool,
}

impl StartedTask {
    /// Starts a task and writes its row, if an agent runs and the ring has room.
    #[inline(always)]
    fn begin(thread: &Thread, name: NameId, options: Option<&TaskOptions>) -> StartedTask {
        let recorded = WantedBy::now().agent();
        let parent = options
            .and_then(|options| options.parent)
            .unwrap_or_else(|| thread.current())
            .id;
        let mut link = thread.link();
        let id = link.ids.next();
        let start = clock::now();
        let start_written = recorded && link.room() > ROWS_BEYOND_STARTS;
        if start_written {
            let key = options.and_then(|options| options.key.clone());
            let detail = options.and_then(|options| options.detail.clone());
            link.push(Row::Task(TaskRow {
                id,
                parent,
                start,
                stop: start,
                key,
                detail,
                name,
                outcome: Outcome::Running,
            }));
        } else if recorded {
            link.cell.count_silent_start();
        }
        StartedTask {
            id,
            parent,
            start,
            recorded,
            start_written,
        }
    }

    #[inline(always)]
    fn running(self, name: NameId, options: Option<&mut TaskOptions>) -> Running {
        let StartedTask {
            id,
            parent,
            start,
            recorded,
            start_written,
        } = self;
        let (key, detail) = match options {
            Some(options) => (options.key.take(), options.detail.take()),
            None => (None, None),
        };
        Running {
            id,
            parent,
            start,
            key,
            detail,
            observed: None,
            thread: None,
            name,
            recorded,
            start_written,
        }
    }
}

/// A task that ends on the thread on which it started, and to which that thread's samples belong until
/// then. The thread owns it.
#[derive(Debug)]
pub(super) struct ScopedTask {
    scope: ScopeNumber,
    running: Running,
}

/// Starts a [`ScopedTask`] on this thread. `None` on a thread whose locals are already gone.
pub(super) fn begin_here(
    name: NameId,
    mut options: Option<&mut TaskOptions>,
) -> Option<ScopeNumber> {
    let begin = |thread: &Thread| {
        let started = StartedTask::begin(thread, name, options.as_deref());
        match options.take() {
            None if !WantedBy::now().observer() => {
                push_running(thread, started.running(name, None))
            }
            None => push_announced(thread, started.running(name, None), &TaskOptions::default()),
            Some(options) => {
                let running = started.running(name, Some(options));
                push_announced(thread, running, options)
            }
        }
    };
    THREAD.try_with(begin).ok()
}

#[inline(always)]
fn push_running(thread: &Thread, running: Running) -> ScopeNumber {
    let scope = thread.enter(running.task());
    thread
        .tasks
        .borrow_mut()
        .push(ScopedTask { scope, running });
    scope
}

/// Announces the start first, while the parent is still current.
#[inline(never)]
fn push_announced(thread: &Thread, mut running: Running, options: &TaskOptions) -> ScopeNumber {
    running.announce_start(thread, options);
    push_running(thread, running)
}

/// Ends a task that was started on this thread.
pub(super) fn end_here(scope: ScopeNumber, outcome: Outcome) {
    let end = |thread: &Thread| {
        thread.leave(scope);
        let mut tasks = thread.tasks.borrow_mut();
        let Some(index) = tasks.iter().rposition(|task| task.scope == scope) else {
            return;
        };
        if index + 1 < tasks.len() || tasks[index].running.observed.is_some() {
            // Callbacks may start tasks.
            let mut task = tasks.remove(index);
            drop(tasks);
            return task.running.end_on(thread, outcome);
        }
        tasks[index].running.end_on(thread, outcome);
        tasks.truncate(index);
    };
    let _ = THREAD.try_with(end);
}

/// Calls `with` for a running task that was started on this thread.
pub(super) fn with_here<T>(scope: ScopeNumber, with: impl FnOnce(&mut Running) -> T) -> Option<T> {
    THREAD
        .try_with(|thread: &Thread| {
            let mut tasks = thread.tasks.borrow_mut();
            tasks
                .iter_mut()
                .rfind(|task| task.scope == scope)
                .map(|task| with(&mut task.running))
        })
        .ok()
        .flatten()
}
