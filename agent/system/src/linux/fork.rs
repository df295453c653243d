//! Fork handlers, and work during which no thread forks.
//!
//! A child has the locks of its parent as they were, and none of the threads that would unlock them. Most of the C
//! library's are reset in a child, but not the loader's, for which `dl_iterate_phdr` would wait there forever.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Threads in [`without_fork`].
static WORKING: AtomicUsize = AtomicUsize::new(0);
/// Threads that are in `fork`.
static FORKING: AtomicUsize = AtomicUsize::new(0);

/// Longest wait of a `fork` for work; the work takes less than a millisecond.
const FORK_WAIT_MAX: Duration = Duration::from_millis(100);
/// Longest wait of work for forks, of which a program may have some at any time.
const WORK_WAIT_MAX: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(50);

/// Calls `handler` in each child that this process forks from now on, before `fork` returns there.
/// `handler` must not allocate, lock or wait. If the C library has no memory to register it, this
/// logs a warning and children keep the parent's state.
pub fn call_in_forked_children(handler: extern "C" fn()) {
    // SAFETY: the handlers are functions that live as long as this code does; the C library forgets
    // them when this code is unloaded.
    let own = unsafe { libc::pthread_atfork(Some(begin), Some(end_in_parent), Some(end_in_child)) };
    // SAFETY: as above.
    let result = unsafe { libc::pthread_atfork(None, None, Some(handler)) };
    if own != 0 || result != 0 {
        tracing::warn!("cannot register a fork handler; forked children will not reset the agent");
    }
}

/// Calls `work`, which takes locks that a forked child would keep. A thread that forks meanwhile waits, for at most
/// [`FORK_WAIT_MAX`], so `work` must be short; and it must not fork.
pub fn without_fork<T>(work: impl FnOnce() -> T) -> T {
    let _working = Working::begin();
    work()
}

struct Working;

impl Working {
    fn begin() -> Working {
        let deadline = Instant::now() + WORK_WAIT_MAX;
        loop {
            // Each side first announces itself and then looks for the other one, so that one of them sees the other.
            WORKING.fetch_add(1, Ordering::SeqCst);
            if FORKING.load(Ordering::SeqCst) == 0 || Instant::now() > deadline {
                return Working;
            }
            drop(Working);
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        WORKING.fetch_sub(1, Ordering::SeqCst);
    }
}

extern "C" fn begin() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    let deadline = Instant::now() + FORK_WAIT_MAX;
    while WORKING.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
        thread::sleep(PAUSE);
    }
}

extern "C" fn end_in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// The child has one thread, which does neither.
extern "C" fn end_in_child() {
    FORKING.store(0, Ordering::SeqCst);
    WORKING.store(0, Ordering::SeqCst);
}
