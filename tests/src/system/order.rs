//! Nothing vanishes: whatever happens to the collector, each life of an agent ends with accepted =
//! stored + counted as lost.

use std::collections::BTreeMap;

use crate::harness::{Collector, RESTARTABLE, Worker, number, wait_for};

const WORKERS: usize = 8;
const RESTARTS: usize = 3;

/// Eight workers, and a collector that is killed and restarted on the same port three times. It
/// holds its data in memory, so acknowledged data is gone; the agents notice and count it.
#[test]
fn accounts_balance_over_restarts_of_the_collector() {
    let mut collector = Collector::start_at(RESTARTABLE);
    let address = collector.address.clone();
    let workers: Vec<Worker> = (0..WORKERS)
        .map(|index| Worker::start("steady", &format!("order-{index}"), &collector.url(), &[]))
        .collect();
    for _ in 0..RESTARTS {
        wait_for("data of every worker", || {
            let epochs = collector.epochs();
            (epochs.len() == WORKERS
                && epochs
                    .iter()
                    .all(|epoch: &serde_json::Value| number(&epoch["account"], "stored_ns") > 0))
            .then_some(())
        });
        collector.process.kill();
        collector = Collector::start_at(&address);
    }
    wait_for("every worker's return", || {
        (collector.epochs().len() == WORKERS).then_some(())
    });

    let records: Vec<_> = workers.into_iter().map(Worker::finish).collect();
    let epochs: BTreeMap<String, serde_json::Value> = collector
        .epochs()
        .into_iter()
        .map(|epoch| (epoch["epoch"].as_str().unwrap().to_owned(), epoch))
        .collect();
    assert_eq!(epochs.len(), WORKERS);
    for record in &records {
        let report = &record["report"];
        let epoch = &epochs[report["epoch"].as_str().unwrap()];
        let account = &epoch["account"];
        let lost: u64 = ["lost_rejected_ns", "lost_by_collector_ns", "lost_queue_ns"]
            .iter()
            .map(|cause| number(account, cause))
            .sum();
        let accepted = number(report, "accepted_ns");
        assert_eq!(
            accepted,
            number(account, "stored_ns") + lost,
            "{report} {account}"
        );
        assert_eq!(number(report, "unacked_ns"), 0);
        assert!(
            number(report, "lost_by_collector_ns") > 0,
            "each lost what was acked before"
        );
        assert!(number(report, "connects") > RESTARTS as u64);
        assert_eq!(epoch["running_tasks"], 0);
    }
}

/// A host whose collector is missing runs on; its agent keeps the samples and delivers them when
/// the collector arrives.
#[test]
fn a_late_collector_receives_everything() {
    let first = Collector::start_at(RESTARTABLE);
    let address = first.address.clone();
    drop(first);
    let url = format!("http://{address}");
    let worker = Worker::start("steady", "late-1", &url, &[]);
    // The worker samples before the collector starts: its first cycle is older.
    wait_for("the worker's first second", || {
        let ticks = std::fs::read_to_string(format!("/proc/{}/stat", worker.process.id())).unwrap();
        let cpu: u64 = ticks.rsplit(' ').nth(38).unwrap().parse().unwrap();
        (cpu > 3).then_some(())
    });
    let collector = Collector::start_at(&address);
    wait_for("its connection", || {
        (!collector.epochs().is_empty()).then_some(())
    });
    let (record, log) = worker.finish_with_log();
    assert_eq!(log.matches("collector unreachable").count(), 1, "{log}");
    assert_eq!(log.matches("collector connected again").count(), 1, "{log}");
    let epochs = collector.epochs();
    let report = &record["report"];
    assert_eq!(epochs[0]["account"]["stored_ns"], report["accepted_ns"]);
    for lost in [
        "lost_rejected_ns",
        "lost_by_collector_ns",
        "lost_queue_ns",
        "lost_tasks",
    ] {
        assert_eq!(number(report, lost), 0, "{lost}");
    }
    let summary = collector.json("/api/v1/tasks?summary=true");
    assert_eq!(summary["names"][0]["outcomes"]["ok"], record["tasks"]);
}

/// A program whose collector never arrives does its work, and its agent ends with everything
/// counted.
#[test]
fn without_a_collector_everything_counts_as_undelivered() {
    let nobody = Collector::start();
    let url = nobody.url();
    drop(nobody);
    let worker = Worker::start("truth", "alone-1", &url, &["2"]);
    let (record, log) = worker.finish_with_log();
    // One warning, however many attempts.
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("WARN") && log.contains(&url), "{log}");
    let report = &record["report"];
    assert!(number(report, "accepted_ns") > 0);
    assert_eq!(report["unacked_ns"], report["accepted_ns"]);
    assert_eq!(
        (number(report, "connects"), number(report, "stored_ns")),
        (0, 0)
    );
}
