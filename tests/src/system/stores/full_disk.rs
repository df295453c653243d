//! A collector whose data is on a small disk that others fill: it rejects flushes early, answers
//! queries, and resumes by itself when there is space; nothing is lost.
//!
//! The disk is a tmpfs of 64 MiB in a mount namespace of its own, in which the test runs itself
//! again.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{
    Collector, RESTARTABLE, Running, Worker, alone, number, run, try_output, unwrapped, wait_for,
};

/// Where the small disk is mounted, for the process inside the namespace.
const PLACE: &str = "EMBERLINE_TEST_SMALL_DISK";

const NAME: &str =
    "full_disk::a_full_disk_stops_ingest_but_not_queries_and_ingest_resumes_by_itself";

const DISK_MIB: usize = 64;
/// Leaves less than the 32 MiB below which flushes are rejected.
const MUCH_MIB: usize = 44;

/// Runs `then` with `folder` on a small disk: by `unshare` as an ordinary user, then as root.
fn on_small_disk(unshare: &str, folder: &Path, then: &[&str]) -> Command {
    let mount = format!(r#"mount -t tmpfs -o size={DISK_MIB}m small "$0" && exec "$@""#);
    let mut command = Command::new("unshare");
    command
        .args([unshare, "sh", "-c", &mount])
        .arg(folder)
        .args(then);
    command
}

/// The small disk, in the process that has one. In any other process: runs this test again in a
/// namespace.
fn small_disk() -> Option<PathBuf> {
    if let Some(place) = std::env::var_os(PLACE) {
        return Some(place.into());
    }
    let folder = tempfile::tempdir().unwrap();
    let mut refused = Vec::new();
    for unshare in ["-rm", "-m"] {
        match try_output(&mut on_small_disk(unshare, folder.path(), &["true"])) {
            Ok(tried) if tried.status.success() => {
                let own = std::env::current_exe().unwrap();
                let again = [own.to_str().unwrap(), "--exact", NAME, "--nocapture"];
                let again = on_small_disk(unshare, folder.path(), &again)
                    .env(PLACE, folder.path())
                    .spawn()
                    .unwrap();
                let status = Running::new(again).wait();
                assert!(status.success(), "on a small disk: {status}");
                return None;
            }
            Ok(tried) => refused.push(String::from_utf8_lossy(&tried.stderr).into_owned()),
            Err(error) => refused.push(error.to_string()),
        }
    }
    // Not `eprintln!`, which a passing test would hide.
    let refused = refused.join("; ");
    let said = format!("\nNOT TESTED: {NAME}: this machine lets us mount no tmpfs: {refused}\n\n");
    io::stderr().write_all(said.as_bytes()).unwrap();
    None
}

fn stored_ns(collector: &Collector) -> u64 {
    collector
        .epochs()
        .iter()
        .map(|epoch: &Value| number(&epoch["account"], "stored_ns"))
        .sum()
}

fn total_ns(collector: &Collector) -> u64 {
    let profile = collector.json("/api/v1/profile?from=-1h&threads=all");
    number(&profile["totals"], "total_ns")
}

fn wait_for_more(collector: &Collector, than_ns: u64) -> u64 {
    wait_for("more samples", || {
        Some(stored_ns(collector)).filter(|ns| *ns > than_ns)
    })
}

/// Ingest events of the collector, oldest first.
fn told(collector: &Collector) -> Vec<String> {
    let kinds = "kind=ingest_stopped&kind=ingest_resumed";
    let recent = collector.json(&format!("/api/v1/events/recent?{kinds}"));
    let events = recent["events"].as_array().unwrap().iter().rev();
    events
        .map(|event| event["kind"].as_str().unwrap().to_owned())
        .collect()
}

/// Waits until the agent was rejected; all stored data is found, and the reason is reported.
/// Returns the stored weight.
fn check_full(collector: &Collector, folder: &Path) -> u64 {
    wait_for("the refusal", || {
        let epochs = collector.epochs();
        epochs
            .iter()
            .all(|epoch| epoch["connected"] == false)
            .then_some(())
    });
    let stored_ns = stored_ns(collector);
    assert_eq!(
        total_ns(collector),
        stored_ns,
        "queries are answered, and no flush is half stored"
    );
    let workers = collector.json("/api/v1/workers");
    let ingest = &workers["ingest"];
    assert_eq!(
        (&ingest["open"], &ingest["cause"]),
        (&false.into(), &"disk_full".into()),
        "{ingest}"
    );
    assert_eq!(number(ingest, "disk_bytes"), (DISK_MIB as u64) << 20);
    assert!(
        number(ingest, "free_bytes") < number(ingest, "needed_bytes"),
        "{ingest}"
    );
    for command in ["workers", "doctor"] {
        let told = run(&[command, "--url", &collector.url()]);
        let said = [told.stdout, told.stderr].concat();
        let said = unwrapped(&said);
        let why = format!(
            "free of {DISK_MIB} MiB, 32 MiB needed in {}",
            folder.display()
        );
        assert!(
            said.contains("ingestion is stopped") && said.contains(&why),
            "{said}"
        );
        assert!(!said.contains("start the agent"), "{said}");
    }
    stored_ns
}

/// Fills the disk to the last byte.
fn fill(filler: &Path) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(filler)
        .unwrap();
    let mut piece = vec![7; 1 << 20];
    while !piece.is_empty() {
        match file.write(&piece) {
            Ok(written) => assert!(written > 0),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
                piece.truncate(piece.len() / 2);
            }
        }
    }
}

#[test]
fn a_full_disk_stops_ingest_but_not_queries_and_ingest_resumes_by_itself() {
    let _alone = alone();
    let Some(disk) = small_disk() else { return };
    let data = disk.join("data");
    let filler = disk.join("filler");
    let data_text = data.to_str().unwrap();
    // Sealing also has no space.
    let start = |listen: &str| {
        Collector::start_with(&[
            "--listen",
            listen,
            "--data",
            data_text,
            "--seal-every",
            "200ms",
        ])
    };
    let mut collector = start(RESTARTABLE);
    let worker = Worker::start("steady", "steady-1", &collector.url(), &[]);
    wait_for_more(&collector, 500_000_000);

    // Little space is left: enough for data already accepted, so new data is rejected before
    // anything fails.
    fs::write(&filler, vec![7; MUCH_MIB << 20]).unwrap();
    let kept_ns = check_full(&collector, &data);
    fs::remove_file(&filler).unwrap();
    let taken_ns = wait_for_more(&collector, kept_ns);
    assert_eq!(collector.json("/api/v1/workers")["ingest"]["open"], true);
    assert_eq!(told(&collector), ["ingest_stopped", "ingest_resumed"]);

    // The space vanishes at once, whatever the collector is doing.
    fill(&filler);
    let kept_ns = check_full(&collector, &data);
    assert!(kept_ns >= taken_ns);
    // The agent retried again and again, which was reported once each time.
    let said = |text: &str| collector.log().matches(text).count();
    wait_for("the second report of it", || {
        (said("ingest is blocked: agents keep") == 2).then_some(())
    });
    assert_eq!(said("invalid Hello"), 0, "{}", collector.log());
    // It starts on a full disk too, with all of its data.
    let address = collector.address.clone();
    collector.process.kill();
    fill(&filler);
    collector = start(&address);
    assert_eq!(check_full(&collector, &data), kept_ns);
    fs::remove_file(&filler).unwrap();
    wait_for_more(&collector, kept_ns);

    let (record, log) = worker.finish_with_log();
    assert!(log.contains("MiB free, 32 MiB needed"), "{log}");
    let report = &record["report"];
    assert!(number(report, "accepted_ns") > kept_ns);
    assert_eq!(
        number(report, "accepted_ns"),
        number(report, "stored_ns"),
        "{report}"
    );
    for lost in [
        "unacked_ns",
        "lost_rejected_ns",
        "lost_by_collector_ns",
        "lost_queue_ns",
        "lost_tasks",
    ] {
        assert_eq!(number(report, lost), 0, "{lost} in {report}");
    }
    let epochs = collector.epochs();
    assert_eq!(epochs.len(), 1);
    assert!(
        epochs[0]["account"]["balanced"].as_bool().unwrap(),
        "{}",
        epochs[0]
    );
    assert_eq!(stored_ns(&collector), number(report, "stored_ns"));
    assert_eq!(total_ns(&collector), stored_ns(&collector));
    let summary = collector.json("/api/v1/tasks?task=steady&from=-1h&summary=true");
    assert_eq!(
        number(&summary["names"][0]["outcomes"], "ok"),
        number(&record, "tasks")
    );
    collector.process.kill();
    let verified = run(&["store", "verify", "--data", data_text]);
    assert!(verified.status.success(), "{verified:?}");
}
