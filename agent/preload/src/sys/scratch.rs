//! Memory for calls that replace the program. Their stacks may be tiny, and the program's allocator may be in any state:
//! the caller is a signal handler, or a child that has copied the memory of many threads or shares it with its parent.

use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use super::foreign::Beginnings;
use super::process;
use crate::image::NAME_BYTES_MAX;

/// Limits of what is copied. Beyond them an environment is passed on as it is.
pub(super) const VARIABLES_MAX: usize = 2_048;
pub(super) const VALUE_BYTES_MAX: usize = 4_096;

/// Lists the libraries that the loader adds to programs.
pub(super) const PRELOAD_VARIABLE: &[u8; 11] = b"LD_PRELOAD=";

/// Most calls at a time.
const SLOTS_MAX: usize = 64;

/// Space for one call.
pub(super) struct Memory {
    /// An environment with its null pointer.
    pub(super) variables: [*const c_char; VARIABLES_MAX + 1],
    /// A copy of the variable that lists the loader's libraries.
    pub(super) preload: [u8; PRELOAD_VARIABLE.len() + VALUE_BYTES_MAX],
    pub(super) path: [u8; VALUE_BYTES_MAX],
    pub(super) name: [u8; NAME_BYTES_MAX],
    pub(super) beginnings: Beginnings<{ PRELOAD_VARIABLE.len() }>,
}

struct Slot {
    /// The thread that uses it; 0 for none.
    thread: AtomicUsize,
    /// Its process.
    process: AtomicI32,
    memory: UnsafeCell<Memory>,
}

// SAFETY: only the thread that has claimed a slot uses its memory.
unsafe impl Sync for Slot {}

static SLOTS: [Slot; SLOTS_MAX] = [const { Slot::new() }; SLOTS_MAX];

/// A slot of the calling thread, until this is dropped. A child that became another program never drops it: then the
/// parent's thread, of which it had the thread pointer, takes it over.
pub(super) struct Scratch(&'static Slot);

impl Slot {
    const fn new() -> Slot {
        Slot {
            thread: AtomicUsize::new(0),
            process: AtomicI32::new(0),
            memory: UnsafeCell::new(Memory {
                variables: [ptr::null(); VARIABLES_MAX + 1],
                preload: [0; PRELOAD_VARIABLE.len() + VALUE_BYTES_MAX],
                path: [0; VALUE_BYTES_MAX],
                name: [0; NAME_BYTES_MAX],
                beginnings: Beginnings::NONE,
            }),
        }
    }
}

/// How the calling process may be identified.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller {
    /// By a system call.
    Process,
    /// Not at all, because a filter may forbid the call.
    Confined,
}

impl Scratch {
    /// `None` if all slots are used.
    pub(super) fn claim(caller: Caller) -> Option<Scratch> {
        // SAFETY: takes nothing and reads a register.
        let thread = unsafe { libc::pthread_self() } as usize;
        let process = match caller {
            Caller::Process => process::id(),
            Caller::Confined => 0,
        };
        // In the same process, a slot of this thread belongs to a call that a signal handler has interrupted.
        let is_left = |slot: &&Slot| {
            slot.thread.load(Ordering::Acquire) == thread
                && slot.process.load(Ordering::Relaxed) != process
        };
        let is_taken = |slot: &&Slot| {
            let taken =
                slot.thread
                    .compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        };
        let left = SLOTS.iter().find(is_left);
        let slot = left.or_else(|| SLOTS.iter().find(is_taken))?;
        slot.process.store(process, Ordering::Relaxed);
        Some(Scratch(slot))
    }

    pub(super) fn memory(&mut self) -> &mut Memory {
        // SAFETY: the slot is this thread's alone, and `self` is borrowed for as long as the result.
        unsafe { &mut *self.0.memory.get() }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.0.thread.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::mem;
    use std::thread;

    use super::*;

    fn address(scratch: &Scratch) -> usize {
        ptr::from_ref(scratch.0).addr()
    }

    #[test]
    fn interrupted_calls_keep_their_memory_and_replaced_children_leave_it() {
        let outer = Scratch::claim(Caller::Process).unwrap();
        let inner = Scratch::claim(Caller::Process).unwrap();
        let thread = thread::spawn(|| Scratch::claim(Caller::Process).map(|it| address(&it)));
        let other = thread.join().unwrap().unwrap();
        assert_ne!(address(&outer), address(&inner));
        assert!(![address(&outer), address(&inner)].contains(&other));
        drop(inner);
        // As a child with this thread's pointer leaves it.
        let left = address(&outer);
        outer.0.process.store(1, Ordering::Relaxed);
        mem::forget(outer);
        let next = Scratch::claim(Caller::Process).unwrap();
        assert_eq!(address(&next), left);
    }
}
