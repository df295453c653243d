//! Anonymous memory of whole pages, which returns to the system when it is dropped.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Zeroed memory outside the allocator. An allocator keeps freed memory for itself, and fails by
/// aborting the process; this does neither.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, like the memory of a box.
unsafe impl Send for Pages {}
// SAFETY: shared access only reads.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `length` bytes, which take memory only once they are written; `None` if the system
    /// refuses.
    pub fn new(length: usize) -> Option<Pages> {
        if length == 0 {
            return Some(Pages {
                start: NonNull::dangling(),
                length,
            });
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses affects no other memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        Some(Pages {
            start: NonNull::new(start.cast())?,
            length,
        })
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `length` initialized bytes until `self` is dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: the mapping is this value's own, and nothing borrows it any more.
            let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
            // It fails for no mapping of whole pages; a leak would be harmless.
            let _ = result;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zeroed_and_writable_and_a_refused_size_is_none() {
        let mut pages = Pages::new(10_000).unwrap();
        assert!(pages.len() == 10_000 && pages.iter().all(|byte| *byte == 0));
        pages[9_999] = 7;
        assert_eq!(pages[9_999], 7);
        assert!(Pages::new(usize::MAX / 2).is_none());
        assert!(Pages::new(0).unwrap().is_empty());
    }
}
