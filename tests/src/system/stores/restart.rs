//! A collector with a data directory, killed and restarted: acknowledged data is there exactly
//! once, and its agents continue.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{Collector, RESTARTABLE, Worker, emberline, number, output, wait_for};

/// Sums of all threads' time until now.
fn total_ns(collector: &Collector) -> u64 {
    let profile = collector.json("/api/v1/profile?from=-1h&threads=all");
    number(&profile["totals"], "total_ns")
}

/// By epoch.
type Stored = BTreeMap<String, u64>;

fn stored(collector: &Collector) -> Stored {
    collector
        .epochs()
        .iter()
        .map(|epoch: &Value| {
            (
                epoch["epoch"].to_string(),
                number(&epoch["account"], "stored_ns"),
            )
        })
        .collect()
}

fn stored_ns(collector: &Collector) -> u64 {
    stored(collector).values().sum()
}

/// Waits until both workers have sent more; returns the sum.
fn wait_for_more(collector: &Collector, than: &Stored) -> u64 {
    let more = |(epoch, ns): (&String, &u64)| *ns > than.get(epoch).copied().unwrap_or(0);
    let now = wait_for("more samples of both", || {
        Some(stored(collector)).filter(|now: &Stored| now.len() == 2 && now.iter().all(more))
    });
    now.values().sum()
}

#[test]
fn a_killed_collector_keeps_its_history_and_its_agents_continue() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = Collector::start_with_data(RESTARTABLE, folder.path());
    let worker = Worker::start("steady", "steady-1", &collector.url(), &[]);
    let mut doomed = Worker::start("doomed", "doomed-1", &collector.url(), &[]);
    assert_eq!(doomed.line(), "ready");
    let mut before_ns = wait_for_more(&collector, &Stored::new());
    for _ in 0..3 {
        let address = collector.address.clone();
        // Everything between these two points is in the log too, acknowledged or not.
        let acked_ns = stored_ns(&collector).max(before_ns);
        collector.process.kill();
        collector = Collector::start_with_data(&address, folder.path());
        let kept = stored(&collector);
        let kept_ns = kept.values().sum::<u64>();
        let held_ns = total_ns(&collector);
        assert!(
            kept_ns >= acked_ns,
            "{acked_ns} ns were stored, {kept_ns} ns were kept"
        );
        assert!(
            held_ns >= acked_ns,
            "{acked_ns} ns were stored, {held_ns} ns are found"
        );
        before_ns = wait_for_more(&collector, &kept);
    }
    let running = collector.json("/api/v1/tasks?task=doomed&from=-1h");
    assert_eq!(
        running["tasks"][0]["outcome"], "running",
        "its worker came back: {running}"
    );
    doomed.process.kill();
    let record = worker.finish();

    let report = &record["report"];
    assert_eq!(number(report, "unacked_ns"), 0);
    assert_eq!(number(report, "lost_by_collector_ns"), 0, "{report}");
    assert_eq!(
        number(report, "accepted_ns"),
        number(report, "stored_ns"),
        "{report}"
    );
    assert!(number(report, "connects") >= 4);
    let epochs = collector.epochs();
    assert_eq!(epochs.len(), 2);
    for epoch in &epochs {
        assert!(epoch["account"]["balanced"].as_bool().unwrap(), "{epoch}");
    }
    let steady = epochs
        .iter()
        .find(|epoch| epoch["epoch"] == report["epoch"])
        .unwrap();
    assert_eq!(
        number(&steady["account"], "stored_ns"),
        number(report, "stored_ns")
    );
    // Data counted as stored is found exactly once.
    assert_eq!(total_ns(&collector), stored_ns(&collector));
    let summary = collector.json("/api/v1/tasks?task=steady&from=-1h&summary=true");
    let ended = number(&summary["names"][0]["outcomes"], "ok");
    assert_eq!(ended, number(&record, "tasks"), "{summary}");
}

#[test]
fn a_data_directory_belongs_to_one_collector() {
    let folder = tempfile::tempdir().unwrap();
    let _first = Collector::start_with_data("127.0.0.1:0", folder.path());
    let second = output(
        Command::new(emberline())
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.path()),
    );
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success(), "{said}");
    assert!(
        said.contains("is in use by another collector; stop it"),
        "{said}"
    );
}

#[test]
fn a_hangup_does_not_end_the_collector_and_a_stop_does() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = Collector::start_with_data("127.0.0.1:0", folder.path());
    collector.process.signal(Signal::SIGHUP);
    assert_eq!(collector.get("/livez").0, 200);
    collector.process.signal(Signal::SIGTERM);
    assert!(collector.process.wait().success(), "{}", collector.log());
}

/// The folder may be older than the collector, and others may enter it.
#[test]
fn all_files_of_the_store_are_private() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut collector = Collector::start_with_data("127.0.0.1:0", folder.path());
    let worker = Worker::start("steady", "w", &collector.url(), &[]);
    wait_for("acknowledged flushes", || {
        collector
            .epochs()
            .iter()
            .any(|epoch| number(epoch, "acked_seq") > 1)
            .then_some(())
    });
    worker.finish();
    // Seals what is in memory.
    collector.process.signal(Signal::SIGTERM);
    assert!(collector.process.wait().success(), "{}", collector.log());
    let mut folders = vec![folder.path().to_owned()];
    let mut tables = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let mode = entry.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
            tables += usize::from(path.extension().is_some_and(|name| name == "parquet"));
            folders.extend(Some(path).filter(|path| path.is_dir()));
        }
    }
    assert!(tables > 0, "nothing is sealed");
}
