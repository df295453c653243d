//! Callbacks that are called for each event, and their order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};

use emberline_agent::{AgentBuilder, current_task, task};
use emberline_diagnostics::{
    self as diagnostics, Callback, Callbacks, Profiler, Registration, RunInfo, State, TaskRecord,
};

use crate::{Heard, turn};

/// The trait, method by method.
struct RecordingCallback(Heard);

impl Callback for RecordingCallback {
    fn start(&self, run: &RunInfo) {
        self.0.push(format!("start {}", run.name()));
    }

    fn start_state(&self, run: &RunInfo, state: &State) {
        self.0.push(format!(
            "start_state {} {}",
            run.name(),
            state.counts().expected
        ));
    }

    fn pretask(&self, task: &TaskRecord, state: &State) {
        self.0
            .push(format!("pretask {} {}", task.key, state.counts().running));
    }

    fn posttask(&self, task: &TaskRecord, state: &State) {
        let outcome = task.outcome.name();
        let finished = state.counts().finished;
        self.0
            .push(format!("posttask {} {outcome} {finished}", task.key));
    }

    fn finish(&self, run: &RunInfo, _: &State, failed: bool) {
        self.0.push(format!("finish {} {failed}", run.name()));
    }
}

/// The same with closures.
fn told_by_closures(heard: &Heard) -> Callbacks {
    let told = || RecordingCallback(heard.clone());
    let start = told();
    let start_state = told();
    let pretask = told();
    let posttask = told();
    let finish = told();
    Callbacks::new()
        .start(move |run| start.start(run))
        .start_state(move |run, state| start_state.start_state(run, state))
        .pretask(move |task, state| pretask.pretask(task, state))
        .posttask(move |task, state| posttask.posttask(task, state))
        .finish(move |run, state, failed| finish.finish(run, state, failed))
}

fn check_order(callback: impl Callback + 'static, heard: &Heard) {
    let scope = diagnostics::scope(callback);
    diagnostics::run("both").expect("load", 2).during(|| {
        let outer = task("load").key("one").start();
        drop(task("load").key("two").start());
        outer.fail("no disk");
    });
    drop(scope);
    drop(task("load").key("three").start());
    diagnostics::run("later").during(|| ());
    let expected = [
        "start both",
        "start_state both 2",
        "pretask one 1",
        "pretask two 2",
        "posttask two ok 1",
        "posttask one failed 2",
        "finish both false",
    ];
    assert_eq!(heard.take(), expected);
}

#[test]
fn the_five_callbacks_are_called_in_dasks_order() {
    let _turn = turn();
    let heard = Heard::default();
    check_order(RecordingCallback(heard.clone()), &heard);
    check_order(told_by_closures(&heard), &heard);
    check_order(Arc::new(RecordingCallback(heard.clone())), &heard);
    let shared: Arc<dyn Callback> = Arc::new(RecordingCallback(heard.clone()));
    check_order(shared, &heard);
}

/// A callback that records its own name.
fn numbered(number: u32, heard: &Heard) -> Callbacks {
    let heard = heard.clone();
    Callbacks::new().pretask(move |_, _| heard.push(number.to_string()))
}

#[test]
fn callbacks_are_called_in_order_until_unregistered() {
    let _turn = turn();
    let heard = Heard::default();
    let one_task = || {
        drop(task("load").start());
        heard.take()
    };
    assert!(one_task().is_empty());
    let first = diagnostics::register(numbered(1, &heard));
    let second = diagnostics::scope(numbered(2, &heard));
    let third = diagnostics::register(numbered(3, &heard));
    assert_eq!(one_task(), ["1", "2", "3"]);
    assert!(diagnostics::unregister(first));
    assert!(!diagnostics::unregister(first));
    assert_eq!(one_task(), ["2", "3"]);
    drop(second);
    assert_eq!(one_task(), ["3"]);
    assert!(diagnostics::unregister(third));
    assert!(one_task().is_empty());
}

#[test]
fn only_callbacks_that_saw_a_start_see_the_end() {
    let _turn = turn();
    let heard = Heard::default();
    let early = RecordingCallback(heard.clone());
    let late = RecordingCallback(heard.clone());
    let before = task("load").key("before").start();
    let early = diagnostics::scope(early);
    drop(before);
    let run = diagnostics::run("run").start();
    let during = task("load").key("during").start();
    heard.take();
    let late = diagnostics::scope(late);
    drop(during);
    drop(run);
    assert_eq!(heard.take(), ["posttask during ok 1", "finish run false"]);
    let during = task("load").key("during").start();
    drop(early);
    heard.take();
    drop(during);
    assert_eq!(heard.take(), ["posttask during ok 1"]);
    drop(late);
}

/// It is not called again, and the others still are; also if the task itself ends by a panic, and if the
/// payload panics when it is dropped.
#[test]
fn a_panicking_callback_harms_nothing_else() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("once more");
        }
    }
    let _turn = turn();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = move |calls: &Arc<AtomicUsize>| calls.fetch_add(1, Ordering::Relaxed);
    let calls_of_text = calls.clone();
    let calls_of_bomb = calls.clone();
    let heard = Heard::default();
    let _scopes = (
        diagnostics::scope(Callbacks::new().pretask(move |_, _| {
            count(&calls_of_text);
            panic!("in pretask");
        })),
        diagnostics::scope(Callbacks::new().posttask(move |_, _| {
            count(&calls_of_bomb);
            std::panic::panic_any(Bomb);
        })),
        diagnostics::scope(RecordingCallback(heard.clone())),
    );
    for _ in 0..3 {
        let panicked = catch_unwind(|| {
            let _task = task("load").key("one").start();
            panic!("in the task");
        });
        assert!(panicked.is_err());
        let heard = heard.take();
        assert!(
            heard[0].starts_with("pretask one") && heard[1].contains("panicked"),
            "{heard:?}"
        );
    }
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

/// A callback that starts tasks is not called for them, and one may unregister itself.
#[test]
fn a_callback_may_start_tasks_and_unregister_itself() {
    let _turn = turn();
    let registration: Arc<OnceLock<Registration>> = Arc::default();
    let own = registration.clone();
    let heard = Heard::default();
    let heard_inside = heard.clone();
    let callback = Callbacks::new().pretask(move |task_of_program, _| {
        heard_inside.push(&*task_of_program.name);
        drop(task("of the callback").start());
        diagnostics::run("of the callback").during(|| ());
        assert!(diagnostics::unregister(*own.get().unwrap()));
    });
    registration.set(diagnostics::register(callback)).unwrap();
    drop(task("of the program").start());
    drop(task("of the program").start());
    assert_eq!(heard.take(), ["of the program"]);
}

/// Callbacks see the outcome of futures on any thread, and their parent.
#[test]
fn callbacks_see_tasks_of_all_kinds() {
    let _turn = turn();
    let heard = Heard::default();
    let inside = heard.clone();
    let _scope = diagnostics::scope(Callbacks::new().posttask(move |task, _| {
        inside.push(format!(
            "{} {} {}",
            task.name,
            task.outcome.name(),
            task.parent.is_some()
        ));
    }));
    let mut context = Context::from_waker(Waker::noop());
    let outer = task("outer").start();
    let here = current_task();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let _in = here.enter();
            drop(task("on another thread").start());
        });
    });
    assert!(
        pin!(task("ready").future(async {}))
            .poll(&mut context)
            .is_ready()
    );
    {
        let mut pending = pin!(task("dropped").future(std::future::pending::<()>()));
        assert!(pending.as_mut().poll(&mut context).is_pending());
    }
    let failing = task("failing").try_future(async { Err::<(), _>("no") });
    assert!(pin!(failing).poll(&mut context).is_ready());
    drop(outer);
    task("called off").start().cancel();
    let expected = [
        "on another thread ok true",
        "ready ok true",
        "dropped cancelled true",
        "failing failed true",
        "outer ok false",
        "called off cancelled false",
    ];
    assert_eq!(heard.take(), expected);
}

/// The agent and the profiler record the same tasks, to the nanosecond, in whichever order the two start
/// and stop.
#[test]
fn one_set_of_guards_serves_the_agent_and_callbacks() {
    let _turn = turn();
    let profiler = Profiler::new();
    let scope = diagnostics::scope(profiler.clone());
    let before = task("before the agent").start();
    let agent = AgentBuilder::default().start_local().unwrap();
    drop(before);
    for key in ["one", "two"] {
        drop(task("both").key(key).start());
    }
    let agent_only = {
        let kept = profiler.results();
        drop(scope);
        drop(task("agent").start());
        kept
    };
    let scope = diagnostics::scope(Profiler::new());
    let recording = agent.finish();
    let names = |name: &&str| {
        recording
            .tasks
            .iter()
            .filter(|task| *task.name == **name)
            .count()
    };
    assert_eq!(
        ["before the agent", "both", "agent"].map(|name| names(&name)),
        [0, 2, 1]
    );
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(scope)));
    assert!(dropped.is_ok());
    let kept: Vec<_> = agent_only
        .iter()
        .filter(|task| *task.name == *"both")
        .collect();
    let recorded: Vec<_> = recording
        .tasks
        .iter()
        .filter(|task| *task.name == *"both")
        .collect();
    assert_eq!(kept.len(), 2);
    for (kept, recorded) in kept.iter().zip(recorded) {
        assert_eq!(
            (&kept.key, kept.started_at),
            (&recorded.key, recorded.start)
        );
        assert_eq!(
            (Some(kept.finished_at), kept.worker),
            (recorded.stop, recorded.thread_id)
        );
    }
}

/// Without a callback a task costs no allocation and no call; with a registered one the counter shows
/// that it counts.
#[test]
fn without_callbacks_tasks_do_not_allocate() {
    let _turn = turn();
    let one_task = || drop(task("load").key(String::new()).start());
    let profiler = Profiler::new();
    let scope = diagnostics::scope(profiler.clone());
    let with = allocation_counter::measure(one_task);
    drop(scope);
    assert!(with.count_total > 0);
    let cache = diagnostics::cache("blocks");
    let without = allocation_counter::measure(|| {
        one_task();
        let held = cache.hold("one", 1_u8);
        cache.inserted("two", &held);
        cache.hit("two");
        cache.removed("two");
    });
    assert_eq!((without.count_total, profiler.results().len()), (0, 1));
}
