//! Collectors whose machines have other clocks than the server of their stores.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use simulation::s3::Server;
use tempfile::TempDir;

use super::{place, with_each_server};
use crate::harness::{Collector, Worker, alone, emberline, number, output, run, wait_for};

/// The library that moves the clock of a process.
struct ShiftedClock {
    _folder: TempDir,
    library: PathBuf,
}

impl ShiftedClock {
    fn compile() -> ShiftedClock {
        let folder = TempDir::new().unwrap();
        let library = folder.path().join("libshifted_clock.so");
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("src/system/stores/bucket/shifted_clock.c");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source]);
        assert!(compiler.status().expect("a C compiler is needed").success());
        ShiftedClock {
            _folder: folder,
            library,
        }
    }

    /// `emberline serve` with a clock that is off by `seconds`, and a store in the bucket.
    fn serve(&self, seconds: i64, server: &Server, arguments: &[&str]) -> Command {
        let mut command = Command::new(emberline());
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--store",
            &place("clocks"),
        ]);
        command
            .args(arguments)
            .envs(server.environment())
            .stdin(Stdio::null());
        command
            .env("LD_PRELOAD", &self.library)
            .env("SHIFT_SECONDS", seconds.to_string());
        command
    }
}

#[test]
#[ignore = "long"]
fn a_collector_with_a_clock_that_is_minutes_off_does_not_start() {
    with_each_server(check_refusal);
}

fn check_refusal(server: &Server) {
    let clock = ShiftedClock::compile();
    let arguments = ["--name", "c1", "--ack", "store", "--owner-watch", "300ms"];
    for (seconds, direction) in [(600, "ahead of"), (-600, "behind")] {
        let refused = output(&mut clock.serve(seconds, server, &arguments));
        assert!(!refused.status.success());
        let said = String::from_utf8(refused.stderr).unwrap();
        let error = said
            .lines()
            .find(|line| line.starts_with("error: "))
            .unwrap_or_default();
        let is_named = error.contains("the clock of this machine is ") && error.contains(direction);
        assert!(is_named && error.contains("set the clock (NTP)"), "{said}");
    }
    // The name is free as soon as the clock is right.
    let collector = Collector::start_by(&mut clock.serve(0, server, &arguments));
    assert_eq!(collector.get("/api/v1/workers").0, 200);
}

#[test]
#[ignore = "long"]
fn a_collector_with_a_clock_that_is_a_minute_off_is_named() {
    let _alone = alone();
    with_each_server(check_warning);
}

fn check_warning(server: &Server) {
    let clock = ShiftedClock::compile();
    let arguments = ["--name", "c1", "--ack", "store", "--seal-every", "1s"];
    let collector = Collector::start_by(&mut clock.serve(60, server, &arguments));
    let reader = Collector::start_by(&mut clock.serve(0, server, &["--read-only"]));
    let worker = Worker::start("steady", "w1", &collector.url(), &[]);
    let ahead_ns = wait_for("data that is sealed while the reader reads", || {
        reader.json("/api/v1/workers")["stores"][0]["clock_ahead_ns"].as_i64()
    });
    assert!(
        (55_000_000_000..=62_000_000_000).contains(&ahead_ns),
        "{ahead_ns}"
    );
    let url = reader.url();
    let listed = run(&["workers", "--url", &url]);
    let said = String::from_utf8(listed.stderr).unwrap();
    assert!(said.contains("c1: the clock of its collector is"), "{said}");
    let examined = run(&["doctor", "--format", "json", "--url", &url]);
    let report: Value = serde_json::from_slice(&examined.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let clock = findings
        .iter()
        .find(|finding| finding["check"] == "clock")
        .unwrap();
    assert_eq!(clock["level"], "warn", "{clock}");
    assert!(
        clock["found"]
            .as_str()
            .unwrap()
            .contains("ahead of that of the store's server"),
        "{clock}"
    );
    let record = worker.finish();
    assert_eq!(number(&record["report"], "unacked_ns"), 0, "{record}");
}
