//! `emberline doctor` on programs, this machine and a fleet. A stripped program's functions are
//! module and offset.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Collector, TEST_WORKER, Worker, number, run, wait_for};

/// A copy of the test worker without symbols, made by `strip`. Linking a Rust program needs
/// binutils, so `strip` is installed.
fn stripped(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("stripped-worker");
    let status = Command::new("strip")
        .arg("-o")
        .arg(&path)
        .arg(TEST_WORKER)
        .status();
    assert!(status.expect("`strip` of binutils is needed").success());
    path
}

/// The exit code, and level and advice by check.
fn doctor(arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
    let output = run(&[&["doctor", "--format", "json"], arguments].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    (
        output.status.code(),
        report["findings"].as_array().unwrap().clone(),
    )
}

fn find<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    findings
        .iter()
        .find(|finding| finding["check"] == check)
        .unwrap()
}

#[test]
fn a_stripped_program_is_recognized() {
    let (code, findings) = doctor(&[TEST_WORKER]);
    assert_eq!(code, Some(0), "{findings:?}");
    assert!(
        findings.iter().all(|finding| finding["level"] == "ok"),
        "{findings:?}"
    );

    let folder = tempfile::tempdir().unwrap();
    let stripped = stripped(&folder);
    let (code, findings) = doctor(&[stripped.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{findings:?}");
    let levels: Vec<_> = findings
        .iter()
        .map(|finding| finding["level"].as_str())
        .collect();
    assert_eq!(levels, ["ok", "bad", "warn", "warn", "ok", "ok"].map(Some));
    let advice = |check| {
        find(&findings, check)["advice"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(advice("functions").contains("strip = false"));
    assert!(advice("source lines").contains("debug = 1"));

    let refused = run(&["doctor", "/no/such/program"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// A stripped worker is profiled anyway: functions without names are module and offset, and doctor
/// explains why for the running process.
#[test]
fn a_stripped_worker_shows_module_and_offset() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start();
    let worker = Worker::start_copy(
        &stripped(&folder),
        "steady",
        "bare-1",
        &collector.url(),
        &[],
    );
    let function = wait_for("a function of the worker's", || {
        let (status, body) = collector.get("/api/v1/profile?by=line&task=steady");
        if status != 200 {
            return None; // The task is not known yet.
        }
        let profile: Value = serde_json::from_str(&body).unwrap();
        let nodes = profile["profile"]["nodes"].as_array().unwrap();
        let names: Vec<_> = nodes
            .iter()
            .map(|node| node["name"].as_str().unwrap())
            .collect();
        assert!(
            !names.iter().any(|name| name.contains("alpha")),
            "{names:?}"
        );
        names
            .iter()
            .find(|name| name.starts_with("stripped-worker+0x"))
            .map(ToString::to_string)
    });
    let offset = u64::from_str_radix(function.rsplit("0x").next().unwrap(), 16);
    assert!(offset.is_ok_and(|offset| offset > 0), "{function}");

    let (code, findings) = doctor(&[&worker.process.id().to_string()]);
    assert_eq!(
        (code, find(&findings, "functions")["level"].as_str()),
        (Some(1), Some("bad"))
    );
    let (_, findings) = doctor(&["--url", &collector.url()]);
    assert_eq!(find(&findings, "collector")["level"], "ok", "{findings:?}");
    assert_eq!(find(&findings, "workers")["level"], "ok", "{findings:?}");
    worker.finish();
}

#[test]
fn an_unreachable_collector_is_an_error() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (code, findings) = doctor(&["--url", &format!("http://{free}")]);
    assert_eq!(
        (code, find(&findings, "collector")["level"].as_str()),
        (Some(1), Some("bad"))
    );
}

/// The process's clock shows more CPU time than the sampler has seen.
#[test]
fn time_of_threads_that_the_sampler_does_not_see_is_lost_and_named() {
    let collector = Collector::start();
    let record = Worker::start("unseen", "brief", &collector.url(), &[]).finish();
    let report = &record["report"];
    let lost_ns = number(report, "lost_unseen_ns");
    assert!(lost_ns > 100_000_000, "{report}");
    let account = &collector.epochs()[0]["account"];
    assert_eq!(
        account["lost_unseen_ns"], report["lost_unseen_ns"],
        "{account}"
    );
    assert_eq!(account["balanced"], true, "{account}");
    let (_, findings) = doctor(&["--url", &collector.url()]);
    let finding = find(&findings, "thread time");
    assert!(
        finding["found"].as_str().unwrap().contains("brief ("),
        "{finding}"
    );
}
