//! Recipes for thread pools: whichever thread runs a closure, its samples belong to the task that was
//! carried into it. Each recipe is as the README shows it.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

#[allow(unused, reason = "other tests use the rest")]
mod common;

use std::time::Duration;

use common::{only_top, start, work_function};
use emberline_agent::{current_task, task};
use rayon::prelude::*;

// Under emulation, the first visit of a thread takes a third of it.
const SLICE: Duration = Duration::from_millis(300);

work_function!(in_rayon, 101);
work_function!(in_spawn_blocking, 102);
work_function!(in_crossbeam, 103);
work_function!(in_scoped_thread, 104);

#[test]
fn work_of_a_rayon_pool_belongs_to_the_carried_task() {
    let (agent, _turn) = start();
    let guard = task("rayon").start();
    let task = current_task();
    (0..4)
        .into_par_iter()
        .for_each(|_| task.run(|| in_rayon(SLICE)));
    drop(guard);
    assert_eq!(only_top(&agent.finish(), "in_rayon"), "rayon");
}

#[test]
fn work_of_spawn_blocking_belongs_to_the_carried_task() {
    let (agent, _turn) = start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let guard = task("blocking").start();
    let task = current_task();
    let blocking = runtime.spawn_blocking(move || task.run(|| in_spawn_blocking(SLICE)));
    runtime.block_on(blocking).unwrap();
    drop(guard);
    assert_eq!(only_top(&agent.finish(), "in_spawn_blocking"), "blocking");
}

#[test]
fn work_of_a_crossbeam_scope_belongs_to_the_carried_task() {
    let (agent, _turn) = start();
    let guard = task("crossbeam").start();
    let task = current_task();
    crossbeam_utils::thread::scope(|threads| {
        threads.spawn(|_| task.run(|| in_crossbeam(SLICE)));
    })
    .unwrap();
    drop(guard);
    assert_eq!(only_top(&agent.finish(), "in_crossbeam"), "crossbeam");
}

#[test]
fn work_of_a_scoped_thread_belongs_to_the_carried_task() {
    let (agent, _turn) = start();
    let guard = task("scoped").start();
    let task = current_task();
    let result = std::thread::scope(|threads| {
        let thread = threads.spawn(|| {
            task.run(|| {
                in_scoped_thread(SLICE);
                7
            })
        });
        thread.join().unwrap()
    });
    drop(guard);
    assert_eq!(result, 7, "the closure's result is returned");
    assert_eq!(only_top(&agent.finish(), "in_scoped_thread"), "scoped");
}
