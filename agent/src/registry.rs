//! What guards leave for the agent's threads: names by number, and for each thread a cell that
//! says which task it runs and a ring of rows.

use std::cell::RefCell;
use std::num::NonZeroU64;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use profiler_core::limits::{AGENT_TASK_NAMES_MAX, bounded_name};
use profiler_core::{Outcome, PHASES, TaskId, Timestamp};
use rustc_hash::FxHashMap;

use crate::detail::Detail;
use crate::fork::{self, GENERATIONS_MAX};
use crate::spill::{Spill, Spilled};
use crate::sync::lock;
use crate::threads;

/// Rows that one thread can write before the agent reads them, forty times a second. Past it rows
/// are counted as lost: a guard never waits.
const RING_ROWS: usize = 4096;

/// Part of a ring that is kept for phases and the ends of tasks. A row of an end is the whole record,
/// so when tasks come fast their starts may be left out and nothing is lost.
pub(crate) const ROWS_BEYOND_STARTS: usize = RING_ROWS / 2;

/// Part of a ring that is kept for the ends of tasks alone.
pub(crate) const ROWS_FOR_ENDS: usize = RING_ROWS / 4;

/// Part of a ring that is kept for the ends of tasks whose start was written: who knows that they run
/// must hear of their end. Ends of others are summed in the [`Spill`].
pub(crate) const ROWS_FOR_KNOWN_ENDS: usize = RING_ROWS / 8;

/// Most names that one thread remembers by itself, beside the table of all.
const CACHED_NAMES_MAX: usize = 256;

/// A name of a task, phase, type or label's key, as a number that fits the handler.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct NameId(pub(crate) u32);

impl NameId {
    /// No task; the phase of a task that says none: it executes.
    pub(crate) const NONE: NameId = NameId(0);
    /// A name past the limit on names.
    pub(crate) const OVERFLOW: NameId = NameId(1);

    /// The name of one of [`PHASES`], by its place there.
    pub(crate) const fn of_phase(place: usize) -> NameId {
        assert!(place < PHASES.len());
        NameId(2 + place as u32)
    }
}

/// What a guard leaves for the ledger.
#[derive(Debug)]
pub(crate) enum Row {
    Task(TaskRow),
    Phase(PhaseRow),
    Result(ResultRow),
}

/// A place in a ring: one cache line, for the folder has read it and it is not in the writer's cache.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Slot(pub(crate) Row);

const _: () = assert!(size_of::<Slot>() == 64);

/// A start or a stop, whole.
#[derive(Clone, Debug)]
pub(crate) struct TaskRow {
    pub(crate) id: OwnTaskId,
    pub(crate) parent: Option<OwnTaskId>,
    pub(crate) start: Timestamp,
    /// Its start, while it runs.
    pub(crate) stop: Timestamp,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) detail: Option<Box<Detail>>,
    pub(crate) name: NameId,
    pub(crate) outcome: Outcome,
}

impl TaskRow {
    /// `None` while it runs.
    pub(crate) fn stop(&self) -> Option<Timestamp> {
        (self.outcome != Outcome::Running).then_some(self.stop)
    }
}

/// A task's number, which no other task of this process has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct OwnTaskId(NonZeroU64);

impl From<OwnTaskId> for TaskId {
    fn from(OwnTaskId(number): OwnTaskId) -> TaskId {
        TaskId(number.get())
    }
}

/// A task was in a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PhaseRow {
    pub(crate) task: OwnTaskId,
    pub(crate) phase: NameId,
    pub(crate) start: Timestamp,
    pub(crate) stop: Timestamp,
}

/// What a handle says of a task's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ResultRow {
    pub(crate) task: OwnTaskId,
    pub(crate) bytes: Option<u64>,
    pub(crate) type_name: NameId,
}

/// A thread as the ledger names it.
#[derive(Debug)]
pub(crate) struct ThreadIdentity {
    pub(crate) id: u32,
    pub(crate) name: Arc<str>,
}

/// What a thread shares with the agent. The sampler's handler reads `task` alone.
#[derive(Debug)]
pub(crate) struct ThreadCell {
    pub(crate) thread_id: u32,
    pub(crate) thread: Arc<ThreadIdentity>,
    task: AtomicU64,
    gone: AtomicBool,
    lost: AtomicU64,
    rows: Mutex<rtrb::Consumer<Slot>>,
    /// What had no room in the ring.
    pub(crate) spill: Spill,
}

impl ThreadCell {
    /// The calling thread's cell, and the side of its ring that writes.
    pub(crate) fn new() -> (Arc<ThreadCell>, rtrb::Producer<Slot>) {
        let (producer, consumer) = rtrb::RingBuffer::new(RING_ROWS);
        // The kernel's name, for threads that no Rust code started have one too.
        let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
        let thread_id = threads::own_id();
        let name = bounded_name(name.trim_end()).into();
        let cell = ThreadCell {
            thread_id,
            thread: Arc::new(ThreadIdentity { id: thread_id, name }),
            task: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            rows: Mutex::new(consumer),
            spill: Spill::new(),
        };
        (Arc::new(cell), producer)
    }

    /// The word that the handler copies; [`Doing::from_word`] reads it.
    pub(crate) fn task_word(&self) -> &AtomicU64 {
        &self.task
    }

    pub(crate) fn set_doing(&self, doing: Doing) {
        self.task.store(doing.word(), Ordering::Release);
    }

    pub(crate) fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }
}

/// What a thread's samples belong to: a task by name, and the phase that it is in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Doing {
    pub(crate) task: NameId,
    pub(crate) phase: NameId,
}

impl Doing {
    /// Both names in one word, which a handler copies whole.
    const fn word(self) -> u64 {
        ((self.phase.0 as u64) << 32) | self.task.0 as u64
    }

    /// What a thread's task word says.
    pub(crate) const fn from_word(word: u64) -> Doing {
        Doing { task: NameId(word as u32), phase: NameId((word >> 32) as u32) }
    }
}

/// Numbers that a thread takes for its tasks at a time, for a count that all threads share is slow to
/// change.
const TASK_IDS_TAKEN: u64 = 256;

static NEXT_TASK: AtomicU64 = AtomicU64::new(1);

/// Numbers for tasks of one thread.
#[derive(Default, Debug)]
pub(crate) struct TaskIds(Range<u64>);

impl TaskIds {
    pub(crate) fn next(&mut self) -> OwnTaskId {
        loop {
            if let Some(id) = self.0.next().and_then(NonZeroU64::new) {
                return OwnTaskId(id);
            }
            let first = NEXT_TASK.fetch_add(TASK_IDS_TAKEN, Ordering::Relaxed);
            self.0 = first..first.saturating_add(TASK_IDS_TAKEN);
        }
    }
}

/// What the threads of one process share.
struct Registry {
    cells: Mutex<Vec<Arc<ThreadCell>>>,
    names: RwLock<Names>,
    /// Ids of the agent's own threads.
    of_agent: Mutex<Vec<u32>>,
}

/// This process's registry. A forked child has another than its parent, whose locks may be held by
/// threads that do not exist in the child.
fn shared() -> &'static Registry {
    static REGISTRIES: [OnceLock<Registry>; GENERATIONS_MAX] =
        [const { OnceLock::new() }; GENERATIONS_MAX];
    REGISTRIES[fork::generation()].get_or_init(|| Registry {
        cells: Mutex::default(),
        names: RwLock::new(Names::new()),
        of_agent: Mutex::default(),
    })
}

/// The ids of the agent's own threads.
pub(crate) fn agent_threads() -> &'static Mutex<Vec<u32>> {
    &shared().of_agent
}

/// Rises with every new cell, so that the sampler looks at the list only when it has grown.
static CELLS_VERSION: AtomicU64 = AtomicU64::new(0);

pub(crate) fn register(cell: &Arc<ThreadCell>) {
    lock(&shared().cells).push(cell.clone());
    CELLS_VERSION.fetch_add(1, Ordering::Release);
}

pub(crate) fn cells_version() -> u64 {
    CELLS_VERSION.load(Ordering::Acquire)
}

/// Calls `each` for every cell. `None` if a thread is registering right now: the caller comes
/// again, so that no host thread waits for the agent.
pub(crate) fn try_each_cell(mut each: impl FnMut(&Arc<ThreadCell>)) -> Option<()> {
    let cells = shared().cells.try_lock().ok()?;
    cells.iter().for_each(&mut each);
    Some(())
}

/// What threads have left since the last drain.
pub(crate) enum Left<'a> {
    Row(&'a ThreadCell, Row),
    Spilled(Spilled),
}

/// Takes all that threads have left; gives how many rows were lost. Cells of threads that are gone are
/// dropped once they are empty.
pub(crate) fn drain(mut each: impl FnMut(Left<'_>)) -> u64 {
    let cells: Vec<Arc<ThreadCell>> = lock(&shared().cells).clone();
    let mut lost = 0;
    let mut any_gone = false;
    for cell in cells {
        // Read before the ring: what a thread wrote before it went is then in the ring.
        any_gone |= cell.gone.load(Ordering::Acquire);
        let mut rows = lock(&cell.rows);
        for _ in 0..rows.slots() {
            let Ok(Slot(row)) = rows.pop() else { break };
            each(Left::Row(&cell, row));
        }
        cell.spill.take(|spilled| each(Left::Spilled(spilled)));
        lost += cell.lost.swap(0, Ordering::Relaxed);
    }
    if any_gone {
        lock(&shared().cells)
            .retain(|cell| !cell.gone.load(Ordering::Acquire) || !lock(&cell.rows).is_empty());
    }
    lost
}

/// All names that were ever given, by number. Numbers are never given again.
struct Names {
    ids: FxHashMap<Arc<str>, NameId>,
    names: Vec<Arc<str>>,
}

impl Names {
    /// Those that have a number of their own.
    fn new() -> Names {
        let mut names: Vec<Arc<str>> = vec!["".into(), "[overflow]".into()];
        let mut ids = FxHashMap::from_iter([(names[1].clone(), NameId::OVERFLOW)]);
        for (place, phase) in PHASES.into_iter().enumerate() {
            names.push(phase.into());
            ids.insert(names[names.len() - 1].clone(), NameId::of_phase(place));
        }
        Names { ids, names }
    }
}

thread_local! {
    static CACHED_NAMES: RefCell<CachedNames> = RefCell::default();
}

/// Places for names that a thread has used last, by where they stand in memory: most are literals.
const RECENT_NAMES: usize = 16;

/// The numbers of names that a thread has used.
#[derive(Default)]
struct CachedNames {
    /// How many forks away the registry is that they are from.
    generation: usize,
    /// To compare a name takes half as long as to look it up.
    recent: [Option<(Rc<str>, NameId)>; RECENT_NAMES],
    ids: FxHashMap<Rc<str>, NameId>,
}

impl CachedNames {
    #[inline]
    fn id(&mut self, name: &str) -> Option<NameId> {
        if self.generation != fork::generation() {
            return None;
        }
        let recent = &mut self.recent[name.as_ptr().addr() % RECENT_NAMES];
        if let Some((recent, id)) = recent
            && **recent == *name
        {
            return Some(*id);
        }
        let (name, id) = self.ids.get_key_value(name)?;
        *recent = Some((name.clone(), *id));
        Some(*id)
    }

    fn insert(&mut self, name: &str, id: NameId) {
        if self.generation != fork::generation() {
            *self = CachedNames { generation: fork::generation(), ..CachedNames::default() };
        }
        if self.ids.len() < CACHED_NAMES_MAX {
            self.ids.insert(name.into(), id);
        }
    }
}

/// The number of a name; a thread that has used it before takes no lock.
#[inline(never)]
pub(crate) fn name_id(name: &str) -> NameId {
    match CACHED_NAMES.try_with(|cached| cached.borrow_mut().id(name)) {
        Ok(Some(id)) => id,
        _ => new_name_id(name),
    }
}

#[cold]
fn new_name_id(name: &str) -> NameId {
    let id = shared_name_id(&bounded_name(name));
    let _ = CACHED_NAMES.try_with(|cached| cached.borrow_mut().insert(name, id));
    id
}

fn shared_name_id(name: &str) -> NameId {
    if let Some(id) = shared().names.read().unwrap_or_else(PoisonError::into_inner).ids.get(name) {
        return *id;
    }
    let mut names = shared().names.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(id) = names.ids.get(name) {
        return *id;
    }
    // Beside those that have a number of their own.
    if names.ids.len() > AGENT_TASK_NAMES_MAX + PHASES.len() {
        return NameId::OVERFLOW;
    }
    let id = NameId(u32::try_from(names.names.len()).expect("the limit keeps names few"));
    let name: Arc<str> = name.into();
    names.names.push(name.clone());
    names.ids.insert(name, id);
    id
}

/// The name behind a number.
pub(crate) fn name(id: NameId) -> Arc<str> {
    let names = shared().names.read().unwrap_or_else(PoisonError::into_inner);
    let index = id.0 as usize;
    names.names.get(index).unwrap_or(&names.names[NameId::OVERFLOW.0 as usize]).clone()
}
