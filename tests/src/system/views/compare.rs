//! Did it get slower: a worker whose tasks of one name take three times as long in its second half.

use serde_json::Value;

use crate::harness::{Collector, Worker, alone, number, run};

/// Times as Unix seconds with all digits.
fn seconds(ns: i64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

fn ratio(change: &Value) -> f64 {
    change["ratio"].as_f64().unwrap()
}

#[test]
fn what_got_slower_is_named_with_the_function_that_explains_it() {
    let _alone = alone();
    let collector = Collector::start();
    let record = Worker::start("slowing", "slowing-1", &collector.url(), &["8"]).finish();
    let times = record["times"].as_array().unwrap();
    let [begin, middle, end] = [0, 1, 2].map(|at| seconds(times[at].as_i64().unwrap()));

    let sides = format!("from={middle}&to={end}&before_from={begin}&before_to={middle}");
    let answer = collector.json(&format!("/api/v1/tasks/compare?{sides}"));
    let names = answer["names"].as_array().unwrap();
    let [slows, stays] = &names[..] else {
        panic!("two names: {answer}")
    };
    assert_eq!(
        (&slows["name"], &stays["name"]),
        (&"slows".into(), &"stays".into())
    );
    assert_eq!(slows["verdict"], "slower", "{slows}");
    assert_eq!(slows["p50"]["verdict"], "slower", "{slows}");
    // The machine is shared, so either half may have waited for a processor.
    assert!((1.6..4.5).contains(&ratio(&slows["p50"])), "{slows}");
    assert!((0.6..1.6).contains(&ratio(&stays["p50"])), "{stays}");
    for name in names {
        for side in ["before", "after"] {
            assert!(number(&name[side], "ended") > 40, "{name}");
            assert_eq!(number(&name[side], "failed"), 0);
        }
    }
    let summary = collector.json("/api/v1/tasks?summary=true");
    let ended = summary["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| number(&name["outcomes"], "ok"));
    let compared = names
        .iter()
        .map(|name| number(&name["before"], "ended") + number(&name["after"], "ended"));
    // Seconds belong to the range in which they start, so the very first may be in neither.
    assert!(compared.sum::<u64>() <= ended.sum());

    let trend = collector.json(&format!(
        "/api/v1/tasks/durations?task=slows&from={begin}&to={end}&step=1s"
    ));
    let medians: Vec<u64> = trend["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| number(point, "p50_ns"))
        .collect();
    assert!((14..=17).contains(&medians.len()), "{medians:?}");
    let [first, last] = [&medians[..6], &medians[medians.len() - 6..]]
        .map(|medians: &[u64]| medians.iter().sum::<u64>());
    assert!(last as f64 > 1.6 * first as f64, "{medians:?}");

    check_table(
        &collector.url(),
        &format!("{begin}..{middle}"),
        &format!("{middle}..{end}"),
    );
}

fn check_table(url: &str, before: &str, after: &str) {
    let command = [
        "compare", "--url", url, "--before", before, "--after", after,
    ];
    let output = run(&command);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let slows = text.lines().nth(1).unwrap();
    assert!(
        slows.starts_with("slows") && slows.ends_with("slower, exceeds noise"),
        "{text}"
    );
    // They sleep longer.
    let mut explained = text
        .lines()
        .skip_while(|line| !line.starts_with("slows: self time per task"));
    let first = explained.nth(2).unwrap();
    assert!(first.contains(" +") && first.contains(" sleep "), "{text}");

    let one = run(&[&command[..], &["--task", "stays"]].concat());
    let text = String::from_utf8(one.stdout).unwrap();
    let rows: Vec<&str> = text.lines().skip(1).take(5).collect();
    assert!(
        ["p50", "p90", "p99", "tasks", "failed"]
            .iter()
            .zip(&rows)
            .all(|(what, row)| row.contains(what)),
        "{text}"
    );
    assert!(text.contains("stays: self time per task"), "{text}");

    let json = run(&[&command[..], &["--format", "json"]].concat());
    let answer: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(answer["names"][0]["name"], "slows");

    let picture = run(&[&command[..], &["--format", "svg", "--task", "slows"]].concat());
    let text = String::from_utf8(picture.stdout).unwrap();
    assert!(text.contains(">Change of slows</text>"), "{text}");
    assert!(
        text.contains("<title>slows (100% → 100%, No change)</title>"),
        "{text}"
    );

    let invalid = run(&["compare", "--url", url, "--before", "-10m"]);
    assert_eq!(invalid.status.code(), Some(2));
    let unknown = run(&["compare", "--url", url, "--before-run", "nightly"]);
    let error = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        error.contains("the side before: no run is called \"nightly\""),
        "{error}"
    );
}
