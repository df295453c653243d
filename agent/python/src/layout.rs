//! Offsets of the interpreter's structures, by version.

use std::ops::Range;

use std::ffi::CStr;

use system::process::Memory;

use super::Unsupported;
use super::sys;

/// Bytes of a frame and of a code object that are read at once; all offsets into them are smaller.
pub(crate) const FRAME_BYTES: usize = 112;
pub(crate) const CODE_BYTES: usize = 256;

/// Where the interpreter keeps what a walk needs. Offsets are in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    /// The memory of the interpreter's process.
    pub(crate) memory: Memory,
    /// The address of `_PyRuntime`.
    pub(crate) runtime: u64,
    /// The address of `PyCode_Type`, by which code objects are recognized.
    pub(crate) code_type: u64,
    /// The address of `PyGILState_GetThisThreadState`; 0 in other processes.
    pub(crate) this_thread_state: u64,
    /// The thread state that ends the interpreter; 0 while it runs.
    pub(crate) finalizing: u64,
    /// The main interpreter follows.
    pub(crate) interpreters_head: u64,
    pub(crate) interpreter_next: u64,
    pub(crate) threads_head: u64,
    pub(crate) thread_next: u64,
    pub(crate) thread_id: ThreadId,
    /// 0 if frames are objects of their own.
    pub(crate) thread_chunk: u64,
    pub(crate) lock: Lock,
    pub(crate) top: Top,
    pub(crate) frame_previous: usize,
    pub(crate) frame_code: usize,
    pub(crate) frame_instruction: usize,
    pub(crate) entry: Entry,
    pub(crate) code_filename: usize,
    /// The name with its path from 3.11 on, the plain one before.
    pub(crate) code_qualname: usize,
    pub(crate) code_linetable: usize,
    pub(crate) code_firstlineno: usize,
    pub(crate) lines: Lines,
    pub(crate) text_state: u64,
    pub(crate) ascii_bytes: u64,
    pub(crate) compact_bytes: u64,
}

/// How a thread state names its thread.
#[derive(Clone, Debug)]
pub(crate) enum ThreadId {
    /// By the system's id, at this offset (3.11 and later).
    Native { at: u64 },
    /// By the address of the C library's block of the thread, which has the system's id (3.9, 3.10).
    Block { at: u64, id_in_block: u64 },
}

impl Default for ThreadId {
    fn default() -> ThreadId {
        ThreadId::Native { at: 0 }
    }
}

/// How code stores the lines of its instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lines {
    /// Pairs of bytes: differences of offset and line. A frame has the number of its instruction (3.9).
    Pairs,
    /// The same, for ranges that may have no line. A frame counts pairs of bytes (3.10).
    Ranges,
    /// Entries of variable length. A frame has the address of its instruction, and code has the first one's at this
    /// offset (3.11 and later).
    Entries { first_instruction: usize },
}

impl Default for Lines {
    fn default() -> Lines {
        Lines::Entries {
            first_instruction: 0,
        }
    }
}

/// Where the interpreter's lock is.
#[derive(Clone, Debug)]
pub(crate) enum Lock {
    /// In the runtime, at this offset (up to 3.11).
    InRuntime { at: u64 },
    /// A pointer to it is in each interpreter (3.12 and later).
    InInterpreter { at: u64 },
}

impl Default for Lock {
    fn default() -> Lock {
        Lock::InInterpreter { at: 0 }
    }
}

/// How the innermost frame of a thread is found.
#[derive(Clone, Debug)]
pub(crate) enum Top {
    /// By a structure on the stack of the interpreter loop (3.11, 3.12).
    Cframe {
        of_thread: u64,
        current_frame: u64,
        previous: u64,
    },
    /// By the thread state (up to 3.10, and from 3.13 on).
    Frame { of_thread: u64 },
}

impl Default for Top {
    fn default() -> Top {
        Top::Frame { of_thread: 0 }
    }
}

/// How it is known which frames one interpreter loop runs.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// Frames are objects of the type at this address, and each has a loop of its own (3.9, 3.10).
    Object { frame_type: u64, chain: LoopChain },
    /// A byte of a loop's outermost frame is set (3.11).
    Mark { at: usize, owner: usize },
    /// A frame with an owner of at least this number is on the stack of the loop, and outside of its frames (3.12 and
    /// later).
    Owner { owner: usize, least: u8 },
}

impl Default for Entry {
    fn default() -> Entry {
        Entry::Owner { owner: 0, least: 3 }
    }
}

/// How it is known which part of the native stack a loop of one frame uses.
#[derive(Clone, Debug)]
pub(crate) enum LoopChain {
    /// By a list of structures on the stacks of the loops (3.10). The last one is at `root` in the thread state, of no
    /// loop, and what it says of the previous one is not initialized.
    Cframes {
        of_thread: u64,
        previous: u64,
        root: u64,
    },
    /// Only by the code of the loop (3.9).
    Code { range: Range<u64> },
}

/// A process that may have an interpreter.
#[derive(Clone, Copy)]
pub(crate) struct Source<'s> {
    pub(crate) memory: Memory,
    /// Returns where an exported symbol is.
    pub(crate) symbol: &'s dyn Fn(&CStr) -> Option<Range<u64>>,
}

impl Source<'_> {
    fn address(&self, name: &CStr) -> Option<u64> {
        (self.symbol)(name).map(|range| range.start)
    }
}

impl Layout {
    /// Finds the interpreter of a process and its offsets.
    ///
    /// # Errors
    /// [`Unsupported`].
    pub(crate) fn find(source: Source<'_>) -> Result<Layout, Unsupported> {
        let symbol = |name| source.address(name).ok_or(Unsupported::NoInterpreter);
        let common = Layout {
            memory: source.memory,
            runtime: symbol(c"_PyRuntime")?,
            code_type: symbol(c"PyCode_Type")?,
            this_thread_state: match source.memory {
                Memory::Own => symbol(c"PyGILState_GetThisThreadState")?,
                Memory::Of(_) => 0,
            },
            ..Layout::default()
        };
        let version = version(source).ok_or(Unsupported::Old)?;
        let layout = match version >> 16 {
            0x0309 => common.of_3_9(source)?,
            0x030a => common.of_3_10(source)?,
            0x030b => common.of_3_11(),
            0x030c => common.of_3_12(),
            0x030d | 0x030e => common.of_debug_offsets(version)?,
            _ => {
                return Err(Unsupported::Version {
                    major: (version >> 24) as u8,
                    minor: (version >> 16) as u8,
                });
            }
        };
        if layout.is_plausible() {
            Ok(layout)
        } else {
            Err(Unsupported::Layout)
        }
    }

    /// Of both versions whose frames are objects. The chain of loops is 3.9's.
    fn of_objects(self, source: Source<'_>) -> Result<Layout, Unsupported> {
        let symbol = |name| (source.symbol)(name).ok_or(Unsupported::Layout);
        let evaluate = symbol(c"_PyEval_EvalFrameDefault")?;
        let frame_type = symbol(c"PyFrame_Type")?.start;
        Ok(Layout {
            finalizing: 16,
            interpreters_head: 32,
            interpreter_next: 0,
            threads_head: 8,
            thread_next: 8,
            thread_id: ThreadId::Block {
                at: 176,
                id_in_block: sys::id_in_thread_block().ok_or(Unsupported::Layout)?,
            },
            thread_chunk: 0,
            lock: Lock::InRuntime { at: 352 },
            top: Top::Frame { of_thread: 24 },
            frame_previous: 24,
            frame_code: 32,
            entry: Entry::Object {
                frame_type,
                chain: LoopChain::Code { range: evaluate },
            },
            code_filename: 104,
            code_qualname: 112,
            code_linetable: 120,
            code_firstlineno: 40,
            text_state: 32,
            ascii_bytes: 48,
            compact_bytes: 72,
            ..self
        })
    }

    fn of_3_9(self, source: Source<'_>) -> Result<Layout, Unsupported> {
        Ok(Layout {
            frame_instruction: 104,
            lines: Lines::Pairs,
            ..self.of_objects(source)?
        })
    }

    fn of_3_10(self, source: Source<'_>) -> Result<Layout, Unsupported> {
        let frame_type = source.address(c"PyFrame_Type").ok_or(Unsupported::Layout)?;
        Ok(Layout {
            frame_instruction: 96,
            lines: Lines::Ranges,
            entry: Entry::Object {
                frame_type,
                chain: LoopChain::Cframes {
                    of_thread: 48,
                    previous: 8,
                    root: 264,
                },
            },
            ..self.of_objects(source)?
        })
    }

    fn of_3_11(self) -> Layout {
        Layout {
            finalizing: 24,
            interpreters_head: 40,
            interpreter_next: 0,
            threads_head: 16,
            thread_next: 8,
            thread_id: ThreadId::Native { at: 160 },
            thread_chunk: 296,
            lock: Lock::InRuntime { at: 360 },
            top: Top::Cframe {
                of_thread: 56,
                current_frame: 8,
                previous: 16,
            },
            frame_previous: 48,
            frame_code: 32,
            frame_instruction: 56,
            entry: Entry::Mark { at: 68, owner: 69 },
            code_filename: 112,
            code_qualname: 128,
            code_linetable: 136,
            code_firstlineno: 72,
            lines: Lines::Entries {
                first_instruction: 184,
            },
            text_state: 32,
            ascii_bytes: 48,
            compact_bytes: 72,
            ..self
        }
    }

    fn of_3_12(self) -> Layout {
        Layout {
            finalizing: 24,
            interpreters_head: 40,
            interpreter_next: 0,
            threads_head: 72,
            thread_next: 8,
            thread_id: ThreadId::Native { at: 144 },
            thread_chunk: 232,
            lock: Lock::InInterpreter { at: 384 },
            top: Top::Cframe {
                of_thread: 56,
                current_frame: 0,
                previous: 8,
            },
            frame_previous: 8,
            frame_code: 0,
            frame_instruction: 56,
            entry: Entry::Owner {
                owner: 70,
                least: 3,
            },
            code_filename: 112,
            code_qualname: 128,
            code_linetable: 136,
            code_firstlineno: 68,
            lines: Lines::Entries {
                first_instruction: 192,
            },
            text_state: 32,
            ascii_bytes: 40,
            compact_bytes: 56,
            ..self
        }
    }

    /// Reads `_Py_DebugOffsets`, groups of numbers of 8 bytes at the start of the runtime. Each group begins with the
    /// size of its structure.
    fn of_debug_offsets(self, version: u32) -> Result<Layout, Unsupported> {
        const COOKIE: &[u8; 8] = b"xdebugpy";
        let mut bytes = [0; 1024];
        if !self.read(self.runtime, &mut bytes) || bytes[..8] != COOKIE[..] {
            return Err(Unsupported::Layout);
        }
        let is_later = version >> 16 >= 0x030e;
        let mut offsets = Offsets {
            bytes: &bytes,
            next: 8,
        };
        let [published, free_threaded] = offsets.group();
        if published != u64::from(version) {
            return Err(Unsupported::Layout);
        }
        if free_threaded != 0 {
            return Err(Unsupported::FreeThreaded);
        }
        let runtime: [u64; 3] = offsets.group();
        let interpreter: [u64; 13] = offsets.group();
        offsets.skip(if is_later { 3 } else { 0 });
        let lock = interpreter[if is_later { 9 } else { 8 }];
        let thread: [u64; 9] = offsets.group();
        let frame: [u64; 6] = offsets.group();
        offsets.skip(if is_later { 2 } else { 0 });
        let code: [u64; 10] = offsets.group();
        // Rest of the code, objects, types, tuples and lists, sets, dictionaries, numbers, bytes.
        offsets.skip(if is_later { 1 } else { 0 });
        offsets.skip(2 + 4 + 3 + 3 + if is_later { 4 } else { 0 } + 3 + 2 + 3 + 3);
        let text: [u64; 4] = offsets.group();
        Ok(Layout {
            finalizing: runtime[1],
            interpreters_head: runtime[2],
            interpreter_next: interpreter[2],
            threads_head: interpreter[3],
            thread_next: thread[2],
            top: Top::Frame {
                of_thread: thread[4],
            },
            lock: Lock::InInterpreter { at: lock },
            thread_id: ThreadId::Native { at: thread[6] },
            thread_chunk: thread[7],
            frame_previous: frame[1] as usize,
            frame_code: frame[2] as usize,
            frame_instruction: frame[3] as usize,
            entry: Entry::Owner {
                owner: frame[5] as usize,
                least: 3,
            },
            code_filename: code[1] as usize,
            code_qualname: code[3] as usize,
            code_linetable: code[4] as usize,
            code_firstlineno: code[5] as usize,
            lines: Lines::Entries {
                first_instruction: code[9] as usize,
            },
            text_state: text[1],
            ascii_bytes: text[3],
            compact_bytes: text[3].saturating_add(16),
            ..self
        })
    }

    /// Fills `into` from memory that may be unmapped. Returns whether all of it was read.
    pub(crate) fn read(&self, address: u64, into: &mut [u8]) -> bool {
        sys::read(self.memory, address, into)
    }

    /// Reads a word of memory that may be unmapped.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        sys::word(self.memory, address)
    }

    /// Whether all offsets are within what is read, and those of a thread within a page or so.
    fn is_plausible(&self) -> bool {
        let of_frame = [
            self.frame_previous,
            self.frame_code,
            self.frame_instruction,
            self.entry.last_byte(),
        ];
        let of_code = [
            self.code_filename,
            self.code_qualname,
            self.code_linetable,
            self.code_firstlineno,
        ];
        let of_others = [
            self.thread_next,
            self.thread_id.at(),
            self.thread_chunk,
            self.text_state,
            self.ascii_bytes,
        ];
        let others_max = 4_096;
        of_frame.iter().all(|offset| offset + 8 <= FRAME_BYTES)
            && of_code.iter().all(|offset| offset + 8 <= CODE_BYTES)
            && of_others.iter().all(|offset| *offset < others_max)
            && self.finalizing < 1 << 20
            && self.interpreters_head < 1 << 20
            && self.threads_head < 1 << 20
    }
}

impl ThreadId {
    /// The offset in a thread state.
    pub(crate) fn at(&self) -> u64 {
        match self {
            ThreadId::Native { at } | ThreadId::Block { at, .. } => *at,
        }
    }

    /// The system's id of the thread with the state `state`; `word` reads a word, or fails.
    pub(crate) fn read(&self, state: u64, mut word: impl FnMut(u64) -> Option<u64>) -> Option<u32> {
        let number = word(state.checked_add(self.at())?)?;
        let id = match self {
            ThreadId::Native { .. } => number,
            ThreadId::Block { id_in_block, .. } => word(number.checked_add(*id_in_block)?)?,
        };
        Some(id as u32)
    }
}

impl Entry {
    /// The code of the loop, if a frame tells nothing else of its part of the native stack.
    pub(crate) fn code(&self) -> Range<u64> {
        match self {
            Entry::Object {
                chain: LoopChain::Code { range },
                ..
            } => range.clone(),
            _ => 0..0,
        }
    }

    /// The offset of a frame's last byte that is read for this.
    pub(crate) fn last_byte(&self) -> usize {
        match self {
            Entry::Object { .. } => 0,
            Entry::Mark { owner, .. } | Entry::Owner { owner, .. } => *owner,
        }
    }
}

/// The version of the interpreter, as 3.11 and later publish it. Earlier ones are known by functions that were new in
/// them. `None` before 3.9.
fn version(source: Source<'_>) -> Option<u32> {
    if let Some(published) = source.address(c"Py_Version") {
        return sys::word(source.memory, published).map(|version| version as u32);
    }
    if source.address(c"Py_Is").is_some() {
        return Some(0x030a_0000);
    }
    source.address(c"PyObject_CallNoArgs").map(|_| 0x0309_0000)
}

/// Numbers of 8 bytes, one after the other.
struct Offsets<'b> {
    bytes: &'b [u8; 1024],
    next: usize,
}

impl Offsets<'_> {
    fn group<const N: usize>(&mut self) -> [u64; N] {
        let start = self.next;
        self.skip(N);
        std::array::from_fn(|index| sys::word_in(self.bytes, start + index * 8))
    }

    fn skip(&mut self, count: usize) {
        self.next += count * 8;
    }
}
