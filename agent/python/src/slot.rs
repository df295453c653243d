//! The interpreter of a program that does not call for it.

use std::ops::Range;
use std::sync::OnceLock;

use system::foreign::{ForeignFrame, ForeignLock, ForeignName, FrameWalker, Walk};
use system::fork::without_fork;

use super::{Interpreter, NO_PYTHON, Unsupported, is_python};

/// Walks of one look: frames change while they are read.
const WALKS_PER_LOOK: usize = 20;
/// Looks at frames that are not right, before the interpreter counts as unknown.
const WRONG_LOOKS_MAX: u32 = 40;
/// Calls of [`InterpreterSlot::look`] that search at once. Later ones search every tenth time, for libraries that are
/// loaded late.
const EAGER_LOOKS: u32 = 40;
const LATE_EVERY: u32 = 10;

/// The interpreter of a program, found while it runs: empty until its frames look as its version says.
#[derive(Debug, Default)]
pub struct InterpreterSlot {
    found: OnceLock<Interpreter>,
}

/// The state of a search for an interpreter.
#[derive(Debug, Default)]
pub struct Search {
    candidate: Option<Interpreter>,
    looks: u32,
    wrong_looks: u32,
    is_over: bool,
}

impl InterpreterSlot {
    /// An empty slot.
    pub const fn new() -> InterpreterSlot {
        InterpreterSlot {
            found: OnceLock::new(),
        }
    }

    /// Searches for an interpreter of this process. Call it again and again, on one thread: a program may load its
    /// interpreter late, and its first frames come after that. Returns whether there is one.
    ///
    /// # Errors
    /// [`Unsupported`], once: the search is over.
    pub fn look(&self, search: &mut Search) -> Result<bool, Unsupported> {
        self.look_by(search, Interpreter::find)
    }

    /// Searches as [`InterpreterSlot::look`] does, by `find`.
    ///
    /// # Errors
    /// [`Unsupported`], once: the search is over.
    pub fn look_by(
        &self,
        search: &mut Search,
        find: impl FnOnce() -> Result<Interpreter, Unsupported>,
    ) -> Result<bool, Unsupported> {
        if search.is_over || self.found.get().is_some() {
            return Ok(self.found.get().is_some());
        }
        let looked = self.look_now(search, find);
        search.is_over = looked.is_err();
        looked
    }

    fn look_now(
        &self,
        search: &mut Search,
        find: impl FnOnce() -> Result<Interpreter, Unsupported>,
    ) -> Result<bool, Unsupported> {
        search.looks = search.looks.saturating_add(1);
        if search.looks > EAGER_LOOKS && !search.looks.is_multiple_of(LATE_EVERY) {
            return Ok(false);
        }
        let interpreter = match search.candidate.take() {
            Some(interpreter) => interpreter,
            None => match find() {
                Ok(interpreter) => interpreter,
                Err(Unsupported::NoInterpreter) => return Ok(false),
                Err(unsupported) => return Err(unsupported),
            },
        };
        let mut walks = (0..WALKS_PER_LOOK).map(|_| interpreter.looks_right());
        match walks
            .find(|looked| *looked != Some(false))
            .unwrap_or(Some(false))
        {
            Some(true) => {
                // A child that is forked meanwhile would wait for the end of this for ever.
                without_fork(|| {
                    let _ = self.found.set(interpreter);
                });
                return Ok(true);
            }
            Some(false) => search.wrong_looks += 1,
            None => {}
        }
        if search.wrong_looks > WRONG_LOOKS_MAX {
            return Err(Unsupported::Layout);
        }
        search.candidate = Some(interpreter);
        Ok(false)
    }
}

impl FrameWalker for InterpreterSlot {
    fn walk_own(&self, stack: Range<u64>, frames: &mut [ForeignFrame]) -> Walk {
        let found = self.found.get();
        found.map_or(NO_PYTHON, |it| it.walk_own(stack, frames))
    }

    fn walk_blocked(&self, thread_id: u32, frames: &mut [ForeignFrame]) -> Walk {
        let found = self.found.get();
        found.map_or(NO_PYTHON, |it| it.walk_blocked(thread_id, frames))
    }

    fn identities(&self, codes: &[u64], identities: &mut [u64]) {
        match self.found.get() {
            Some(interpreter) => interpreter.identities(codes, identities),
            None => identities.fill(0),
        }
    }

    fn name(&self, frame: ForeignFrame) -> Option<ForeignName> {
        self.found.get()?.name(frame)
    }

    fn lock(&self, thread_id: u32, futex: u64) -> Option<ForeignLock> {
        self.found.get()?.lock(thread_id, futex)
    }

    fn frame_loop(&self) -> Range<u64> {
        self.found
            .get()
            .map_or(0..0, |interpreter| interpreter.frame_loop())
    }

    fn is_interpreter(&self, module: &str) -> bool {
        match self.found.get() {
            Some(interpreter) => interpreter.is_interpreter(module),
            None => is_python(module),
        }
    }
}
