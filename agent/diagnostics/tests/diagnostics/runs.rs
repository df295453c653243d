//! Runs: their tasks, and their ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use emberline_agent::{TaskGuard, task};
use emberline_diagnostics::{self as diagnostics, Callbacks, Counts, State};
use proptest::prelude::*;

use crate::{Heard, lock, turn};

/// A callback for runs only.
fn told(heard: &Heard) -> Callbacks {
    let start = heard.clone();
    let finish = heard.clone();
    Callbacks::new()
        .start(move |run| start.push(format!("start {}", run.name())))
        .finish(move |run, _, failed| finish.push(format!("finish {} {failed}", run.name())))
}

#[test]
fn a_run_has_failed_if_its_body_failed() {
    let _turn = turn();
    let heard = Heard::default();
    let _scope = diagnostics::scope(told(&heard));
    let check = |failed: bool, run: &dyn Fn()| {
        let _ = catch_unwind(AssertUnwindSafe(run));
        assert_eq!(heard.take(), ["start a", &format!("finish a {failed}")]);
    };
    let run = || diagnostics::run("a");
    check(false, &|| run().during(|| ()));
    check(false, &|| {
        assert_eq!(run().try_during(|| Ok::<_, ()>(7)), Ok(7))
    });
    check(false, &|| drop(run().start()));
    check(true, &|| run().during(|| panic!("in the run")));
    check(true, &|| {
        assert_eq!(run().try_during(|| Err::<(), _>("no")), Err("no"))
    });
    check(true, &|| run().start().fail());
}

#[test]
fn an_inner_run_is_part_of_the_outer_one() {
    let _turn = turn();
    let heard = Heard::default();
    let _scope = diagnostics::scope(told(&heard));
    diagnostics::run("outer").expect("load", 2).during(|| {
        diagnostics::run("inner")
            .expect("load", 3)
            .expect("save", 1)
            .during(|| ());
        std::thread::scope(|threads| {
            threads.spawn(|| diagnostics::run("on another thread").start().fail());
        });
    });
    diagnostics::run("next").during(|| ());
    let expected = [
        "start outer",
        "finish outer false",
        "start next",
        "finish next false",
    ];
    assert_eq!(heard.take(), expected);
}

/// The state that callbacks receive, to read during the run.
fn watched_run(expected: &[(&str, u64)], body: impl FnOnce(&State)) -> State {
    let state: Arc<Mutex<Option<State>>> = Arc::default();
    let given = state.clone();
    let callbacks = Callbacks::new().start_state(move |_, state| {
        *lock(&given) = Some(state.clone());
    });
    let _scope = diagnostics::scope(callbacks);
    let run = expected
        .iter()
        .fold(diagnostics::run("watched"), |run, (name, tasks)| {
            run.expect(name, *tasks)
        });
    run.during(|| {
        let state = lock(&state).clone();
        body(&state.unwrap());
    });
    lock(&state).clone().unwrap()
}

fn counts(expected: u64, running: u64, finished: u64, failed: u64) -> [u64; 4] {
    [expected, running, finished, failed]
}

fn seen(counts: Counts) -> [u64; 4] {
    [
        counts.expected,
        counts.running,
        counts.finished,
        counts.failed,
    ]
}

#[test]
fn only_expected_tasks_are_counted() {
    let _turn = turn();
    let state = watched_run(&[("load", 3)], |state| {
        assert_eq!(seen(state.counts()), counts(3, 0, 0, 0));
        let load = task("load").start();
        drop(task("helper").start());
        assert_eq!(seen(state.counts()), counts(3, 1, 0, 0));
        load.fail("no disk");
        assert_eq!(seen(state.counts()), counts(3, 0, 1, 1));
        diagnostics::run("inner").expect("load", 2).during(|| ());
        assert_eq!(seen(state.counts()), counts(5, 0, 1, 1));
    });
    assert_eq!(state.run().unwrap().name(), "watched");
    drop(task("load").start());
    assert_eq!(
        seen(state.counts()),
        counts(5, 0, 1, 1),
        "a run that is over does not count"
    );
    let names: Vec<_> = state
        .counts_by_name()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["load".into()]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For tasks that start and end in any order: the counts match the started and ended tasks, and at
    /// least as many are expected as have started.
    #[test]
    fn counts_are_those_of_the_tasks(
        steps in proptest::collection::vec((0..3_usize, any::<bool>(), any::<bool>()), 0..60),
        expected in 0..6_u64,
    ) {
        let _turn = turn();
        let names = ["load", "parse", "save"];
        let expects: Vec<(&str, u64)> = names.iter().map(|name| (*name, expected)).collect();
        let mut running = Vec::<TaskGuard>::new();
        let mut started = [0; 3];
        let mut failed = 0;
        let expects = if expected == 0 { &[] } else { &expects[..] };
        let state = watched_run(expects, |state| {
            for (name, start, fail) in steps {
                if start {
                    started[name] += 1;
                    running.push(task(names[name]).start());
                } else if let Some(ended) = (!running.is_empty()).then(|| running.swap_remove(name % running.len())) {
                    failed += u64::from(fail);
                    if fail { ended.fail("no") } else { drop(ended) }
                }
                let (all, now): (u64, u64) = (started.iter().sum(), running.len() as u64);
                let known = started.iter().map(|started| expected.max(*started)).sum();
                assert_eq!(seen(state.counts()), counts(known, now, all - now, failed));
            }
        });
        // Without callbacks nothing is counted.
        let before = state.counts();
        running.clear();
        prop_assert_eq!(state.counts(), before);
    }
}
