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
                stack.push(*address, native.range(index).start);
                is_in_extension |= !contains(&self.libraries, *address);
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

    /// The frame of a place in code, named if it is new or other code has got its address.
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
            .filter(|known| known.identity == identity);
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
mod tests {
    use std::cell::Cell;

    use super::super::addresses::TaskLevels;
    use super::*;
    use crate::foreign::FrameWalker;
    use crate::registry::NameId;

    thread_local! {
        /// Calls of `identities`.
        static READS: Cell<usize> = const { Cell::new(0) };
    }

    /// An interpreter whose code n is the function `fn`, and whose library is `/interpreter`.
    struct Fake;

    impl FrameWalker for Fake {
        fn walk_own(&self, _: Range<u64>, _: &mut [ForeignFrame]) -> Walk {
            Walk::default()
        }

        fn walk_blocked(&self, thread_id: u32, frames: &mut [ForeignFrame]) -> Walk {
            frames[0] = frame(thread_id.into(), 150);
            Walk {
                frames: 1,
                is_complete: true,
            }
        }

        fn identities(&self, codes: &[u64], identities: &mut [u64]) {
            READS.set(READS.get() + 1);
            identities.copy_from_slice(codes);
        }

        fn name(&self, frame: ForeignFrame) -> Option<ForeignName> {
            (frame.code < 90).then(|| ForeignName {
                function: format!("f{}", frame.code),
                file: "a.py".to_owned(),
                line: frame.at as u32,
            })
        }

        fn lock(&self, _: u32, futex: u64) -> Option<ForeignLock> {
            let holder = match futex {
                0x500 => None,
                0x501..=0x507 => Some(frame(futex - 0x500, 0)),
                _ => return None,
            };
            Some(ForeignLock {
                name: "lock",
                holder,
            })
        }

        fn is_interpreter(&self, module: &str) -> bool {
            module == "/interpreter"
        }
    }

    fn frame(code: u64, anchor: u64) -> ForeignFrame {
        ForeignFrame {
            code,
            at: 1,
            anchor,
        }
    }

    fn module(path: &str, start: u64) -> Module {
        Module {
            path: path.into(),
            build_id: "".into(),
            range: start..start + 0x100,
            base: start,
            tables: None,
        }
    }

    /// Code of a library, of the interpreter, of the C library and of a program.
    const LIBRARY: u64 = 0x1000;
    const LOOP: u64 = 0x2000;
    const GLUE: u64 = 0x2080;
    const C_LIBRARY: u64 = 0x3000;
    const PROGRAM: u64 = 0x4000;

    fn merger() -> ForeignFrames {
        let modules = [
            module("/library", LIBRARY),
            module("/interpreter", LOOP),
            module("/lib/libc.so.6", C_LIBRARY),
            module("/program", PROGRAM),
        ];
        ForeignFrames::new(Walker(&Fake), &modules)
    }

    /// A stack of native code, the innermost first, each with a hundred bytes of stack from 100 on.
    fn native(addresses: &[u64], complete: bool) -> Stack {
        let mut stack = Stack::default();
        for (index, address) in addresses.iter().enumerate() {
            stack.push(*address, 100 * (index as u64 + 1));
        }
        stack.complete = complete;
        stack
    }

    fn text(tree: &AddressTrie, stack: &Stack) -> String {
        let mut names = Vec::new();
        if !stack.complete {
            names.push("[truncated]".to_owned());
        }
        for entry in stack.addresses.iter().rev() {
            names.push(match frame_of(*entry).map(|id| tree.frame(id)) {
                Some(AddressFrame::Foreign(name)) => name.function.clone(),
                _ => format!("{entry:x}"),
            });
        }
        names.join(";")
    }

    fn check(native_code: &[u64], complete: bool, frames: &[ForeignFrame], expected: &str) {
        let mut tree = AddressTrie::new(&[]);
        let mut stack = native(native_code, complete);
        let found = Found {
            frames,
            is_complete: true,
        };
        merger().merge(&mut tree, found, &mut stack);
        assert_eq!(text(&tree, &stack), expected);
        let levels = TaskLevels {
            first: AddressFrame::NoTask,
            phase: NameId::NONE,
        };
        assert_ne!(tree.node_of(&levels, &stack).index(), 0);
    }

    #[test]
    fn frames_take_the_place_of_the_loop_that_runs_them() {
        let python = [frame(3, 210), frame(2, 290), frame(1, 450)];
        let code = [LIBRARY, LOOP, GLUE, LOOP, GLUE, C_LIBRARY];
        check(&code, true, &python, "f1;f2;f3;1000");
        check(&[GLUE, LOOP], true, &[frame(1, 250)], "f1;2080");
        check(&[LIBRARY, GLUE, LOOP], true, &[frame(1, 350)], "f1;1000");
        let in_c = [C_LIBRARY, GLUE, LOOP];
        check(&in_c, true, &[frame(1, 350)], "f1;2080;3000");
        check(&[LIBRARY, C_LIBRARY], true, &[], "3000;1000");
    }

    #[test]
    fn frames_of_a_program_around_the_interpreter_stay() {
        let code = [LOOP, GLUE, LIBRARY, LOOP, GLUE, PROGRAM, C_LIBRARY];
        let python = [frame(2, 150), frame(1, 450)];
        check(&code, true, &python, "3000;4000;f1;1000;f2");
    }

    #[test]
    fn frames_of_an_unknown_loop_follow_with_a_mark() {
        let python = [frame(2, 150), frame(1, 10_000)];
        check(&[LOOP, GLUE], false, &python, "[truncated];f1;f2");
        check(&[LIBRARY], true, &[frame(1, 0)], "[truncated];f1;1000");
        check(&[LOOP], true, &[frame(95, 150)], "[code is gone]");
    }

    #[test]
    fn frames_without_anchors_take_turns() {
        let check = |code: &[u64], complete: bool, frames: usize, expected: &[usize]| {
            let frames = vec![frame(1, 0); frames];
            let found = Found {
                frames: &frames,
                is_complete: true,
            };
            let stack = native(code, complete);
            let mut turns = Turns::new(LOOP..GLUE, found, &stack).unwrap();
            let runs: Vec<_> = code.iter().map(|it| turns.frames_of(*it)).collect();
            assert_eq!(runs, expected);
        };
        let code = [LIBRARY, LOOP, GLUE, LOOP + 1, PROGRAM];
        check(&code, true, 2, &[0, 1, 0, 1, 0]);
        // The innermost loop has not begun its frame; a loop was not recognized; the root is missing.
        check(&code, true, 1, &[0, 0, 0, 1, 0]);
        check(&code, true, 4, &[0, 3, 0, 1, 0]);
        check(&code, false, 4, &[0, 1, 0, 1, 0]);
        let stack = native(&code, true);
        assert!(Turns::new(0..0, Found::default(), &stack).is_none());
    }

    #[test]
    fn code_is_named_again_when_its_address_has_other_code() {
        let mut tree = AddressTrie::new(&[]);
        let mut merger = merger();
        let first = merger.frame_id(&mut tree, frame(5, 0)).unwrap();
        assert_eq!(merger.frame_id(&mut tree, frame(5, 0)).unwrap(), first);
        let key = (5, 1);
        let stale = Known {
            identity: 4,
            frame: FrameId(77),
        };
        assert!(merger.known.insert(key, stale));
        assert_eq!(merger.frame_id(&mut tree, frame(5, 0)).unwrap(), first);
        assert_eq!(merger.known.get(&key).unwrap().frame, first);
    }

    #[test]
    fn an_address_is_no_mark_whatever_its_bits() {
        let tree = AddressTrie::new(&[]);
        let stack = native(&[FOREIGN | 0x76c2_1dff, LIBRARY], true);
        assert_eq!(text(&tree, &stack), "1000;76c21dff");
    }

    #[test]
    fn code_is_checked_once_a_tick_and_that_of_a_stack_together() {
        let mut tree = AddressTrie::new(&[]);
        let mut merger = merger();
        let frames: Vec<_> = (0..150).map(|code| frame(code % 70, 150)).collect();
        let mut merge = |frames| {
            let before = READS.get();
            let found = Found {
                frames,
                is_complete: true,
            };
            merger.merge(&mut tree, found, &mut native(&[LOOP], true));
            merger.begin_tick();
            READS.get() - before
        };
        assert_eq!(merge(&frames[..40]), 1);
        assert_eq!(merge(&frames[..40]), 1, "other code may be there now");
        assert_eq!(merge(&frames), 1 + 6, "those beyond 64 one by one");
    }

    #[test]
    fn a_blocked_thread_is_merged_as_it_was_walked() {
        let mut tree = AddressTrie::new(&[]);
        let mut merger = merger();
        for thread in [7, 8] {
            merger.walk_blocked(thread, None);
            let mut stack = native(&[LOOP, C_LIBRARY], true);
            assert!(!merger.merge_blocked(&mut tree, &mut stack));
            assert_eq!(text(&tree, &stack), format!("f{thread}"));
        }
    }

    #[test]
    fn a_wait_for_the_interpreters_lock_has_a_mark() {
        let check = |code: &[u64], futex: u64, expected: &str| {
            let mut tree = AddressTrie::new(&[]);
            let mut merger = merger();
            merger.walk_blocked(9, Some(futex));
            let mut stack = native(code, true);
            merger.blocked[0].anchor = 100 * code.len() as u64 + 50;
            let is_wait = merger.merge_blocked(&mut tree, &mut stack);
            assert_eq!(is_wait, expected.contains("[waiting"));
            assert_eq!(text(&tree, &stack), expected);
        };
        check(&[C_LIBRARY, GLUE, LOOP], 0x500, "f9;[waiting for the lock]");
        check(&[C_LIBRARY, GLUE, LOOP], 0x508, "f9;2080;3000");
        let in_library = [C_LIBRARY, GLUE, LIBRARY, LOOP];
        check(&in_library, 0x500, "f9;1000;[waiting for the lock]");
    }

    #[test]
    fn a_wait_for_the_interpreters_lock_names_the_function_that_holds_it() {
        let mut tree = AddressTrie::new(&[]);
        let mut merger = merger();
        for (futex, holder) in [(0x503, "f3"), (0x504, "f4"), (0x503, "f3")] {
            merger.walk_blocked(9, Some(futex));
            merger.blocked[0].anchor = 350;
            let mut stack = native(&[C_LIBRARY, GLUE, LOOP], true);
            assert!(merger.merge_blocked(&mut tree, &mut stack));
            let expected = format!("f9;[waiting for the lock];[lock held by {holder}]");
            assert_eq!(text(&tree, &stack), expected);
        }
        // The function itself has another name, with its line.
        let own = merger.frame_id(&mut tree, frame(3, 0)).unwrap();
        let AddressFrame::Foreign(name) = tree.frame(own) else {
            panic!("a function");
        };
        assert_eq!((&name.function[..], name.line), ("f3", 1));
        // Other code has got the address of what held it.
        let stale = Known {
            identity: 99,
            frame: FrameId(77),
        };
        merger.known.insert((3, AS_HOLDER), stale);
        let mark = merger.holder_mark(&mut tree, "lock", frame(3, 0)).unwrap();
        assert_ne!(mark, FrameId(77));
    }
}
