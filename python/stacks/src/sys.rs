//! Symbols of the interpreter, and reads of memory that may be gone.
#![expect(unsafe_code, reason = "the interpreter's memory has no safe interface")]

use std::ffi::{CStr, c_void};
use std::ops::Range;

use system::processor;

use super::layout::Layout;

/// Nothing is mapped below.
const LOWEST: u64 = 4_096;
/// Bytes of a thread state that are read without a check, less than it has in any version.
const STATE_BYTES: u64 = 128;
/// Offset of the size in a chunk of frames; its first word is the address of the next older chunk.
const CHUNK_SIZE: u64 = 8;
/// Most chunks of one thread that are searched for a frame.
const CHUNKS_MAX: usize = 16;

/// Returns the address of an exported symbol.
pub(crate) fn symbol(name: &CStr) -> Option<u64> {
    // SAFETY: `name` is a terminated string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address.addr() as u64)
}

/// Returns the path of the library or program that contains an address.
pub(crate) fn module_of(address: u64) -> Option<String> {
    // SAFETY: all zeros are a valid `Dl_info`.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `dladdr` takes any address, and `info` is writable.
    let found = unsafe { libc::dladdr(address as *const c_void, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a name that was found is a terminated string, which lives as long as its module: the caller runs in it.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = std::fs::canonicalize(name.to_str().ok()?).ok()?;
    path.into_os_string().into_string().ok()
}

/// Fills `into` from memory that may be unmapped. Returns whether all of it was read.
pub(crate) fn read(address: u64, into: &mut [u8]) -> bool {
    if into.is_empty() {
        return true;
    }
    if address < LOWEST {
        return false;
    }
    // SAFETY: `getpid` has no preconditions, and may be called in a signal handler.
    let pid = unsafe { libc::getpid() };
    // SAFETY: `into` is writable for its length.
    let count =
        unsafe { processor::read_memory(pid, address, into.as_mut_ptr().cast(), into.len()) };
    count == into.len()
}

/// Reads a word of memory that may be unmapped.
pub(crate) fn word(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    read(address, &mut bytes).then(|| u64::from_ne_bytes(bytes))
}

/// The word at an offset of what was read; 0 beyond its end.
pub(crate) fn word_in(bytes: &[u8], offset: usize) -> u64 {
    let word = bytes.get(offset..).and_then(|bytes| bytes.first_chunk());
    u64::from_ne_bytes(*word.unwrap_or(&[0; 8]))
}

/// The thread state of the calling thread in the main interpreter; 0 if it has none.
pub(crate) fn this_thread_state(layout: &Layout) -> u64 {
    // SAFETY: `this_thread_state` is the address of this function of the interpreter, which no process unloads. It
    // returns the thread-specific value of a key, takes no lock, and needs no lock to be held.
    let function = unsafe {
        std::mem::transmute::<*const c_void, extern "C" fn() -> *const c_void>(
            layout.this_thread_state as *const c_void,
        )
    };
    function().addr() as u64
}

/// The memory of the calling thread's own frames.
pub(crate) struct OwnMemory {
    stack: Range<u64>,
    state: Range<u64>,
    /// The chunk of frames that was used last, and its range.
    chunk: u64,
    chunk_range: Range<u64>,
}

impl OwnMemory {
    /// `state` is the calling thread's state, `stack` the part of its stack that is in use.
    pub(crate) fn new(layout: &Layout, state: u64, stack: Range<u64>) -> OwnMemory {
        let mut memory = OwnMemory {
            stack,
            state: state..state + STATE_BYTES,
            chunk: 0,
            chunk_range: 0..0,
        };
        memory.chunk = word(state + layout.thread_chunk).unwrap_or(0);
        memory.chunk_range = chunk_range(memory.chunk);
        memory
    }

    /// Fills `into`, directly if only this thread could unmap the memory.
    pub(crate) fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        if !self.is_own(address, into.len() as u64) {
            return read(address, into);
        }
        // SAFETY: the bytes are in the used part of this thread's stack, in its thread state or in one of its chunks of
        // frames. Only this thread unmaps them, and it does so after its thread state has ceased to name them.
        unsafe {
            std::ptr::copy_nonoverlapping(address as *const u8, into.as_mut_ptr(), into.len());
        }
        true
    }

    fn is_own(&mut self, address: u64, length: u64) -> bool {
        let Some(end) = address.checked_add(length) else {
            return false;
        };
        let contains = |range: &Range<u64>| range.start <= address && end <= range.end;
        if contains(&self.chunk_range) || contains(&self.stack) || contains(&self.state) {
            return true;
        }
        // Chunks are a list, the newest first, as frames are.
        let mut chunk = self.chunk;
        for _ in 0..CHUNKS_MAX {
            chunk = word(chunk).unwrap_or(0);
            if chunk == 0 {
                return false;
            }
            let range = chunk_range(chunk);
            if contains(&range) {
                self.chunk = chunk;
                self.chunk_range = range;
                return true;
            }
        }
        false
    }
}

/// The range of a chunk of frames; empty if it cannot be read.
fn chunk_range(chunk: u64) -> Range<u64> {
    /// The interpreter makes chunks of 16 KiB, and larger ones only for larger frames.
    const BYTES_MAX: u64 = 1 << 30;
    let size = if chunk == 0 {
        None
    } else {
        word(chunk + CHUNK_SIZE)
    };
    let bytes = size.filter(|size| *size < BYTES_MAX).unwrap_or(0);
    chunk..chunk.saturating_add(bytes)
}
