//! Requests to a running agent take effect: settings and thread dumps.

use serde_json::Value;

use crate::harness::{Collector, Worker, alone, number, run, unwrapped, wait_for};

const WORKER: &str = "live-1";

/// Runs `emberline` against the collector; returns its output, if it exited with this code.
fn ask(collector: &Collector, arguments: &[&str], code: i32) -> (String, String) {
    let url = collector.url();
    let output = run(&[arguments, &["--url", &url]].concat());
    let said = text(&output.stdout);
    let noted = text(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}: {said}{noted}"
    );
    (said, noted)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The worker in mode `known`, once something of it is stored.
fn start(collector: &Collector) -> Worker {
    let worker = Worker::start("known", WORKER, &collector.url(), &[]);
    wait_for("its first flush", || {
        let epochs = collector.epochs();
        epochs
            .first()
            .filter(|epoch| number(&epoch["account"], "stored_ns") > 0)
            .map(|_| ())
    });
    worker
}

/// Profile of samples from now on, once there are two windows of them.
fn from_now(collector: &Collector) -> Value {
    let now_ns = number(&collector.json("/api/v1/workers"), "now_ns");
    let from = format!("{}.{:09}", now_ns / 1_000_000_000, now_ns % 1_000_000_000);
    let path = format!("/api/v1/profile?from={from}");
    wait_for("two windows", || {
        let profile = collector.json(&path);
        (number(&profile, "worker_seconds") >= 2).then_some(profile)
    })
}

/// The account after two more flushes.
fn two_flushes_on(collector: &Collector) -> Value {
    let seq = number(&collector.epochs()[0], "acked_seq");
    wait_for("two flushes", || {
        let epoch = collector.epochs().remove(0);
        (number(&epoch, "acked_seq") >= seq + 2).then(|| epoch["account"].clone())
    })
}

#[test]
fn settings_reach_a_running_worker() {
    let _alone = alone();
    let collector = Collector::start();
    let worker = start(&collector);

    assert!(set(&collector, &["--interval", "50ms"]).contains("50.0 ms"));
    let profile = from_now(&collector);
    let due = number(&profile, "sampled_ns") / 50_000_000;
    let expected = number(&profile, "ticks_expected");
    let windows = number(&profile, "worker_seconds");
    assert!(
        expected.abs_diff(due) <= windows,
        "{expected} ticks in the time of {due}"
    );
    assert!(ask(&collector, &["workers"], 0).0.contains("50.0 ms"));

    // While sampling is off nothing is accepted, and the ledger goes on.
    assert!(set(&collector, &["--enabled", "false"]).contains("off"));
    let before = two_flushes_on(&collector);
    let after = two_flushes_on(&collector);
    assert_eq!(after["accepted_ns"], before["accepted_ns"]);
    assert_eq!(after["balanced"], true);
    assert!(ask(&collector, &["workers"], 0).0.contains(" off "));
    let (_, noted) = ask(&collector, &["thread-dump", "--worker", WORKER], 1);
    assert!(noted.contains("sampling is off"), "{noted}");

    // On again, with a part of the states.
    set(&collector, &["--enabled", "true", "--state", "cpu"]);
    let totals = from_now(&collector)["totals"].clone();
    assert!(number(&totals, "cpu_ns") > 0);
    assert_eq!(totals["total_ns"], totals["cpu_ns"], "{totals}");

    let record = worker.finish();
    let report = &record["report"];
    let epoch = &collector.epochs()[0];
    assert_eq!(epoch["account"]["stored_ns"], report["accepted_ns"]);
    assert!(epoch["account"]["balanced"].as_bool().unwrap());
}

fn set(collector: &Collector, change: &[&str]) -> String {
    let (said, _) = ask(
        collector,
        &[&["workers", "set", WORKER], change].concat(),
        0,
    );
    assert!(said.contains("yes"), "{said}");
    said
}

/// The only group with the thread of this name.
fn group_of(stacks: &Value, thread: &str) -> Value {
    let groups = stacks["workers"][0]["groups"].as_array().unwrap();
    let holds = |group: &&Value| {
        group["threads"]
            .as_array()
            .unwrap()
            .iter()
            .any(|found| found["name"] == thread)
    };
    let found: Vec<_> = groups.iter().filter(holds).collect();
    let [group] = found[..] else {
        panic!("{thread} in {stacks:#}")
    };
    group.clone()
}

fn has_function(group: &Value, name: &str) -> bool {
    let names = group["stack"]
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| &frame["name"]);
    names
        .into_iter()
        .any(|found| found.as_str().unwrap().rsplit("::").next() == Some(name))
}

#[test]
fn a_thread_dump_shows_every_thread() {
    let _alone = alone();
    let collector = Collector::start();
    let worker = start(&collector);
    // A long interval does not delay the answer.
    ask(
        &collector,
        &["workers", "set", "--all", "--interval", "1s"],
        0,
    );
    let first = stacks(&collector);
    let spinner = group_of(&first, "spinner");
    assert_eq!(spinner["task"], "spin");
    assert!(
        ["cpu", "runnable"].contains(&spinner["state"].as_str().unwrap()),
        "{spinner}"
    );
    assert!(has_function(&spinner, "spins"), "{spinner}");
    let second = stacks(&collector);
    for (thread, task, function) in [
        ("locked", Value::from("guarded"), "waits_for_lock"),
        ("sleeper", Value::Null, "sleeps"),
    ] {
        let blocked_ns = |stacks: &Value| {
            let group = group_of(stacks, thread);
            assert!(has_function(&group, function), "{group}");
            assert_eq!(group["task"], task);
            assert!(
                !["cpu", "runnable"].contains(&group["state"].as_str().unwrap()),
                "{group}"
            );
            number(&group["threads"][0], "blocked_ns")
        };
        assert!(
            blocked_ns(&first) < blocked_ns(&second),
            "{thread} waits on"
        );
    }

    let (said, _) = ask(&collector, &["thread-dump", "--task", "spin"], 0);
    assert!(said.starts_with("live-1: 1 thread\n\nspinner ("), "{said}");
    let (said, _) = ask(&collector, &["thread-dump", "--thread", "locked"], 0);
    assert!(
        said.contains("waits_for_lock (") && said.contains("test_worker.rs:"),
        "{said}"
    );
    let (said, _) = ask(&collector, &["thread-dump", "--threads", "agent"], 0);
    assert!(said.contains("emberline-syms"), "{said}");
    worker.finish();
}

fn stacks(collector: &Collector) -> Value {
    let (said, _) = ask(collector, &["thread-dump", "--format", "json"], 0);
    serde_json::from_str(&said).unwrap()
}

/// Threads that block the sampler's signal are counted wherever the worker is shown, and their time is
/// in their tasks.
#[test]
fn a_thread_that_blocks_the_signal_is_reported() {
    let _machine = alone();
    let collector = Collector::start();
    let worker = Worker::start("blocking", "blocking-1", &collector.url(), &[]);
    let epoch = wait_for("the report of the thread", || {
        let epochs = collector.epochs();
        epochs
            .into_iter()
            .find(|epoch| epoch["signal_blocked_threads"] == 1)
    });
    assert_eq!(epoch["sampler_mode"], "full");
    assert!(epoch["signal_blocked_since"].is_string(), "{epoch}");
    let (_, notes) = ask(&collector, &["workers"], 0);
    let expected = "blocking-1: sampling is full; 1 thread blocked the signal for ";
    assert!(notes.contains(expected), "{notes}");
    let doctor = run(&["doctor", "--url", &collector.url()]);
    let doctor = unwrapped(&doctor.stdout);
    assert!(
        doctor.contains("block the sampler's signal: blocking-1 1 since "),
        "{doctor}"
    );
    let profile = from_now(&collector);
    for task in ["blocked one", "blocked two"] {
        let nodes = profile["profile"]["nodes"].as_array().unwrap();
        let node = nodes
            .iter()
            .find(|node| node["name"] == task)
            .unwrap_or_else(|| panic!("no {task}: {profile}"));
        assert!(number(&node["total"], "cpu") > 0, "{node}");
    }
    worker.finish();
}
