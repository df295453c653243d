//! The tasks and phases that a thread has entered.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use agent::{Phase, PhaseGuard, TaskHandle, TaskScope, phase};

use crate::call::{Failure, Status};
use crate::objects;

/// Most scopes of a thread.
const DEPTH_MAX: usize = 10_000;

/// Phases have numbers of their own, which no task has.
const FIRST_PHASE: u64 = 1 << 48;

static NEXT_PHASE: AtomicU64 = AtomicU64::new(FIRST_PHASE);

/// A scope that the thread has entered.
struct Entered {
    number: u64,
    /// Whether it ends with the task, without a call of `emberline_task_leave`.
    ends_with_task: bool,
    scope: Scope,
}

enum Scope {
    Task(#[expect(dead_code, reason = "dropped at the end")] TaskScope),
    Phase(#[expect(dead_code, reason = "dropped at the end")] PhaseGuard),
    /// Of a task that had ended before it was entered.
    Nothing,
}

/// All scopes of a thread, the innermost last.
struct Entries {
    all: Vec<Entered>,
    /// The process in which they were entered.
    generation: usize,
}

thread_local! {
    static ENTRIES: RefCell<Entries> = const {
        RefCell::new(Entries {
            all: Vec::new(),
            generation: 0,
        })
    };
}

/// Calls `with` for the scopes of this thread, without those that ended on other threads or are of the parent of this
/// process. `None` on a thread whose locals are gone.
fn with<T>(with: impl FnOnce(&mut Vec<Entered>) -> T) -> Option<T> {
    let entries = ENTRIES.try_with(|entries| {
        let Entries { all, generation } = &mut *entries.borrow_mut();
        if *generation != objects::generation() {
            *generation = objects::generation();
            all.clear();
        }
        let has_ended = |last: &Entered| last.ends_with_task && !objects::is_running(last.number);
        while all.last().is_some_and(has_ended) {
            all.pop();
        }
        with(all)
    });
    entries.ok()
}

fn push(entered: Entered) -> Result<(), Failure> {
    let pushed = with(|all| {
        let has_room = all.len() < DEPTH_MAX;
        if has_room {
            all.push(entered);
        }
        has_room
    });
    if pushed == Some(false) {
        let text = format!("this thread is in {DEPTH_MAX} tasks and phases; leave them");
        return Err(Failure::new(Status::Limit, text));
    }
    Ok(())
}

/// Puts the thread into a task that it has begun, until the task ends.
pub(crate) fn begin(number: u64, task: &TaskHandle) -> Result<(), Failure> {
    push(Entered {
        number,
        ends_with_task: true,
        scope: Scope::Task(task.enter()),
    })
}

/// Puts the thread into a task until [`leave`].
pub(crate) fn enter(number: u64, task: &TaskHandle) -> Result<(), Failure> {
    push(Entered {
        number,
        ends_with_task: false,
        scope: Scope::Task(task.enter()),
    })
}

/// Notes that a task was entered that had ended, so that its [`leave`] leaves nothing else.
pub(crate) fn enter_nothing(number: u64) -> Result<(), Failure> {
    push(Entered {
        number,
        ends_with_task: false,
        scope: Scope::Nothing,
    })
}

/// Takes the thread out of the task that it has entered last under this number.
///
/// # Errors
/// If it has entered none.
pub(crate) fn leave(number: u64) -> Result<(), Failure> {
    let is_it = |entered: &Entered| entered.number == number && !entered.ends_with_task;
    remove(is_it).ok_or_else(|| {
        let text = format!("this thread has not entered task {number}, or has left it");
        Failure::new(Status::NotEntered, text)
    })
}

/// Takes the thread out of a task that has ended here.
pub(crate) fn end(number: u64) {
    remove(|entered| entered.number == number && entered.ends_with_task);
}

/// Puts the thread into a phase until [`end_phase`], and returns the number of the phase.
pub(crate) fn begin_phase(name: &str) -> Result<u64, Failure> {
    let number = NEXT_PHASE.fetch_add(1, Ordering::Relaxed);
    push(Entered {
        number,
        ends_with_task: false,
        scope: Scope::Phase(phase(Phase::of_name(name))),
    })?;
    Ok(number)
}

/// Ends a phase of this thread.
///
/// # Errors
/// If it has none of this number.
pub(crate) fn end_phase(number: u64) -> Result<(), Failure> {
    let is_it =
        |entered: &Entered| entered.number == number && matches!(entered.scope, Scope::Phase(_));
    remove(is_it).ok_or_else(|| {
        let text = format!("this thread is not in phase {number}, or has left it");
        Failure::new(Status::NotEntered, text)
    })
}

/// The number of the innermost task that the thread is in; 0 if there is none.
pub(crate) fn current() -> u64 {
    let is_task = |entered: &&Entered| !matches!(entered.scope, Scope::Phase(_));
    with(|all| all.iter().rfind(is_task).map(|entered| entered.number))
        .flatten()
        .unwrap_or(0)
}

/// Removes the innermost scope that is it, if any.
fn remove(is_it: impl Fn(&Entered) -> bool) -> Option<()> {
    with(|all| {
        let index = all.iter().rposition(is_it)?;
        drop(all.remove(index));
        Some(())
    })
    .flatten()
}
