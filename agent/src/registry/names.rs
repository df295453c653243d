//! Names as numbers: each name of a task, phase, type or label key gets one number, which fits a
//! word that a signal handler can copy.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, PoisonError, RwLock};

use profiler_core::PHASES;
use profiler_core::limits::{AGENT_TASK_NAMES_MAX, bounded_name};
use rustc_hash::FxHashMap;

use crate::fork::{self, PerProcess};

/// Most names that one thread caches.
const CACHED_NAMES_MAX: usize = 256;
/// Slots for the names that a thread used last, by their address in memory: most are literals.
const RECENT_NAMES: usize = 16;

/// The number of a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct NameId(pub(crate) u32);

impl NameId {
    /// No task. As a phase: the task executes.
    pub(crate) const NONE: NameId = NameId(0);
    /// Any name past the limit on names.
    pub(crate) const OVERFLOW: NameId = NameId(1);

    /// The name of one of [`PHASES`], by its index there.
    pub(crate) const fn of_phase(index: usize) -> NameId {
        assert!(index < PHASES.len());
        NameId(2 + index as u32)
    }
}

/// The task that a thread's samples belong to, by name, and the phase that the task is in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct TaskContext {
    pub(crate) task: NameId,
    pub(crate) phase: NameId,
}

impl TaskContext {
    /// Both names in one word, which a handler copies whole.
    pub(super) const fn word(self) -> u64 {
        ((self.phase.0 as u64) << 32) | self.task.0 as u64
    }

    /// Decodes a thread's task word.
    pub(crate) const fn from_word(word: u64) -> TaskContext {
        TaskContext {
            task: NameId(word as u32),
            phase: NameId((word >> 32) as u32),
        }
    }
}

/// All names of a process by number. A number is never reused.
struct Names {
    ids: FxHashMap<Arc<str>, NameId>,
    names: Vec<Arc<str>>,
}

impl Default for Names {
    /// The names with fixed numbers.
    fn default() -> Names {
        let mut names: Vec<Arc<str>> = vec!["".into(), "[overflow]".into()];
        let mut ids = FxHashMap::from_iter([(names[1].clone(), NameId::OVERFLOW)]);
        for (index, phase) in PHASES.into_iter().enumerate() {
            names.push(phase.into());
            ids.insert(names[names.len() - 1].clone(), NameId::of_phase(index));
        }
        Names { ids, names }
    }
}

static NAMES: PerProcess<RwLock<Names>> = PerProcess::new();

thread_local! {
    static CACHED_NAMES: RefCell<CachedNames> = RefCell::default();
}

/// The numbers of names that a thread has used.
#[derive(Default)]
struct CachedNames {
    /// The [generation](fork::generation) of the process that the numbers are from.
    generation: usize,
    /// Comparing a name takes half as long as looking it up.
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
        match recent {
            Some((recent, id)) if **recent == *name => Some(*id),
            _ => {
                let (name, id) = self.ids.get_key_value(name)?;
                *recent = Some((name.clone(), *id));
                Some(*id)
            }
        }
    }

    fn insert(&mut self, name: &str, id: NameId) {
        if self.generation != fork::generation() {
            *self = CachedNames {
                generation: fork::generation(),
                ..CachedNames::default()
            };
        }
        if self.ids.len() < CACHED_NAMES_MAX {
            self.ids.insert(name.into(), id);
        }
    }
}

/// The number of a name. A thread that has used the name before takes no lock.
#[inline(never)]
pub(crate) fn name_id(name: &str) -> NameId {
    match CACHED_NAMES.try_with(|cached| cached.borrow_mut().id(name)) {
        Ok(Some(id)) => id,
        _ => uncached_name_id(name),
    }
}

#[cold]
fn uncached_name_id(name: &str) -> NameId {
    let id = shared_name_id(&bounded_name(name));
    let _ = CACHED_NAMES.try_with(|cached| cached.borrow_mut().insert(name, id));
    id
}

fn shared_name_id(name: &str) -> NameId {
    if let Some(id) = NAMES
        .get()
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .ids
        .get(name)
    {
        return *id;
    }
    let mut names = NAMES.get().write().unwrap_or_else(PoisonError::into_inner);
    if let Some(id) = names.ids.get(name) {
        return *id;
    }
    // The names with fixed numbers do not count towards the limit.
    if names.ids.len() > AGENT_TASK_NAMES_MAX + PHASES.len() {
        return NameId::OVERFLOW;
    }
    let id = NameId(u32::try_from(names.names.len()).expect("the limit keeps names few"));
    let name: Arc<str> = name.into();
    names.names.push(name.clone());
    names.ids.insert(name, id);
    id
}

/// The name with this number.
pub(crate) fn name(id: NameId) -> Arc<str> {
    let names = NAMES.get().read().unwrap_or_else(PoisonError::into_inner);
    let index = id.0 as usize;
    names
        .names
        .get(index)
        .unwrap_or(&names.names[NameId::OVERFLOW.0 as usize])
        .clone()
}
