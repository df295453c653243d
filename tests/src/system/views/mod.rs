//! One view: the command line and the API report the same time of the same samples.

pub(crate) mod compare;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod exports_golden;
pub(crate) mod report;
pub(crate) mod report_golden;
pub(crate) mod report_guard;
pub(crate) mod symbols;
pub(crate) mod terminal;
pub(crate) mod trace;
pub(crate) mod watch;

use serde_json::Value;

use crate::harness::{Collector, Worker, number, run};

/// Parameters that the page requests by default.
const VIEW: &str = "state=cpu&outside=hidden&stacks=simple";

/// Returns the output of `emberline profile`, and its summary.
fn profile(collector: &Collector, arguments: &[&str]) -> (String, String) {
    let url = collector.url();
    let profile = run(&[&["profile", "--from", "-1h", "--url", &url], arguments].concat());
    let [text, summary] =
        [&profile.stdout, &profile.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(profile.status.success(), "{summary}");
    (text, summary)
}

/// The weights of collapsed stacks.
fn sum(stacks: &str) -> u64 {
    let weights = stacks.lines().map(|line| line.rsplit_once(' ').unwrap().1);
    weights.map(|weight| weight.parse::<u64>().unwrap()).sum()
}

#[test]
fn the_command_line_shows_the_time_of_the_page() {
    let collector = Collector::start();
    Worker::start("truth", "views-1", &collector.url(), &["2"]).finish();
    let shown = collector.json(&format!("/api/v1/profile?from=-1h&{VIEW}"));
    let shown_ns = number(&shown["totals"], "total_ns");
    let hidden_ns = number(&shown["hidden"], "total_ns");
    let whole = collector.json("/api/v1/profile?from=-1h");
    assert!(
        shown_ns > 0 && hidden_ns > 0,
        "{shown_ns} ns shown, {hidden_ns} ns hidden"
    );
    assert_eq!(shown_ns + hidden_ns, number(&whole["totals"], "total_ns"));

    let (json, _) = profile(&collector, &["--format", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["totals"], &json["hidden"]),
        (&shown["totals"], &shown["hidden"])
    );
    assert_eq!(
        sum(&profile(&collector, &["--format", "collapsed"]).0),
        shown_ns
    );
    let (svg, _) = profile(&collector, &["--format", "svg"]);
    assert!(svg.contains(&format!(r#"total_samples="{shown_ns}""#)));

    let (table, summary) = profile(&collector, &["--top", "2", "--sort", "total"]);
    assert_eq!(
        table
            .lines()
            .filter(|line| line.contains(" s ") || line.contains(" ms "))
            .count(),
        3,
        "{table}"
    );
    assert!(summary.contains("\nhidden: "), "{summary}");

    let everything = ["--runnable", "--waiting", "--outside", "--stacks", "full"];
    let (stacks, summary) = profile(
        &collector,
        &[&everything[..], &["--format", "collapsed"]].concat(),
    );
    assert_eq!(sum(&stacks), number(&whole["totals"], "total_ns"));
    assert!(!summary.contains("hidden: "), "{summary}");
}

#[test]
fn a_profile_of_one_task_says_what_it_covers() {
    let collector = Collector::start();
    Worker::start("truth", "views-2", &collector.url(), &["2"]).finish();
    let tasks = collector.json("/api/v1/tasks?from=-1h&limit=1");
    let task = &tasks["tasks"][0];
    let key = task["key"].as_str().unwrap();
    let (stacks, summary) = profile(&collector, &["--key", key, "--format", "collapsed"]);
    let thread = task["thread_name"].as_str().unwrap();
    assert!(
        summary.contains(&format!(
            "on thread {thread} of views-2; the profile covers the "
        )),
        "{summary}"
    );
    let name = task["name"].as_str().unwrap();
    assert!(
        stacks
            .lines()
            .all(|line| line.starts_with(&format!("{name};"))),
        "{stacks}"
    );
    let url = collector.url();
    let unknown = run(&["profile", "--key", "no such key", "--url", &url]);
    assert_eq!(unknown.status.code(), Some(2));
    let error = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        error.contains("no task with the key \"no such key\""),
        "{error}"
    );
}
