//! Each wrong order panics and names both locks, and each right one does not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::rank::{LogWriter, Rank, Registry, Session, Tree, Windows};
use super::*;

/// The text of the panic of `work`, if it panics.
fn panic_of(work: impl FnOnce()) -> Option<String> {
    let panicked = catch_unwind(AssertUnwindSafe(work)).err()?;
    Some(
        panicked
            .downcast_ref::<String>()
            .expect("a panic with a text")
            .clone(),
    )
}

#[test]
fn the_order_of_ranks_is_respected_in_every_pair() {
    for (earlier, first) in Rank::ALL.iter().enumerate() {
        for (later, second) in Rank::ALL.iter().enumerate() {
            let held = HeldRank::take(*first);
            let conflict = held::conflict(*second);
            drop(held);
            assert_eq!(
                conflict.is_none(),
                earlier < later,
                "{first:?}, then {second:?}"
            );
            if let Some(text) = conflict {
                let expected = format!("{second:?} is locked while {first:?} is held since ");
                assert!(
                    text.contains(&expected) && text.contains("sync/tests.rs"),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn a_lock_cannot_be_taken_twice_not_even_to_read() {
    let tree: RwLock<u32, Tree> = RwLock::new(1);
    let first = read(&tree);
    let again = panic_of(|| drop(read(&tree))).unwrap();
    assert!(
        again.starts_with("lock order: Tree is locked while Tree is held"),
        "{again}"
    );
    assert!(panic_of(|| drop(write(&tree))).is_some());
    drop(first);
    drop(write(&tree));
    let other: RwLock<u32, Tree> = RwLock::default();
    let first = read(&tree);
    assert!(
        panic_of(|| drop(read(&other))).is_some(),
        "another lock of the rank"
    );
    *write_second(&other) = *first;
    drop(first);
    assert_eq!(*read(&other), 1);
}

#[test]
fn locks_may_be_released_in_any_order_and_by_a_panic() {
    let registry: Mutex<(), Registry> = Mutex::default();
    let session: Mutex<(), Session> = Mutex::default();
    let windows: RwLock<(), Windows> = RwLock::default();
    let first = lock(&registry);
    let second = lock(&session);
    drop(first);
    assert!(
        panic_of(|| drop(lock(&registry))).is_some(),
        "the session is still held"
    );
    drop(write(&windows));
    drop(second);
    assert!(
        panic_of(|| {
            let _held = lock(&session);
            panic!("{}", "a bug")
        })
        .is_some()
    );
    drop(lock(&registry));
    let elsewhere = lock(&session);
    std::thread::scope(|scope| {
        scope
            .spawn(|| drop(lock(&registry)))
            .join()
            .expect("each thread has its own locks");
    });
    drop(elsewhere);
}

#[test]
fn files_are_used_only_under_locks_that_are_for_that() {
    for rank in Rank::ALL {
        let held = HeldRank::take(*rank);
        assert_eq!(panic_of(before_io).is_none(), rank.may_do_io(), "{rank:?}");
        drop(held);
    }
    let writer: Mutex<(), LogWriter> = Mutex::default();
    let windows: RwLock<(), Windows> = RwLock::default();
    let _writing = lock(&writer);
    before_io();
    let _held = read(&windows);
    let text = panic_of(before_io).unwrap();
    assert!(
        text.starts_with("a file is used while Windows is held since"),
        "{text}"
    );
}

/// It takes the mutex again under all that it holds.
#[test]
fn a_waiting_thread_still_holds_its_mutex() {
    let registry: Mutex<bool, Registry> = Mutex::new(false);
    let changed = Condvar::default();
    let guard = changed.wait_timeout_while(lock(&registry), Duration::ZERO, |_| true);
    assert!(panic_of(|| drop(lock(&registry))).is_some());
    drop(changed.wait_while(guard, |_| false));
    assert!(!*lock(&registry));
}
