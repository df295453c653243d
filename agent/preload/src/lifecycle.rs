//! The phase of this process's agent. The program's threads and the keeper change it; nobody takes a lock.
//!
//! ```text
//! Off ─▶ Waiting ─▶ Starting ─▶ Running ─▶ Finishing ─▶ Ended
//!           │  ▲       │                       │          │ │
//!           │  └───────┼───── Restarting ◀─────┴──────────┘ │
//!           └──────────┴─▶ Canceled ◀───────────────────────┘
//! ```
//!
//! A thread of the program starts a keeper only where it may start threads: at the beginning, in forked children and
//! after [`stop`]. After a flush the keeper waits, so that [`resume`] is a store, even in a signal handler.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use crate::image::Obstacle;
use crate::journal::{self, Entry};
use crate::keeper;
use crate::sys::{futex, process};

/// A program that ends before has no agent.
const START_DELAY_MS: u32 = 50;

/// Longest flush at the end of a program, and in the middle of it.
const FLUSH_MS_MAX: u32 = 2_000;
const FLUSH_BEFORE_CALL_MS_MAX: u32 = 200;

/// Longest wait of a thread of the program for the agent's end, in steps. The agent's own limit is below.
const STEPS_MAX: u32 = 25;
const STEP: Duration = Duration::from_millis(100);

/// Longest wait for the ends of the agent's threads, in steps of a millisecond.
const THREAD_END_STEPS_MAX: u32 = 2_500;
const THREAD_END_STEP: Duration = Duration::from_millis(1);

/// The agent has tables for 16 generations of forked processes.
const FORKS_MAX: u32 = 14;

/// No keeper runs.
const OFF: u32 = 0;
/// The keeper sleeps.
const WAITING: u32 = 1;
/// The keeper starts the agent.
const STARTING: u32 = 2;
const RUNNING: u32 = 3;
/// The program wants the agent to flush and end.
const FINISHING: u32 = 4;
/// The program wants the keeper to end.
const CANCELED: u32 = 5;
/// The agent has ended, and the keeper waits.
const ENDED: u32 = 6;
/// The agent ends, and the program wants another one.
const RESTARTING: u32 = 7;

static PHASE: AtomicU32 = AtomicU32::new(OFF);
/// The process that the phase is about. A child that shares or has copied this memory has another id.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The last process in which an agent has started.
static STARTED_IN: AtomicI32 = AtomicI32::new(0);
/// Whether this process and its forked children are to be profiled.
static ENABLED: AtomicBool = AtomicBool::new(false);
/// Processes of this memory in which a filter of system calls may kill threads that wait here.
static CONFINED: AtomicU32 = AtomicU32::new(NONE);
const NONE: u32 = 0;
const OWN: u32 = 1;
/// A child that shares this memory, as after `vfork`, or has a copy of it without a keeper.
const OF_CHILD: u32 = 2;
/// Whether a thread of the program has ended by a system call of its own, which the C library does not count.
static EXITED_BY_CALL: AtomicBool = AtomicBool::new(false);
/// The status with which the process ends; [`NO_STATUS`] before.
static EXIT_STATUS: AtomicI32 = AtomicI32::new(NO_STATUS);
const NO_STATUS: i32 = -1;
/// Longest flush, in milliseconds.
static FLUSH_MS: AtomicU32 = AtomicU32::new(FLUSH_MS_MAX);
/// Forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Profiles this process and those that it forks.
pub(crate) fn enable() {
    ENABLED.store(true, Ordering::Relaxed);
    begin();
}

/// Starts a keeper, which starts an agent after a while.
fn begin() {
    OWNER.store(process::id(), Ordering::Relaxed);
    FLUSH_MS.store(FLUSH_MS_MAX, Ordering::Relaxed);
    PHASE.store(WAITING, Ordering::Release);
    if keeper::spawn().is_err() {
        PHASE.store(OFF, Ordering::Release);
    }
}

/// Whether the phase is about the calling process, whose threads may wait.
fn is_own() -> bool {
    // A confined thread may not even ask for its process id.
    !is_confined() && OWNER.load(Ordering::Relaxed) == process::id()
}

/// Whether a filter of the program may forbid any system call.
pub(crate) fn is_confined() -> bool {
    CONFINED.load(Ordering::Relaxed) != NONE
}

/// Whether the phase is about the parent, whose memory this may be.
fn is_of_parent() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    !is_confined() && owner != 0 && owner != process::id()
}

/// In a forked child, where no thread of the agent exists.
pub(crate) fn in_child() {
    PHASE.store(OFF, Ordering::Release);
    EXITED_BY_CALL.store(false, Ordering::Relaxed);
    EXIT_STATUS.store(NO_STATUS, Ordering::Relaxed);
    let is_wanted = ENABLED.load(Ordering::Relaxed) && !is_confined();
    if is_wanted && !process::has_own_proc() {
        ENABLED.store(false, Ordering::Relaxed);
        journal::add(
            Entry::Refused(Obstacle::OtherProc),
            process::Name::of_thread().text(),
        );
        OWNER.store(0, Ordering::Relaxed);
    } else if is_wanted && FORKS.fetch_add(1, Ordering::Relaxed) < FORKS_MAX {
        begin();
    } else {
        OWNER.store(0, Ordering::Relaxed);
    }
}

/// The process ends with this status: its lower byte is what others see.
pub(crate) fn ends_with(status: i32) {
    // A child that shares this memory ends for itself.
    if is_own() {
        EXIT_STATUS.store(status & 0xff, Ordering::Relaxed);
    }
}

/// Flushes and ends the agent, because the process ends or becomes another program. Returns whether there
/// was one.
pub(crate) fn finish() -> bool {
    if !is_own() {
        return false;
    }
    if transition(RUNNING, FINISHING) {
        futex::wake(&PHASE);
    } else if PHASE.load(Ordering::Acquire) != FINISHING {
        // An agent that is about to start has nothing yet, and ends with the process.
        return false;
    }
    for _ in 0..STEPS_MAX {
        if PHASE.load(Ordering::Acquire) != FINISHING {
            break;
        }
        futex::wait(&PHASE, FINISHING, STEP);
    }
    true
}

/// Ends the agent and all its threads, so that the program is alone. Returns whether it is to be resumed.
pub(crate) fn stop() -> bool {
    if !is_own() {
        return false;
    }
    FLUSH_MS.store(FLUSH_BEFORE_CALL_MS_MAX, Ordering::Relaxed);
    let was_canceled = transition(WAITING, CANCELED) || transition(STARTING, CANCELED);
    let was_running = !was_canceled && finish();
    // If the flush takes longer, its threads end by themselves.
    for phase in [ENDED, FINISHING, RESTARTING] {
        transition(phase, CANCELED);
    }
    futex::wake(&PHASE);
    wait_until(THREAD_END_STEPS_MAX, || !keeper::exists());
    was_canceled || was_running
}

/// Waits until something is so, at most that many steps.
pub(crate) fn wait_until(steps_max: u32, is_so: impl Fn() -> bool) {
    for _ in 0..steps_max {
        if is_so() {
            return;
        }
        std::thread::sleep(THREAD_END_STEP);
    }
}

/// Starts an agent again after [`finish`] or [`stop`].
pub(crate) fn resume() {
    if !is_own() || !ENABLED.load(Ordering::Relaxed) {
        return;
    }
    FLUSH_MS.store(FLUSH_MS_MAX, Ordering::Relaxed);
    if transition(ENDED, RESTARTING) {
        futex::wake(&PHASE);
    } else if !transition(FINISHING, RESTARTING) {
        wait_until(THREAD_END_STEPS_MAX, || !keeper::exists());
        if !keeper::exists() {
            begin();
        }
    }
}

/// A thread of the program ends by a system call.
pub(crate) fn exit_of_thread() {
    EXITED_BY_CALL.store(true, Ordering::Relaxed);
}

/// Ends the agent. Neither this process nor its children have another one.
pub(crate) fn stop_for_good(obstacle: Obstacle) -> bool {
    if is_of_parent() {
        return false;
    }
    let was_stopped = stop();
    if ENABLED.swap(false, Ordering::Relaxed) {
        journal::add(Entry::Refused(obstacle), process::Name::of_thread().text());
    }
    was_stopped
}

/// Ends the agent for another one of this process. Forked children have no agent of this library.
pub(crate) fn hand_over() {
    if is_of_parent() {
        return;
    }
    stop();
    let had_agent = STARTED_IN.load(Ordering::Relaxed) == process::id();
    if ENABLED.swap(false, Ordering::Relaxed) && !had_agent {
        journal::add(Entry::Sampled, process::Name::of_thread().text());
    }
}

/// Like [`stop_for_good`], because the program confines itself: no thread of it waits from now on.
pub(crate) fn confine() -> bool {
    let confined = if is_of_parent() { OF_CHILD } else { OWN };
    let was_stopped = stop_for_good(Obstacle::Confined);
    CONFINED.store(confined, Ordering::Relaxed);
    was_stopped
}

/// A child is about to leave memory that may be its parent's, which is not confined. Returns whether it was confined.
pub(crate) fn leave_memory() -> bool {
    CONFINED
        .compare_exchange(OF_CHILD, NONE, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
}

/// The child could not leave.
pub(crate) fn stay_in_memory() {
    CONFINED.store(OF_CHILD, Ordering::Relaxed);
}

/// The program could not confine itself.
pub(crate) fn unconfine(was_stopped: bool) {
    CONFINED.store(NONE, Ordering::Relaxed);
    if was_stopped {
        ENABLED.store(true, Ordering::Relaxed);
        resume();
    }
}

fn transition(from: u32, to: u32) -> bool {
    PHASE
        .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
}

/// The keeper's side.
pub(crate) mod keeper_side {
    use super::*;

    /// Sleeps before the start. Returns whether the agent is still wanted.
    pub(crate) fn wait_for_start() -> bool {
        let delay = Duration::from_millis(START_DELAY_MS.into());
        futex::wait(&PHASE, WAITING, delay);
        transition(WAITING, STARTING)
    }

    /// The agent has ended. Sleeps until another one is wanted; returns `false` if the keeper is to end.
    pub(crate) fn rest() -> bool {
        const LONG: Duration = Duration::from_secs(3_600);
        let has_ended = transition(FINISHING, ENDED) || transition(RUNNING, ENDED);
        if has_ended {
            futex::wake(&PHASE);
        }
        while PHASE.load(Ordering::Acquire) == ENDED {
            futex::wait(&PHASE, ENDED, LONG);
        }
        transition(RESTARTING, WAITING)
    }

    /// The agent runs. Returns whether it is still wanted.
    pub(crate) fn started() -> bool {
        transition(STARTING, RUNNING)
    }

    /// The first agent of a process.
    pub(crate) enum FirstStart {
        /// Of a program.
        OfProgram,
        /// Of a forked child.
        OfChild,
    }

    /// An agent has started. `None` if there was one before, in this process.
    pub(crate) fn first_start() -> Option<FirstStart> {
        let process = process::id();
        let is_first = STARTED_IN.swap(process, Ordering::Relaxed) != process;
        let is_forked = FORKS.load(Ordering::Relaxed) > 0;
        is_first.then_some(if is_forked {
            FirstStart::OfChild
        } else {
            FirstStart::OfProgram
        })
    }

    /// Waits for a while. Returns whether the agent is to end.
    pub(crate) fn must_finish(wait: Duration) -> bool {
        futex::wait(&PHASE, RUNNING, wait);
        PHASE.load(Ordering::Acquire) != RUNNING
    }

    /// There is no keeper any more.
    pub(crate) fn ended() {
        PHASE.store(OFF, Ordering::Release);
        futex::wake(&PHASE);
    }

    /// The status with which the process is about to end, if it failed.
    pub(crate) fn failure() -> Option<i32> {
        let status = EXIT_STATUS.load(Ordering::Relaxed);
        (status > 0).then_some(status)
    }

    /// Longest flush of an agent that is to end.
    pub(crate) fn flush_max() -> Duration {
        Duration::from_millis(FLUSH_MS.load(Ordering::Relaxed).into())
    }

    /// Whether the C library ends the process when the last thread of the program has ended.
    pub(crate) fn c_library_counts_threads() -> bool {
        !EXITED_BY_CALL.load(Ordering::Relaxed)
    }

    /// Neither this process nor its children are to be profiled.
    pub(crate) fn disable() {
        ENABLED.store(false, Ordering::Relaxed);
    }
}
