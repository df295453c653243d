//! The thread that starts an agent after a while, waits until it has ended, and starts another one if the program wants
//! it. It has the program's descriptors, which so live until the program's output is written.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::Builder;

use system::signals::BlockedSignals;

use crate::lifecycle::{self, keeper_side};
use crate::profiler::{self, Profiled};
use crate::sys::process;

/// More than it needs.
const STACK_BYTES: usize = 256 << 10;

/// Linux keeps 15 bytes of a thread's name.
const NAME: &str = "emberline-keep";

/// Longest wait for the removal of threads, in steps. An id of theirs may be another thread's by then.
const REMOVAL_STEPS_MAX: u32 = 2_000;

/// The keeper's id: 0 for none, [`ABOUT_TO_RUN`] before it runs.
static KEEPER: AtomicI32 = AtomicI32::new(0);
const ABOUT_TO_RUN: i32 = -1;

/// Starts the keeper, which blocks all signals, because their handlers belong to the program's threads.
///
/// # Errors
/// If there is no thread for it.
pub(crate) fn spawn() -> io::Result<()> {
    let _blocked = BlockedSignals::block();
    KEEPER.store(ABOUT_TO_RUN, Ordering::Release);
    let started = Builder::new()
        .name(NAME.to_owned())
        .stack_size(STACK_BYTES)
        .spawn(|| {
            KEEPER.store(process::thread_id(), Ordering::Release);
            // A panic ends the agent only.
            let _ = catch_unwind(AssertUnwindSafe(run));
            keeper_side::ended();
        });
    if started.is_err() {
        KEEPER.store(0, Ordering::Release);
    }
    started.map(drop)
}

/// Whether a keeper runs in this process.
pub(crate) fn exists() -> bool {
    match KEEPER.load(Ordering::Acquire) {
        0 => false,
        ABOUT_TO_RUN => true,
        id => process::has_thread(id),
    }
}

fn run() {
    agent::mark_agent_thread();
    // The thread that started this one may be forbidden to.
    system::process::allow_clocks();
    if process::began_unfiltered() {
        // It does little, so it may stay there.
        let _ = system::process::leave_real_time();
    }
    while keeper_side::wait_for_start() {
        match profiler::run() {
            Profiled::UntilCall => {}
            Profiled::Never => return,
            Profiled::UntilEnd { status } => {
                keeper_side::ended();
                end_process(status);
            }
        }
        if !keeper_side::rest() {
            await_removal();
            return;
        }
    }
}

/// Waits until the kernel has removed the agent's threads: a program that is alone may make calls that others may not. The
/// program waits for this thread, no longer than for the agent's end.
fn await_removal() {
    lifecycle::wait_until(REMOVAL_STEPS_MAX, || !agent::any_left_thread_exists());
}

/// Ends the process after its last thread, as the C library does: by `exit`, unless a thread has ended without it.
fn end_process(status: i32) -> ! {
    let code = libc::WEXITSTATUS(status);
    if code == 0 && keeper_side::c_library_counts_threads() {
        std::process::exit(0)
    }
    process::end_at_once(code)
}
