//! Numbers are true: the profile of a program with a known split of its time shows that split.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::{Collector, Worker, alone, number};

/// Largest deviation of a share, in standard errors: by chance once in 16,000 shares.
const ERRORS_MAX: f64 = 4.0;

/// How often the machine may be busy.
const TRIES_MAX: usize = 10;

/// Seconds of each node of a profile including children, by the path of names that `keep` keeps.
fn seconds_by(profile: &Value, keep: impl Fn(&str) -> Option<String>) -> BTreeMap<String, f64> {
    let mut paths = vec![String::new()];
    let mut kept_above = vec![false];
    let mut sums = BTreeMap::new();
    for node in profile["profile"]["nodes"].as_array().unwrap() {
        let parent = usize::try_from(number(node, "parent")).unwrap();
        let mut path = paths[parent].clone();
        let kept = keep(node["name"].as_str().unwrap());
        if let Some(name) = &kept {
            path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}/{name}")
            };
            *sums.entry(path.clone()).or_default() += seconds(&node["total"]);
        }
        paths.push(path);
        kept_above.push(kept.is_some());
    }
    sums
}

/// The seconds of a weight in all its states.
fn seconds(weight: &Value) -> f64 {
    let parts = ["cpu", "runnable", "wait"];
    parts
        .iter()
        .map(|part| number(weight, part) as f64 * 1e-9)
        .sum()
}

/// A task's name, or one of the worker's three functions.
fn known(name: &str) -> Option<String> {
    let last = name.rsplit("::").next().unwrap();
    ["one", "two", "alpha", "beta", "gamma"]
        .contains(&last)
        .then(|| last.to_owned())
}

/// Three threads, two tasks, three functions: half, three tenths and two tenths of the time, in
/// slices of random length. Their own records are the truth.
#[test]
fn a_known_split_of_time_is_measured() {
    let _alone = alone();
    let collector = Collector::start();
    let worker = Worker::start("truth", "truth-1", &collector.url(), &["10"]);
    let record = worker.finish();
    let mut truth: BTreeMap<String, f64> = BTreeMap::new();
    for thread in record["threads"].as_array().unwrap() {
        for (path, seconds) in thread.as_object().unwrap() {
            let task = path.split('/').next().unwrap();
            for key in [path.as_str(), task] {
                *truth.entry(key.to_owned()).or_default() += seconds.as_f64().unwrap();
            }
        }
    }
    let profile = collector.json("/api/v1/profile");
    let measured = seconds_by(&profile, known);
    let total = truth["one"] + truth["two"];
    let measured_total = measured["one"] + measured["two"];

    // The weights sum to the threads' measured time.
    let difference = (measured_total - total).abs() / total;
    assert!(difference < 0.01, "{measured_total} s of {total} s");

    // Each task, and each function of each task, is as near to the truth as that many samples allow.
    let samples = number(&record, "samples") as f64;
    for (path, seconds) in &truth {
        let share = seconds / total;
        let error = (share * (1.0 - share) / samples).sqrt();
        let found = measured.get(path).copied().unwrap_or(0.0) / measured_total;
        let allowed = ERRORS_MAX * error;
        println!("{path}: true {share:.4}, measured {found:.4} ± {allowed:.4}, {samples} samples");
        assert!(
            (found - share).abs() < allowed,
            "{path}: {found} instead of {share}"
        );
    }
    assert_eq!(measured.len(), truth.len(), "{measured:?}");
    check_innermost_frame(&profile, measured_total);
    check_account(&collector, &record);
}

/// The functions work in their own bodies: if the innermost frame were not counted, as in Dask's
/// profiler, they would have no time of their own.
fn check_innermost_frame(profile: &Value, total: f64) {
    let nodes = profile["profile"]["nodes"].as_array().unwrap();
    let functions = ["alpha", "beta", "gamma"];
    let own: f64 = nodes
        .iter()
        .filter(|node| {
            known(node["name"].as_str().unwrap()).is_some_and(|name| functions.contains(&&*name))
        })
        .map(|node| seconds(&node["self"]))
        .sum();
    assert!(
        own > 0.8 * total,
        "only {own} s of {total} s in the functions themselves"
    );
}

/// Weight accepted by the agent equals weight stored by the collector, to the nanosecond.
fn check_account(collector: &Collector, record: &Value) {
    let epochs = collector.epochs();
    let [epoch] = &epochs[..] else {
        panic!("one life only: {epochs:?}")
    };
    let report = &record["report"];
    assert_eq!(epoch["epoch"], report["epoch"]);
    assert_eq!(epoch["account"]["stored_ns"], report["accepted_ns"]);
    assert_eq!(number(report, "lost_tasks"), 0);
    assert!(epoch["account"]["balanced"].as_bool().unwrap());
}

/// On an idle machine the sampler misses at most 1 % of its ticks, and reports how many it makes. Those that it skips
/// to stay within its CPU limit are not missed: where waking up is expensive, there are many. The machine is shared, so
/// three good seconds are enough.
#[test]
fn ticks_are_counted_and_the_rate_is_reported() {
    let _alone = alone();
    let mut shares = Vec::new();
    for _ in 0..TRIES_MAX {
        let collector = Collector::start();
        let worker = Worker::start("steady", "ticks-1", &collector.url(), &[]);
        crate::harness::wait_for("three seconds of samples", || {
            let profile = collector.json("/api/v1/profile");
            (number(&profile, "ticks_expected") >= 300).then_some(())
        });
        worker.finish();
        let profile = collector.json("/api/v1/profile");
        let ticks = number(&profile, "ticks");
        let expected = number(&profile, "ticks_expected");
        let share = profile["achieved_share"].as_f64().unwrap();
        assert!((share - ticks as f64 / expected as f64).abs() < 1e-9);
        let saved = number(&profile, "ticks_throttled");
        let missed = number(&profile, "ticks_missed");
        assert_eq!(missed, expected.saturating_sub(ticks + saved));
        if missed * 100 <= expected {
            return;
        }
        shares.push(missed as f64 / expected as f64);
    }
    panic!("shares of ticks missed: {shares:?}");
}
