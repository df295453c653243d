//! Keeps the sampler's signal away from alternate signal stacks.
//!
//! A handler of the program that runs on one is interrupted like any other code, and the kernel puts
//! the frame of our signal (about 3.3 KiB with AVX-512) on the stack that is in use. If that is an
//! alternate one without room for it, the process dies. So every handler that may run there blocks
//! our signal: it is added to the set of signals that the program's action blocks meanwhile.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::Signal;

/// Signals of faults, whose handlers return to the faulting code again and again.
const FAULTS: [libc::c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
];
/// Signals are numbered from 1.
const SIGNALS_MAX: libc::c_int = 64;
/// Attempts to put back a handler that the program installed while ours changed the one before.
const TRIES_MAX: usize = 8;

/// The program's handlers that were changed, by signal; 0 for none.
static CHANGED: [AtomicUsize; SIGNALS_MAX as usize + 1] =
    [const { AtomicUsize::new(0) }; SIGNALS_MAX as usize + 1];

/// The kernel's form of a signal action. The C library's changes what it passes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
struct Action {
    handler: usize,
    flags: libc::c_ulong,
    restorer: usize,
    /// Signals that are blocked while the handler runs.
    blocked: u64,
}

impl Action {
    const NONE: Action = Action {
        handler: 0,
        flags: 0,
        restorer: 0,
        blocked: 0,
    };

    /// Whether a handler of the program runs on the alternate stack, if there is one.
    fn uses_alternate_stack(&self) -> bool {
        let is_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&self.handler);
        is_handler && self.flags & libc::SA_ONSTACK as libc::c_ulong != 0
    }
}

/// Makes handlers that use alternate stacks block `own`: those of faults, or `all`. Returns whether one was changed.
///
/// A handler that runs meanwhile, or whose signal the kernel has begun to deliver, does not block it yet.
pub(super) fn block_in_handlers(own: Signal, all: bool) -> bool {
    let mut has_changed = false;
    if all {
        let others = (1..=SIGNALS_MAX).filter(|signal| *signal != own as libc::c_int);
        others.for_each(|signal| has_changed |= block_in(signal, own));
    } else {
        FAULTS
            .into_iter()
            .for_each(|signal| has_changed |= block_in(signal, own));
    }
    has_changed
}

/// The signals whose handlers were changed, as a mask of the first 31.
pub(super) fn changed() -> u64 {
    (1..=31)
        .filter(|signal| CHANGED[*signal].load(Ordering::Relaxed) != 0)
        .fold(0, |mask, signal| mask | 1 << (signal - 1))
}

/// Undoes [`block_in_handlers`], where the program has not installed another handler since.
pub(super) fn unblock_in_handlers(own: Signal) {
    for signal in 1..=SIGNALS_MAX {
        let handler = CHANGED[signal as usize].swap(0, Ordering::Relaxed);
        let Some(before) = action_of(signal).filter(|it| handler != 0 && it.handler == handler)
        else {
            continue;
        };
        exchange(signal, before, |action| action.blocked &= !bit(own));
    }
}

fn block_in(signal: libc::c_int, own: Signal) -> bool {
    let Some(before) = action_of(signal) else {
        return false;
    };
    if !before.uses_alternate_stack() || before.blocked & bit(own) != 0 {
        return false;
    }
    CHANGED[signal as usize].store(before.handler, Ordering::Relaxed);
    exchange(signal, before, |action| {
        if action.uses_alternate_stack() {
            action.blocked |= bit(own);
        }
    });
    true
}

/// Changes an action that was `before`. If the program has installed another one since, that is put
/// back, changed as well.
fn exchange(signal: libc::c_int, before: Action, change: impl Fn(&mut Action)) {
    let changed = |action: Action| {
        let mut changed = action;
        change(&mut changed);
        changed
    };
    let mut expected = before;
    let mut wanted = changed(before);
    for _ in 0..TRIES_MAX {
        match set_action(signal, &wanted) {
            Some(replaced) if replaced != expected => {
                expected = wanted;
                wanted = changed(replaced);
            }
            _ => return,
        }
    }
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as libc::c_int - 1)
}

/// `None` if the system refuses.
fn action_of(signal: libc::c_int) -> Option<Action> {
    let mut action = Action::NONE;
    call(signal, ptr::null(), &raw mut action).then_some(action)
}

/// Sets an action and returns the one that it replaced.
fn set_action(signal: libc::c_int, action: &Action) -> Option<Action> {
    let mut replaced = Action::NONE;
    call(signal, ptr::from_ref(action), &raw mut replaced).then_some(replaced)
}

fn call(signal: libc::c_int, new: *const Action, old: *mut Action) -> bool {
    // SAFETY: the kernel reads and writes one `Action` each, with sets of eight bytes. What is set
    // is an action of the program itself, with another set of blocked signals.
    let result =
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, old, size_of::<u64>()) };
    result == 0
}
