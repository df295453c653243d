//! A stack that the C library did not create: `makecontext` and `swapcontext`.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;

const STACK_BYTES: usize = 64 * 1024;

struct Contexts {
    outside: UnsafeCell<MaybeUninit<libc::ucontext_t>>,
    inside: UnsafeCell<MaybeUninit<libc::ucontext_t>>,
    work: UnsafeCell<Option<fn()>>,
}

// SAFETY: only one thread runs fibers.
unsafe impl Sync for Contexts {}

static CONTEXTS: Contexts = Contexts {
    outside: UnsafeCell::new(MaybeUninit::uninit()),
    inside: UnsafeCell::new(MaybeUninit::uninit()),
    work: UnsafeCell::new(None),
};

extern "C" fn begin() {
    // SAFETY: `run` has set it, on this thread.
    if let Some(work) = unsafe { *CONTEXTS.work.get() } {
        work();
    }
}

/// Runs `work` on a heap-allocated stack. Only one thread may do so at a time.
pub(crate) fn run(work: fn()) {
    let mut room = vec![0u8; STACK_BYTES];
    // SAFETY: only one thread runs fibers, and none is running now.
    unsafe { *CONTEXTS.work.get() = Some(work) };
    let (inside, outside): (*mut libc::ucontext_t, *mut libc::ucontext_t) =
        (CONTEXTS.inside.get().cast(), CONTEXTS.outside.get().cast());
    // SAFETY: there is space for a context.
    assert_eq!(unsafe { libc::getcontext(inside) }, 0);
    // SAFETY: `getcontext` has filled it; nobody else uses it.
    let context = unsafe { &mut *inside };
    context.uc_stack.ss_sp = room.as_mut_ptr().cast();
    context.uc_stack.ss_size = room.len();
    context.uc_link = outside;
    // SAFETY: the context has a stack and a successor; `begin` takes no arguments.
    unsafe { libc::makecontext(inside, begin, 0) };
    // SAFETY: both contexts are valid; `inside` returns to `outside` when it ends, before `room` is
    // dropped.
    let result = unsafe { libc::swapcontext(outside, ptr::from_ref(context)) };
    assert_eq!(result, 0);
}
