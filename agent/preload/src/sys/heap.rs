//! The heap of this library. The program's own may not be safe for several threads, counts what is allocated, or is
//! locked in a forked child by a thread that does not exist there.

use dlmalloc::{GlobalDlmalloc, enable_alloc_after_fork};

#[global_allocator]
static HEAP: GlobalDlmalloc = GlobalDlmalloc;

/// Holds the heap's lock while the process forks, so that the child has a whole heap. Threads of the program that
/// allocate here block their signals meanwhile: no handler of theirs forks and waits for the lock.
pub(super) fn keep_in_forked_children() {
    // SAFETY: the loader calls this before anything in this library allocates.
    unsafe { enable_alloc_after_fork() };
}
