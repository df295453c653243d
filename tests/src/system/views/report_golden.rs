//! The report of a store that never changes: the same JSON in every release, and Parquet files that are the
//! collector's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value};

use crate::harness::{Collector, output, run};

/// Renews the golden file instead of comparing with it, like `expect-test`.
pub(crate) const UPDATE_VARIABLE: &str = "UPDATE_EXPECT";

/// All data of the golden store.
pub(crate) const RANGE: [&str; 4] = [
    "--from",
    "2023-11-14T22:13:20Z",
    "--to",
    "2023-11-14T22:15:41Z",
];

/// The rows of the range, as a query to the collector.
const ROWS_QUERY: &str = "from=2023-11-14T22:13:20Z&to=2023-11-14T22:15:41Z&limit=100000";

/// A collector with a copy of the golden store.
pub(crate) fn golden_collector(folder: &Path) -> Collector {
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).join("../collector/store/golden/store-1");
    let copy = folder.join("store");
    let copied = output(Command::new("cp").arg("-r").arg(store).arg(&copy));
    assert!(copied.status.success(), "{copied:?}");
    Collector::start_with_data("127.0.0.1:0", &copy)
}

fn golden_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/system/golden/report.json")
}

fn report(collector: &Collector, file: &Path, range: &[&str]) -> std::process::Output {
    let url = collector.url();
    let file = file.to_str().unwrap();
    run(&[&["report", "--url", &url, "--parquet", "-o", file], range].concat())
}

/// A member of a member, which must exist.
fn member<'a>(report: &'a mut Map<String, Value>, part: &str, name: &str) -> &'a mut Value {
    report[part]
        .get_mut(name)
        .unwrap_or_else(|| panic!("no {part}/{name}"))
}

/// Removes what depends on the call and its time: the command, the version, the state of the collector, and
/// how long tasks have been running.
fn without_time(report: &mut Map<String, Value>) {
    *member(report, "about", "command") = Value::Null;
    *member(report, "about", "version") = Value::Null;
    for name in ["now", "now_ns", "retained"] {
        *member(report, "workers", name) = Value::Null;
    }
    for part in ["tasks", "longest"] {
        for task in member(report, part, "tasks").as_array_mut().unwrap() {
            if task["outcome"] == "running" {
                task["duration_ns"] = Value::Null;
            }
        }
    }
    let outcomes = member(report, "columns", "outcomes").as_array().unwrap();
    let running = outcomes
        .iter()
        .position(|outcome| outcome == "running")
        .unwrap();
    let columns = member(report, "columns", "columns");
    let of_tasks = columns["outcome"].as_array().unwrap().clone();
    for (task, outcome) in of_tasks.iter().enumerate() {
        if *outcome == running {
            columns["duration_us"][task] = Value::Null;
        }
    }
}

/// A line for each part.
fn lines(report: &Map<String, Value>) -> String {
    let parts: Vec<String> = report
        .iter()
        .map(|(name, part)| format!("{}: {part}", Value::from(&**name)))
        .collect();
    format!("{{\n{}\n}}\n", parts.join(",\n"))
}

#[test]
fn the_report_of_the_golden_store_is_the_golden_file() {
    let folder = tempfile::tempdir().unwrap();
    let collector = golden_collector(folder.path());
    let file = folder.path().join("report.html");
    let written = report(&collector, &file, &RANGE);
    assert!(
        written.status.success(),
        "{}",
        String::from_utf8_lossy(&written.stderr)
    );
    let json = fs::read(file.with_extension("json")).unwrap();
    let mut json: Map<String, Value> = serde_json::from_slice(&json).unwrap();
    without_time(&mut json);
    let found = lines(&json);
    let golden = golden_file();
    if std::env::var_os(UPDATE_VARIABLE).is_some() {
        fs::write(&golden, &found).unwrap();
    }
    let expected = parts(&fs::read_to_string(&golden).unwrap());
    let found = parts(&found);
    assert!(found.keys().eq(expected.keys()), "{:?}", found.keys());
    for (name, expected) in &expected {
        let found = &found[name];
        assert!(
            found == expected,
            "the part {name} of the report differs from {}; if that is right, repeat with \
             {UPDATE_VARIABLE}=1\nexpected {expected}\nfound    {found}",
            golden.display()
        );
    }
}

fn parts(text: &str) -> Map<String, Value> {
    serde_json::from_str::<Map<String, Value>>(text).unwrap()
}

#[test]
fn the_rows_of_a_report_are_those_of_the_collector() {
    let folder = tempfile::tempdir().unwrap();
    let collector = golden_collector(folder.path());
    let reports = folder.path().join("reports");
    fs::create_dir(&reports).unwrap();
    let file = reports.join("report.html");

    let nothing = report(
        &collector,
        &file,
        &["--from", "2001-01-01", "--to", "2001-01-02"],
    );
    assert_eq!(nothing.status.code(), Some(2), "{nothing:?}");
    assert_eq!(
        fs::read_dir(&reports).unwrap().count(),
        0,
        "nothing is written without data"
    );

    assert!(report(&collector, &file, &RANGE).status.success());
    for (name, query) in [
        ("transfers", format!("transfers.parquet?{ROWS_QUERY}")),
        ("functions", {
            let range = ROWS_QUERY.trim_end_matches("&limit=100000");
            format!("profile.parquet?{range}&threads=program&outside=shown&stacks=simple")
        }),
    ] {
        let rows = fs::read(file.with_extension(format!("{name}.parquet"))).unwrap();
        let answer = crate::harness::get_bytes(&collector.url(), &format!("/api/v1/{query}"));
        assert!(rows.starts_with(b"PAR1") && rows == answer, "{name}");
    }
    for name in ["tasks", "resources", "timeline"] {
        let rows = fs::read(file.with_extension(format!("{name}.parquet"))).unwrap();
        assert!(
            rows.starts_with(b"PAR1") && rows.ends_with(b"PAR1"),
            "{name}"
        );
    }
    let url = collector.url();
    let piped = run(&["report", "--url", &url, "--parquet", "-o", "-"]);
    let said = String::from_utf8_lossy(&piped.stderr);
    assert_eq!(piped.status.code(), Some(2));
    assert!(said.contains("--parquet writes files"), "{said}");
}
