//! Tasks, transfers and runs, by the numbers that the program has of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent::observe::fork_generation;
use agent::{DetachedTask, RunGuard, TaskHandle, TransferGuard};
use rustc_hash::FxBuildHasher;

use crate::call::{Failure, Status};

/// Locks of a process, so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// Generations of forked processes; deeper ones share the last.
pub(crate) const GENERATIONS: usize = 16;

/// Most objects of a process at a time.
const OBJECTS_MAX: usize = 1_000_000;

/// Something that began and has not ended.
#[derive(Debug)]
pub(crate) enum Object {
    Task(DetachedTask),
    Transfer(TransferGuard),
    Run(#[expect(dead_code, reason = "it ends when it is dropped")] RunGuard),
}

impl Object {
    fn kind(&self) -> Kind {
        match self {
            Object::Task(_) => Kind::Task,
            Object::Transfer(_) => Kind::Transfer,
            Object::Run(_) => Kind::Run,
        }
    }
}

/// The kind of thing that a handle is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Task,
    Transfer,
    Run,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Kind::Task => "task",
            Kind::Transfer => "transfer",
            Kind::Run => "run",
        }
    }
}

type Shard = Mutex<HashMap<u64, Object, FxBuildHasher>>;

/// By generation, because a lock may be taken by a thread that a forked child does not have.
static OBJECTS: [[Shard; SHARDS]; GENERATIONS] =
    [const { [const { Mutex::new(HashMap::with_hasher(FxBuildHasher)) }; SHARDS] }; GENERATIONS];

/// Rises, so that no number is used again.
static NEXT: AtomicU64 = AtomicU64::new(1);

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The index of this process in what each forked process has one of.
pub(crate) fn generation() -> usize {
    fork_generation().min(GENERATIONS - 1)
}

fn shard(number: u64) -> MutexGuard<'static, HashMap<u64, Object, FxBuildHasher>> {
    let index = (number % SHARDS as u64) as usize;
    OBJECTS[generation()][index]
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Keeps what `begin` returns, and returns its number.
///
/// # Errors
/// If the program has too many; then nothing begins.
pub(crate) fn add(begin: impl FnOnce() -> Object) -> Result<u64, Failure> {
    if COUNT.fetch_add(1, Ordering::Relaxed) >= OBJECTS_MAX {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        let text =
            format!("{OBJECTS_MAX} tasks, transfers and runs have begun and not ended; end them");
        return Err(Failure::new(Status::Limit, text));
    }
    let object = begin();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    shard(number).insert(number, object);
    Ok(number)
}

/// Removes an object of this kind, which ends.
///
/// # Errors
/// If there is none of this number, or it is of another kind.
pub(crate) fn remove(number: u64, kind: Kind) -> Result<Object, Failure> {
    let mut shard = shard(number);
    if shard.get(&number).map(Object::kind) != Some(kind) {
        let found = shard.get(&number).map(Object::kind);
        drop(shard);
        return Err(invalid(number, kind, found));
    }
    let removed = shard.remove(&number);
    drop(shard);
    COUNT.fetch_sub(1, Ordering::Relaxed);
    removed.ok_or_else(|| invalid(number, kind, None))
}

/// Returns the handle of a running task.
///
/// # Errors
/// If there is no running task of this number.
pub(crate) fn task(number: u64) -> Result<TaskHandle, Failure> {
    let shard = shard(number);
    match shard.get(&number) {
        Some(Object::Task(task)) => Ok(task.handle()),
        other => Err(invalid(number, Kind::Task, other.map(Object::kind))),
    }
}

/// Whether a task of this number runs.
pub(crate) fn is_running(number: u64) -> bool {
    shard(number).contains_key(&number)
}

/// Changes a running transfer.
///
/// # Errors
/// If there is no running transfer of this number.
pub(crate) fn with_transfer(
    number: u64,
    change: impl FnOnce(&mut TransferGuard),
) -> Result<(), Failure> {
    match shard(number).get_mut(&number) {
        Some(Object::Transfer(transfer)) => {
            change(transfer);
            Ok(())
        }
        other => {
            let found = other.map(|object| object.kind());
            Err(invalid(number, Kind::Transfer, found))
        }
    }
}

fn invalid(number: u64, expected: Kind, found: Option<Kind>) -> Failure {
    let expected = expected.name();
    let text = match found {
        Some(found) => format!("{number} is a {}; expected a {expected}", found.name()),
        None if number < NEXT.load(Ordering::Relaxed) => {
            format!("{expected} {number} has ended, or began before a fork")
        }
        None => format!("{number} is no {expected}; expected a number that its begin returned"),
    };
    Failure::new(Status::InvalidHandle, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(failure: Failure) -> String {
        format!("{failure:?}")
    }

    #[test]
    fn a_number_is_of_one_object_and_ends_once() {
        let begin = || Object::Run(agent::mark_run("nightly"));
        let first = add(begin).unwrap();
        let second = add(begin).unwrap();
        assert!(first != second && first != 0 && is_running(first));
        let other_kind = text(remove(first, Kind::Task).unwrap_err());
        assert!(
            other_kind.contains("is a run; expected a task"),
            "{other_kind}"
        );
        assert!(text(task(first).unwrap_err()).contains("is a run"));
        assert!(matches!(remove(first, Kind::Run), Ok(Object::Run(_))));
        let again = text(remove(first, Kind::Run).unwrap_err());
        assert!(again.contains("has ended") && !is_running(first), "{again}");
        let unknown = text(with_transfer(u64::MAX, |_| {}).unwrap_err());
        assert!(unknown.contains("is no transfer"), "{unknown}");
        remove(second, Kind::Run).unwrap();
        let third = add(begin).unwrap();
        assert!(third > second, "no number is used again");
        remove(third, Kind::Run).unwrap();
    }
}
