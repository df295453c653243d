//! `emberline tasks --format trace`, and `firefox`: the files equal the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::harness::{Collector, Worker, emberline, number, run};
use crate::views::report_golden::golden_collector;

/// An event of a trace, or its counterpart in the ledger: process, thread, name, start, stop.
type Span = (String, String, String, i64, i64);

/// Complete events and asynchronous pairs, if they follow the rules of trace viewers.
#[derive(Default)]
struct Shown {
    tasks: BTreeMap<u64, (Span, Value)>,
    phases: BTreeSet<Span>,
    /// Tracks by thread.
    tracks: BTreeMap<String, BTreeSet<u64>>,
}

/// Converts decimal microseconds to nanoseconds.
fn nanoseconds(number: &Value) -> i64 {
    let text = number.to_string();
    let (whole, fraction) = text.split_once('.').unwrap();
    format!("{whole}{fraction:0<3}").parse().unwrap()
}

fn read(trace: &Value) -> Shown {
    let base_ns = trace["otherData"]["ts_from_unix_ns"].as_i64().unwrap();
    let mut shown = Shown::default();
    let mut names: BTreeMap<(String, u64), String> = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
    let mut begun: BTreeMap<String, &Value> = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let process = number(event, "pid");
        let track = number(event, "tid");
        let name = event["name"].as_str().unwrap().to_owned();
        let at_ns = || base_ns + nanoseconds(&event["ts"]);
        let name_of = |what: &str, at: u64| names[&(what.to_owned(), at)].clone();
        let span = |begin: &Value, stop_ns: i64| {
            let thread = name_of("thread_name", track);
            let start_ns = base_ns + nanoseconds(&begin["ts"]);
            (
                name_of("process_name", process),
                thread,
                name.clone(),
                start_ns,
                stop_ns,
            )
        };
        match event["ph"].as_str().unwrap() {
            "M" => {
                let place = if name.starts_with("process") {
                    process
                } else {
                    track
                };
                if let Some(said) = event["args"]["name"].as_str() {
                    names.insert((name, place), said.to_owned());
                }
            }
            "X" => {
                let stop_ns = at_ns() + nanoseconds(&event["dur"]);
                let above = open.entry(track).or_default();
                above.retain(|above_ns| *above_ns > at_ns());
                assert!(
                    above.iter().all(|above_ns| stop_ns <= *above_ns),
                    "{event}: {above:?}"
                );
                above.push(stop_ns);
                let span = span(event, stop_ns);
                shown
                    .tracks
                    .entry(span.1.clone())
                    .or_default()
                    .insert(track);
                if event["cat"] == "task" {
                    let id = number(&event["args"], "id");
                    let told = shown.tasks.insert(id, (span, event["args"].clone()));
                    assert!(told.is_none(), "task {id} twice");
                } else {
                    shown.phases.insert(span);
                }
            }
            "b" => {
                let id = event["id"].as_str().unwrap().to_owned();
                assert!(ids.insert(id.clone()), "{id} twice");
                begun.insert(id, event);
            }
            "e" => {
                let begin = begun.remove(event["id"].as_str().unwrap()).unwrap();
                shown.phases.insert(span(begin, at_ns()));
            }
            other => panic!("{other}"),
        }
    }
    assert!(begun.is_empty(), "{begun:?} never end");
    shown
}

/// Each task of the ledger is in the trace; returns their phases.
fn check_tasks(tasks: &[Value], shown: &Shown) -> BTreeSet<Span> {
    assert_eq!(shown.tasks.len(), tasks.len());
    let mut phases = BTreeSet::new();
    for task in tasks {
        let ((process, thread, name, start_ns, stop_ns), args) = &shown.tasks[&number(task, "id")];
        assert_eq!(
            (&task["worker"], &task["name"]),
            (&process.as_str().into(), &name.as_str().into())
        );
        assert_eq!(&task["start_ns"].as_i64().unwrap(), start_ns);
        assert_eq!(&task["stop_ns"].as_i64().unwrap(), stop_ns);
        for field in [
            "key",
            "outcome",
            "parent",
            "attempt",
            "result_bytes",
            "thread_id",
        ] {
            assert_eq!(task[field], args[field], "{field} of {task}");
        }
        let labels = task["labels"].as_object().unwrap();
        assert!(
            labels
                .iter()
                .all(|(key, value)| args["labels"][key] == *value),
            "{args}"
        );
        for phase in task["phases"].as_array().unwrap() {
            let start_ns = phase["start_ns"].as_i64().unwrap();
            let stop_ns = start_ns + phase["duration_ns"].as_i64().unwrap();
            let name = phase["name"].as_str().unwrap().to_owned();
            phases.insert((process.clone(), thread.clone(), name, start_ns, stop_ns));
        }
    }
    phases
}

/// Tasks with children, phases and waits, and interleaved futures on one thread: the trace has
/// everything in the ledger, to the nanosecond, on tracks that nest.
#[test]
fn a_trace_equals_the_ledger() {
    let collector = Collector::start();
    let record = Worker::start("traced", "w-1", &collector.url(), &[]).finish();
    assert_eq!(number(&record["report"], "lost_tasks"), 0);
    let url = collector.url();
    let folder = tempfile::tempdir().unwrap();
    let [rows, trace] = ["rows.json", "tasks.trace"].map(|name| folder.path().join(name));
    for file in [&rows, &trace] {
        let file = file.to_str().unwrap();
        let done = run(&["tasks", "--url", &url, "--from", "-1h", "-o", file]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(
            done.status.success() && said.starts_with(&format!("wrote {file}")),
            "{said}"
        );
        assert!(done.stdout.is_empty());
    }
    let [rows, trace] = [rows, trace].map(|file| fs::read_to_string(file).unwrap());
    let [rows, trace]: [Value; 2] = [rows, trace].map(|text| serde_json::from_str(&text).unwrap());
    let tasks = rows["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 43);
    assert_eq!(trace["displayTimeUnit"], "ns");
    assert_eq!(number(&trace["otherData"], "tasks"), 43);
    assert_eq!(number(&trace["otherData"], "omitted"), 0);

    let shown = read(&trace);
    let phases = check_tasks(tasks, &shown);
    assert_eq!(shown.phases, phases);
    let names: BTreeSet<&str> = phases.iter().map(|phase| &*phase.2).collect();
    assert_eq!(names, BTreeSet::from(["check", "queue", "transfer"]));
    let tracks: Vec<&str> = shown.tracks.keys().map(String::as_str).collect();
    assert_eq!(
        tracks,
        ["test-worker", "test-worker (2)", "test-worker (3)"],
        "a future on each"
    );

    // The newest task alone, to the terminal; and invalid combinations.
    let few = run(&["tasks", "--url", &url, "--format", "trace", "--limit", "3"]);
    let trace: Value = serde_json::from_slice(&few.stdout).unwrap();
    assert_eq!(read(&trace).tasks.len(), 3);
    assert_eq!(number(&trace["otherData"], "omitted"), 40);
    let said = String::from_utf8_lossy(&few.stderr).into_owned();
    assert!(
        said.starts_with("transfers are left out with --key"),
        "{said}"
    );
    assert!(said.ends_with("\n40 tasks are left out\n"), "{said}");
    let both = run(&["tasks", "--url", &url, "--format", "trace", "--summary"]);
    assert_eq!(both.status.code(), Some(2), "{}", emberline().display());
}

/// The rows of the golden store, and each of its transfers in both kinds of files, to the nanosecond.
#[test]
fn transfers_of_the_account_are_in_the_trace_and_in_the_firefox_profile() {
    let folder = tempfile::tempdir().unwrap();
    let collector = golden_collector(folder.path());
    let range = ["2023-11-14T22:13:20Z", "2023-11-14T22:15:41Z"];
    let query = format!("from={}&to={}&limit=100000", range[0], range[1]);
    let answer = collector.json(&format!("/api/v1/transfers?{query}"));
    let rows = answer["transfers"].as_array().unwrap();
    assert!(!rows.is_empty());
    let export = |name: &str| -> Value {
        let path = folder.path().join(name);
        let file = path.to_str().unwrap();
        let url = collector.url();
        let done = run(&[
            "tasks", "--url", &url, "--from", range[0], "--to", range[1], "-o", file,
        ]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(
            said.contains(&format!("and {} transfers", rows.len())),
            "{said}"
        );
        serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
    };

    let trace = export("golden.trace");
    let base_ns = trace["otherData"]["ts_from_unix_ns"].as_i64().unwrap();
    assert_eq!(number(&trace["otherData"], "transfers"), rows.len() as u64);
    let events = trace["traceEvents"].as_array().unwrap().iter();
    let mut of_trace = BTreeMap::new();
    for event in events.filter(|event| event["cat"] == "transfer") {
        let at_ns = base_ns + nanoseconds(&event["ts"]);
        let times: &mut Vec<_> = of_trace.entry(event["id"].to_string()).or_default();
        times.push((at_ns, event["args"]["bytes"].clone()));
    }
    assert_eq!(
        sorted(of_trace.into_values().collect()),
        sorted(
            rows.iter()
                .map(|row: &Value| {
                    let begin = (time(row, "start_ns"), row["bytes"].clone());
                    vec![begin, (time(row, "stop_ns"), Value::Null)]
                })
                .collect()
        )
    );

    let profile = export("golden.firefox.json");
    let threads = profile["threads"].as_array().unwrap();
    let markers = threads
        .iter()
        .flat_map(|thread| thread["markers"]["data"].as_array().unwrap());
    let bytes: f64 = markers
        .filter(|data| data["type"] == "emberline-transfer")
        .map(|data| data["bytes"].as_f64().unwrap())
        .sum();
    let bytes_of_rows: u64 = rows.iter().map(|row| number(row, "bytes")).sum();
    assert_eq!(bytes, bytes_of_rows as f64);
}

fn time(row: &Value, name: &str) -> i64 {
    row[name].as_i64().unwrap()
}

fn sorted(mut pairs: Vec<Vec<(i64, Value)>>) -> Vec<Vec<(i64, Value)>> {
    pairs.sort_by_key(|pair| format!("{pair:?}"));
    pairs
}
