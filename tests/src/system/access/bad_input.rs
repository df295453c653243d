//! Wrong input gets an error that names the problem and the allowed values, and exit code 2.

use std::net::TcpListener;

use crate::harness::{Collector, Worker, run};

/// Runs a command that must fail with `code`, print all of `parts`, and print nothing on stdout.
fn check(arguments: &[&str], code: i32, parts: &[&str]) {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    for part in parts {
        assert!(
            stderr.contains(part),
            "{arguments:?}: no `{part}` in:\n{stderr}"
        );
    }
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

#[test]
fn invalid_queries_name_the_allowed_values() {
    let collector = Collector::start();
    let worker = Worker::start("steady", "bad-1", &collector.url(), &[]);
    crate::harness::wait_for("the worker's tasks", || {
        let summary = collector.json("/api/v1/tasks?summary=true");
        summary["names"]
            .as_array()
            .is_some_and(|names| !names.is_empty())
            .then_some(())
    });
    worker.finish();
    let url = collector.url();
    check_profile(&url, &["--task", "stedy"], &["stedy", "steady"]);
    check_profile(&url, &["--worker", "bad-2"], &["bad-2", "bad-1"]);
    check_profile(
        &url,
        &["--from", "yesterday"],
        &["yesterday", "-5m", "RFC 3339", "Unix"],
    );
    check_profile(&url, &["--from", "now", "--to", "-5m"], &["reversed"]);
    check_profile(&url, &["--from", "-5m", "--to", "-5m"], &["empty"]);
    check_profile(
        &url,
        &["--state", "asleep"],
        &[
            "asleep",
            "cpu",
            "runnable",
            "wait",
            "lock",
            "interpreter",
            "sleep",
            "network",
            "disk",
            "other",
        ],
    );
    check_profile(&url, &["--format", "gif"], &["gif", "svg", "collapsed"]);
    check(
        &["tasks", "--url", &url, "--task", "STEDY"],
        2,
        &["STEDY", "steady"],
    );
    check(
        &["tasks", "--url", &url, "--limit", "0"],
        2,
        &["0", "limit"],
    );
    check_set(&url, &["bad-2", "--interval", "20ms"], &["bad-2", "bad-1"]);
    check_set(
        &url,
        &["bad-1", "--interval", "0ms"],
        &["interval_ms is 0", "1 to 1000"],
    );
    check_set(
        &url,
        &["bad-1", "--interval", "5h"],
        &["interval_ms is 18000000", "1 to 1000"],
    );
    check_set(&url, &["bad-1", "--interval", "fast"], &["fast", "20ms"]);
    check_set(
        &url,
        &["bad-1", "--state", "asleep"],
        &["asleep", "cpu", "runnable"],
    );
    check_set(
        &url,
        &["--all"],
        &["nothing to set", "--interval", "--enabled", "--state"],
    );
    check_set(&url, &["--interval", "20ms"], &["WORKER"]);
    check(
        &["thread-dump", "--url", &url, "--worker", "bad-2"],
        2,
        &["bad-2", "bad-1"],
    );
    check(
        &["thread-dump", "--url", &url, "--task", "stedy"],
        2,
        &["stedy", "steady"],
    );
}

fn check_profile(url: &str, rest: &[&str], parts: &[&str]) {
    check(&[&["profile", "--url", url], rest].concat(), 2, parts);
}

fn check_set(url: &str, rest: &[&str], parts: &[&str]) {
    check(
        &[&["workers", "set", "--url", url], rest].concat(),
        2,
        parts,
    );
}

#[test]
fn a_port_in_use_is_named_with_an_alternative() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    check(&["serve", "--listen", &address], 1, &[&address, "--listen"]);
}

#[test]
fn data_that_is_no_folder_is_named_and_not_the_token_file_in_it() {
    let program = std::env::current_exe().unwrap();
    let file = program.to_str().unwrap();
    let expected = format!("{file} is a file, not a folder; choose a folder with `--data`");
    check(
        &["serve", "--listen", "127.0.0.1:0", "--data", file],
        1,
        &[&expected],
    );
}

#[test]
fn listening_beyond_loopback_needs_a_flag() {
    check(
        &["serve", "--listen", "0.0.0.0:0"],
        2,
        &["0.0.0.0", "insecure"],
    );
}

#[test]
fn an_unreachable_collector_is_named() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://{free}");
    check(
        &["workers", "--url", &url],
        1,
        &[&url, "emberline serve", "EMBERLINE_URL"],
    );
}

#[test]
fn too_few_workers_for_the_fleet_are_rejected() {
    check(
        &["demo", "--workers", "2", "--seconds", "1"],
        2,
        &["2", "4"],
    );
}
