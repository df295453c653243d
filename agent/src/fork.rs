//! What becomes of the agent in a forked child: nothing of it runs there, and its locks may be held
//! for ever by threads that are not there. So a child begins with tables of its own, and is silent
//! until it starts an agent of its own.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::{sampler, task};

/// Most tables that a line of parents and children has; deeper ones share the last.
pub(crate) const GENERATIONS_MAX: usize = 16;

static GENERATION: AtomicUsize = AtomicUsize::new(0);
/// Whether the resolver's lock is held right now, and whether it was when this process was forked.
static RESOLVING: AtomicBool = AtomicBool::new(false);
static RESOLVER_LOST: AtomicBool = AtomicBool::new(false);

/// How many forks this process is away from the one that was started.
pub(crate) fn generation() -> usize {
    GENERATION.load(Ordering::Relaxed).min(GENERATIONS_MAX - 1)
}

/// Sees to it that children begin anew.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| sampler::call_in_forked_children(begin_anew));
}

/// In a forked child, before the program goes on: only atomics may be touched.
extern "C" fn begin_anew() {
    task::forget_all();
    GENERATION.fetch_add(1, Ordering::Relaxed);
    if RESOLVING.load(Ordering::Relaxed) {
        RESOLVER_LOST.store(true, Ordering::Relaxed);
    }
}

/// Runs `resolve` unless the resolver cannot be used in this process, for want of its lock.
pub(crate) fn while_resolving<T>(resolve: impl FnOnce() -> T) -> Option<T> {
    if RESOLVER_LOST.load(Ordering::Relaxed) {
        return None;
    }
    RESOLVING.store(true, Ordering::Relaxed);
    let resolved = resolve();
    RESOLVING.store(false, Ordering::Relaxed);
    Some(resolved)
}
