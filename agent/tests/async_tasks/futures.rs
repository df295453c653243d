//! Futures that are tasks, polled by hand and by runtimes.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::mpsc::sync_channel;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use emberline_agent::{TaskFutureExt as _, task};
use profiler_core::Outcome;

use crate::common::{ends, only_top, start, tops_of, work_function};
use crate::{
    SLICE, pause, poll, work_after, work_between, work_inner, work_of_blue, work_of_red, work_outer,
};

work_function!(work_blocking, 7);
work_function!(work_in_drop, 8);

/// Three threads poll one future in turn and do other work around it. Every sample of the future's
/// function belongs to its task and no sample of the other work does. There is one row, with the thread
/// on which the task started.
#[test]
fn a_future_is_attributed_on_every_thread_that_polls_it() {
    let (agent, _turn) = start();
    let mut future = Box::pin(task("red").key("red-1").future(async {
        for _ in 0..2 {
            work_of_red(SLICE);
            pause().await;
        }
        work_of_red(SLICE);
    }));
    let mut first = 0;
    for turn in 0..3 {
        let polling = thread::spawn(move || {
            work_between(SLICE);
            let ready = poll(future.as_mut()).is_ready();
            work_between(SLICE);
            assert_eq!(ready, turn == 2);
            (future, nix::unistd::gettid().as_raw().unsigned_abs())
        });
        let (moved, id) = polling.join().unwrap();
        future = moved;
        first = if turn == 0 { id } else { first };
    }
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "work_of_red"), "red");
    assert_eq!(only_top(&recording, "work_between"), "[no task]");
    let [red] = &recording.tasks[..] else {
        panic!("{:?}", recording.tasks)
    };
    assert_eq!(
        (&*red.key, red.outcome, red.thread_id),
        ("red-1", Outcome::Ok, first)
    );
    assert!(red.stop > Some(red.start));
}

/// A runtime that moves its tasks: a blocking call hands the thread's other work to another thread, so the
/// task continues there.
#[test]
fn tasks_of_a_runtime_keep_their_samples() {
    async fn on_two_threads(work: fn(Duration)) {
        let mut threads = BTreeSet::new();
        for _ in 0..20 {
            threads.insert(nix::unistd::gettid().as_raw());
            if threads.len() > 1 {
                return work(SLICE);
            }
            tokio::task::block_in_place(|| work(SLICE));
            tokio::task::yield_now().await;
        }
        panic!("never moved");
    }
    let (agent, _turn) = start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let red = tokio::spawn(task("red").future(on_two_threads(work_of_red)));
        let blue = tokio::spawn(on_two_threads(work_of_blue).in_task(task("blue")));
        let plain = tokio::spawn(on_two_threads(work_between));
        for joined in [red.await, blue.await, plain.await] {
            joined.unwrap();
        }
    });
    drop(runtime);
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "work_of_red"), "red");
    assert_eq!(only_top(&recording, "work_of_blue"), "blue");
    assert_eq!(only_top(&recording, "work_between"), "[no task]");
    let ends: BTreeSet<_> = ends(&recording)
        .into_iter()
        .map(|end| (end.0, end.1))
        .collect();
    assert_eq!(
        ends,
        [("red".into(), Outcome::Ok), ("blue".into(), Outcome::Ok)].into()
    );
}

/// Samples belong to an inner task while it is polled, and to the outer one again afterwards.
#[test]
fn nested_futures_restore_the_outer_task() {
    let (agent, _turn) = start();
    let outer = task("outer").future(async {
        let inner = async {
            work_inner(SLICE);
            pause().await;
            work_inner(SLICE);
        };
        let mut inner = pin!(inner.in_task(task("inner")));
        for ready in [false, true] {
            assert_eq!(poll(inner.as_mut()).is_ready(), ready);
            work_outer(SLICE);
        }
    });
    assert!(poll(pin!(outer)).is_ready());
    work_after(SLICE);
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "work_inner"), "inner");
    assert_eq!(only_top(&recording, "work_outer"), "outer");
    assert_eq!(only_top(&recording, "work_after"), "[no task]");
    let [outer, inner] = &recording.tasks[..] else {
        panic!("{:?}", recording.tasks)
    };
    assert_eq!((&*outer.name, outer.parent), ("outer", None));
    assert_eq!((&*inner.name, inner.parent), ("inner", Some(outer.id)));
}

#[test]
fn futures_have_the_outcome_of_their_end() {
    let (agent, _turn) = start();
    let failing = |cause: Option<&'static str>| async move { cause.map_or(Ok(()), Err) };
    assert!(poll(pin!(async {}.in_task(task("ready")))).is_ready());
    assert!(poll(pin!(failing(Some("disk full")).in_try_task(task("failed")))).is_ready());
    assert!(poll(pin!(task("fine").try_future(failing(None)))).is_ready());
    assert!(poll(pin!(task("dropped").future(pause()))).is_pending());
    drop(task("never polled").future(pause()));
    let boxed = Box::pin(task("panicked").future(async { panic!("on purpose") }));
    let mut panicking: Pin<Box<dyn Future<Output = ()>>> = boxed;
    assert!(catch_unwind(AssertUnwindSafe(|| poll(panicking.as_mut()))).is_err());
    drop(panicking);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let aborted = tokio::spawn(task("aborted").future(std::future::pending::<()>()));
        tokio::task::yield_now().await;
        aborted.abort();
        assert!(aborted.await.unwrap_err().is_cancelled());
    });
    let running = &mut pin!(task("running").future(pause()));
    assert!(poll(running.as_mut()).is_pending());
    assert_eq!(
        ends(&agent.finish()),
        [
            ("ready".into(), Outcome::Ok, "".into()),
            ("failed".into(), Outcome::Failed, "disk full".into()),
            ("fine".into(), Outcome::Ok, "".into()),
            ("dropped".into(), Outcome::Cancelled, "".into()),
            ("panicked".into(), Outcome::Panicked, "".into()),
            ("aborted".into(), Outcome::Cancelled, "".into()),
            ("running".into(), Outcome::Running, "".into()),
        ]
    );
}

/// Destructors of a future's values run inside its task, whether it ended or was dropped.
#[test]
fn a_future_is_dropped_inside_its_task() {
    struct WorksInDrop;
    impl Drop for WorksInDrop {
        fn drop(&mut self) {
            work_in_drop(SLICE);
        }
    }
    let (agent, _turn) = start();
    let hold = || {
        let held = WorksInDrop;
        std::future::poll_fn(move |_| {
            let _held = &held;
            Poll::<()>::Pending
        })
    };
    let mut dropped = Box::pin(task("dropped").future(hold()));
    assert!(poll(dropped.as_mut()).is_pending());
    drop(dropped);
    let held = WorksInDrop;
    let ready = std::future::poll_fn(move |_| {
        let _held = &held;
        Poll::Ready(())
    });
    assert!(poll(pin!(task("dropped").future(ready))).is_ready());
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "work_in_drop"), "dropped");
}

/// A single-threaded runtime that is blocked in a call is sampled like any other thread.
#[test]
fn a_blocked_runtime_is_still_sampled() {
    let (agent, _turn) = start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(task("blocking").future(async {
        work_blocking(Duration::from_millis(1_500));
    }));
    let recording = agent.finish();
    assert!(
        recording.ticks.made * 2 >= recording.ticks.expected,
        "{recording:?}"
    );
    assert!(recording.ticks.expected >= 100);
    assert_eq!(only_top(&recording, "work_blocking"), "blocking");
    let tops = tops_of(&recording.profile, "work_blocking");
    assert!(tops[0].1 >= 750_000_000, "{tops:?}");
}

/// Records are right for tasks that start on one thread and end on another, whenever the agent drains the
/// rings of the two.
#[test]
fn tasks_that_end_on_another_thread_do_not_stay_running() {
    const TASKS: usize = 3_000;
    let (agent, _turn) = start();
    // The thread that ends tasks has its ring before the thread that starts them, so it is emptied
    // first: the order in which an end is seen before its start.
    let (to_end, ending) = sync_channel(0);
    let (to_start, starting) = sync_channel(0);
    let ends = thread::spawn(move || {
        drop(task("first").start());
        to_start.send(()).unwrap();
        let mut sum = 0;
        for future in ending {
            let mut future: Pin<Box<dyn Future<Output = usize> + Send>> = future;
            let Poll::Ready(number) = poll(future.as_mut()) else {
                panic!("it paused once")
            };
            sum += number;
        }
        sum
    });
    starting.recv().unwrap();
    let begins = thread::spawn(move || {
        for number in 0..TASKS {
            let moving = async move {
                pause().await;
                number
            };
            let mut moving = Box::pin(moving.in_task(task("moving")));
            assert!(poll(moving.as_mut()).is_pending());
            to_end
                .send(moving as Pin<Box<dyn Future<Output = usize> + Send>>)
                .unwrap();
        }
    });
    begins.join().unwrap();
    assert_eq!(ends.join().unwrap(), TASKS * (TASKS - 1) / 2);
    let recording = agent.finish();
    assert_eq!(
        recording.tasks.len() + usize::try_from(recording.lost_tasks).unwrap(),
        TASKS + 1
    );
    let running: Vec<_> = recording
        .tasks
        .iter()
        .filter(|task| task.outcome != Outcome::Ok)
        .collect();
    assert!(running.is_empty(), "{running:?}");
}
