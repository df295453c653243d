//! An allocator that ends the process when a thread allocates that has promised not to.
#![expect(unsafe_code, reason = "a global allocator has no safe interface")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Whether this thread may not allocate. Constant and without a destructor, so that to read it
    /// never allocates.
    static PROMISED: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator for all threads that have not promised anything.
pub(crate) struct Aborting;

/// Makes the calling thread's promise, or takes it back.
pub(crate) fn promise(not_to_allocate: bool) {
    PROMISED.set(not_to_allocate);
}

fn check() {
    if PROMISED.get() {
        std::process::abort();
    }
}

// SAFETY: each function is the system's allocator's, or ends the process.
unsafe impl GlobalAlloc for Aborting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        check();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}
