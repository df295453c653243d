//! Programs at the edges of their system: each behaves as it would without an agent. The programs
//! are in `src/hostile/edges.rs`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::harness::{Collector, alone, number, output};

fn run(arguments: &[&str]) -> Output {
    let worker = env!("CARGO_BIN_EXE_hostile-worker");
    output(
        Command::new(worker)
            .args(arguments)
            .env_remove("EMBERLINE_LOG")
            .stdin(Stdio::null()),
    )
}

/// Runs a mode that must succeed; returns its result and its log.
fn found(arguments: &[&str]) -> (Value, String) {
    let output = run(arguments);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{arguments:?}: {}\n{log}",
        output.status
    );
    (serde_json::from_slice(&output.stdout).unwrap(), log)
}

/// Compiles a library of C.
fn compiled_library(folder: &Path, name: &str, code: &str) -> PathBuf {
    let source = folder.join(format!("{name}.c"));
    std::fs::write(&source, code).unwrap();
    let library = folder.join(format!("lib{name}.so"));
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-g", "-o"])
        .arg(&library)
        .arg(&source);
    let done = output(&mut compiler);
    assert!(done.status.success(), "{done:?}");
    library
}

/// An address where no collector listens.
fn nobody() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    format!("http://{free}")
}

/// A program that closes all descriptors above 2, and aborts at any panic, lives on; its sockets
/// stay its own, and what was sampled is stored.
#[test]
fn a_program_that_closes_all_descriptors_is_not_harmed() {
    let _machine = alone();
    let collector = Collector::start();
    let (record, log) = found(&["closing", &collector.url(), "60"]);
    assert_eq!(
        number(&record, "with_agent"),
        3,
        "the program has its standard streams only"
    );
    assert_eq!(number(&record, "foreign_bytes"), 0, "{record}");
    assert_eq!(number(&record, "closed_by_others"), 0, "{record}");
    let report = &record["report"];
    assert_eq!(
        (number(report, "connects"), number(report, "unacked_ns")),
        (1, 0),
        "{record}"
    );
    assert_eq!(report["stored_ns"], report["accepted_ns"], "{record}");
    assert!(number(report, "stored_ns") > 0, "{record}");
    assert_eq!(log, "");
}

/// The same where the system refuses the agent a descriptor table of its own: nothing is written
/// into a socket of the program, and none of them is closed. Shipping ends; the account stays exact.
#[test]
fn a_program_whose_descriptors_are_shared_is_not_harmed() {
    let _machine = alone();
    let collector = Collector::start();
    let (record, log) = found(&["closing-shared", &collector.url(), "60"]);
    assert_eq!(number(&record, "foreign_bytes"), 0, "{record}\n{log}");
    assert_eq!(number(&record, "closed_by_others"), 0, "{record}\n{log}");
    let report = &record["report"];
    assert_eq!(log.matches("so shipping has ended").count(), 1, "{log}");
    let settled = ["stored_ns", "unacked_ns", "lost_queue_ns"].map(|part| number(report, part));
    assert_eq!(
        settled.iter().sum::<u64>(),
        number(report, "accepted_ns"),
        "{record}"
    );
}

/// Without a table of its own the agent ships all the same, and leaves no descriptor behind.
#[test]
fn an_agent_without_a_table_of_its_own_ships() {
    let collector = Collector::start();
    let (record, log) = found(&["shared", &collector.url()]);
    assert!(
        number(&record, "with_agent") > number(&record, "before"),
        "{record}"
    );
    assert_eq!(record["after"], record["before"], "{record}");
    assert_eq!(
        record["report"]["stored_ns"], record["report"]["accepted_ns"],
        "{record}"
    );
    assert!(log.contains("close_range and unshare are refused"), "{log}");
}

/// Five descriptors are the standard streams, one for a file and one for the collector.
#[test]
fn a_program_with_five_or_sixteen_descriptors_is_profiled() {
    let _machine = alone();
    for count in [5, 16] {
        let collector = Collector::start();
        let (record, log) = found(&["few-descriptors", &collector.url(), &count.to_string()]);
        assert_eq!(
            number(&record, "own"),
            count - 3,
            "the agent takes none of them: {record}"
        );
        assert_eq!(record["mode"], "full", "{record}\n{log}");
        assert!(
            number(&record["report"], "stored_ns") > 0,
            "{record}\n{log}"
        );
    }
}

/// A refused start is an error with its reason, and the collector never hears of it.
#[test]
fn a_refused_start_leaves_no_worker() {
    let collector = Collector::start();
    for count in [1, 2, 3, 4] {
        let (record, _) = found(&["few-threads", &collector.url(), &count.to_string()]);
        let refused = record["refused"].as_str().unwrap();
        assert!(
            refused.starts_with("cannot start a thread of the agent: Resource"),
            "{refused}"
        );
    }
    assert_eq!(collector.epochs(), Vec::<Value>::new());
}

/// The program can use half of its address space itself, as it could without an agent.
#[test]
fn a_program_with_little_address_space_lives() {
    let _machine = alone();
    for mebibytes in [200, 300, 1_000] {
        let (record, _) = found(&["address-space", &mebibytes.to_string()]);
        assert_eq!(record["is_whole"], true, "{record}");
        let refused = record["refused"].as_str().unwrap();
        assert!(
            refused.starts_with("too little address space (ulimit -v): "),
            "{refused}"
        );
    }
    let (record, _) = found(&["address-space", "3000"]);
    assert_eq!(
        (&record["refused"], &record["named"]),
        (&Value::Null, &json!(true)),
        "{record}"
    );
}

/// libfaketime shifts the monotonic clock, or only those of CPU time. Waits with a limit do not end then: the program has
/// no agent.
#[test]
fn a_program_with_faked_clocks_has_no_agent() {
    let folder = tempfile::tempdir().unwrap();
    for clock in ["CLOCK_MONOTONIC", "CLOCK_THREAD_CPUTIME_ID"] {
        let library = compiled_library(
            folder.path(),
            "clock",
            &format!(
                "#define _GNU_SOURCE\n#include <sys/syscall.h>\n#include <time.h>\n#include <unistd.h>\n\
                 int clock_gettime(clockid_t clock, struct timespec *time) {{\n\
                 long result = syscall(SYS_clock_gettime, clock, time);\n\
                 if (clock == {clock}) time->tv_sec += 864000;\n\
                 return result; }}\n"
            ),
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_hostile-worker"));
        command.args(["refused", &nobody()]);
        let done = output(command.env("LD_PRELOAD", library));
        assert!(done.status.success(), "{done:?}");
        let record: Value = serde_json::from_slice(&done.stdout).unwrap();
        let refused = record["refused"].as_str().unwrap_or_default();
        let expected = format!("another library replaces {clock}, as libfaketime does");
        assert!(refused.starts_with(&expected), "{record}");
    }
}

/// Handlers keep their flags while the agent runs, and are restored when it ends.
#[test]
fn handlers_stay_as_the_program_set_them() {
    let (record, _) = found(&["handler-flags"]);
    let expected = json!({
        "restarts": [false, false],
        "interrupted": [true, true],
        "restored": true,
        "left_alone": true,
        "installed": true,
        "reset": true,
    });
    assert_eq!(record, expected);
}

/// A program without a subscriber gets one line on standard error.
#[test]
fn a_missing_collector_is_reported_once() {
    let url = nobody();
    let (_, log) = found(&["silent", &url]);
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(
        log.starts_with(&format!("emberline: no collector at {url} (")),
        "{log}"
    );
    assert!(log.contains("onnection refused"), "{log}");

    let worker = env!("CARGO_BIN_EXE_hostile-worker");
    let mut command = Command::new(worker);
    let off = output(command.args(["silent", &url]).env("EMBERLINE_LOG", "off"));
    assert!(off.status.success());
    assert_eq!(String::from_utf8_lossy(&off.stderr), "");
}

/// The end of an agent does not wait for names: the symbolizer of this program never gets them,
/// because the file that has them is a pipe.
#[test]
fn the_end_has_a_limit_while_the_symbolizer_is_stuck() {
    let folder = tempfile::tempdir().unwrap();
    let code = "unsigned long soak_work(unsigned long n)\n\
                { for (volatile long i = 0; i < 1000000; i++) n ^= i; return n; }\n";
    let library = compiled_library(folder.path(), "stuck", code);
    let (record, _) = found(&["stuck", &nobody(), library.to_str().unwrap()]);
    assert_eq!(number(&record["report"], "stored_ns"), 0, "{record}");
}
