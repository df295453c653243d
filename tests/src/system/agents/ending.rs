//! Agents that end on a busy machine: a healthy collector gets everything that they have measured.

use std::process::{Command, Stdio};

use crate::harness::{Collector, Running, Worker, alone, number, wait_for};

/// Processes that compute all the time.
const LOOPS: usize = 20;
const WORKERS: usize = 6;
/// Time that each worker must have measured before it ends.
const STORED_MIN_NS: u64 = 10_000_000_000;

fn busy_loop() -> Running {
    let mut command = Command::new("sh");
    command
        .args(["-c", "while :; do :; done"])
        .stdin(Stdio::null());
    Running::new(command.spawn().unwrap())
}

/// Each ends within the default flush timeout, all at the same time.
#[test]
fn agents_that_end_under_load_lose_nothing() {
    let _alone = alone();
    let collector = Collector::start();
    let loops: Vec<Running> = (0..LOOPS).map(|_| busy_loop()).collect();
    let mut workers: Vec<Worker> = (0..WORKERS)
        .map(|number| Worker::start("ending", &format!("ending-{number}"), &collector.url(), &[]))
        .collect();
    wait_for("samples of each", || {
        let epochs = collector.epochs();
        let has_stored = epochs
            .iter()
            .all(|epoch| number(&epoch["account"], "stored_ns") > STORED_MIN_NS);
        (epochs.len() == WORKERS && has_stored).then_some(())
    });
    workers.iter_mut().for_each(Worker::end_input);
    let records: Vec<_> = workers.into_iter().map(Worker::finish).collect();
    drop(loops);
    for record in &records {
        println!("{record}");
    }
    for record in &records {
        let report = &record["report"];
        let [accepted_ns, stored_ns, unseen_ns] =
            ["accepted_ns", "stored_ns", "lost_unseen_ns"].map(|field| number(report, field));
        for lost in [
            "unacked_ns",
            "lost_rejected_ns",
            "lost_by_collector_ns",
            "lost_tasks",
        ] {
            assert_eq!(number(report, lost), 0, "{lost}: {record}");
        }
        // What the sampler reports as not seen is the only loss.
        assert_eq!(number(report, "lost_queue_ns"), unseen_ns, "{record}");
        assert_eq!(accepted_ns, stored_ns + unseen_ns, "{record}");
        let least_ns = number(record, "lived_least_ns") / 100 * 99;
        let most_ns = number(record, "lived_most_ns") / 100 * 101;
        assert!((least_ns..=most_ns).contains(&accepted_ns), "{record}");
    }
    for epoch in collector.epochs() {
        assert_eq!(epoch["account"]["balanced"], true, "{epoch}");
        assert_eq!(epoch["disconnect"]["reason"], "clean", "{epoch}");
    }
}
