//! The agent in this process, from outside: who gets which samples, and how tasks end. One process
//! has one agent, so these tests take turns.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use emberline_agent::{AgentBuilder, LocalAgent, Recording, StartError, task};
use profiler_core::{NodeId, Outcome, Profile};

static TURN: Mutex<()> = Mutex::new(());

fn start() -> (LocalAgent, MutexGuard<'static, ()>) {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    (AgentBuilder::default().start_local().unwrap(), turn)
}

/// Works until the sampler must have seen it; long enough for a busy machine.
#[inline(never)]
fn work(length: Duration) {
    let begin = Instant::now();
    let mut sum = 1u64;
    while begin.elapsed() < length {
        sum = std::hint::black_box(sum.wrapping_mul(31));
    }
}

#[inline(never)]
fn work_outside() {
    work(Duration::from_millis(400));
    std::hint::black_box(1);
}

#[inline(never)]
fn work_inside() {
    work(Duration::from_millis(400));
    std::hint::black_box(2);
}

/// Nanoseconds by the first level of stacks that contain `function`.
fn tops_of(profile: &Profile, function: &str) -> Vec<(String, u64)> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    let mut above = vec![(String::new(), false)];
    for node in profile.nodes() {
        let label = profile.frame(node.frame).label();
        let (top, inside) = &above[node.parent.index()];
        let inside = *inside || label.contains(function);
        let top = if node.parent == NodeId::ROOT { label } else { top.clone() };
        if inside && !node.own.is_zero() {
            match sums.iter_mut().find(|(name, _)| *name == top) {
                Some((_, sum)) => *sum += node.own.total_ns(),
                None => sums.push((top.clone(), node.own.total_ns())),
            }
        }
        above.push((top, inside));
    }
    sums
}

fn only_top(recording: &Recording, function: &str) -> String {
    let tops = tops_of(&recording.profile, function);
    let [(top, nanoseconds)] = &tops[..] else { panic!("{function}: {tops:?}") };
    assert!(*nanoseconds >= 100_000_000, "{function}: {tops:?}");
    top.clone()
}

#[test]
fn samples_go_to_the_innermost_running_task() {
    let (agent, _turn) = start();
    let outer = task("outer").key("outer-1").start();
    work_outside();
    let inner = task("inner").start();
    work_inside();
    drop(inner);
    drop(outer);
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "work_outside"), "outer");
    assert_eq!(only_top(&recording, "work_inside"), "inner");
    let [outer, inner] = &recording.tasks[..] else { panic!("{:?}", recording.tasks) };
    assert_eq!((&*outer.name, &*outer.key, outer.parent), ("outer", "outer-1", None));
    assert_eq!((&*inner.name, &*inner.key, inner.parent), ("inner", "", Some(outer.id)));
    assert!(outer.start <= inner.start && inner.stop <= outer.stop);
}

/// Guards may be dropped in any order: what still runs keeps its samples.
#[test]
fn the_outer_task_may_end_first() {
    let (agent, _turn) = start();
    let outer = task("outer").start();
    let inner = task("inner").start();
    drop(outer);
    work_inside();
    drop(inner);
    work_outside();
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "work_inside"), "inner");
    assert_eq!(only_top(&recording, "work_outside"), "[no task]");
}

/// A blocked thread is seen where it waits, all of its time, without a signal.
#[test]
fn a_blocked_thread_counts_as_waiting() {
    let (agent, _turn) = start();
    let (sender, receiver) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    let blocked = thread::spawn(move || {
        let _task = task("blocked").start();
        ready.send(()).unwrap();
        receiver.recv()
    });
    is_ready.recv().unwrap();
    work_outside();
    drop(sender);
    assert!(blocked.join().unwrap().is_err());
    let profile = agent.finish().profile;
    let (_, weight) = profile.top_level().find(|(frame, _)| frame.function == "blocked").unwrap();
    assert!(weight.wait_ns >= 300_000_000, "{weight:?}");
    assert!(weight.wait_ns * 10 > weight.total_ns() * 9, "{weight:?}");
    assert_eq!(tops_of(&profile, "recv").iter().filter(|(top, _)| top == "blocked").count(), 1);
}

/// The agent's own threads stand apart, and the sampler's cost is among them.
#[test]
fn the_agents_threads_are_told_apart() {
    let (agent, _turn) = start();
    work_outside();
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "sampler thread"), "[agent]");
    assert_eq!(only_top(&recording, "emberline_agent::agent::spawn"), "[agent]");
    assert_eq!(tops_of(&recording.profile, "work_outside").len(), 1);
    assert!(recording.ticks > 0 && recording.ticks_expected > 0);
}

#[test]
fn tasks_end_as_they_ended() {
    let (agent, _turn) = start();
    drop(task("a").start());
    task("b").start().fail("no such file");
    task("c").start().cancel();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _task = task("d").start();
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    let running = task("e").start();
    let recording = agent.finish();
    drop(running);
    let ends: Vec<_> = recording
        .tasks
        .iter()
        .map(|task| (&*task.name, task.outcome, &*task.cause, task.stop.is_some()))
        .collect();
    assert_eq!(
        ends,
        [
            ("a", Outcome::Ok, "", true),
            ("b", Outcome::Erred, "no such file", true),
            ("c", Outcome::Cancelled, "", true),
            ("d", Outcome::Panicked, "", true),
            ("e", Outcome::Running, "", false),
        ]
    );
    assert_eq!(recording.lost_tasks, 0);
}

/// A thousand threads that run one task each and end at once leave every row.
#[test]
fn rows_of_threads_that_are_gone_are_kept() {
    let (agent, _turn) = start();
    for batch in 0..10 {
        let threads: Vec<_> = (0..100)
            .map(|number| {
                let key = format!("{batch}-{number}");
                thread::spawn(move || drop(task("short").key(key).start()))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
    let recording = agent.finish();
    assert_eq!((recording.tasks.len(), recording.lost_tasks), (1_000, 0));
    assert!(recording.tasks.iter().all(|task| task.outcome == Outcome::Ok));
}

/// A burst that is faster than the agent reads: ends are kept before starts, and what has no room is
/// counted. No task is left running.
#[test]
fn a_burst_of_tasks_is_kept_or_counted() {
    const TASKS: usize = 50_000;
    let (agent, _turn) = start();
    for number in 0..TASKS {
        drop(task("burst").key(number.to_string()).start());
    }
    let recording = agent.finish();
    assert_eq!(recording.tasks.len() + usize::try_from(recording.lost_tasks).unwrap(), TASKS);
    assert!(recording.tasks.iter().all(|task| task.outcome == Outcome::Ok));
    assert!(recording.tasks.len() >= 3_000, "one ring at the least: {}", recording.tasks.len());
}

#[test]
fn one_agent_at_a_time_and_settings_within_bounds() {
    let (agent, _turn) = start();
    let second = AgentBuilder::default().start_local();
    assert!(matches!(second, Err(StartError::AlreadyRunning)));
    drop(agent);
    let refused = |builder: AgentBuilder| builder.start_local().unwrap_err().to_string();
    assert_eq!(
        refused(AgentBuilder::default().interval(Duration::from_micros(10))),
        "the interval is 10µs; it must be from 1ms to 1s"
    );
    assert_eq!(
        refused(AgentBuilder::default().worker("")),
        "the worker's id has 0 bytes; it must have from 1 to 4096"
    );
    // What was refused left nothing behind.
    let agent = AgentBuilder::default().start_local().unwrap();
    drop(task("after").start());
    assert_eq!(agent.finish().tasks.len(), 1);
}

#[test]
fn without_an_agent_guards_do_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = task("nothing").key("x").start();
    let agent = AgentBuilder::default().start_local().unwrap();
    drop(before);
    assert!(agent.finish().tasks.is_empty());
}
