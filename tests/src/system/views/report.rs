//! Reports: 100,000 tasks in one small file within little memory, the difference of two, and single parts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Collector, Running, Worker, alone, emberline, number, run};

const TASKS: u64 = 100_000;

/// Largest document of that many tasks.
const DOCUMENT_BYTES_MAX: u64 = 5_000_000;

/// Most memory of the command, whose allocator alone takes some tens of megabytes of a small machine.
const MEMORY_KB_MAX: u64 = 64 << 10;

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Runs the command, which must succeed, and returns its stdout.
fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The largest memory that a process has had, in kilobytes.
fn memory_peak_kb(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_hundred_thousand_tasks_are_a_small_file_that_is_written_in_little_memory() {
    let _alone = alone();
    let collector = Collector::start();
    let url = collector.url();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let file_name = file.to_str().unwrap();
    let worker = Worker::start("many", "many-1", &url, &[&TASKS.to_string()]);
    crate::harness::wait_for("the first tasks", || {
        let tasks = collector.json("/api/v1/tasks?from=-1h&limit=1");
        (number(&tasks, "total") > 0).then_some(())
    });
    // Reports that are written meanwhile cost the fleet nothing.
    for _ in 0..3 {
        printed(&["report", "--url", &url, "--from", "-1h", "-o", file_name]);
    }
    let record = worker.finish();
    let aggregated = number(&record["report"], "aggregated_tasks");
    for lost in [
        "lost_tasks",
        "lost_queue_ns",
        "lost_rejected_ns",
        "unacked_ns",
    ] {
        assert_eq!(number(&record["report"], lost), 0, "{lost}: {record}");
    }

    printed(&["report", "--url", &url, "--from", "-1h", "-o", file_name]);
    let json = json_of(&file.with_extension("json"));
    let drawn = json["columns"]["columns"]["id"].as_array().unwrap().len() as u64;
    assert_eq!(drawn + aggregated, TASKS);
    assert_eq!(number(&json["columns"], "total"), drawn);
    let names = json["summary"]["names"].as_array().unwrap();
    assert_eq!(
        names
            .iter()
            .map(|name| number(&name["outcomes"], "ok"))
            .sum::<u64>(),
        TASKS
    );
    let bytes = fs::metadata(&file).unwrap().len();
    assert!(
        bytes < DOCUMENT_BYTES_MAX,
        "{bytes} bytes for {drawn} tasks"
    );
    let of_tasks = json["columns"].to_string().len() as u64;
    assert!(
        of_tasks <= 30 * drawn + 10_000,
        "{of_tasks} bytes for {drawn} tasks"
    );

    // The pipe holds less than the script that follows the answers, so the command waits there.
    let mut command = Command::new(emberline());
    let mut child = command
        .args(["report", "--url", &url, "--from", "-1h", "-o", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let child = Running::new(child);
    let is_last = |line: &String| line.contains("id=\"answer-events\"");
    assert!(
        lines
            .by_ref()
            .map(Result::unwrap)
            .any(|line| is_last(&line))
    );
    let peak_kb = memory_peak_kb(child.id());
    assert!(peak_kb <= MEMORY_KB_MAX, "{peak_kb} kB for {bytes} bytes");
}

#[test]
fn a_diff_tells_slower_tasks_from_noise_and_fails_on_request() {
    let _alone = alone();
    let collector = Collector::start();
    let url = collector.url();
    let folder = tempfile::tempdir().unwrap();
    let worker = Worker::start("slowing", "slowing-1", &url, &["5"]);
    let record = worker.finish();
    let path = |name: &str| folder.path().join(name);
    let report = |name: &str, from_ns: i64, to_ns: i64| {
        let file = path(&format!("{name}.html"));
        let ends = [from_ns, to_ns]
            .map(|ns: i64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000));
        let range = [
            "--from",
            &ends[0],
            "--to",
            &ends[1],
            "-o",
            file.to_str().unwrap(),
        ];
        printed(&[&["report", "--url", &url], &range[..]].concat());
        file.with_extension("json").to_str().unwrap().to_owned()
    };
    let times: Vec<i64> = serde_json::from_value(record["times"].clone()).unwrap();
    let before = report("before", times[0], times[1]);
    let after = report("after", times[1], times[2]);
    drop(collector);

    let json = printed(&["report", "diff", &before, &after, "--format", "json"]);
    let diff: Value = serde_json::from_str(&json).unwrap();
    let names = diff["tasks"]["names"].as_array().unwrap();
    let of_task = |task: &str| names.iter().find(|name| name["name"] == task).unwrap();
    assert_eq!(of_task("slows")["verdict"], "slower", "{json}");
    // The machine is shared, so either half may have waited for a processor.
    let ratio = of_task("stays")["p50"]["ratio"].as_f64().unwrap();
    assert!((0.6..1.6).contains(&ratio), "{json}");
    assert_eq!(diff["functions"][0]["task"], "slows");
    let functions = &diff["functions"][0]["functions"];
    assert_eq!(functions["is_empty"], false);
    assert!(!functions["rows"].as_array().unwrap().is_empty(), "{json}");

    let text = printed(&["report", "diff", &before, &after]);
    assert!(text.contains("slower, exceeds noise"), "{text}");
    assert!(
        text.contains("slows: self time per task, by function\n"),
        "{text}"
    );
    let failing = run(&["report", "diff", &before, &after, "--fail-on-regression"]);
    assert_eq!(failing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failing.stderr).contains("got slower or failed more often"));
    printed(&["report", "diff", &before, &before, "--fail-on-regression"]);

    let document = path("before.html");
    let rejected = run(&["report", "diff", document.to_str().unwrap(), &after]);
    assert_eq!(rejected.status.code(), Some(2));
    let error = String::from_utf8_lossy(&rejected.stderr).into_owned();
    assert!(
        error.contains("is a document; expected the JSON"),
        "{error}"
    );
    let image = path("report.svg");
    let rejected = run(&["report", "-o", image.to_str().unwrap()]);
    let error = String::from_utf8_lossy(&rejected.stderr).into_owned();
    assert_eq!(rejected.status.code(), Some(2), "{error}");
    assert!(error.contains("a report is HTML"), "{error}");
    assert!(!image.exists());
    let cut = path("cut.json");
    fs::write(&cut, &fs::read(&before).unwrap()[..1_000]).unwrap();
    let rejected = run(&["report", "diff", cut.to_str().unwrap(), &after]);
    assert_eq!(rejected.status.code(), Some(2));
}

#[test]
fn single_parts_are_documents_and_a_run_of_an_import_is_only_that() {
    let collector = Collector::start();
    let url = collector.url();
    Worker::start("truth", "parts-1", &url, &["2"]).finish();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let stacks = path("old.collapsed");
    fs::write(&stacks, "load;main;parse 300000000\n").unwrap();
    printed(&["import", "--url", &url, &stacks]);

    for (command, answers) in [
        ("profile", &["about", "timeline", "profile"][..]),
        (
            "tasks",
            &[
                "about", "timeline", "tasks", "longest", "columns", "summary",
            ],
        ),
        ("resources", &["about", "timeline", "resources"]),
    ] {
        let file = path(&format!("{command}.html"));
        printed(&[command, "--url", &url, "--from", "-1h", "-o", &file]);
        let document = fs::read_to_string(&file).unwrap();
        let found: Vec<&str> = document
            .match_indices("id=\"answer-")
            .map(|(at, start)| document[at + start.len()..].split('"').next().unwrap())
            .collect();
        assert_eq!(found, answers, "{command}");
        assert!(
            document.contains(&format!("\"part\":\"{command}\"")),
            "{command}"
        );
    }
    let stdout = printed(&[
        "profile", "--url", &url, "--from", "-1h", "--format", "html",
    ]);
    assert!(stdout.starts_with("<!doctype html>"));

    let report = path("old.html");
    printed(&["report", "--url", &url, "--run", "old", "-o", &report]);
    let json = json_of(&Path::new(&report).with_extension("json"));
    assert_eq!(number(&json["profile"]["totals"], "total_ns"), 300_000_000);
    assert_eq!(json["summary"]["names"].as_array().unwrap().len(), 1);
    let none = run(&[
        "tasks",
        "--url",
        &url,
        "--from",
        "-2d",
        "--to",
        "-1d",
        "-o",
        &path("no.html"),
    ]);
    assert_eq!(none.status.code(), Some(2));
    assert!(!Path::new(&path("no.html")).exists());
}
