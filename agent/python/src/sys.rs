//! Symbols of the interpreter, and reads of memory that may be gone.
#![expect(unsafe_code, reason = "the interpreter's memory has no safe interface")]

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use system::process::Memory;
use system::processor;

use super::layout::Layout;

/// Nothing is mapped below.
const LOWEST: u64 = 4_096;
/// Offset of the size in a chunk of frames; its first word is the address of the next older chunk.
const CHUNK_SIZE: u64 = 8;
const CHUNK_HEAD: u64 = 16;
/// Most chunks of one thread that are searched for a frame.
const CHUNKS_MAX: usize = 16;
/// Bytes that [`Pages`] reads at once. The system's pages may be larger, never smaller.
const PAGE: usize = 4_096;
/// Pages of one walk: of the thread state, of the native stack, and two of frames.
const PAGES_MAX: usize = 4;

/// Returns where an exported symbol of this process is.
pub(crate) fn symbol(name: &CStr) -> Option<Range<u64>> {
    // SAFETY: `name` is a terminated string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then(|| range_of(address.addr() as u64))
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

/// The range of what begins at an exported address; empty if its size is unknown.
fn range_of(start: u64) -> Range<u64> {
    const SYMBOL: c_int = 1;
    // SAFETY: all zeros are a valid `Dl_info`.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let mut symbol: *mut c_void = std::ptr::null_mut();
    // SAFETY: `dladdr1` takes any address; `info` and `symbol` are writable.
    let found = unsafe {
        libc::dladdr1(
            start as *const c_void,
            &raw mut info,
            &raw mut symbol,
            SYMBOL,
        )
    };
    let mut bytes = [0; size_of::<libc::Elf64_Sym>()];
    let is_read = found != 0 && read(Memory::Own, symbol.addr() as u64, &mut bytes);
    let size = word_in(&bytes, std::mem::offset_of!(libc::Elf64_Sym, st_size));
    let length = if is_read { size } else { 0 };
    start..start.saturating_add(length)
}

/// The offset of a thread's id in the C library's block of the thread, found in the calling thread's.
pub(crate) fn id_in_thread_block() -> Option<u64> {
    const BLOCK_BYTES: usize = 1_024;
    // SAFETY: `pthread_self` has no preconditions.
    let block = unsafe { libc::pthread_self() };
    // SAFETY: `gettid` has no preconditions.
    let id = unsafe { libc::gettid() };
    let mut bytes = [0; BLOCK_BYTES];
    if !read(Memory::Own, block, &mut bytes) {
        return None;
    }
    let mut numbers = bytes.chunks_exact(4);
    let index = numbers.position(|number| number == id.to_ne_bytes())?;
    Some(4 * index as u64)
}

/// Fills `into` from memory that may be unmapped. Returns whether all of it was read.
pub(crate) fn read(memory: Memory, address: u64, into: &mut [u8]) -> bool {
    if into.is_empty() {
        return true;
    }
    if address < LOWEST {
        return false;
    }
    let pid = process_of(memory);
    // SAFETY: `into` is writable for its length.
    let count =
        unsafe { processor::read_memory(pid, address, into.as_mut_ptr().cast(), into.len()) };
    count == into.len()
}

/// Returns the process whose memory it is.
fn process_of(memory: Memory) -> i32 {
    match memory {
        // SAFETY: `getpid` has no preconditions, and may be called in a signal handler.
        Memory::Own => unsafe { libc::getpid() },
        Memory::Of(process) => process.cast_signed(),
    }
}

/// Most addresses of [`read_each`].
pub(crate) const EACH_MAX: usize = 32;

/// Fills a part of `into`, of `part` bytes, from each of up to [`EACH_MAX`] addresses, by one system call. Returns the
/// number of parts that were read, which ends at memory that is unmapped. Not for signal handlers.
pub(crate) fn read_each(memory: Memory, addresses: &[u64], part: usize, into: &mut [u8]) -> usize {
    let count = addresses.len().min(EACH_MAX).min(into.len() / part.max(1));
    let piece = |address: u64| libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: part,
    };
    let pieces: [libc::iovec; EACH_MAX] =
        std::array::from_fn(|index| piece(addresses.get(index).copied().unwrap_or(0)));
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: part * count,
    };
    let pid = process_of(memory);
    // SAFETY: the kernel writes at most `part * count` bytes, which `into` has; the first `count` pieces are initialized,
    // and those that are unmapped end the copy.
    let read = unsafe {
        libc::process_vm_readv(pid, &raw const local, 1, pieces.as_ptr(), count as u64, 0)
    };
    usize::try_from(read).unwrap_or(0) / part.max(1)
}

/// Reads a word of memory that may be unmapped.
pub(crate) fn word(memory: Memory, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    read(memory, address, &mut bytes).then(|| u64::from_ne_bytes(bytes))
}

/// The addresses of a list's members: `head` is that of the first one's address, `next` the offset of the next one's in
/// each. The list may change meanwhile, so it may have any length.
pub(crate) fn members(memory: Memory, head: u64, next: u64) -> impl Iterator<Item = u64> {
    let member = move |at: u64| word(memory, at).filter(|address| *address != 0);
    std::iter::successors(member(head), move |at| member(at.checked_add(next)?))
}

/// The word at an offset of what was read; 0 beyond its end.
pub(crate) fn word_in(bytes: &[u8], offset: usize) -> u64 {
    let word = bytes.get(offset..).and_then(|bytes| bytes.first_chunk());
    u64::from_ne_bytes(*word.unwrap_or(&[0; 8]))
}

/// Whether there are other interpreters than the main one.
pub(crate) fn has_subinterpreters(layout: &Layout) -> bool {
    let newest = runtime_word(layout, layout.interpreters_head);
    let main = runtime_word(layout, layout.interpreters_head + 8);
    newest != main
}

/// Whether a thread that ends the interpreter may free the thread state `state` of another one meanwhile.
pub(crate) fn may_be_freed(layout: &Layout, state: u64) -> bool {
    let finalizing = runtime_word(layout, layout.finalizing);
    finalizing != 0 && finalizing != state
}

/// Reads a word of the runtime; 0 if that is impossible.
fn runtime_word(layout: &Layout, offset: u64) -> u64 {
    if layout.memory != Memory::Own {
        return word(layout.memory, layout.runtime + offset).unwrap_or(0);
    }
    // SAFETY: `runtime` is the address of `_PyRuntime`, static data of a module that no process unloads. The layout's
    // offsets of its fields are those of its version, and aligned.
    let word = unsafe { AtomicU64::from_ptr((layout.runtime + offset) as *mut u64) };
    word.load(Ordering::Relaxed)
}

/// The thread state that the calling thread has, or used last; 0 if it has none.
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

/// Memory of another thread, read by the page: most frames of a thread are next to each other.
#[derive(Default)]
pub(crate) struct Pages {
    memory: Memory,
    pages: [Option<Page>; PAGES_MAX],
    /// The page that gives way to the next one.
    oldest: usize,
}

struct Page {
    address: u64,
    bytes: [u8; PAGE],
}

impl Pages {
    pub(crate) fn of(memory: Memory) -> Pages {
        Pages {
            memory,
            ..Pages::default()
        }
    }

    /// Fills `into` from memory that may be unmapped, as it was when its page was read. Returns whether all of it was
    /// read.
    pub(crate) fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        let offset = address as usize % PAGE;
        let end = offset + into.len();
        if end > PAGE {
            return read(self.memory, address, into);
        }
        let bytes = self
            .page(address - offset as u64)
            .map(|bytes| &bytes[offset..end]);
        if let Some(bytes) = bytes {
            into.copy_from_slice(bytes);
        }
        bytes.is_some()
    }

    /// Reads a word of memory that may be unmapped.
    pub(crate) fn word(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)
            .then(|| u64::from_ne_bytes(bytes))
    }

    fn page(&mut self, address: u64) -> Option<&[u8; PAGE]> {
        let is_it = |page: &Option<Page>| page.as_ref().is_some_and(|page| page.address == address);
        let index = match self.pages.iter().position(is_it) {
            Some(index) => index,
            None => {
                let mut bytes = [0; PAGE];
                if !read(self.memory, address, &mut bytes) {
                    return None;
                }
                let index = self.oldest;
                self.oldest = (index + 1) % PAGES_MAX;
                self.pages[index] = Some(Page { address, bytes });
                index
            }
        };
        self.pages[index].as_ref().map(|page| &page.bytes)
    }
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
            // The state has at least these fields.
            state: state..state + layout.thread_chunk.max(layout.thread_id.at()) + 8,
            chunk: 0,
            chunk_range: 0..0,
        };
        if layout.thread_chunk != 0 {
            memory.chunk = memory.word(state + layout.thread_chunk);
        }
        if memory.chunk != 0 {
            memory.chunk_range = memory.chunk..memory.chunk.saturating_add(CHUNK_HEAD);
            let size = memory.word(memory.chunk.saturating_add(CHUNK_SIZE));
            memory.chunk_range = range_of_chunk(memory.chunk, size);
        }
        memory
    }

    /// Reads a word; 0 if that is impossible.
    fn word(&mut self, address: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    /// Fills `into`, directly if only this thread could unmap the memory.
    pub(crate) fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        if !self.is_own(address, into.len() as u64) {
            return read(Memory::Own, address, into);
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
            chunk = word(Memory::Own, chunk).unwrap_or(0);
            if chunk == 0 {
                return false;
            }
            let range = range_of_chunk(chunk, word(Memory::Own, chunk + CHUNK_SIZE).unwrap_or(0));
            if contains(&range) {
                self.chunk = chunk;
                self.chunk_range = range;
                return true;
            }
        }
        false
    }
}

/// The interpreter makes chunks of 16 KiB, and larger ones only for larger frames.
const CHUNK_BYTES: Range<u64> = 16 << 10..1 << 30;

/// Whether a chunk of frames is at this address, by a checked read.
pub(crate) fn is_chunk(memory: Memory, address: u64) -> bool {
    let size_at = address.checked_add(CHUNK_SIZE);
    let size = size_at.and_then(|at| word(memory, at));
    size.is_some_and(|size| CHUNK_BYTES.contains(&size))
}

/// The range of a chunk of frames; empty if its size is not one.
fn range_of_chunk(chunk: u64, size: u64) -> Range<u64> {
    let bytes = if CHUNK_BYTES.contains(&size) { size } else { 0 };
    chunk..chunk.saturating_add(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_up_to_one_that_is_unmapped() {
        let words: Vec<u64> = (0..64).collect();
        let at = words.as_ptr().addr() as u64;
        let addresses: Vec<u64> = (0..40).map(|index| at + 8 * index).collect();
        let mut bytes = [0; 16 * EACH_MAX];
        assert_eq!(read_each(Memory::Own, &addresses, 16, &mut bytes), EACH_MAX);
        for index in 0..EACH_MAX {
            assert_eq!(word_in(&bytes, 16 * index), index as u64);
            assert_eq!(word_in(&bytes, 16 * index + 8), index as u64 + 1);
        }
        assert_eq!(read_each(Memory::Own, &addresses[..3], 16, &mut bytes), 3);
        assert_eq!(
            read_each(Memory::Own, &[at, at + 8, 8, at], 16, &mut bytes),
            2
        );
        assert_eq!(read_each(Memory::Own, &addresses, 16, &mut bytes[..40]), 2);
        assert_eq!(read_each(Memory::Own, &[], 16, &mut bytes), 0);
    }

    #[test]
    fn pages_are_read_once_and_reads_across_them_are_whole() {
        let words: Vec<u64> = (0..4_096).collect();
        let at = words.as_ptr().addr() as u64;
        let mut pages = Pages::default();
        for index in [0, 1, 511, 512, 4_095, 7, 2_000, 3_000, 1_500] {
            assert_eq!(pages.word(at + 8 * index), Some(index));
        }
        let border = (at + 4 * PAGE as u64) & !(PAGE as u64 - 1);
        let mut bytes = [0; 16];
        assert!(pages.read(border - 8, &mut bytes));
        assert_eq!(word_in(&bytes, 0) + 1, word_in(&bytes, 8));
        assert!(pages.pages.iter().all(Option::is_some));
        assert_eq!(pages.word(8), None, "nothing is mapped there");
        assert!(!pages.read(u64::MAX - 3, &mut bytes));
    }
}
