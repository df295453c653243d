//! The main job: a collector and a real fleet, for some seconds, with files as output. The demo's tokens are
//! where other commands of the same user find them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{Running, alone, emberline, get, output, wait_for};

/// Tasks of the demo that compute.
const SAMPLED: [&str; 5] = ["qr", "dot", "tokenize", "compress", "request"];

/// While the demo runs, queries from another shell are answered; when it ends, its files hold the
/// fleet's tasks with the real functions below them.
#[test]
fn the_demo_answers_queries_and_writes_its_files() {
    let _alone = alone();
    let out = tempfile::tempdir().unwrap();
    let home = tempfile::tempdir().unwrap();
    let mut child = Command::new(emberline())
        .args(["demo", "--listen", "127.0.0.1:0", "--out"])
        .arg(out.path())
        .env("XDG_RUNTIME_DIR", home.path())
        // Of another collector.
        .env("EMBERLINE_TOKEN_FILE", "/nowhere")
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
    let first = lines.recv().unwrap();
    let link = first
        .strip_prefix("Open ")
        .and_then(|rest| rest.strip_suffix(" in a browser"));
    let (url, token) = link
        .and_then(|link| link.split_once("/login#token="))
        .expect(&first);
    let run = |arguments: &[&str]| run_as(url, home.path(), arguments);

    for task in SAMPLED {
        wait_for(&format!("samples of {task}"), || {
            let profile = run(&[
                "profile", "--task", task, "--from", "-5m", "--format", "json",
            ]);
            let profile: Value = serde_json::from_slice(&profile.stdout).ok()?;
            (profile["totals"]["cpu_ns"].as_u64()? > 0).then_some(())
        });
    }
    let summary = run(&["tasks", "--summary"]);
    assert!(summary.status.success());
    let summary = String::from_utf8_lossy(&summary.stdout);
    assert!(
        summary.contains("tokenize") && summary.contains("qr"),
        "{summary}"
    );
    let svg = out.path().join("x.svg");
    let path = svg.to_str().unwrap();
    let profile = run(&[
        "profile", "--task", "qr", "--from", "-5m", "--format", "svg", "-o", path,
    ]);
    assert!(
        profile.status.success(),
        "{}",
        String::from_utf8_lossy(&profile.stderr)
    );
    assert!(fs::read_to_string(&svg).unwrap().contains("matrixmultiply"));
    let stranger = tempfile::tempdir().unwrap();
    let refused = run_as(url, stranger.path(), &["tasks"]);
    let refused = String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.contains("this collector needs a token"),
        "{refused}"
    );
    assert_eq!(get(url, "/api/v1/workers").0, 401);
    check_token_files(home.path(), token);

    demo.signal(Signal::SIGINT);
    assert!(
        demo.wait().success(),
        "{:?}",
        lines.iter().collect::<Vec<_>>()
    );
    let left = fs::read_dir(home.path().join("emberline")).unwrap().count();
    assert_eq!(left, 0, "the tokens' files are removed");
    check_files(out.path());
}

fn run_as(url: &str, home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(emberline());
    command
        .args(arguments)
        .args(["--url", url])
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    command
        .env("XDG_RUNTIME_DIR", home)
        .env_remove("EMBERLINE_TOKEN_FILE");
    output(command.env_remove("EMBERLINE_TOKEN"))
}

/// Only this user can read the files, and the link's token is one of them.
fn check_token_files(home: &Path, operator: &str) {
    let files = fs::read_dir(home.join("emberline"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let texts: BTreeMap<_, _> = files
        .map(|path| {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            let extension = path.extension().unwrap().to_str().unwrap().to_owned();
            (extension, fs::read_to_string(path).unwrap())
        })
        .collect();
    assert_eq!(texts.keys().collect::<Vec<_>>(), ["agent", "operator"]);
    assert_eq!(texts["operator"], operator);
    assert_ne!(texts["agent"], operator);
}

fn check_files(out: &Path) {
    let read = |name| fs::read_to_string(out.join(name)).unwrap();
    let collapsed = read("profile.collapsed");
    let tops: BTreeSet<&str> = collapsed
        .lines()
        .map(|line| line.split(';').next().unwrap())
        .collect();
    let ledger: Value = serde_json::from_str(&read("ledger.json")).unwrap();
    let tasks = ledger["tasks"].as_array().unwrap();
    let names: BTreeSet<&str> = tasks
        .iter()
        .map(|task| task["name"].as_str().unwrap())
        .collect();
    for name in [
        "qr", "dot", "transfer", "tokenize", "compress", "exchange", "request", "client",
    ] {
        assert!(names.contains(name), "no task {name} in {names:?}");
    }
    for name in SAMPLED {
        assert!(tops.contains(name), "no samples of {name} in {tops:?}");
    }
    let below = |task: &str, function: &str| {
        collapsed
            .lines()
            .any(|line| line.starts_with(&format!("{task};")) && line.contains(function))
    };
    assert!(
        below("qr", "matrixmultiply") && below("compress", "ZSTD"),
        "the work's own functions"
    );
    let workers: BTreeSet<&str> = tasks
        .iter()
        .map(|task| task["worker"].as_str().unwrap())
        .collect();
    assert_eq!(workers.len(), 4, "four processes report: {workers:?}");
    for task in tasks.iter().filter(|task| !task["stop_ns"].is_null()) {
        assert!(task["stop_ns"].as_i64() >= task["start_ns"].as_i64());
    }
    let report: Value = serde_json::from_str(&read("report.json")).unwrap();
    let listed = report["columns"]["columns"]["id"].as_array().unwrap().len();
    assert_eq!(
        listed,
        tasks.len(),
        "the report has the tasks of the ledger"
    );
    assert!(read("report.html").contains("id=\"answer-columns\""));
    for name in ["tasks", "functions", "resources", "transfers", "timeline"] {
        assert!(
            out.join(format!("report.{name}.parquet")).is_file(),
            "no rows of {name}"
        );
    }
    let svg = read("profile.svg");
    assert!(svg.contains("</svg>") && svg.contains("tokenize") && svg.contains("matrixmultiply"));
}
