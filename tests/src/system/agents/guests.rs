//! Programs that live by a narrow margin live with an agent too: each is run without one first.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::harness::{alone, number, output};

/// Runs of each program with an agent.
const RUNS: usize = 2;
/// Runs of a program whose handlers take long.
const RUNS_OF_CALLS: usize = 8;
const STARTS: [&str; 2] = ["before", "after"];

fn run(words: &[&str]) -> Output {
    let worker = env!("CARGO_BIN_EXE_hostile-worker");
    output(Command::new(worker).args(words).stdin(Stdio::null()))
}

/// The result of a program that ended well.
fn result(words: &[&str]) -> Option<Value> {
    let output = run(words);
    output
        .status
        .success()
        .then(|| serde_json::from_slice(&output.stdout).unwrap())
}

/// Checks that a program lives with an agent, if it lives without one, and that it was sampled. Returns
/// whether it lives.
fn check_lives(mode: &str, arguments: &[&str]) -> bool {
    let with_start = |start| [&[mode, start][..], arguments].concat();
    if result(&with_start("never")).is_none() {
        return false;
    }
    for start in STARTS {
        for _ in 0..RUNS {
            let words = with_start(start);
            let output = run(&words);
            let log = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "{words:?}: {}\n{log}",
                output.status
            );
            let record: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(record["mode"], "full", "{words:?}: {record}");
            assert!(number(&record, "samples") > 0, "{words:?}: {record}");
        }
    }
    true
}

/// From the least that the system allows to more than any program needs. On the smallest the program
/// does not live alone either, because one frame does not fit.
#[test]
fn null_reads_on_alternate_stacks_of_any_size_are_resolved() {
    let _machine = alone();
    let sizes = [
        "2048", "3456", "3584", "4096", "5000", "6144", "8192", "65536",
    ];
    let lives = sizes.map(|bytes| check_lives("null-reads", &[bytes, "0", "0"]));
    assert!(lives[sizes.len() - 1], "the program itself");
    for start in STARTS {
        let record = result(&["null-reads", start, "8192", "0", "0"]).unwrap();
        let states = (&record["changed"], &record["restored"]);
        assert_eq!(
            states,
            (&true.into(), &true.into()),
            "the program's action: {record}"
        );
    }
    // Whose handler may be interrupted by another fault.
    let flags = libc::SA_NODEFER.to_string();
    assert!(check_lives("null-reads", &["8192", &flags, "0"]));
}

/// When threads got their timers at once or after a millisecond of CPU time, the kernel ended most runs.
#[test]
fn calls_of_handlers_that_began_before_the_agent_knew_them_are_not_interrupted() {
    let _machine = alone();
    for _ in 0..RUNS_OF_CALLS {
        // Room for one signal frame, but not for two. A call takes about five milliseconds.
        let output = run(&["null-reads", "before", "6144", "0", "3000000"]);
        assert!(output.status.success(), "{}", output.status);
    }
}

#[test]
fn an_alternate_stack_that_is_too_small_for_any_signal_does_no_harm() {
    let _machine = alone();
    for bytes in ["2048", "2560", "4096"] {
        assert!(check_lives("unused-alternate-stack", &[bytes]), "{bytes}");
    }
}

#[test]
fn threads_that_may_not_read_the_clock_are_sampled() {
    let _machine = alone();
    assert!(check_lives("no-clock", &[]));
}

#[test]
fn threads_in_strict_seccomp_are_sampled_and_finish() {
    let _machine = alone();
    assert!(check_lives("strict-seccomp", &[]));
    for start in STARTS {
        let record = result(&["strict-seccomp", start]).unwrap();
        assert_eq!(
            number(&record, "finished"),
            4,
            "a thread was killed: {record}"
        );
    }
}
