//! The stacks of CPython threads, read in their own process or from another one: without the interpreter's lock, without a
//! change of the interpreter, and without trust in what is read.
//!
//! ```text
//! `layout` (offsets by version) ─▶ `walk` (frames) ─▶ `names` (function, file, line)
//!                                       ▲
//!                    `sys` (symbols, checked and direct reads)
//! ```
//!
//! CPython 3.9 to 3.12 have the offsets of their headers, which are the same in all builds; 3.13 and 3.14 publish
//! theirs (`_Py_DebugOffsets`). [`Interpreter::verify`] compares with a frame that is known. An [`InterpreterSlot`] is for
//! programs that do not call for it.
//!
//! # Rules
//! - A thread's own frames are read directly only from memory that this very thread would have to unmap: its stack, its
//!   thread state and its chunks of frames. All else is read by a system call that fails instead of a fault.
//! - Every walk has a limit.

mod layout;
mod names;
mod slot;
mod sys;
mod walk;

use std::ffi::CStr;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use system::foreign::{ForeignFrame, ForeignLock, ForeignName, FrameWalker, Walk};
use system::fork::without_fork;
use system::page_vec::PageVec;
use system::process::Memory;

use self::layout::{Layout, Lock, Source};
pub use self::slot::{InterpreterSlot, Search};

/// Most interpreters, and threads of one interpreter.
const INTERPRETERS_MAX: usize = 64;
const THREADS_MAX: usize = 4_096;
/// Most thread states of all interpreters that a thread looks at to find its own, in a signal handler.
const OWN_STATES_MAX: usize = 256;
/// Time between two reads of the list of threads, in times of what a read takes: 1/5 of the sampler's time at most.
const LIST_PAUSE: u64 = 4;

/// Most thread states that are looked at to recognize an interpreter, and frames of each.
const STATES_CHECKED_MAX: usize = 64;
const FRAMES_CHECKED_MAX: usize = 16;

/// The walk of a thread that runs no Python.
const NO_PYTHON: Walk = Walk {
    frames: 0,
    is_complete: true,
};

/// Size of the interpreter's lock, with its mutexes and condition variables, in all versions.
const LOCK_BYTES: u64 = 216;
/// Offsets in it: the thread state that has or had it, and whether it is taken (1).
const LOCK_HOLDER: usize = 8;
const LOCK_TAKEN: usize = 16;

/// Why the frames of Python cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unsupported {
    /// The process has no CPython whose symbols are visible.
    NoInterpreter,
    /// The version is older than 3.9.
    Old,
    /// No offsets are known for this version.
    Version {
        /// The major version.
        major: u8,
        /// The minor version.
        minor: u8,
    },
    /// The interpreter has no lock.
    FreeThreaded,
    /// The interpreter's memory does not look as its version says.
    Layout,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsupported::NoInterpreter => write!(f, "no CPython was found in this process"),
            Unsupported::Old => write!(f, "CPython before 3.9 is unknown; expected 3.9 to 3.14"),
            Unsupported::Version { major, minor } => {
                write!(
                    f,
                    "CPython {major}.{minor} is unknown; expected 3.9 to 3.14"
                )
            }
            Unsupported::FreeThreaded => write!(f, "free-threaded builds are unknown"),
            Unsupported::Layout => write!(f, "this build keeps its frames elsewhere"),
        }
    }
}

impl std::error::Error for Unsupported {}

/// The CPython of a process.
#[derive(Debug)]
pub struct Interpreter {
    layout: Layout,
    /// The path of the library or program that contains it.
    module: String,
    threads: OwnList,
}

/// A thread state of a thread.
#[derive(Clone, Copy, Debug)]
struct ThreadState {
    thread_id: u32,
    address: u64,
}

/// The thread states when they were listed last.
#[derive(Debug, Default)]
struct ThreadList {
    states: PageVec<ThreadState>,
    /// The addresses of the interpreters' locks.
    locks: PageVec<u64>,
    /// They are not listed again before this time.
    next_ns: u64,
}

/// Most forks between the first process and one whose blocked threads are walked.
const FORKS_MAX: usize = 16;

/// The list of this process. A forked child takes another one, because its parent's may be locked by a thread that does
/// not exist in the child.
#[derive(Debug, Default)]
struct OwnList {
    lists: [Mutex<ThreadList>; FORKS_MAX],
    process: AtomicU32,
    index: AtomicUsize,
}

impl OwnList {
    /// For one thread of each process. `None` after too many forks.
    fn get(&self) -> Option<MutexGuard<'_, ThreadList>> {
        let process = std::process::id();
        let before = self.process.swap(process, Ordering::Relaxed);
        if before != process && before != 0 {
            self.index.fetch_add(1, Ordering::Relaxed);
        }
        let list = self.lists.get(self.index.load(Ordering::Relaxed))?;
        match list.try_lock() {
            Ok(list) => Some(list),
            Err(TryLockError::Poisoned(list)) => Some(list.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Interpreter {
    /// Finds the interpreter.
    ///
    /// # Errors
    /// [`Unsupported`].
    pub fn find() -> Result<Interpreter, Unsupported> {
        // It takes the loader's lock, which a child that is forked meanwhile would keep.
        without_fork(|| {
            let layout = Layout::find(Source {
                memory: Memory::Own,
                symbol: &sys::symbol,
            })?;
            Ok(Interpreter {
                module: sys::module_of(layout.code_type).unwrap_or_default(),
                layout,
                threads: OwnList::default(),
            })
        })
    }

    /// Finds the interpreter of another process, in the file `module`, whose exported symbols are where `symbol` says.
    ///
    /// # Errors
    /// [`Unsupported`].
    pub fn find_in(
        process: u32,
        module: String,
        symbol: &dyn Fn(&CStr) -> Option<Range<u64>>,
    ) -> Result<Interpreter, Unsupported> {
        Ok(Interpreter {
            layout: Layout::find(Source {
                memory: Memory::Of(process),
                symbol,
            })?,
            module,
            threads: OwnList::default(),
        })
    }

    /// Compares with the truth: the innermost frame of the calling thread is the Python function `function`, and every
    /// frame around it has a name. The caller holds the interpreter's lock.
    ///
    /// # Errors
    /// [`Unsupported::Layout`].
    pub fn verify(&self, function: &str) -> Result<(), Unsupported> {
        let mut frames = [ForeignFrame::default(); 64];
        let walk = self.walk_own(0..0, &mut frames);
        let mut frames = frames[..walk.frames].iter();
        let is_known = |frame: &ForeignFrame| {
            self.name(*frame)
                .is_some_and(|name| name.function == function && name.line > 0)
        };
        let is_named = |frame: &ForeignFrame| self.name(*frame).is_some();
        if frames.next().is_some_and(is_known) && frames.all(is_named) {
            Ok(())
        } else {
            Err(Unsupported::Layout)
        }
    }

    /// Whether the frames of some thread look right, read without the interpreter's lock. `None` if no thread has frames, as
    /// before the interpreter has begun.
    fn looks_right(&self) -> Option<bool> {
        let mut list = self.threads.get()?;
        self.list_threads(&mut list);
        let mut memory = [ForeignFrame::default(); FRAMES_CHECKED_MAX];
        let mut has_frames = false;
        for state in list.states.iter().take(STATES_CHECKED_MAX) {
            let walk = walk::walk(&self.layout, state.address, &mut memory, |at, into| {
                self.layout.read(at, into)
            });
            let frames = &memory[..walk.frames];
            has_frames |= !frames.is_empty();
            let is_walked = walk.is_complete || walk.frames == FRAMES_CHECKED_MAX;
            let is_named = |frame: &ForeignFrame| self.name(*frame).is_some_and(|it| it.line > 0);
            let is_right = !frames.is_empty() && is_walked && frames.iter().all(is_named);
            if is_right && self.has_chunk(state.address) {
                return Some(true);
            }
        }
        has_frames.then_some(false)
    }

    /// Whether the frames of a thread state are in chunks of memory, if they are in this version.
    fn has_chunk(&self, state: u64) -> bool {
        let field = self.layout.thread_chunk;
        field == 0
            || self
                .layout
                .word(state + field)
                .is_some_and(|chunk| sys::is_chunk(self.layout.memory, chunk))
    }

    /// Lists the thread states of all interpreters again, unless that was just done.
    fn list_threads(&self, list: &mut ThreadList) {
        let start = system::clock::monotonic_ns();
        if start < list.next_ns {
            return;
        }
        let cpu_ns = system::process::own_cpu_ns();
        list.states.clear();
        list.locks.clear();
        self.list_interpreters(list);
        // Not the elapsed time: a busy machine may interrupt the read for a second.
        let cost_ns = system::process::own_cpu_ns().saturating_sub(cpu_ns);
        list.next_ns = start + LIST_PAUSE * cost_ns;
    }

    fn list_interpreters(&self, list: &mut ThreadList) {
        for interpreter in self.interpreters() {
            for address in self.states_of(interpreter) {
                if let Some(thread_id) = self
                    .layout
                    .thread_id
                    .read(address, |at| self.layout.word(at))
                {
                    list.states.push(ThreadState { thread_id, address });
                }
            }
            if let Some(lock) = self.lock_of(interpreter).filter(|lock| *lock != 0) {
                list.locks.push(lock);
            }
        }
    }

    /// The addresses of all interpreters, the newest first.
    fn interpreters(&self) -> impl Iterator<Item = u64> {
        let head = self.layout.runtime + self.layout.interpreters_head;
        sys::members(self.layout.memory, head, self.layout.interpreter_next).take(INTERPRETERS_MAX)
    }

    /// The addresses of an interpreter's thread states, the newest first.
    fn states_of(&self, interpreter: u64) -> impl Iterator<Item = u64> + use<> {
        let head = interpreter.saturating_add(self.layout.threads_head);
        sys::members(self.layout.memory, head, self.layout.thread_next).take(THREADS_MAX)
    }

    /// The address of an interpreter's lock.
    fn lock_of(&self, interpreter: u64) -> Option<u64> {
        match self.layout.lock {
            Lock::InRuntime { at } => Some(self.layout.runtime + at),
            Lock::InInterpreter { at } => self.layout.word(interpreter.checked_add(at)?),
        }
    }

    /// Walks the frames of the calling thread in all interpreters; `own` is its state in one of them.
    fn walk_own_states(
        &self,
        own: u64,
        memory: &mut sys::OwnMemory,
        frames: &mut [ForeignFrame],
    ) -> Walk {
        let layout = &self.layout;
        let thread_id = layout.thread_id.read(own, |at| layout.word(at));
        let mut whole = NO_PYTHON;
        let states = self.interpreters().flat_map(|at| self.states_of(at));
        for (index, state) in states.enumerate() {
            if index == OWN_STATES_MAX {
                whole.is_complete = false;
                break;
            }
            if layout.thread_id.read(state, |at| layout.word(at)) == thread_id {
                let rest = &mut frames[whole.frames..];
                let walk = walk::walk(layout, state, rest, |at, into| memory.read(at, into));
                whole.frames += walk.frames;
                whole.is_complete &= walk.is_complete;
            }
        }
        // Interpreters that were made later are called by earlier ones, if anchors do not tell.
        walk::merge_runs(&mut frames[..whole.frames]);
        whole
    }

    /// The innermost frame of the thread that holds a lock, unless it is `but`.
    fn holder_of(&self, lock: u64, but: u32) -> Option<ForeignFrame> {
        let mut bytes = [0; LOCK_TAKEN + 8];
        if !self.layout.read(lock, &mut bytes) || sys::word_in(&bytes, LOCK_TAKEN) as u32 != 1 {
            return None;
        }
        let state = sys::word_in(&bytes, LOCK_HOLDER);
        if self
            .layout
            .thread_id
            .read(state, |at| self.layout.word(at))?
            == but
        {
            return None;
        }
        let mut frames = [ForeignFrame::default()];
        let walk = walk::walk(&self.layout, state, &mut frames, |at, into| {
            self.layout.read(at, into)
        });
        // The frame may have ended meanwhile, and its memory may have other content, which counts only if it is of code.
        frames
            .into_iter()
            .take(walk.frames)
            .find(|frame| names::is_code(&self.layout, frame.code))
    }

    /// Whether this is still a thread state of the thread.
    fn is_state_of(&self, state: &ThreadState, pages: &mut sys::Pages) -> bool {
        let of_thread = &self.layout.thread_id;
        let id = of_thread.read(state.address, |at| pages.word(at));
        id == Some(state.thread_id)
    }
}

impl FrameWalker for Interpreter {
    fn walk_own(&self, stack: Range<u64>, frames: &mut [ForeignFrame]) -> Walk {
        let state = sys::this_thread_state(&self.layout);
        if state == 0 || sys::may_be_freed(&self.layout, state) {
            return NO_PYTHON;
        }
        let mut memory = sys::OwnMemory::new(&self.layout, state, stack);
        if sys::has_subinterpreters(&self.layout) {
            return self.walk_own_states(state, &mut memory, frames);
        }
        walk::walk(&self.layout, state, frames, |at, into| {
            memory.read(at, into)
        })
    }

    fn walk_blocked(&self, thread_id: u32, frames: &mut [ForeignFrame]) -> Walk {
        let Some(mut list) = self.threads.get() else {
            return Walk::default();
        };
        let mut pages = sys::Pages::of(self.layout.memory);
        let mut of_thread = list.states.iter();
        let state = of_thread.find(|state| state.thread_id == thread_id);
        let is_known = state.is_some_and(|state| self.is_state_of(state, &mut pages));
        if !is_known || sys::has_subinterpreters(&self.layout) {
            self.list_threads(&mut list);
            pages = sys::Pages::of(self.layout.memory);
        }
        let mut whole = NO_PYTHON;
        let mut states = 0;
        for state in list
            .states
            .iter()
            .filter(|state| state.thread_id == thread_id)
        {
            if self.is_state_of(state, &mut pages) {
                let rest = &mut frames[whole.frames..];
                let walk = walk::walk(&self.layout, state.address, rest, |at, into| {
                    pages.read(at, into)
                });
                whole.frames += walk.frames;
                whole.is_complete &= walk.is_complete;
                states += 1;
            }
        }
        if states > 1 {
            walk::merge_runs(&mut frames[..whole.frames]);
        }
        whole
    }

    fn identities(&self, codes: &[u64], identities: &mut [u64]) {
        names::identities(&self.layout, codes, identities);
    }

    fn name(&self, frame: ForeignFrame) -> Option<ForeignName> {
        names::name(&self.layout, frame)
    }

    fn lock(&self, thread_id: u32, futex: u64) -> Option<ForeignLock> {
        let list = self.threads.get()?;
        let is_in = |lock: &&u64| futex.wrapping_sub(**lock) < LOCK_BYTES;
        let lock = *list.locks.iter().find(is_in)?;
        Some(ForeignLock {
            name: "GIL",
            holder: self.holder_of(lock, thread_id),
        })
    }

    fn frame_loop(&self) -> Range<u64> {
        self.layout.entry.code()
    }

    fn is_interpreter(&self, module: &str) -> bool {
        module == self.module || is_python(module)
    }
}

/// Whether a module is the program `python` or its library, by its name.
fn is_python(module: &str) -> bool {
    let name = module.rsplit('/').next().unwrap_or_default();
    if name.starts_with("libpython3.") {
        return true;
    }
    let version = name.strip_prefix("python");
    version.is_some_and(|version| {
        version
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    })
}
