//! Frames and the table that holds each of them once.

use std::sync::Arc;

use crate::hash::KeyedMap;

use crate::profile::Frames;

/// Kind of a frame. The first level of a tree always consists of [`FrameKind::Task`],
/// [`FrameKind::NoTask`] and [`FrameKind::Agent`], unless the profile was grouped. Siblings in a
/// profile sort in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FrameKind {
    /// A group of workers, hosts or labels, above the tasks of a [grouped](crate::Profile::grouped)
    /// profile. Only in answers, never in an agent's tree.
    Group,
    /// A task, by name.
    Task,
    /// A thread of the program outside any task.
    NoTask,
    /// A thread of the agent itself.
    Agent,
    /// The stack is deeper than what was copied, or its outer frames could not be unwound.
    Truncated,
    /// Time of a thread of which no stack was taken; the name tells why.
    NoStack,
    /// A limit was reached: totals stay true, detail is lost.
    Overflow,
    /// A phase of the task above it, by name.
    Phase,
    /// A thread, by name and id, in time by thread.
    Thread,
    /// A function.
    Function,
    /// An address without a symbol, identified by module and offset.
    Unresolved,
}

/// Why time has no stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NoStack {
    /// The thread was not sampled in time: it had not been seen before, or the sampler was late.
    NotSampled,
    /// The thread ended before it was sampled.
    ShortThread,
    /// The thread blocks the sampler's signal.
    SignalBlocked,
    /// The system does not let the sampler read such threads; the sampler's mode tells why.
    SamplerMode,
}

impl NoStack {
    /// Every reason.
    pub const ALL: [NoStack; 4] = [
        NoStack::NotSampled,
        NoStack::ShortThread,
        NoStack::SignalBlocked,
        NoStack::SamplerMode,
    ];

    /// The name of the frame.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            NoStack::NotSampled => "[no stack: not sampled]",
            NoStack::ShortThread => "[no stack: short thread]",
            NoStack::SignalBlocked => "[no stack: signal blocked]",
            NoStack::SamplerMode => "[no stack: sampler mode]",
        }
    }
}

/// First number that stands for an offset in a file. No file has an address from here to the kernel's, the
/// upper half of all numbers.
const FILE_OFFSETS: u64 = 1 << 62;

/// Where an address without a name is in its module.
///
/// ```
/// use emberline_profiler_core::CodePlace;
///
/// assert_eq!(CodePlace::of(0x1234), CodePlace::Address(0x1234));
/// let place = CodePlace::FileOffset(0x1234);
/// assert_eq!(CodePlace::of(place.number()), place);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodePlace {
    /// The address that the module's file gives it, before it is relocated. Agents send these.
    Address(u64),
    /// Where the module's file has the bytes of the code. Only the file's program headers say which address
    /// that is. Profiles that have mappings instead of files, such as pprof's, have these.
    FileOffset(u64),
}

impl CodePlace {
    /// The place that a number stands for.
    #[must_use]
    pub const fn of(number: u64) -> CodePlace {
        if number >> 62 == 1 {
            CodePlace::FileOffset(number - FILE_OFFSETS)
        } else {
            CodePlace::Address(number)
        }
    }

    /// The place as one number, which [`Frame::offset`] has. An older program takes an offset in a file for an
    /// address that no file has, and finds no name for it.
    #[must_use]
    pub const fn number(self) -> u64 {
        match self {
            CodePlace::Address(address) => address,
            CodePlace::FileOffset(offset) => FILE_OFFSETS | (offset & (FILE_OFFSETS - 1)),
        }
    }
}

/// One frame of a stack, or the task above it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame<S = Arc<str>> {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Function with its path, demangled; for a task, the task's name.
    pub function: S,
    /// Source file; empty if unknown.
    pub file: S,
    /// Line in that file; 0 if unknown.
    pub line: u32,
    /// Path of the executable or library.
    pub module: S,
    /// Build id of the module, in hexadecimal; empty if it has none.
    pub build_id: S,
    /// Place of an unresolved address in its module, as [`CodePlace::number`]; 0 if the function is known.
    pub offset: u64,
    /// Whether the compiler inlined this function into the frame above it.
    pub inlined: bool,
}

impl<'a> Frame<&'a str> {
    const fn named(kind: FrameKind, function: &'a str) -> Self {
        Frame {
            kind,
            function,
            file: "",
            line: 0,
            module: "",
            build_id: "",
            offset: 0,
            inlined: false,
        }
    }

    /// The first-level frame of the task `name`.
    #[must_use]
    pub const fn task(name: &'a str) -> Self {
        Frame::named(FrameKind::Task, name)
    }

    /// The first-level frame of threads outside any task.
    #[must_use]
    pub const fn no_task() -> Self {
        Frame::named(FrameKind::NoTask, "[no task]")
    }

    /// The first-level frame of the agent's own threads.
    #[must_use]
    pub const fn agent() -> Self {
        Frame::named(FrameKind::Agent, "[agent]")
    }

    /// The frame that replaces outer frames that could not be unwound.
    #[must_use]
    pub const fn truncated() -> Self {
        Frame::named(FrameKind::Truncated, "[truncated]")
    }

    /// The only frame of time without a stack.
    #[must_use]
    pub const fn no_stack(reason: NoStack) -> Self {
        Frame::named(FrameKind::NoStack, reason.label())
    }

    /// The frame that absorbs everything past a limit.
    #[must_use]
    pub const fn overflow() -> Self {
        Frame::named(FrameKind::Overflow, "[overflow]")
    }

    /// The first-level frame of a group in a grouped profile.
    #[must_use]
    pub const fn group(name: &'a str) -> Self {
        Frame::named(FrameKind::Group, name)
    }

    /// The second-level frame of a task's phase.
    #[must_use]
    pub const fn phase(name: &'a str) -> Self {
        Frame::named(FrameKind::Phase, name)
    }

    /// A thread, by its name and the operating system's id. Id 0 stands for all short-lived threads
    /// of that name.
    #[must_use]
    pub const fn thread(name: &'a str, id: u32) -> Self {
        let mut frame = Frame::named(FrameKind::Thread, name);
        frame.line = id;
        frame
    }

    /// A function at a line.
    #[must_use]
    pub const fn function(function: &'a str, file: &'a str, line: u32) -> Self {
        let mut frame = Frame::named(FrameKind::Function, function);
        frame.file = file;
        frame.line = line;
        frame
    }
}

impl<S: AsRef<str>> Frame<S> {
    /// Returns the text to display: the function, or `module+0xaddress` or `module@0xoffset` (see
    /// [`CodePlace`]) if there is none, or `module` alone if addresses were merged. Of code without a symbol, the
    /// function is `module+0xaddress` with the address of its start, if that is known.
    #[must_use]
    pub fn label(&self) -> String {
        match self.kind {
            FrameKind::Unresolved if self.function.as_ref().is_empty() => {
                let module = self.module.as_ref();
                let file = module.rsplit('/').next().unwrap_or(module);
                let file = if file.is_empty() { "[unknown]" } else { file };
                match CodePlace::of(self.offset) {
                    CodePlace::Address(0) => file.to_owned(),
                    CodePlace::Address(address) => format!("{file}+{address:#x}"),
                    CodePlace::FileOffset(offset) => format!("{file}@{offset:#x}"),
                }
            }
            _ => self.function.as_ref().to_owned(),
        }
    }

    /// The same frame with its strings mapped.
    pub fn map<'s, T>(&'s self, mut map: impl FnMut(&'s str) -> T) -> Frame<T> {
        Frame {
            kind: self.kind,
            function: map(self.function.as_ref()),
            file: map(self.file.as_ref()),
            line: self.line,
            module: map(self.module.as_ref()),
            build_id: map(self.build_id.as_ref()),
            offset: self.offset,
            inlined: self.inlined,
        }
    }
}

/// Index of a string in a [`SymbolTable`]; 0 is the empty string.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StringId(pub u32);

/// Index of a frame in a [`SymbolTable`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FrameId(pub u32);

/// Interns strings and frames. Ids follow the order of first appearance and never change, so both
/// ends of a wire can grow the same table.
///
/// A table that lives long may forget strings and frames. A forgotten frame keeps its id, and comes back
/// under it; the id of a forgotten string goes to another one.
#[derive(Clone, Debug)]
pub struct SymbolTable {
    strings: Vec<Arc<str>>,
    string_ids: KeyedMap<Arc<str>, StringId>,
    /// The frames from `frames_before` on.
    frames: Vec<Frame<StringId>>,
    frame_ids: KeyedMap<Frame<StringId>, FrameId>,
    /// The frames before `frames_before` that are not forgotten.
    older_frames: KeyedMap<FrameId, Frame<StringId>>,
    frames_before: u32,
    /// Ids of forgotten strings.
    free_strings: Vec<StringId>,
    text_bytes: usize,
}

impl Default for SymbolTable {
    fn default() -> Self {
        SymbolTable::new()
    }
}

impl SymbolTable {
    /// A table that holds the empty string and no frame.
    #[must_use]
    pub fn new() -> Self {
        let empty: Arc<str> = "".into();
        SymbolTable {
            strings: vec![empty.clone()],
            string_ids: KeyedMap::from_iter([(empty, StringId(0))]),
            frames: Vec::new(),
            frame_ids: KeyedMap::default(),
            older_frames: KeyedMap::default(),
            frames_before: 0,
            free_strings: Vec::new(),
            text_bytes: 0,
        }
    }

    /// Creates a table with capacity for this many frames and strings.
    pub(crate) fn with_capacity(frames: usize, strings: usize) -> Self {
        let mut symbols = SymbolTable::new();
        symbols.strings.reserve(strings);
        symbols.string_ids.reserve(strings);
        symbols.frames.reserve(frames);
        symbols.frame_ids.reserve(frames);
        symbols
    }

    /// Returns the id of `text`; adds it if it is new.
    pub fn intern_string(&mut self, text: &str) -> StringId {
        // Most strings of frames are empty, and looking them up cost more than all others together.
        if text.is_empty() {
            return StringId(0);
        }
        if let Some(id) = self.string_ids.get(text) {
            return *id;
        }
        let text: Arc<str> = text.into();
        let id = self.push_string(text.clone());
        self.string_ids.insert(text, id);
        id
    }

    fn push_string(&mut self, text: Arc<str>) -> StringId {
        self.text_bytes += text.len();
        if let Some(id) = self.free_strings.pop() {
            self.strings[id.0 as usize] = text;
            return id;
        }
        let id = StringId(index(self.strings.len()));
        self.strings.push(text);
        id
    }

    /// The id of `text`, if the table has it.
    #[must_use]
    pub fn string_id(&self, text: &str) -> Option<StringId> {
        self.string_ids.get(text).copied()
    }

    /// Like [`SymbolTable::intern_string`], without copying the text.
    pub(crate) fn intern_shared(&mut self, text: &Arc<str>) -> StringId {
        if text.is_empty() {
            return StringId(0);
        }
        if let Some(id) = self.string_ids.get(text) {
            return *id;
        }
        let id = self.push_string(text.clone());
        self.string_ids.insert(text.clone(), id);
        id
    }

    /// All frames and strings, by id, of a table that has forgotten none.
    pub(crate) fn frames_by_number(&self) -> Frames<'_> {
        Frames {
            strings: &self.strings,
            frames: &self.frames,
        }
    }

    /// Returns the id of `frame`; adds it and its strings if it is new.
    pub fn intern<S: AsRef<str>>(&mut self, frame: &Frame<S>) -> FrameId {
        let frame = frame.map(|text| self.intern_string(text));
        self.intern_ids(frame)
    }

    /// Returns the id of a frame whose strings are already in this table.
    ///
    /// # Panics
    /// If a string's id is not from this table.
    pub fn intern_ids(&mut self, frame: Frame<StringId>) -> FrameId {
        for id in [frame.function, frame.file, frame.module, frame.build_id] {
            assert!(
                (id.0 as usize) < self.strings.len(),
                "{id:?} is not from this table"
            );
        }
        let next = FrameId(self.frame_count());
        let id = *self.frame_ids.entry(frame.clone()).or_insert(next);
        if id == next {
            self.frames.push(frame);
        }
        id
    }

    /// Adds a frame with the next id, even if an equal one exists. Only for reading a stored table,
    /// whose ids must not change. Lookups find the first of two equal frames.
    ///
    /// # Panics
    /// If a string's id is not from this table.
    pub fn restore(&mut self, frame: Frame<StringId>) -> FrameId {
        let id = FrameId(self.frame_count());
        if self.intern_ids(frame.clone()) != id {
            self.frames.push(frame);
        }
        id
    }

    /// Returns the id of `frame` if the table holds it.
    #[must_use]
    pub fn find<S: AsRef<str>>(&self, frame: &Frame<S>) -> Option<FrameId> {
        let mut known = true;
        let frame = frame.map(|text| {
            let id = self.string_ids.get(text).copied();
            known &= id.is_some();
            id.unwrap_or_default()
        });
        if known {
            self.frame_ids.get(&frame).copied()
        } else {
            None
        }
    }

    /// Returns the id of a frame whose strings are in this table, if the table holds it.
    #[must_use]
    pub fn find_ids(&self, frame: &Frame<StringId>) -> Option<FrameId> {
        self.frame_ids.get(frame).copied()
    }

    /// The first frame that is equal to one of this table.
    ///
    /// # Panics
    /// As [`SymbolTable::frame_ids`].
    #[must_use]
    pub fn first_equal(&self, id: FrameId) -> FrameId {
        self.find_ids(self.frame_ids(id)).unwrap_or(id)
    }

    /// The string with that id; the empty one if it is forgotten.
    ///
    /// # Panics
    /// If `id` is not from this table.
    #[must_use]
    pub fn string(&self, id: StringId) -> &Arc<str> {
        &self.strings[id.0 as usize]
    }

    /// The frame with that id, as ids of strings.
    ///
    /// # Panics
    /// If `id` is not from this table, or forgotten.
    #[must_use]
    pub fn frame_ids(&self, id: FrameId) -> &Frame<StringId> {
        match id.0.checked_sub(self.frames_before) {
            Some(index) => &self.frames[index as usize],
            None => &self.older_frames[&id],
        }
    }

    /// Whether the table has the frame with that id.
    #[must_use]
    pub fn holds_frame(&self, id: FrameId) -> bool {
        if id.0 < self.frames_before {
            self.older_frames.contains_key(&id)
        } else {
            id.0 < self.frame_count()
        }
    }

    /// Lets frames stay when [`SymbolTable::close_frames`] frees those around them.
    pub fn set_aside_frames(&mut self, ids: &[FrameId]) {
        for id in ids {
            if self.holds_frame(*id) {
                let frame = self.frame_ids(*id).clone();
                self.older_frames.insert(*id, frame);
            }
        }
    }

    /// Forgets frames. [`SymbolTable::close_frames`] must follow.
    pub fn forget_frames(&mut self, ids: &[FrameId]) {
        for id in ids {
            if !self.holds_frame(*id) {
                continue;
            }
            let frame = self.frame_ids(*id).clone();
            self.older_frames.remove(id);
            if self.frame_ids.get(&frame) == Some(id) {
                self.frame_ids.remove(&frame);
            }
        }
    }

    /// Frees the memory of the frames before `end`, of which each was set aside or forgotten.
    pub fn close_frames(&mut self, end: FrameId) {
        let count = end.0.saturating_sub(self.frames_before);
        self.frames.drain(..count as usize);
        self.frames.shrink_to_fit();
        self.frames_before += count;
    }

    /// Brings a forgotten frame back. Returns its id, or that of an equal frame which came in the meantime.
    pub fn recall_frame<S: AsRef<str>>(&mut self, id: FrameId, frame: &Frame<S>) -> FrameId {
        if self.holds_frame(id) {
            return id;
        }
        let frame = frame.map(|text| self.intern_string(text));
        let known = *self.frame_ids.entry(frame.clone()).or_insert(id);
        if known == id {
            self.older_frames.insert(id, frame);
        }
        known
    }

    /// Ids of the frames that the table has, ascending.
    #[must_use]
    pub fn held_frames(&self) -> Vec<FrameId> {
        let mut ids: Vec<FrameId> = self.older_frames.keys().copied().collect();
        ids.sort_unstable();
        ids.extend((self.frames_before..self.frame_count()).map(FrameId));
        ids
    }

    /// Forgets a string that no frame has. Its id goes to another string.
    pub fn forget_string(&mut self, id: StringId) {
        let empty = self.strings[0].clone();
        let text = std::mem::replace(&mut self.strings[id.0 as usize], empty);
        // The empty string stays, and is in the place of those that were forgotten before.
        if !text.is_empty() {
            self.string_ids.remove(&text);
            self.text_bytes -= text.len();
            self.free_strings.push(id);
        }
    }

    /// Number of strings that the table has.
    #[must_use]
    pub fn held_strings(&self) -> usize {
        self.strings.len() - self.free_strings.len()
    }

    /// Number of frames that the table has.
    #[must_use]
    pub fn held_frame_count(&self) -> usize {
        self.older_frames.len() + self.frames.len()
    }

    /// Length of all strings that the table has.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// The frame with that id.
    ///
    /// # Panics
    /// If `id` is not from this table, or forgotten.
    #[must_use]
    pub fn frame(&self, id: FrameId) -> Frame<&str> {
        let Frame {
            kind,
            function,
            file,
            line,
            module,
            build_id,
            offset,
            inlined,
        } = *self.frame_ids(id);
        let text = |id: StringId| &**self.string(id);
        Frame {
            kind,
            function: text(function),
            file: text(file),
            line,
            module: text(module),
            build_id: text(build_id),
            offset,
            inlined,
        }
    }

    /// Number of ids of strings, including the empty one.
    #[must_use]
    pub fn string_count(&self) -> u32 {
        index(self.strings.len())
    }

    /// Number of ids of frames.
    #[must_use]
    pub fn frame_count(&self) -> u32 {
        self.frames_before + index(self.frames.len())
    }
}

/// A table's length as an id.
fn index(length: usize) -> u32 {
    u32::try_from(length).expect("the limits on names and nodes keep every table below 2^32")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_frame_has_the_next_id_and_lookups_find_the_first_of_two_equal() {
        let mut symbols = SymbolTable::new();
        let overflow = Frame::overflow();
        let first = symbols.intern(&overflow);
        let ids = overflow.map(|text| symbols.intern_string(text));
        for id in 1..4 {
            assert_eq!(symbols.restore(ids.clone()), FrameId(id));
        }
        assert_eq!(
            (symbols.intern(&overflow), symbols.frame_count()),
            (first, 4)
        );
        assert_eq!(symbols.frame(FrameId(3)), overflow);
        assert_eq!(symbols.first_equal(FrameId(3)), first);
    }

    #[test]
    fn a_forgotten_frame_comes_back_under_its_id_or_as_its_equal() {
        let mut symbols = SymbolTable::new();
        let frames = ["a", "b", "c"].map(|name| Frame::function(name, "", 1));
        let ids = frames.clone().map(|frame| symbols.intern(&frame));
        symbols.set_aside_frames(&ids[1..2]);
        symbols.forget_frames(&[ids[0], ids[2]]);
        symbols.close_frames(FrameId(3));
        for name in ["a", "c"] {
            symbols.forget_string(symbols.string_id(name).unwrap());
        }
        let held = (symbols.held_strings(), symbols.text_bytes());
        assert_eq!((symbols.held_frames(), held), (vec![ids[1]], (2, 1)));
        assert_eq!(symbols.frame(ids[1]), frames[1]);

        let again = symbols.intern(&frames[2]);
        assert_eq!((again, symbols.string_count()), (FrameId(3), 4));
        assert_eq!(symbols.recall_frame(ids[2], &frames[2]), again);
        assert_eq!(symbols.recall_frame(ids[0], &frames[0]), ids[0]);
        assert_eq!(symbols.frame(ids[0]), frames[0]);
        assert_eq!(symbols.find(&frames[0]), Some(ids[0]));
        let held = (symbols.held_frame_count(), symbols.held_strings());
        assert_eq!((held, symbols.string_count()), ((3, 4), 4));
    }

    #[test]
    fn equal_frames_share_an_id() {
        let mut symbols = SymbolTable::new();
        let a = symbols.intern(&Frame::function("f", "a.rs", 1));
        let b = symbols.intern(&Frame::function("f", "a.rs", 2));
        assert_eq!(symbols.intern(&Frame::function("f", "a.rs", 1)), a);
        assert_ne!(a, b);
        assert_eq!(symbols.frame(b), Frame::function("f", "a.rs", 2));
        assert_eq!(symbols.find(&Frame::function("f", "a.rs", 2)), Some(b));
        assert_eq!(symbols.find(&Frame::function("g", "a.rs", 2)), None);
        assert_eq!((symbols.string_count(), symbols.frame_count()), (3, 2));
    }

    #[test]
    fn an_unresolved_frame_is_labeled_by_module_and_offset() {
        let mut frame = Frame::function("", "", 0);
        frame.kind = FrameKind::Unresolved;
        frame.offset = 0x1a2b;
        assert_eq!(frame.label(), "[unknown]+0x1a2b");
        frame.module = "/usr/lib/libc.so.6";
        assert_eq!(frame.label(), "libc.so.6+0x1a2b");
        frame.offset = CodePlace::FileOffset(0x1a2b).number();
        assert_eq!(frame.label(), "libc.so.6@0x1a2b");
        frame.offset = 0xffff_ffff_8100_0000;
        assert_eq!(frame.label(), "libc.so.6+0xffffffff81000000");
        frame.offset = 0;
        assert_eq!(frame.label(), "libc.so.6");
        frame.function = "libc.so.6+0x1a00";
        frame.offset = 0x1a2b;
        assert_eq!(frame.label(), "libc.so.6+0x1a00");
    }
}
