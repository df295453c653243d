//! Processes that are hard to profile: each behaves as it would without an agent, and its profile
//! shows what can be known. Each is a child process, judged by its exit and its output.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::harness::{alone, number, output};

fn run(mode: &str) -> Output {
    let worker = env!("CARGO_BIN_EXE_hostile-worker");
    output(Command::new(worker).arg(mode).stdin(Stdio::null()))
}

/// Runs a mode that must succeed; returns its result.
fn found(mode: &str) -> Value {
    let output = run(mode);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{mode}: {}\n{log}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn share(record: &Value) -> f64 {
    record["share"].as_f64().unwrap()
}

/// A forked child without an agent is not sampled and ends as usual, also when it drops the copy of
/// its parent's agent; one that starts its own agent is sampled by it.
#[test]
fn a_forked_child_is_not_sampled_until_it_starts_its_own_agent() {
    let record = found("fork");
    assert_eq!(record["exits"], serde_json::json!([0, 0]), "{record}");
    assert!(
        number(&record, "ticks") > 0,
        "the parent's agent goes on: {record}"
    );
}

/// A pending signal of the sampler never kills the program that a process becomes.
#[test]
fn two_hundred_execs_under_sampling_succeed() {
    found("exec");
}

#[test]
fn a_thread_that_blocks_all_signals_keeps_its_time() {
    let _machine = alone();
    let record = found("deaf");
    assert!((0.9..1.1).contains(&share(&record)), "{record}");
    let without_stack = number(&record, "signal_blocked_ns");
    assert!(
        without_stack * 10 > number(&record, "sampled_ns") * 9,
        "{record}"
    );
}

/// A program that uses both signals that the sampler chooses from gets every one of its own.
#[test]
fn an_existing_handler_gets_all_its_signals() {
    let record = found("handler-before");
    let raised = number(&record, "raised");
    assert_eq!(
        record["seen"],
        serde_json::json!([raised, raised]),
        "{record}"
    );
    assert!(number(&record, "program_ns") > 0, "{record}");
}

/// A program that takes over the signal gets its own signals, and at most a few of the sampler's.
#[test]
fn a_later_handler_gets_all_its_signals() {
    let record = found("handler-after");
    assert!(
        number(&record, "seen") >= number(&record, "raised"),
        "{record}"
    );
}

/// The stack of 100,000 frames is cut, and so is one of 600: at 512 frames. On a busy machine a part of the half second
/// that each works is outside of its samples.
#[test]
fn deep_stacks_are_visibly_truncated() {
    let record = found("recursion");
    for depth in ["600", "100000"] {
        let all = number(&record[depth], "ns");
        let cut = number(&record[depth], "truncated_ns");
        assert!(
            all >= 100_000_000 && cut * 10 >= all * 9,
            "{depth}: {record}"
        );
    }
}

#[test]
fn a_stack_overflow_ends_as_it_would_without_an_agent() {
    let output = run("overflow");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.signal(),
        Some(6),
        "SIGABRT, not {}",
        output.status
    );
    assert!(said.contains("has overflowed its stack"), "{said}");
}

/// The C library knows nothing of a fiber's stack.
#[test]
fn a_fibers_time_is_kept() {
    let _machine = alone();
    let record = found("fibers");
    assert!((0.9..1.1).contains(&share(&record)), "{record}");
}

/// While no file can be opened, no thread can be read; the time is counted afterwards.
#[test]
fn time_without_descriptors_is_kept() {
    let _machine = alone();
    let record = found("no-descriptors");
    assert!(share(&record) > 0.9, "{record}");
}

/// A sandbox's restrictions cost samples at most, never the process.
#[test]
fn a_sandboxed_process_survives() {
    let check = |refused, mode: &str| {
        let record = found(refused);
        let told = record["mode"]
            .as_str()
            .or(record["skipped"].as_str())
            .unwrap_or_default();
        assert!(
            told.starts_with(mode) || record["mode"].is_null(),
            "{refused}: {record}"
        );
        assert!(!told.is_empty(), "{refused}: {record}");
    };
    check("nobody", "running threads only");
    check("no-proc", "off: cannot list threads");
    check("no-queue", "full");
    check("no-sigaction", "blocked threads only");
    check("no-pending", "blocked threads only");
}

/// The mode tells what works, not what worked at the start.
#[test]
fn a_filter_applied_after_the_start_changes_the_mode() {
    let record = found("filter-after");
    assert_eq!(record["before"], "full", "{record}");
    let after = record["after"].as_str().unwrap_or_default();
    assert!(after.starts_with("blocked threads only"), "{record}");
    assert!(after.contains("CPU-clock timers are refused"), "{record}");
    let without_stack = number(&record, "sampler_mode_ns");
    assert!(without_stack > 0, "{record}");
    assert_eq!(without_stack, number(&record, "sampled_ns"), "{record}");
}

/// Where the sampler can work around a denied call, the profile is complete.
#[test]
fn the_sampler_works_around_denied_calls() {
    let _machine = alone();
    for (refused, mode) in [("no-vm-read", "full"), ("no-timer", "blocked threads only")] {
        let record = found(refused);
        assert!(
            record["mode"]
                .as_str()
                .is_some_and(|told| told.starts_with(mode)),
            "{record}"
        );
        for field in ["busy_ns", "waiting_ns"] {
            let told = number(&record, field);
            let length = number(&record, "length_ns");
            assert!(told * 10 > length * 9, "{refused}: {record}");
        }
    }
}

/// The sum law: all states together equal the threads' elapsed time within 1 %, with at most eight
/// running threads per CPU, eight asleep and eight at one lock.
#[test]
fn weights_sum_to_the_threads_lifetimes() {
    let _machine = alone();
    let record = found("sums");
    let ratio = number(&record, "sampled_ns") as f64 / record["lived_ns"].as_f64().unwrap();
    assert!((0.99..=1.01).contains(&ratio), "{ratio}: {record}");
}

/// The handler allocates nothing: the thread that it interrupts ends the process at its first
/// allocation, as it does when it allocates itself.
#[test]
fn the_handler_does_not_allocate() {
    let worker = env!("CARGO_BIN_EXE_aborting-worker");
    let status = Command::new(worker).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{status}");
    let status = Command::new(worker)
        .arg("alone")
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(
        status.signal(),
        Some(6),
        "its own allocation ends it: {status}"
    );
}

/// The soak at a twentieth, by the program that `cargo xtask soak` runs.
#[test]
#[ignore = "long"]
fn a_short_soak_leaves_no_trace() {
    let _machine = alone();
    let soak = env!("CARGO_BIN_EXE_soak");
    let soak = output(Command::new(soak).arg("--short").stdin(Stdio::null()));
    let table = String::from_utf8_lossy(&soak.stdout);
    let said = String::from_utf8_lossy(&soak.stderr);
    println!("{table}");
    assert!(soak.status.success(), "{table}\n{said}");
}
