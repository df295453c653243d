//! Spans of `tracing` as tasks.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use emberline_agent::{TaskLayer, current_task, task};
use profiler_core::Outcome;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Instrument as _, Level, error, info_span, instrument, trace_span};
use tracing_subscriber::layer::SubscriberExt as _;

use crate::common::{ends, only_top, start};
use crate::{
    SLICE, pause, poll, work_after, work_between, work_inner, work_of_blue, work_of_red, work_outer,
};

/// Lets this thread's spans go through `layer`.
fn with(layer: TaskLayer) -> DefaultGuard {
    set_default(tracing_subscriber::registry().with(layer))
}

#[instrument(fields(task.key = %key))]
async fn red(key: u32) {
    work_of_red(SLICE);
    pause().await;
    work_of_red(SLICE);
}

#[instrument(fields(task = "azure"))]
async fn blue() {
    work_of_blue(SLICE);
    pause().await;
    work_of_blue(SLICE);
}

/// Two instrumented functions are polled in turn on two threads; each has its samples on both, and the
/// time between polls belongs to neither.
#[test]
fn instrumented_functions_are_tasks() {
    let (agent, _turn) = start();
    let registry = Arc::new(tracing_subscriber::registry().with(TaskLayer::new()));
    let mut both = (
        Box::pin(red(7).with_subscriber(registry.clone())),
        Box::pin(blue().with_subscriber(registry)),
    );
    for ready in [false, true] {
        both = thread::spawn(move || {
            assert_eq!(poll(both.0.as_mut()).is_ready(), ready);
            work_between(SLICE);
            assert_eq!(poll(both.1.as_mut()).is_ready(), ready);
            work_between(SLICE);
            both
        })
        .join()
        .unwrap();
    }
    drop(both);
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "work_of_red"), "red");
    assert_eq!(only_top(&recording, "work_of_blue"), "azure");
    assert_eq!(only_top(&recording, "work_between"), "[no task]");
    let rows: Vec<_> = recording
        .tasks
        .iter()
        .map(|task| (&*task.name, &*task.key, task.outcome))
        .collect();
    assert_eq!(
        rows,
        [("red", "7", Outcome::Ok), ("azure", "", Outcome::Ok)]
    );
}

/// Spans nest, are entered twice, and end in any order; tasks that still run keep their samples. A
/// filtered span changes nothing.
#[test]
fn spans_may_overlap() {
    let (agent, _turn) = start();
    let _layer = with(TaskLayer::new());
    let outer = info_span!("outer");
    let inner = info_span!("inner");
    let entered = outer.clone().entered();
    let inside = inner.clone().entered();
    let again = outer.clone().entered();
    work_outer(SLICE);
    drop(again);
    drop(entered);
    trace_span!("detail").in_scope(|| work_inner(SLICE));
    drop(inside);
    work_after(SLICE);
    drop((outer, inner));
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "work_outer"), "outer");
    assert_eq!(only_top(&recording, "work_inner"), "inner");
    assert_eq!(only_top(&recording, "work_after"), "[no task]");
    assert_eq!(recording.tasks.len(), 2, "{:?}", recording.tasks);
}

/// A task's parent is the span's explicit parent, through spans that are no tasks, or else the current
/// task, of a guard or a span. Handles carry spans too.
#[test]
fn spans_have_parents() {
    let (agent, _turn) = start();
    let _layer = with(TaskLayer::new());
    let guard = task("guard").start();
    let outer = info_span!("outer").entered();
    let here = current_task();
    thread::spawn(move || {
        let _in = here.enter();
        drop(task("carried").start());
    })
    .join()
    .unwrap();
    let detail = trace_span!("detail");
    drop(info_span!(parent: &detail, "named"));
    drop(info_span!(parent: None, "alone"));
    drop((outer, guard));
    let recording = agent.finish();
    let name = |id| {
        recording
            .tasks
            .iter()
            .find(|task| Some(task.id) == id)
            .map(|task| &*task.name)
    };
    let parents: Vec<_> = recording
        .tasks
        .iter()
        .map(|task| (&*task.name, name(task.parent)))
        .collect();
    assert_eq!(
        parents,
        [
            ("guard", None),
            ("outer", Some("guard")),
            ("carried", Some("outer")),
            ("named", Some("outer")),
            ("alone", None),
        ]
    );
}

#[test]
fn spans_have_the_outcome_of_their_end() {
    #[instrument(err)]
    fn returns(result: Result<(), &'static str>) -> Result<(), &'static str> {
        result
    }
    let (agent, _turn) = start();
    let layer = with(TaskLayer::new());
    returns(Ok(())).unwrap();
    returns(Err("disk full")).unwrap_err();
    info_span!("logged").in_scope(|| {
        error!("attempt {} failed", 1);
        trace_span!("detail").in_scope(|| error!("gave up"));
    });
    let panicking = thread::spawn(|| {
        let _layer = with(TaskLayer::new());
        let mut future = pin!(async { panic!("on purpose") }.instrument(info_span!("panicked")));
        let _: Poll<()> = poll(future.as_mut());
    });
    panicking.join().unwrap_err();
    let key = info_span!("late key", task.key = tracing::field::Empty);
    key.record("task.key", "k-1");
    drop(key);
    drop(layer);
    let quiet = with(TaskLayer::new().with_error_events(false));
    info_span!("quiet").in_scope(|| error!("recovered from"));
    drop(quiet);
    let recording = agent.finish();
    assert_eq!(
        ends(&recording),
        [
            ("returns".into(), Outcome::Ok, "".into()),
            ("returns".into(), Outcome::Failed, "disk full".into()),
            ("logged".into(), Outcome::Failed, "gave up".into()),
            ("panicked".into(), Outcome::Panicked, "".into()),
            ("late key".into(), Outcome::Ok, "".into()),
            ("quiet".into(), Outcome::Ok, "".into()),
        ]
    );
    assert_eq!(&*recording.tasks[4].key, "k-1");
}

/// Spans become tasks by level, by target and by a rule of the program.
#[test]
fn spans_are_filtered_by_level_target_and_rule() {
    let (agent, _turn) = start();
    let spans = || {
        drop(info_span!("here"));
        drop(trace_span!("fine"));
        drop(info_span!(target: "other", "elsewhere"));
        drop(info_span!("marked", task = "chosen"));
    };
    for layer in [
        TaskLayer::new()
            .with_max_level(Level::TRACE)
            .with_target_prefix("async_tasks"),
        TaskLayer::new()
            .with_target_prefix("nothing")
            .with_target_prefix("other"),
        TaskLayer::new().with_filter_fn(|span| span.fields().field("task").is_some()),
    ] {
        let _layer = with(layer);
        spans();
    }
    let names: Vec<_> = agent
        .finish()
        .tasks
        .iter()
        .map(|task| task.name.to_string())
        .collect();
    assert_eq!(names, ["here", "fine", "chosen", "elsewhere", "chosen"]);
}
