//! The main job: a collector and a real fleet, for some seconds, with files as output.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Running, alone, emberline, get, run, wait_for};

/// While the demo runs, queries from another shell are answered; when it ends, its files hold the
/// fleet's tasks with the real functions below them.
#[test]
fn the_demo_answers_queries_and_writes_its_files() {
    let _alone = alone();
    let out = tempfile::tempdir().unwrap();
    let mut child = Command::new(emberline())
        .args(["demo", "--seconds", "15", "--listen", "127.0.0.1:0", "--out"])
        .arg(out.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let mut demo = Running::new(child);
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            // The test may have ended.
            let _ = sender.send(line);
        }
    });
    let url = lines
        .iter()
        .find_map(|line| {
            let (_, rest) = line.split_once("http://")?;
            let end = rest.find(|c: char| !(c.is_ascii_digit() || ".:".contains(c)));
            Some(format!("http://{}", &rest[..end.unwrap_or(rest.len())]))
        })
        .expect("the demo says where it listens");

    for task in ["qr", "tokenize"] {
        wait_for(&format!("samples of {task}"), || {
            let (_, body) = get(&url, &format!("/api/v1/profile?task={task}&from=-5s"));
            let profile: Value = serde_json::from_str(&body).ok()?;
            (profile["totals"]["cpu_ns"].as_u64()? > 0).then_some(())
        });
    }
    let summary = run(&["tasks", "--summary", "--url", &url]);
    assert!(summary.status.success());
    let summary = String::from_utf8_lossy(&summary.stdout);
    assert!(summary.contains("tokenize") && summary.contains("qr"), "{summary}");
    let svg = out.path().join("x.svg");
    let path = svg.to_str().unwrap();
    let profile = ["profile", "--task", "qr", "--from", "-5s", "--format", "svg", "-o", path];
    let profile = run(&[&profile[..], &["--url", &url]].concat());
    assert!(profile.status.success(), "{}", String::from_utf8_lossy(&profile.stderr));
    assert!(fs::read_to_string(&svg).unwrap().contains("matrixmultiply"));

    assert!(demo.wait().success(), "{:?}", lines.iter().collect::<Vec<_>>());
    check_files(out.path());
}

fn check_files(out: &std::path::Path) {
    let read = |name| fs::read_to_string(out.join(name)).unwrap();
    let collapsed = read("profile.collapsed");
    let tops: BTreeSet<&str> =
        collapsed.lines().map(|line| line.split(';').next().unwrap()).collect();
    let ledger: Value = serde_json::from_str(&read("ledger.json")).unwrap();
    let tasks = ledger["tasks"].as_array().unwrap();
    let names: BTreeSet<&str> = tasks.iter().map(|task| task["name"].as_str().unwrap()).collect();
    for name in ["qr", "dot", "transfer", "tokenize", "compress", "exchange", "request", "client"] {
        assert!(names.contains(name), "no task {name} in {names:?}");
    }
    for name in ["qr", "dot", "tokenize", "compress", "request"] {
        assert!(tops.contains(name), "no samples of {name} in {tops:?}");
    }
    let below = |task: &str, function: &str| {
        collapsed
            .lines()
            .any(|line| line.starts_with(&format!("{task};")) && line.contains(function))
    };
    assert!(below("qr", "matrixmultiply") && below("compress", "ZSTD"), "the work's own functions");
    let workers: BTreeSet<&str> =
        tasks.iter().map(|task| task["worker"].as_str().unwrap()).collect();
    assert_eq!(workers.len(), 4, "four processes report: {workers:?}");
    for task in tasks.iter().filter(|task| !task["stop_ns"].is_null()) {
        assert!(task["stop_ns"].as_i64() >= task["start_ns"].as_i64());
    }
    let svg = read("profile.svg");
    assert!(svg.contains("</svg>") && svg.contains("tokenize") && svg.contains("matrixmultiply"));
}
