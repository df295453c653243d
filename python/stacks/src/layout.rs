//! Offsets of the interpreter's structures, by version.

use super::Unsupported;
use super::sys;

/// Bytes of a frame and of a code object that are read at once; all offsets into them are smaller.
pub(crate) const FRAME_BYTES: usize = 96;
pub(crate) const CODE_BYTES: usize = 256;

/// Where the interpreter keeps what a walk needs. Offsets are in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    /// The address of `_PyRuntime`.
    pub(crate) runtime: u64,
    /// The address of `PyCode_Type`, by which code objects are recognized.
    pub(crate) code_type: u64,
    /// The address of `PyGILState_GetThisThreadState`.
    pub(crate) this_thread_state: u64,
    pub(crate) interpreters_head: u64,
    pub(crate) interpreter_next: u64,
    pub(crate) threads_head: u64,
    pub(crate) thread_next: u64,
    pub(crate) thread_native_id: u64,
    pub(crate) thread_chunk: u64,
    pub(crate) lock: Lock,
    pub(crate) top: Top,
    pub(crate) frame_previous: usize,
    pub(crate) frame_code: usize,
    pub(crate) frame_instruction: usize,
    pub(crate) frame_owner: usize,
    pub(crate) entry: Entry,
    pub(crate) code_filename: usize,
    pub(crate) code_qualname: usize,
    pub(crate) code_linetable: usize,
    pub(crate) code_firstlineno: usize,
    pub(crate) code_instructions: usize,
    pub(crate) text_state: u64,
    pub(crate) ascii_bytes: u64,
    pub(crate) compact_bytes: u64,
}

/// Where the interpreter's lock is.
#[derive(Clone, Debug)]
pub(crate) enum Lock {
    /// In the runtime, at this offset (3.11).
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
    /// By the thread state (3.13 and later).
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
    /// A byte of a loop's outermost frame is set (3.11).
    Mark { at: usize },
    /// A frame with an owner of at least this number is on the stack of the loop, and outside of its frames (3.12 and
    /// later).
    Owner { least: u8 },
}

impl Default for Entry {
    fn default() -> Entry {
        Entry::Owner { least: 3 }
    }
}

impl Layout {
    /// Finds the interpreter of this process and its offsets.
    ///
    /// # Errors
    /// [`Unsupported`].
    pub(crate) fn find() -> Result<Layout, Unsupported> {
        let symbol = |name| sys::symbol(name).ok_or(Unsupported::NoInterpreter);
        let common = Layout {
            runtime: symbol(c"_PyRuntime")?,
            code_type: symbol(c"PyCode_Type")?,
            this_thread_state: symbol(c"PyGILState_GetThisThreadState")?,
            ..Layout::default()
        };
        // Before 3.11 there is no such symbol.
        let published = sys::symbol(c"Py_Version").and_then(sys::word);
        let version = published.ok_or(Unsupported::Old)? as u32;
        let layout = match version >> 16 {
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

    fn of_3_11(self) -> Layout {
        Layout {
            interpreters_head: 40,
            interpreter_next: 0,
            threads_head: 16,
            thread_next: 8,
            thread_native_id: 160,
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
            frame_owner: 69,
            entry: Entry::Mark { at: 68 },
            code_filename: 112,
            code_qualname: 128,
            code_linetable: 136,
            code_firstlineno: 72,
            code_instructions: 184,
            text_state: 32,
            ascii_bytes: 48,
            compact_bytes: 72,
            ..self
        }
    }

    fn of_3_12(self) -> Layout {
        Layout {
            interpreters_head: 40,
            interpreter_next: 0,
            threads_head: 72,
            thread_next: 8,
            thread_native_id: 144,
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
            frame_owner: 70,
            code_filename: 112,
            code_qualname: 128,
            code_linetable: 136,
            code_firstlineno: 68,
            code_instructions: 192,
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
        if !sys::read(self.runtime, &mut bytes) || bytes[..8] != COOKIE[..] {
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
            interpreters_head: runtime[2],
            interpreter_next: interpreter[2],
            threads_head: interpreter[3],
            thread_next: thread[2],
            top: Top::Frame {
                of_thread: thread[4],
            },
            lock: Lock::InInterpreter { at: lock },
            thread_native_id: thread[6],
            thread_chunk: thread[7],
            frame_previous: frame[1] as usize,
            frame_code: frame[2] as usize,
            frame_instruction: frame[3] as usize,
            frame_owner: frame[5] as usize,
            code_filename: code[1] as usize,
            code_qualname: code[3] as usize,
            code_linetable: code[4] as usize,
            code_firstlineno: code[5] as usize,
            code_instructions: code[9] as usize,
            text_state: text[1],
            ascii_bytes: text[3],
            compact_bytes: text[3].saturating_add(16),
            ..self
        })
    }

    /// Whether all offsets are within what is read, and those of a thread within a page or so.
    fn is_plausible(&self) -> bool {
        let of_frame = [
            self.frame_previous,
            self.frame_code,
            self.frame_instruction,
            self.frame_owner,
        ];
        let of_code = [
            self.code_filename,
            self.code_qualname,
            self.code_linetable,
            self.code_firstlineno,
        ];
        let of_others = [
            self.thread_next,
            self.thread_native_id,
            self.thread_chunk,
            self.text_state,
            self.ascii_bytes,
        ];
        let others_max = 4_096;
        of_frame.iter().all(|offset| offset + 8 <= FRAME_BYTES)
            && of_code.iter().all(|offset| offset + 8 <= CODE_BYTES)
            && of_others.iter().all(|offset| *offset < others_max)
            && self.interpreters_head < 1 << 20
            && self.threads_head < 1 << 20
    }
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
