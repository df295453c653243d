//! The store of a collector whose machine is gone is adopted, by other collectors or by hand. A reader finds each
//! acknowledged sample once, before, during and after.

use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;
use simulation::s3::Server;

use super::{emberline_with, place, said, server};
use crate::harness::{Collector, Running, Worker, emberline, number, wait_for};

/// A collector of a place, or a reader of it.
fn start(server: &Server, prefix: &str, arguments: &[&str]) -> Collector {
    let mut command = Command::new(emberline());
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--store",
        &place(prefix),
    ]);
    command.args(arguments).envs(server.environment());
    Collector::start_by(&mut command)
}

fn found_ns(server: &Collector) -> u64 {
    let profile = server.json("/api/v1/profile?from=-1h&threads=all");
    assert_eq!(profile["corrupt_files"], serde_json::json!([]), "{profile}");
    number(&profile["totals"], "total_ns")
}

/// The store of `c1` is adopted by hand, after its owner was watched.
fn adopt(server: &Server, prefix: &str, watch: &str, rest: &[&str]) -> Output {
    let place = place(prefix);
    let store = [
        "store",
        "adopt",
        "--store",
        &place,
        "--name",
        "c1",
        "--owner-watch",
        watch,
    ];
    emberline_with(&server.environment(), &[&store[..], rest].concat())
}

/// The collector `c1` is killed with data in its log. Returns the acknowledged nanoseconds.
fn lose_collector(server: &Server, prefix: &str) -> u64 {
    let c1 = [
        "--name",
        "c1",
        "--owner-watch",
        "300ms",
        "--seal-every",
        "1500ms",
    ];
    let mut lost = start(server, prefix, &c1);
    let worker = Worker::start("steady", "w1", &lost.url(), &[]);
    wait_for("some acknowledged flushes", || {
        lost.epochs()
            .iter()
            .any(|epoch| number(epoch, "acked_seq") > 3)
            .then_some(())
    });
    let record = worker.finish();
    let report = &record["report"];
    assert_eq!(number(report, "unacked_ns"), 0, "{report}");
    lost.process.kill();
    number(report, "stored_ns")
}

#[test]
#[ignore = "long"]
fn of_two_collectors_one_adopts_the_store_of_a_lost_one() {
    let Some(server) = server() else { return };
    let stored_ns = lose_collector(&server, "adopted");
    let reader = start(&server, "adopted", &["--read-only"]);
    assert_eq!(found_ns(&reader), stored_ns);
    let by = |name: &str| {
        let adopting = ["--owner-watch", "300ms", "--adopt-after", "3s"];
        start(
            &server,
            "adopted",
            &[&["--name", name], &adopting[..]].concat(),
        )
    };
    let mut adopters = [by("c2"), by("c3")];
    let verify = || {
        let place = place("adopted");
        let verify = ["store", "verify", "--store", &place, "--name", "c1"];
        let verified = emberline_with(&server.environment(), &verify);
        assert!(verified.status.success(), "{}", said(&verified));
    };
    wait_for("an adoption", || {
        assert_eq!(found_ns(&reader), stored_ns);
        adopters
            .iter()
            .any(|one| one.log().contains("a store was adopted"))
            .then_some(())
    });
    assert_eq!(found_ns(&reader), stored_ns);
    verify();
    let logs: Vec<String> = adopters.iter().map(Collector::log).collect();
    assert_eq!(
        logs.iter()
            .filter(|log: &&String| {
                let done = log
                    .lines()
                    .filter(|line| line.contains("a store was adopted"));
                done.into_iter()
                    .any(|line| !line.contains("sealed 0 records"))
            })
            .count(),
        1,
        "{logs:#?}"
    );
    let (_, metrics) = adopters[0].get("/metrics");
    assert!(
        metrics.contains("emberline_store_adoptions_total{outcome=\"done\"}"),
        "{metrics}"
    );
    for adopter in &mut adopters {
        adopter.process.signal(Signal::SIGTERM);
        assert!(adopter.process.wait().success());
    }
    // Its next life goes on with what it had.
    let again = start(
        &server,
        "adopted",
        &["--name", "c1", "--owner-watch", "300ms"],
    );
    assert_eq!(found_ns(&again), stored_ns);
    let worker = Worker::start("steady", "w2", &again.url(), &[]);
    wait_for("more samples", || {
        (found_ns(&again) > stored_ns).then_some(())
    });
    let record = worker.finish();
    let all_ns = stored_ns + number(&record["report"], "stored_ns");
    assert_eq!(found_ns(&again), all_ns);
    wait_for("the same answer of the reader", || {
        (found_ns(&reader) == all_ns).then_some(())
    });
}

/// Killed after it took the store, at whatever it does then.
#[test]
#[ignore = "long"]
fn an_adopter_that_is_killed_leaves_a_store_that_the_next_one_adopts() {
    let Some(server) = server() else { return };
    let stored_ns = lose_collector(&server, "killed");
    let reader = start(&server, "killed", &["--read-only"]);
    for life in 2..6 {
        let mut adopter = Command::new(emberline());
        adopter.args([
            "store",
            "adopt",
            "--store",
            &place("killed"),
            "--name",
            "c1",
        ]);
        adopter
            .args(["--owner-watch", "300ms"])
            .envs(server.environment());
        adopter
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut adopter = Running::new(adopter.spawn().unwrap());
        let claim = format!("killed/c1/owner/{life:020}.json");
        wait_for("the adopter's claim", || server.has(&claim).then_some(()));
        adopter.kill();
        assert_eq!(found_ns(&reader), stored_ns);
    }
    let done = adopt(&server, "killed", "300ms", &[]);
    assert!(done.status.success(), "{}", said(&done));
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        text.starts_with("sealed ") && !text.contains("lost"),
        "{text}"
    );
    wait_for("the same answer", || {
        (found_ns(&reader) == stored_ns).then_some(())
    });
    let next = start(
        &server,
        "killed",
        &["--name", "c1", "--owner-watch", "300ms"],
    );
    assert_eq!(found_ns(&next), stored_ns);
}

#[test]
#[ignore = "long"]
fn adoptions_that_cannot_be_are_refused_with_the_reason() {
    let Some(server) = server() else { return };
    check_refused(
        &adopt(&server, "none", "300ms", &[]),
        "no store in s3://profiles/none/c1",
    );
    let _lives = start(
        &server,
        "lives",
        &["--name", "c1", "--owner-watch", "300ms"],
    );
    check_refused(
        &adopt(&server, "lives", "15000ms", &[]),
        "belongs to a collector that runs as process",
    );
    let early = [
        "serve",
        "--store",
        "s3://profiles/x",
        "--name",
        "c2",
        "--adopt-after",
        "5s",
    ];
    let early = emberline_with(&server.environment(), &early);
    check_refused(&early, "--adopt-after must be from 30s to");
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().to_str().unwrap();
    let on_disk = ["--name", "c1", "--owner-watch", "300ms", "--data", folder];
    let mut collector = start(&server, "disk", &on_disk);
    let worker = Worker::start("steady", "w1", &collector.url(), &[]);
    wait_for("an acknowledged flush", || {
        collector
            .epochs()
            .iter()
            .any(|epoch| number(epoch, "acked_seq") > 0)
            .then_some(())
    });
    let stored_ns = number(&worker.finish()["report"], "stored_ns");
    collector.process.kill();
    check_refused(
        &adopt(&server, "disk", "300ms", &[]),
        "acknowledged from its own disk",
    );
    assert!(
        !server.has(&format!("disk/c1/owner/{:020}.json", 2)),
        "it takes nothing"
    );
    let with_disk = adopt(&server, "disk", "300ms", &["--log", folder]);
    assert!(with_disk.status.success(), "{}", said(&with_disk));
    let reader = start(&server, "disk", &["--read-only"]);
    assert_eq!(found_ns(&reader), stored_ns);
}

fn check_refused(done: &Output, expected: &str) {
    let text = said(done);
    assert!(!done.status.success() && text.contains(expected), "{text}");
}
