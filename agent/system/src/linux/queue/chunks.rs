//! Chunks of memory for queues, outside of the program's allocator. They are mapped a mebibyte at a
//! time and stay mapped; most free ones take no memory.
//!
//! Threads of the program take chunks and the agent's give them back. Neither waits: a chunk is
//! claimed by a bit, and who finds it claimed tries the next.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::pages::Pages;

const CHUNK_BYTES: usize = 4096;
/// Bytes of a chunk for items.
pub(super) const ITEM_BYTES: usize = CHUNK_BYTES - HEADER_BYTES;
const HEADER_BYTES: usize = 64;

const WORDS: usize = 4;
/// Chunks that are mapped at a time: 1 MiB.
const REGION_CHUNKS: usize = WORDS * 64;
/// Most memory of all queues: 256 MiB.
const REGIONS_MAX: usize = 256;

/// Free chunks that keep their memory, so that a steady flow of items needs no system calls.
const WARM_MAX: usize = 256;

/// The header of a chunk; the items follow.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Chunk {
    next: AtomicPtr<Chunk>,
    /// Its number among all chunks.
    number: AtomicUsize,
}

const _: () = assert!(size_of::<Chunk>() == HEADER_BYTES);

impl Chunk {
    /// The chunk after this one.
    pub(super) fn next(&self) -> *mut Chunk {
        self.next.load(Ordering::Relaxed)
    }

    /// Sets the chunk after this one; the next store that releases publishes it.
    pub(super) fn set_next(&self, next: *mut Chunk) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// The memory for items.
    pub(super) fn items(chunk: *mut Chunk) -> *mut u8 {
        chunk.cast::<u8>().wrapping_add(HEADER_BYTES)
    }
}

/// Chunks that were mapped together.
struct Region {
    /// Null before it is mapped.
    start: AtomicPtr<Chunk>,
    /// Number of those that were taken once, from the first on; more if some were asked for in vain.
    begun: AtomicUsize,
    /// Of these, the free ones with memory, and those without.
    warm: Bits,
    cold: Bits,
}

/// All bytes are 0, so that they take no room in the file of a library.
static REGIONS: [Region; REGIONS_MAX] = [const {
    Region {
        start: AtomicPtr::new(ptr::null_mut()),
        begun: AtomicUsize::new(0),
        warm: Bits([const { AtomicU64::new(0) }; WORDS]),
        cold: Bits([const { AtomicU64::new(0) }; WORDS]),
    }
}; REGIONS_MAX];

/// Number of warm chunks; a little off while threads take and give some.
static WARM: AtomicUsize = AtomicUsize::new(0);

/// Takes a chunk; `None` if there is no memory.
pub(super) fn take() -> Option<*mut Chunk> {
    let warm = (WARM.load(Ordering::Relaxed) > 0).then(take_warm).flatten();
    let number = warm.or_else(take_cold)?;
    let chunk = chunk_at(number);
    let number = AtomicUsize::new(number);
    // SAFETY: the chunk lies in a region, whose memory is never unmapped, and this thread alone has
    // claimed it.
    unsafe {
        chunk.write(Chunk {
            next: AtomicPtr::new(ptr::null_mut()),
            number,
        })
    };
    Some(chunk)
}

/// Releases a chunk.
///
/// # Safety
/// It was taken, and nobody uses it any more.
pub(super) unsafe fn give(chunk: *mut Chunk) {
    // SAFETY: the caller guarantees that it was taken, so it has a number.
    let number = unsafe { (*chunk).number.load(Ordering::Relaxed) };
    let region = &REGIONS[number / REGION_CHUNKS];
    if WARM.load(Ordering::Relaxed) < WARM_MAX || !page_is_chunk() {
        WARM.fetch_add(1, Ordering::Relaxed);
        return region.warm.add(number % REGION_CHUNKS);
    }
    // SAFETY: the caller guarantees that nobody uses the chunk, which is one page.
    let result = unsafe { libc::madvise(chunk.cast(), CHUNK_BYTES, libc::MADV_DONTNEED) };
    // If the system refuses, it keeps its memory.
    let _ = result;
    region.cold.add(number % REGION_CHUNKS);
}

fn take_warm() -> Option<usize> {
    let mut mapped = REGIONS
        .iter()
        .take_while(|region: &&Region| !region.start.load(Ordering::Acquire).is_null())
        .enumerate();
    let number = mapped.find_map(|(number, region)| {
        region
            .warm
            .take()
            .map(|index| number * REGION_CHUNKS + index)
    })?;
    WARM.fetch_sub(1, Ordering::Relaxed);
    Some(number)
}

fn take_cold() -> Option<usize> {
    for (number, region) in REGIONS.iter().enumerate() {
        if region.start.load(Ordering::Acquire).is_null() {
            map(region)?;
        }
        if let Some(index) = region.cold.take().or_else(|| region.begin()) {
            return Some(number * REGION_CHUNKS + index);
        }
    }
    None
}

impl Region {
    /// Takes a chunk that was never taken.
    fn begin(&self) -> Option<usize> {
        if self.begun.load(Ordering::Relaxed) >= REGION_CHUNKS {
            return None;
        }
        let index = self.begun.fetch_add(1, Ordering::Relaxed);
        (index < REGION_CHUNKS).then_some(index)
    }
}

/// Maps a region, unless another thread does so at the same time.
fn map(region: &Region) -> Option<()> {
    let mut pages = Pages::new(REGION_CHUNKS * CHUNK_BYTES)?;
    let start = pages.as_mut_ptr();
    // With huge pages, one chunk would take the memory of many. Kernels without them refuse.
    // SAFETY: the range is that of the pages.
    let _ = unsafe { libc::madvise(start.cast(), pages.len(), libc::MADV_NOHUGEPAGE) };
    let null = ptr::null_mut();
    let is_first =
        region
            .start
            .compare_exchange(null, start.cast(), Ordering::AcqRel, Ordering::Acquire);
    if is_first.is_ok() {
        std::mem::forget(pages);
    }
    Some(())
}

fn chunk_at(number: usize) -> *mut Chunk {
    let start = REGIONS[number / REGION_CHUNKS]
        .start
        .load(Ordering::Acquire);
    start.wrapping_byte_add(number % REGION_CHUNKS * CHUNK_BYTES)
}

/// Whether the memory of a single chunk can be returned to the system.
fn page_is_chunk() -> bool {
    // SAFETY: takes a plain number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) == CHUNK_BYTES as libc::c_long }
}

/// A set of numbers below [`REGION_CHUNKS`].
struct Bits([AtomicU64; WORDS]);

impl Bits {
    fn add(&self, index: usize) {
        self.0[index / 64].fetch_or(1 << (index % 64), Ordering::Release);
    }

    /// Removes one of the numbers.
    fn take(&self) -> Option<usize> {
        for (number, word) in self.0.iter().enumerate() {
            let mut candidates = word.load(Ordering::Relaxed);
            // Each turn has fewer candidates.
            while candidates != 0 {
                let bit = candidates & candidates.wrapping_neg();
                let before = word.fetch_and(!bit, Ordering::Acquire);
                if before & bit != 0 {
                    return Some(number * 64 + bit.trailing_zeros() as usize);
                }
                candidates &= before;
            }
        }
        None
    }
}

/// Most bytes of free chunks.
#[cfg(test)]
pub(super) const WARM_BYTES: usize = WARM_MAX * CHUNK_BYTES;

/// Bytes of chunks that are in use or warm.
#[cfg(test)]
pub(super) fn bytes_with_memory() -> usize {
    let cold = |region: &Region| -> usize {
        region
            .cold
            .0
            .iter()
            .map(|word| word.load(Ordering::Relaxed).count_ones() as usize)
            .sum()
    };
    REGIONS
        .iter()
        .map(|region| {
            let begun = region.begun.load(Ordering::Relaxed).min(REGION_CHUNKS);
            (begun - cold(region)) * CHUNK_BYTES
        })
        .sum()
}
