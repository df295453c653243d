//! The locks that a thread holds, in builds that check their [order](super::rank).

use std::cell::RefCell;
use std::panic::Location;
use std::thread;

use super::rank::Rank;

/// A lock that the thread holds, and the line that took it.
#[derive(Clone, Copy, Debug)]
struct HeldLock {
    rank: Rank,
    taken_at: &'static Location<'static>,
}

thread_local! {
    static HELD: RefCell<Vec<HeldLock>> = const { RefCell::new(Vec::new()) };
}

/// The entry of one lock; removed when this is dropped, on the same thread: guards are not `Send`.
#[derive(Debug)]
pub(super) struct HeldRank(Rank);

impl HeldRank {
    /// Notes that the thread is about to take a lock.
    #[track_caller]
    pub(super) fn take(rank: Rank) -> HeldRank {
        refuse(conflict(rank));
        HeldRank::note(rank)
    }

    /// Like [`HeldRank::take`]; the lock may follow another one of its rank.
    #[track_caller]
    pub(super) fn take_second(rank: Rank) -> HeldRank {
        refuse(conflict_unless(rank, |held| held <= rank));
        HeldRank::note(rank)
    }

    #[track_caller]
    fn note(rank: Rank) -> HeldRank {
        let taken_at = Location::caller();
        HELD.with_borrow_mut(|locks| locks.push(HeldLock { rank, taken_at }));
        HeldRank(rank)
    }
}

impl Drop for HeldRank {
    fn drop(&mut self) {
        // A thread that ends drops its own values in any order.
        let _ = HELD.try_with(|locks| {
            let mut locks = locks.borrow_mut();
            if let Some(last) = locks.iter().rposition(|lock| lock.rank == self.0) {
                locks.remove(last);
            }
        });
    }
}

/// Runs what another thread does in a simulation of several threads in one.
#[cfg(feature = "simulation")]
pub(super) fn as_another_thread(work: impl FnOnce()) {
    let own = HELD.take();
    work();
    HELD.set(own);
}

/// Why the thread must not take a lock of that rank now.
pub(super) fn conflict(rank: Rank) -> Option<String> {
    conflict_unless(rank, |held| held < rank)
}

fn conflict_unless(rank: Rank, is_fine: impl Fn(Rank) -> bool) -> Option<String> {
    let wrong = HELD.with_borrow(|locks| locks.iter().find(|lock| !is_fine(lock.rank)).copied());
    let HeldLock {
        rank: held,
        taken_at,
    } = wrong?;
    Some(format!(
        "lock order: {rank:?} is locked while {held:?} is held since {taken_at}"
    ))
}

/// Panics because of a conflict. A thread that panics already is left alone: a second panic would end the process.
#[track_caller]
fn refuse(conflict: Option<String>) {
    if let Some(conflict) = conflict
        && !thread::panicking()
    {
        panic!("{conflict}");
    }
}

/// Panics if the thread holds a lock that must not be held while a file is used.
#[track_caller]
pub(super) fn check_io() {
    let wrong = HELD.with_borrow(|locks| locks.iter().find(|lock| !lock.rank.may_do_io()).copied());
    if let Some(HeldLock { rank, taken_at }) = wrong
        && !thread::panicking()
    {
        panic!("a file is used while {rank:?} is held since {taken_at}");
    }
}
