//! Forks while other threads hold locks. A program of its own: its children have the descriptors of other tests.

#![cfg(all(
    target_os = "linux",
    any(target_arch = "aarch64", target_arch = "x86_64"),
    target_env = "gnu"
))]
#![expect(
    unsafe_code,
    reason = "children are made and end without the standard library"
)]

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use emberline_system::fork::{call_in_forked_children, without_fork};

const FORKS: usize = 1_000;
const CHILD_SECONDS_MAX: u32 = 20;

/// A child that has the loader's lock of another thread waits forever.
#[test]
fn forked_children_have_no_lock_of_the_work_of_other_threads() {
    extern "C" fn do_nothing() {}

    call_in_forked_children(do_nothing);
    let is_over = AtomicBool::new(false);
    let failed = thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    without_fork(visit_modules);
                }
            });
        }
        let failed = (0..FORKS)
            .map(|_| status_of_child_that_visits())
            .find(|status| *status != 0);
        is_over.store(true, Ordering::Relaxed);
        failed
    });
    assert_eq!(failed, None, "a status of a child");
}

fn visit_modules() {
    // SAFETY: the callback does nothing with its arguments.
    unsafe { libc::dl_iterate_phdr(Some(go_on), ptr::null_mut()) };
}

unsafe extern "C" fn go_on(
    _info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _data: *mut libc::c_void,
) -> libc::c_int {
    0
}

/// Forks a child, which a signal ends if it takes too long, and returns how it ended.
fn status_of_child_that_visits() -> libc::c_int {
    // SAFETY: the child calls only functions that are safe after a fork, and the loader's.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it sets a timer of this process.
        unsafe { libc::alarm(CHILD_SECONDS_MAX) };
        visit_modules();
        // SAFETY: it ends this process.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: `status` is writable.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(ended, child);
    status
}
