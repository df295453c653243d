//! An allocator that ends the process if a thread allocates that promised not to.
#![expect(unsafe_code, reason = "a global allocator has no safe interface")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Whether this thread may not allocate. Constant and without a destructor, so that reading it
    /// never allocates.
    static PROMISED: Cell<bool> = const { Cell::new(false) };
}

/// The system allocator for all threads without a promise.
pub(crate) struct Aborting;

/// Makes or withdraws the calling thread's promise.
pub(crate) fn promise(not_to_allocate: bool) {
    PROMISED.set(not_to_allocate);
}

fn check() {
    if PROMISED.get() {
        std::process::abort();
    }
}

// SAFETY: each function forwards to the system allocator, or ends the process.
unsafe impl GlobalAlloc for Aborting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check();
        // SAFETY: the caller's guarantees are forwarded.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        check();
        // SAFETY: the caller's guarantees are forwarded.
        unsafe { System.dealloc(pointer, layout) }
    }
}
