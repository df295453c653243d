//! Handles that carry a task to other threads.

use std::pin::pin;
use std::thread;
use std::time::Duration;

use emberline_agent::{AgentBuilder, Outcome, current_task, task};

use crate::common::{TURN, lock, only_top, start};
use crate::{SLICE, pause, poll, work_after, work_between, work_of_blue, work_of_red};

/// Closures on a rayon pool belong to the task of their handle; afterwards the pool's threads have no
/// task.
#[test]
fn a_pool_works_for_the_task_of_the_entered_handle() {
    let (agent, _turn) = start();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(2)
        .build()
        .unwrap();
    let run = |name: &str, work: fn(Duration)| {
        let _task = task(name).start();
        let here = current_task();
        pool.broadcast(|_| {
            let _in = here.enter();
            work(SLICE);
        });
    };
    run("red", work_of_red);
    run("blue", work_of_blue);
    pool.broadcast(|_| work_between(SLICE));
    drop(pool);
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "work_of_red"), "red");
    assert_eq!(only_top(&recording, "work_of_blue"), "blue");
    assert_eq!(only_top(&recording, "work_between"), "[no task]");
    assert_eq!(recording.tasks.len(), 2, "a handle writes no row");
}

/// A detached task has the samples of the threads that entered it, and ends on any thread.
#[test]
fn a_detached_task_is_entered_and_ended_on_any_thread() {
    let (agent, _turn) = start();
    let red = task("red").key("r-1").detached();
    work_between(SLICE);
    let here = red.handle();
    thread::spawn(move || {
        let _in = here.enter();
        work_of_red(SLICE);
    })
    .join()
    .unwrap();
    let blue = task("blue").parent(&red.handle()).detached();
    thread::spawn(|| red.fail("no more ink")).join().unwrap();
    drop(blue);
    task("green").detached().end();
    task("white").detached().cancel();
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "work_of_red"), "red");
    assert_eq!(only_top(&recording, "work_between"), "[no task]");
    let row = |name: &str| recording.tasks.iter().find(|task| &*task.name == name);
    let red = row("red").unwrap();
    assert_eq!((&*red.key, &*red.cause), ("r-1", "no more ink"));
    assert_eq!(row("blue").unwrap().parent, Some(red.id));
    let outcomes = ["red", "blue", "green", "white"].map(|name| row(name).unwrap().outcome);
    let expected = [
        Outcome::Failed,
        Outcome::Cancelled,
        Outcome::Ok,
        Outcome::Cancelled,
    ];
    assert_eq!(outcomes, expected);
}

/// Scopes of one task may overlap in any order, on one thread and after the task's end; a handle of
/// no task leaves the task that the thread runs.
#[test]
fn scopes_may_end_in_any_order() {
    let (agent, _turn) = start();
    let nobody = current_task();
    let red = task("red").start();
    let here = red.handle();
    let first = here.enter();
    let blue = task("blue").start();
    let second = here.enter();
    drop(first);
    drop(red);
    work_of_red(SLICE); // `second` was entered last.
    drop(second);
    work_of_blue(SLICE);
    {
        let _out = nobody.enter();
        work_between(SLICE);
    }
    work_of_blue(SLICE);
    drop(blue);
    let late = here.enter();
    work_of_red(SLICE);
    drop(late);
    work_after(SLICE);
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "work_of_red"), "red");
    assert_eq!(only_top(&recording, "work_of_blue"), "blue");
    assert_eq!(only_top(&recording, "work_between"), "[no task]");
    assert_eq!(only_top(&recording, "work_after"), "[no task]");
}

/// A future that a runtime polls outside any task can have an explicit parent, and so can a guard.
#[test]
fn a_parent_can_be_set() {
    let (agent, _turn) = start();
    let parent = task("parent").start();
    let handle = parent.handle();
    thread::spawn(move || {
        assert!(poll(pin!(task("future").parent(&handle).future(async {}))).is_ready());
        drop(task("guard").parent(&handle).start());
        let _in = handle.enter();
        drop(task("entered").start());
    })
    .join()
    .unwrap();
    drop(parent);
    let tasks = agent.finish().tasks;
    assert_eq!(tasks.len(), 4);
    assert!(
        tasks[1..]
            .iter()
            .all(|task| task.parent == Some(tasks[0].id)),
        "{tasks:?}"
    );
}

#[test]
fn without_an_agent_futures_and_handles_do_nothing() {
    let _turn = lock(&TURN);
    let mut before = pin!(task("before").future(pause()));
    let nobody = current_task();
    let guard = task("guard").start();
    let here = guard.handle();
    assert!(poll(before.as_mut()).is_pending());
    let agent = AgentBuilder::default().start_local().unwrap();
    let _in = (nobody.enter(), here.enter());
    assert!(poll(before.as_mut()).is_ready());
    assert!(agent.finish().tasks.is_empty());
}
