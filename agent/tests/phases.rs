//! Phases by guards and futures, attempt, result and labels, in records of tasks and in samples. A process
//! has one agent, so these tests take turns.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

#[allow(unused, reason = "other tests use the rest")]
mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use allocation_counter::measure;
use emberline_agent::observe::{TaskEnd, set_observer};
use emberline_agent::{
    AgentBuilder, Phase, PhaseFutureExt as _, Recording, TaskFutureExt as _, current_task, phase,
    task,
};
use profiler_core::limits::{TASK_LABELS_MAX, TASK_PHASES_MAX};
use profiler_core::{FrameKind, NodeId, Profile, TaskDetail, TaskRecord};

use common::{lock, only_top, pause, poll, start, work, work_function};

work_function!(work_reading, 1);
work_function!(work_executing, 2);

/// The phases of a task, one after the other, as names.
fn names(task: &TaskRecord) -> Vec<&str> {
    let phases = task.detail.iter().flat_map(|detail| &detail.phases);
    phases.map(|phase| &*phase.name).collect()
}

/// Phases are within the task's time, do not overlap, and are longer than zero.
fn check_order(task: &TaskRecord) {
    let mut end = i64::MIN;
    let length = task.stop.unwrap().since_ns(task.start);
    for phase in task.detail.iter().flat_map(|detail| &detail.phases) {
        assert!(phase.start_ns >= end, "{task:?}");
        end = phase.start_ns + i64::try_from(phase.duration_ns).unwrap();
        assert!(end <= i64::try_from(length).unwrap(), "{task:?}");
        assert!(phase.duration_ns > 0 && phase.count == 1, "{task:?}");
    }
}

/// Details of a long task are sent before it ends.
#[test]
fn a_running_task_is_sent_again_with_new_details() {
    let (agent, _turn) = start();
    let load = task("load").start();
    let known = || {
        agent
            .recording()
            .tasks
            .first()
            .map(|task| (task.stop, names(task).join(" ")))
    };
    for expected in ["", "transfer", "transfer serialize"] {
        while known() != Some((None, expected.into())) {
            std::thread::park_timeout(Duration::from_millis(20));
        }
        drop(phase(if expected.is_empty() {
            Phase::Transfer
        } else {
            Phase::Serialize
        }));
    }
    current_task().result_bytes(7);
    let result = || {
        agent.recording().tasks[0]
            .detail
            .as_ref()
            .and_then(|it| it.result_bytes)
    };
    while result() != Some(7) {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    drop(load);
    drop(agent.finish());
}

/// The body of a task, and the names of its phases.
fn check(what: impl FnOnce(), expected: &[&str]) {
    let (agent, _turn) = start();
    let load = task("load").start();
    what();
    drop(load);
    let recording = agent.finish();
    let load = recording
        .tasks
        .iter()
        .find(|task| &*task.name == "load")
        .unwrap();
    assert_eq!(names(load), expected);
    check_order(load);
}

#[test]
fn guards_put_their_task_into_phases() {
    check(|| {}, &[]);
    check(|| drop(phase(Phase::DiskRead)), &["disk-read"]);
    check(|| drop(phase("decode")), &["decode"]);
    check(|| drop(phase(Phase::Execute)), &[]);
    let without_execute = [
        "queue",
        "transfer",
        "disk-read",
        "deserialize",
        "serialize",
        "disk-write",
    ];
    check(
        || {
            for name in profiler_core::PHASES {
                drop(phase(name));
            }
        },
        &without_execute,
    );
}

#[test]
fn an_inner_phase_interrupts_the_outer_one() {
    let expected = [
        "transfer",
        "deserialize",
        "transfer",
        "disk-write",
        "disk-write",
        "transfer",
    ];
    check(
        || {
            let _outer = phase(Phase::Transfer);
            drop(phase(Phase::Deserialize));
            let _inner = phase(Phase::DiskWrite);
            drop(phase(Phase::Execute));
        },
        &expected,
    );
    check(
        || {
            let first = phase(Phase::Transfer);
            let second = phase(Phase::DiskRead);
            drop(first);
            drop(second);
        },
        &["transfer", "disk-read"],
    );
    check(
        || {
            let _outer = phase(Phase::Transfer);
            catch_unwind(AssertUnwindSafe(|| {
                let _inner = phase(Phase::DiskRead);
                std::panic::resume_unwind(Box::new(()));
            }))
            .unwrap_err();
        },
        &["transfer", "disk-read", "transfer"],
    );
}

/// An inner task does not end the phase of the outer one, and has its own phases.
#[test]
fn each_task_has_its_own_phases() {
    let (agent, _turn) = start();
    let outer = task("outer").start();
    let sending = phase(Phase::Transfer);
    let inner = task("inner").start();
    drop(phase(Phase::DiskRead));
    drop(inner);
    drop(sending);
    drop(phase("no more"));
    drop(outer);
    drop(phase("nobody's"));
    let recording = agent.finish();
    let [outer, inner] = &recording.tasks[..] else {
        panic!("{:?}", recording.tasks)
    };
    assert_eq!(
        (names(outer), names(inner)),
        (vec!["transfer", "no more"], vec!["disk-read"])
    );
}

/// A library that measured the transfer of a task's input hands it over at the start.
#[test]
fn phases_before_the_start_are_no_part_of_the_duration() {
    let (agent, _turn) = start();
    let second = Duration::from_secs(1);
    let load = task("load")
        .earlier_phase("transfer", 30 * second, 20 * second)
        .earlier_phase("disk-read", 5 * second, 60 * second)
        .earlier_phase(Phase::Execute, second, second);
    drop(load.start());
    let many = (0..20).fold(task("many"), |many, number| {
        many.earlier_phase("transfer", (60 - number) * second, Duration::ZERO)
    });
    drop(many.start());
    let recording = agent.finish();
    let [load, many] = &recording.tasks[..] else {
        panic!("{recording:?}")
    };
    assert!(load.stop.unwrap().since_ns(load.start) < 1_000_000_000);
    let phases = &load.detail.as_ref().unwrap().phases;
    let times: Vec<_> = phases
        .iter()
        .map(|phase| {
            (
                &*phase.name,
                phase.start_ns / 1_000_000_000,
                phase.duration_ns,
            )
        })
        .collect();
    assert_eq!(
        times,
        [
            ("transfer", -30, 20_000_000_000),
            ("disk-read", -5, 5_000_000_000)
        ]
    );
    assert_eq!(many.detail.as_ref().unwrap().phases.len(), 16);
}

#[test]
fn a_phase_ends_with_its_task_and_waiting_comes_before_it() {
    let (agent, _turn) = start();
    let queued = Instant::now();
    let load = task("load").queued_since(queued).start();
    let reading = phase(Phase::DiskRead);
    drop(load);
    drop(reading);
    drop(task("exact").queued_for(Duration::from_secs(3)).start());
    drop(
        task("told")
            .queued_since_time(SystemTime::now() - Duration::from_secs(60))
            .start(),
    );
    drop(
        task("skewed")
            .queued_since_time(SystemTime::now() + Duration::from_secs(60))
            .start(),
    );
    let recording = agent.finish();
    let [load, exact, told, skewed] = &recording.tasks[..] else {
        panic!("{recording:?}")
    };
    assert_eq!(names(load), ["queue", "disk-read"]);
    check_order(load);
    let queue = |task: &TaskRecord| task.detail.as_ref().unwrap().phases[0].clone();
    let end = |task| queue(task).start_ns + i64::try_from(queue(task).duration_ns).unwrap();
    assert_eq!(
        (queue(exact).start_ns, queue(exact).duration_ns),
        (-3_000_000_000, 3_000_000_000)
    );
    assert!(
        queue(told).duration_ns >= 60_000_000_000 && queue(skewed).duration_ns < 60_000_000_000
    );
    assert!(
        [load, exact, told, skewed]
            .into_iter()
            .all(|task| end(task) == 0)
    );
}

#[test]
fn phases_past_the_limit_are_summed() {
    let (agent, _turn) = start();
    let load = task("load").start();
    let sending = phase(Phase::Transfer);
    (0..1_000).for_each(|_| drop(phase(Phase::Deserialize)));
    drop(sending);
    drop(load);
    let recording = agent.finish();
    let load = &recording.tasks[0];
    let phases = &load.detail.as_ref().unwrap().phases;
    assert!(phases.len() <= TASK_PHASES_MAX);
    let of = |name| phases.iter().filter(move |phase| &*phase.name == name);
    assert_eq!(
        of("deserialize").map(|phase| phase.count).sum::<u32>(),
        1_000
    );
    assert_eq!(of("transfer").map(|phase| phase.count).sum::<u32>(), 1_001);
    let sum: u64 = phases.iter().map(|phase| phase.duration_ns).sum();
    assert!(
        sum <= load.stop.unwrap().since_ns(load.start),
        "no time is counted twice"
    );
}

/// Threads that entered a task record its phases too, also if they end before it.
#[test]
fn other_threads_record_phases_of_the_task_that_they_entered() {
    check(
        || {
            let here = current_task();
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    let _in = here.enter();
                    drop(phase(Phase::DiskRead));
                });
            });
            drop(phase(Phase::DiskWrite));
        },
        &["disk-read", "disk-write"],
    );
}

#[test]
fn futures_are_in_phases_from_their_first_poll_to_their_end() {
    let (agent, _turn) = start();
    let inner = async {
        pause().await;
        drop(phase(Phase::Deserialize));
        pause().await;
    };
    let body = async {
        pause().await;
        async {
            inner.in_phase(Phase::DiskRead).await;
            pause().await;
        }
        .in_phase(Phase::Transfer)
        .await;
        current_task().result_bytes(5);
    };
    let mut load = pin!(body.in_task(task("load")));
    let mut dropped = Box::pin(pause().in_phase("dropped").in_task(task("dropped")));
    assert!(poll(dropped.as_mut()).is_pending());
    while poll(load.as_mut()).is_pending() {
        drop(task("between").start());
    }
    drop(dropped);
    let recording = agent.finish();
    let of = |name| {
        recording
            .tasks
            .iter()
            .find(|task| &*task.name == name)
            .unwrap()
    };
    let expected = [
        "transfer",
        "disk-read",
        "deserialize",
        "disk-read",
        "transfer",
    ];
    assert_eq!(names(of("load")), expected);
    assert_eq!(of("load").detail.as_ref().unwrap().result_bytes, Some(5));
    check_order(of("load"));
    assert_eq!(
        (names(of("dropped")), names(of("between"))),
        (vec!["dropped"], vec![])
    );
}

/// Nanoseconds by task and phase of the stacks that contain `function`.
fn phases_of(recording: &Recording, function: &str) -> Vec<(String, String)> {
    let profile = &recording.profile;
    let label = |node: NodeId| {
        profile
            .frame(profile.nodes()[node.index() - 1].frame)
            .label()
    };
    let mut found = Vec::new();
    let mut paths: Vec<Vec<NodeId>> = vec![Vec::new()];
    for (place, node) in profile.nodes().iter().enumerate() {
        let mut path = paths[node.parent.index()].clone();
        path.push(NodeId(u32::try_from(place + 1).unwrap()));
        if !node.own.is_zero() && path.iter().any(|node| label(*node).contains(function)) {
            let second = path
                .get(1)
                .map(|node| profile.nodes()[node.index() - 1].frame);
            let phase = second
                .map(|frame| profile.frame(frame))
                .filter(|frame| frame.kind == FrameKind::Phase)
                .map_or(String::new(), |frame| frame.label());
            found.push((label(path[0]), phase));
        }
        paths.push(path);
    }
    found.sort();
    found.dedup();
    found
}

#[test]
fn samples_carry_the_phase() {
    const SLICE: Duration = Duration::from_millis(300);
    let _turn = lock(&common::TURN);
    let agent = AgentBuilder::default().phases(true).start_local().unwrap();
    let load = task("load").start();
    let reading = phase(Phase::DiskRead);
    work_reading(SLICE);
    drop(reading);
    work_executing(SLICE);
    drop(load);
    let cleaning = phase("cleaning");
    work(SLICE);
    drop(cleaning);
    let recording = agent.finish();
    let pair = |task: &str, phase: &str| (task.to_owned(), phase.to_owned());
    assert_eq!(
        phases_of(&recording, "work_reading"),
        [pair("load", "disk-read")]
    );
    assert_eq!(phases_of(&recording, "work_executing"), [pair("load", "")]);
    let outside = phases_of(&recording, "samples_carry_the_phase");
    assert!(
        outside.contains(&pair("[no task]", "cleaning")),
        "{outside:?}"
    );
}

/// Functions called in several phases are merged unless phases were requested; the time by thread has
/// phases in both cases.
#[test]
fn a_local_profile_has_phases_only_on_request() {
    let (agent, _turn) = start();
    let load = task("load").start();
    for reading in [Phase::DiskRead, Phase::Transfer] {
        let _phase = phase(reading);
        work_reading(Duration::from_millis(150));
    }
    drop(load);
    let recording = agent.finish();
    let has_phases = |profile: &Profile| {
        let frames = profile
            .nodes()
            .iter()
            .map(|node| profile.frame(node.frame).kind);
        frames.into_iter().any(|kind| kind == FrameKind::Phase)
    };
    assert_eq!(
        (
            has_phases(&recording.profile),
            has_phases(&recording.threads)
        ),
        (false, true)
    );
    assert_eq!(only_top(&recording, "work_reading"), "load");
    let once = recording.profile.by_function();
    let calls = once
        .nodes()
        .iter()
        .map(|node| once.frame(node.frame).label());
    assert_eq!(
        calls.filter(|label| label.contains("work_reading")).count(),
        1
    );
    assert_eq!(recording.profile.total(), recording.threads.total());
}

#[test]
fn details_are_in_the_record() {
    let (agent, _turn) = start();
    let mut load = task("load").attempt(2).label("table", "orders");
    for number in 0..TASK_LABELS_MAX {
        load = load.label(format!("key-{number}"), "x".repeat(5_000));
    }
    let mut load = load.start();
    load.result_bytes(512);
    load.result_of::<Vec<u8>>();
    drop(load);
    let save = task("save").start();
    save.handle().result_bytes(7);
    save.handle().result_type("Row");
    save.handle().result_bytes(8);
    drop(save);
    let sized = task("sized")
        .future(async { "four" })
        .result_bytes(|text| text.len() as u64);
    assert!(poll(pin!(sized)).is_ready());
    drop(task("silent").start());
    let recording = agent.finish();
    let [load, save, sized, silent] = &recording.tasks[..] else {
        panic!("{recording:?}")
    };
    let detail = |task: &TaskRecord| *task.detail.clone().unwrap();
    let TaskDetail {
        attempt,
        result_bytes,
        type_name,
        labels,
        phases,
    } = detail(load);
    assert_eq!((attempt, result_bytes), (2, Some(512)));
    assert!(type_name.contains("Vec<u8>") && phases.is_empty());
    assert_eq!(
        (labels.len(), &*labels[0].0, &*labels[0].1),
        (TASK_LABELS_MAX, "table", "orders")
    );
    assert!(labels[1].1.ends_with('…'));
    assert_eq!(
        (detail(save).result_bytes, &*detail(save).type_name),
        (Some(8), "Row")
    );
    assert_eq!(
        (detail(sized).result_bytes, &*detail(sized).type_name),
        (Some(4), "&str")
    );
    assert_eq!(silent.detail, None);
}

/// Observers use the same guards and see the same record.
#[test]
fn observers_see_details_and_phases() {
    static SEEN: Mutex<Vec<TaskRecord>> = Mutex::new(Vec::new());
    fn keep(_: &TaskRecord) -> Option<TaskEnd> {
        Some(Box::new(|task| lock(&SEEN).push(task.clone())))
    }
    let _turn = lock(&common::TURN);
    set_observer(Some(keep));
    let mut load = task("load")
        .attempt(3)
        .queued_for(Duration::from_secs(1))
        .start();
    drop(phase(Phase::DiskRead));
    let reading = phase("decode");
    load.result_bytes(4);
    load.handle().result_type("Row");
    drop(load);
    drop(reading);
    set_observer(None);
    let seen = lock(&SEEN);
    let [load] = &seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!(names(load), ["queue", "disk-read", "decode"]);
    let detail = load.detail.as_ref().unwrap();
    assert_eq!(
        (detail.attempt, detail.result_bytes, &*detail.type_name),
        (3, Some(4), "Row")
    );
}

#[test]
fn a_panic_of_an_observer_stays_in_it() {
    static ENDS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    fn panic_twice(task: &TaskRecord) -> Option<TaskEnd> {
        assert_ne!(&*task.key, "start");
        Some(Box::new(|task| {
            lock(&ENDS).push(task.key.to_string());
            assert_ne!(&*task.key, "end");
        }))
    }
    let _turn = lock(&common::TURN);
    set_observer(Some(panic_twice));
    for key in ["start", "end", "last"] {
        drop(task("load").key(key).start());
    }
    set_observer(None);
    drop(task("load").key("unseen").start());
    assert_eq!(*lock(&ENDS), ["end", "last"]);
}

/// On a thread that has done both before.
#[test]
fn tasks_and_phases_allocate_nothing() {
    let (agent, _turn) = start();
    let key: Arc<str> = "one".into();
    let once = || {
        let _task = task("cheap").shared_key(key.clone()).start();
        drop(phase(Phase::DiskRead));
        let _phase = phase("mine");
    };
    once();
    // At most the rows of ten drains, so that no row has to wait.
    let measured = measure(|| (0..100).for_each(|_| once()));
    assert_eq!(measured.count_total, 0);
    drop(agent.finish());
}
