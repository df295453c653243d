//! Stacks of any depth are stored: those with more functions than a collector accepts lose their outer ones,
//! and cost nothing else.

use serde_json::Value;

use crate::harness::{Collector, Worker, number};

/// Deepest tree that a collector accepts.
const DEPTH_MAX: usize = 1_000;

/// Levels of recursion, each with three inlined functions: up to the limit on depth, above it, and above the
/// limit on addresses.
const DEPTHS: [usize; 6] = [100, 230, 251, 300, 600, 5_000];

#[test]
fn stacks_of_any_depth_are_stored_with_all_that_comes_before_and_after_them() {
    let collector = Collector::start();
    let workers: Vec<Worker> = DEPTHS
        .iter()
        .map(|depth: &usize| {
            Worker::start(
                "deep",
                &format!("deep-{depth}"),
                &collector.url(),
                &[&depth.to_string()],
            )
        })
        .collect();
    for (worker, depth) in workers.into_iter().zip(DEPTHS) {
        let record = worker.finish();
        let report = &record["report"];
        let accepted_ns = number(report, "accepted_ns");
        assert!(accepted_ns > 3_000_000_000, "{depth} levels: {report}");
        // A sampler without a processor may not see all time.
        assert_eq!(
            number(report, "stored_ns") + number(report, "lost_unseen_ns"),
            accepted_ns,
            "{depth} levels: {report}"
        );
        let profile = collector.json(&format!("/api/v1/profile?stacks=full&worker=deep-{depth}"));
        check_profile(&profile["profile"], depth);
    }
    for epoch in collector.epochs() {
        let account = &epoch["account"];
        assert!(account["balanced"].as_bool().unwrap(), "{epoch}");
        assert_eq!(
            (&epoch["rejected"], &epoch["state"]),
            (&0.into(), &"gone".into()),
            "{epoch}"
        );
        assert_eq!(epoch["disconnect"]["reason"], "clean", "{epoch}");
    }
}

fn check_profile(profile: &Value, levels: usize) {
    let nodes = profile["nodes"].as_array().unwrap();
    let mut depths = vec![0];
    let mut tasks = Vec::new();
    let mut is_truncated = false;
    for node in nodes {
        let depth = depths[usize::try_from(number(node, "parent")).unwrap()] + 1;
        depths.push(depth);
        let name = node["name"].as_str().unwrap();
        let parts = ["cpu", "runnable", "wait"].map(|part| number(&node["total"], part));
        if depth == 1 && parts.iter().sum::<u64>() > 500_000_000 {
            tasks.push(name);
        }
        is_truncated |= depth == 2 && name == "[truncated]";
    }
    for task in ["shallow", "deep", "after"] {
        assert!(
            tasks.contains(&task),
            "{levels} levels: {task} is not among {tasks:?}"
        );
    }
    let deepest = *depths.iter().max().unwrap();
    assert!(deepest <= DEPTH_MAX, "{levels} levels: depth {deepest}");
    // Of the 512 inner addresses at least three quarters of what is allowed is kept.
    let expected = (levels * 4).min(DEPTH_MAX * 3 / 4);
    assert!(
        deepest >= expected,
        "{levels} levels: depth {deepest}, not {expected}"
    );
    assert_eq!(
        is_truncated,
        levels * 4 > DEPTH_MAX,
        "{levels} levels: depth {deepest}"
    );
}
