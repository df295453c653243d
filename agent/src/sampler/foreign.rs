//! Frames of an interpreter, such as CPython: named while their code lives, and merged with the native stack.
//!
//! A frame has an anchor, an address within the native frame of the interpreter's loop that runs it. So the native frame
//! whose part of the stack contains the anchor is replaced by the interpreter's frames that it runs, whatever its symbol
//! is called.

use std::ops::Range;
use std::sync::Arc;

use profiler_core::FrameId;

use super::addresses::{AddressFrame, AddressTrie};
use super::pages::page_map::PageMap;
use super::pages::page_trie::Full;
use super::sys::modules::Module;
use super::unwind::{FOREIGN, Stack};
use crate::foreign::{ForeignFrame, ForeignLock, ForeignName, Walk, Walker};

/// Most frames of an interpreter in one stack; outer ones are cut.
pub(super) const FRAMES_MAX: usize = 512;
/// Most known places in code; past it all are forgotten and named again.
const KNOWN_MAX: usize = 65_536;
/// Most code objects of a stack whose identities are read together.
const CHECKED_TOGETHER: usize = 64;
/// The place in code that stands for the code as the holder of a lock.
const AS_HOLDER: u64 = u64::MAX;

/// Frames that a walk found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found<'f> {
    pub(super) frames: &'f [ForeignFrame],
    /// Whether the last one is the outermost.
    pub(super) is_complete: bool,
}

/// The frame of the tree that an entry of a stack stands for.
pub(super) fn frame_of(entry: u64) -> Option<FrameId> {
    (entry & FOREIGN != 0).then_some(FrameId(entry as u32))
}

fn entry_of(frame: FrameId) -> u64 {
    FOREIGN | u64::from(frame.0)
}

/// A place in code that was named.
#[derive(Clone, Copy, Debug)]
struct Known {
    identity: u64,
    frame: FrameId,
}

/// The identity of code, as read in a tick.
#[derive(Clone, Copy, Debug)]
struct Checked {
    identity: u64,
    tick: u64,
}

/// The merger of one sampler.
pub(super) struct ForeignFrames {
    walker: Walker,
    /// By code and place in it.
    known: PageMap<(u64, u64), Known>,
    /// By code.
    checked: PageMap<u64, Checked>,
    tick: u64,
    /// Modules whose frames around those of the interpreter are hidden.
    interpreters: Vec<Range<u64>>,
    /// The C library, which has the outermost frames of a thread, and the kernel's.
    libraries: Vec<Range<u64>>,
    /// All modules.
    modules: Vec<Range<u64>>,
    /// Memory for the native stack while it is merged, so that a tick allocates none.
    native: Option<Stack>,
    blocked: Vec<ForeignFrame>,
    is_blocked_complete: bool,
    /// The lock for which the blocked thread waits.
    lock: Option<ForeignLock>,
    /// The mark of the last lock, by its name.
    mark: Option<(&'static str, FrameId)>,
}

impl ForeignFrames {
    pub(super) fn new(walker: Walker, modules: &[Module]) -> ForeignFrames {
        let mut foreign = ForeignFrames {
            walker,
            known: PageMap::default(),
            checked: PageMap::default(),
            tick: 0,
            interpreters: Vec::new(),
            libraries: Vec::new(),
            modules: Vec::new(),
            native: Some(Stack::default()),
            blocked: vec![ForeignFrame::default(); FRAMES_MAX],
            is_blocked_complete: true,
            lock: None,
            mark: None,
        };
        foreign.set_modules(modules);
        foreign
    }

    /// A tick begins: code that was freed may be other code from now on.
    pub(super) fn begin_tick(&mut self) {
        self.tick += 1;
        if self.checked.len() >= KNOWN_MAX {
            self.checked.clear();
        }
    }

    pub(super) fn set_modules(&mut self, modules: &[Module]) {
        let ranges_of = |wanted: &dyn Fn(&str) -> bool| {
            let wanted = modules.iter().filter(|module| wanted(&module.path));
            wanted.map(|module| module.range.clone()).collect()
        };
        self.interpreters = ranges_of(&|path| self.walker.0.is_interpreter(path));
        self.libraries = ranges_of(&is_c_library);
        self.modules = ranges_of(&|_| true);
    }

    /// Walks a blocked thread that may wait on a futex. Its frames are then [`ForeignFrames::merge_blocked`]'s if it did
    /// not run meanwhile.
    pub(super) fn walk_blocked(&mut self, thread: u32, futex: Option<u64>) {
        self.blocked.resize(FRAMES_MAX, ForeignFrame::default());
        let Walk {
            frames,
            is_complete,
        } = self.walker.0.walk_blocked(thread, &mut self.blocked);
        self.blocked.truncate(frames);
        self.is_blocked_complete = is_complete;
        self.lock = futex.and_then(|futex| self.walker.0.lock(thread, futex));
    }

    /// Merges what [`ForeignFrames::walk_blocked`] found into the native stack of the thread. Returns whether it waits for
    /// the interpreter's lock.
    pub(super) fn merge_blocked(&mut self, tree: &mut AddressTrie, stack: &mut Stack) -> bool {
        let frames = std::mem::take(&mut self.blocked);
        let found = Found {
            frames: &frames,
            is_complete: self.is_blocked_complete,
        };
        self.merge(tree, found, stack);
        self.blocked = frames;
        if let Some(lock) = self.lock {
            self.mark_lock(tree, lock, stack);
        }
        self.lock.is_some()
    }

    /// Puts marks in the place of the native code by which a thread waits for a lock of the interpreter: the lock, and
    /// the function that holds it.
    fn mark_lock(&mut self, tree: &mut AddressTrie, lock: ForeignLock, stack: &mut Stack) {
        let Ok(wait) = self.wait_mark(tree, lock.name) else {
            return;
        };
        let holder = lock
            .holder
            .and_then(|frame| self.holder_mark(tree, lock.name, frame).ok());
        let waits = |entry: &&u64| {
            frame_of(**entry).is_none()
                && (contains(&self.interpreters, **entry) || contains(&self.libraries, **entry))
        };
        let hidden = stack.addresses.iter().take_while(waits).count();
        match holder {
            Some(holder) => {
                stack.replace_innermost(hidden, &[entry_of(holder), entry_of(wait)]);
            }
            None => stack.replace_innermost(hidden, &[entry_of(wait)]),
        }
    }

    fn wait_mark(&mut self, tree: &mut AddressTrie, lock: &'static str) -> Result<FrameId, Full> {
        if let Some((_, frame)) = self.mark.filter(|(name, _)| *name == lock) {
            return Ok(frame);
        }
        let name = ForeignName {
            function: format!("[waiting for the {lock}]"),
            ..ForeignName::default()
        };
        let frame = tree.frame_id(AddressFrame::Foreign(Arc::new(name)))?;
        self.mark = Some((lock, frame));
        Ok(frame)
    }

    /// The mark of the function that holds a lock. It has no line, so that each pair of a waiting and a holding function
    /// is one node.
    fn holder_mark(
        &mut self,
        tree: &mut AddressTrie,
        lock: &'static str,
        holder: ForeignFrame,
    ) -> Result<FrameId, Full> {
        let identity = self.identity(holder);
        self.known_frame(tree, (holder.code, AS_HOLDER), identity, |walker| {
            let name = walker.0.name(holder).unwrap_or_else(gone);
            ForeignName {
                function: format!("[{lock} held by {}]", name.function),
                file: name.file,
                line: 0,
            }
        })
    }

    /// Merges the frames of an interpreter into the native stack of the same moment.
    pub(super) fn merge(&mut self, tree: &mut AddressTrie, found: Found<'_>, stack: &mut Stack) {
        if found.frames.is_empty() {
            return;
        }
        self.check(found.frames);
        let mut native = self.native.take().unwrap_or_default();
        std::mem::swap(&mut native, stack);
        stack.clear();
        let mut rest = found.frames;
        let mut turns = Turns::new(self.walker.0.frame_loop(), found, &native);
        let mut outermost = 0;
        let mut is_in_extension = false;
        for (index, address) in native.addresses.iter().enumerate() {
            let run = match &mut turns {
                Some(turns) => turns.frames_of(*address).min(rest.len()),
                None => frames_within(rest, native.range(index)),
            };
            if run > 0 {
                for frame in &rest[..run] {
                    self.push(tree, *frame, stack);
                }
                rest = &rest[run..];
                outermost = stack.addresses.len();
            } else if !contains(&self.interpreters, *address) {
                if !self.is_trampoline(&native, index) {
                    stack.push(*address, native.range(index).start);
                    is_in_extension |= !contains(&self.libraries, *address);
                }
            } else if outermost == 0 && !is_in_extension {
                stack.push(*address, native.range(index).start);
            }
        }
        stack.complete = native.complete && rest.is_empty() && found.is_complete;
        if stack.complete {
            self.cut_root(stack, outermost);
        }
        // The native stack ended early, or an anchor is unknown.
        for frame in rest {
            self.push(tree, *frame, stack);
        }
        self.native = Some(native);
    }

    /// Whether a native frame is code that the interpreter has made and calls only to call itself, so that other profilers
    /// see its functions.
    fn is_trampoline(&self, native: &Stack, index: usize) -> bool {
        let Some([callee, address, caller]) =
            native.addresses.get(index.wrapping_sub(1)..index + 2)
        else {
            return false;
        };
        contains(&self.interpreters, *callee)
            && contains(&self.interpreters, *caller)
            && !contains(&self.modules, *address)
    }

    /// Removes what starts the interpreter in a thread, unless it is embedded in another program.
    fn cut_root(&self, stack: &mut Stack, outermost: usize) {
        let mut outside = stack.addresses[outermost..].iter();
        let is_start = |address: &u64| contains(&self.libraries, *address);
        if outside.all(is_start) {
            stack.truncate(outermost);
        }
    }

    fn push(&mut self, tree: &mut AddressTrie, frame: ForeignFrame, stack: &mut Stack) {
        // Without memory for its name a frame is missing, and its time counts for its caller.
        if let Ok(id) = self.frame_id(tree, frame) {
            stack.push_entry(entry_of(id), frame.anchor);
        }
    }

    fn frame_id(&mut self, tree: &mut AddressTrie, frame: ForeignFrame) -> Result<FrameId, Full> {
        let identity = self.identity(frame);
        self.known_frame(tree, (frame.code, frame.at), identity, |walker| {
            walker.0.name(frame).unwrap_or_else(gone)
        })
    }

    /// The frame of a place in code, named if it is new or other code has got its address. Code that has been freed since
    /// the sample keeps its name: each program ends like that.
    fn known_frame(
        &mut self,
        tree: &mut AddressTrie,
        key: (u64, u64),
        identity: u64,
        name: impl FnOnce(&Walker) -> ForeignName,
    ) -> Result<FrameId, Full> {
        let known = self
            .known
            .get(&key)
            .filter(|known| known.identity == identity || identity == 0);
        if let Some(known) = known {
            return Ok(known.frame);
        }
        let name = name(&self.walker);
        let id = tree.frame_id(AddressFrame::Foreign(Arc::new(name)))?;
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(
            key,
            Known {
                identity,
                frame: id,
            },
        );
        Ok(id)
    }

    /// The identity of a frame's code, read once a tick.
    fn identity(&mut self, frame: ForeignFrame) -> u64 {
        if let Some(identity) = self.checked_identity(frame.code) {
            return identity;
        }
        self.check(&[frame]);
        self.checked_identity(frame.code).unwrap_or(0)
    }

    fn checked_identity(&self, code: u64) -> Option<u64> {
        let checked = self.checked.get(&code)?;
        (checked.tick == self.tick).then_some(checked.identity)
    }

    /// Reads the identities of code that this tick has not read: together, because each read is a system call.
    fn check(&mut self, frames: &[ForeignFrame]) {
        let mut codes = [0; CHECKED_TOGETHER];
        let mut count = 0;
        for frame in frames {
            let is_known = self.checked_identity(frame.code).is_some();
            if count < codes.len() && !is_known && !codes[..count].contains(&frame.code) {
                codes[count] = frame.code;
                count += 1;
            }
        }
        let codes = &codes[..count];
        let mut identities = [0; CHECKED_TOGETHER];
        self.walker.0.identities(codes, &mut identities[..count]);
        let tick = self.tick;
        for (code, identity) in codes.iter().zip(identities) {
            self.checked.insert(*code, Checked { identity, tick });
        }
    }
}

/// How frames without anchors are divided among the native frames of the interpreter's loop, each of which runs one.
struct Turns {
    code: Range<u64>,
    /// Innermost loops that have not begun their frames, or have ended them.
    skipped: usize,
    /// Frames whose loops were not recognized, which the next loop gets: their order among native frames is unknown.
    extra: usize,
}

impl Turns {
    /// `None` if the frames have anchors. Both stacks are compared at their roots, if both have them.
    fn new(code: Range<u64>, found: Found<'_>, native: &Stack) -> Option<Turns> {
        if code.is_empty() {
            return None;
        }
        let in_loop = native.addresses.iter().filter(|it| code.contains(it));
        let loops = in_loop.count();
        let frames = if native.complete && found.is_complete {
            found.frames.len()
        } else {
            loops
        };
        Some(Turns {
            code,
            skipped: loops.saturating_sub(frames),
            extra: frames.saturating_sub(loops),
        })
    }

    /// The number of frames that the native frame with this address runs.
    fn frames_of(&mut self, address: u64) -> usize {
        if !self.code.contains(&address) {
            return 0;
        }
        if self.skipped > 0 {
            self.skipped -= 1;
            return 0;
        }
        1 + std::mem::take(&mut self.extra)
    }
}

/// The number of frames at the start of `frames` that a native frame with this part of the stack runs.
fn frames_within(frames: &[ForeignFrame], stack: Range<u64>) -> usize {
    frames
        .iter()
        .take_while(|frame| frame.anchor != 0 && stack.contains(&frame.anchor))
        .count()
}

fn contains(ranges: &[Range<u64>], address: u64) -> bool {
    ranges.iter().any(|range| range.contains(&address))
}

fn is_c_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    ["libc.so", "libc-", "libpthread", "linux-vdso", "[vdso]"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// The name of a frame whose code was freed before it could be read.
fn gone() -> ForeignName {
    ForeignName {
        function: "[code is gone]".to_owned(),
        ..ForeignName::default()
    }
}

#[cfg(test)]
mod tests;
