//! What `emberline doctor` says of programs, this machine and a fleet, and what it warns of: a
//! stripped program's functions are module and offset.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Collector, TEST_WORKER, Worker, run, wait_for};

/// A copy of the test worker without names and lines, as `strip` leaves it. Linking a Rust program
/// takes binutils, so `strip` is there too.
fn stripped(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("stripped-worker");
    let status = Command::new("strip").arg("-o").arg(&path).arg(TEST_WORKER).status();
    assert!(status.expect("`strip` of binutils is needed").success());
    path
}

/// The exit code, and level and advice by check.
fn doctor(arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
    let output = run(&[&["doctor", "--format", "json"], arguments].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code(), report["findings"].as_array().unwrap().clone())
}

fn find<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    findings.iter().find(|finding| finding["check"] == check).unwrap()
}

#[test]
fn a_program_with_names_is_told_from_a_stripped_one() {
    let (code, findings) = doctor(&[TEST_WORKER]);
    assert_eq!(code, Some(0), "{findings:?}");
    assert!(findings.iter().all(|finding| finding["level"] == "ok"), "{findings:?}");

    let folder = tempfile::tempdir().unwrap();
    let stripped = stripped(&folder);
    let (code, findings) = doctor(&[stripped.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{findings:?}");
    let levels: Vec<_> = findings.iter().map(|finding| finding["level"].as_str()).collect();
    assert_eq!(levels, ["ok", "bad", "warn", "warn", "ok", "ok"].map(Some));
    let advice = |check| find(&findings, check)["advice"].as_str().unwrap().to_owned();
    assert!(advice("functions").contains("strip = false"));
    assert!(advice("files and lines").contains("debug = \"line-tables-only\""));

    let refused = run(&["doctor", "/no/such/program"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// A stripped worker is profiled all the same: what cannot be named is module and offset, and the
/// doctor says of the running process why.
#[test]
fn a_stripped_worker_shows_module_and_offset() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start();
    let worker = Worker::start_copy(&stripped(&folder), "steady", "bare-1", &collector.url(), &[]);
    let function = wait_for("a function of the worker's", || {
        let (status, body) = collector.get("/api/v1/profile?by=line&task=steady");
        if status != 200 {
            return None; // The task is not known yet.
        }
        let profile: Value = serde_json::from_str(&body).unwrap();
        let nodes = profile["profile"]["nodes"].as_array().unwrap();
        let names: Vec<_> = nodes.iter().map(|node| node["name"].as_str().unwrap()).collect();
        assert!(!names.iter().any(|name| name.contains("alpha")), "{names:?}");
        names.iter().find(|name| name.starts_with("stripped-worker+0x")).map(ToString::to_string)
    });
    let offset = u64::from_str_radix(function.rsplit("0x").next().unwrap(), 16);
    assert!(offset.is_ok_and(|offset| offset > 0), "{function}");

    let (code, findings) = doctor(&[&worker.process.id().to_string()]);
    assert_eq!((code, find(&findings, "functions")["level"].as_str()), (Some(1), Some("bad")));
    let (_, findings) = doctor(&["--url", &collector.url()]);
    assert_eq!(find(&findings, "collector")["level"], "ok", "{findings:?}");
    assert_eq!(find(&findings, "workers")["level"], "ok", "{findings:?}");
    worker.finish();
}

#[test]
fn a_collector_that_is_not_there_is_bad() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, findings) = doctor(&["--url", &format!("http://{free}")]);
    assert_eq!((code, find(&findings, "collector")["level"].as_str()), (Some(1), Some("bad")));
}
