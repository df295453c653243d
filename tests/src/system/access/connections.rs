//! Connections that only stay open, against a collector with few descriptors.

use std::net::TcpStream;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::harness::{Collector, Worker, number, wait_for};

/// More than a process with the usual limit of 1,024 descriptors can have.
const IDLE: usize = 1_200;

/// Readers, agents and the store go on while a stranger holds as many idle connections as there are
/// descriptors.
#[test]
fn idle_connections_of_a_stranger_stop_nobody() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let arguments = [
        "--listen",
        "127.0.0.1:0",
        "--data",
        data,
        "--seal-every",
        "500ms",
    ];
    let collector = Collector::start_with_descriptors(1_024, &arguments);
    let worker = Worker::start("steady", "before", &collector.url(), &[]);
    wait_for("the first samples", || {
        collector
            .epochs()
            .first()
            .filter(|epoch| number(epoch, "acked_seq") > 0)
            .cloned()
    });
    let idle: Vec<TcpStream> = (0..IDLE)
        .map(|_| TcpStream::connect(&collector.address).unwrap())
        .collect();
    let limit =
        std::fs::read_to_string(format!("/proc/{}/limits", collector.process.id())).unwrap();
    let files = limit
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    assert!(files.contains(" 1024 "), "{files}");

    let late = Worker::start("steady", "late", &collector.url(), &[]);
    // The newest manifest: each sealing writes another one.
    let sealed = || {
        let manifests = std::fs::read_dir(folder.path().join("manifest")).unwrap();
        manifests.map(|file| file.unwrap().file_name()).max()
    };
    let sealed_before = sealed();
    let acked_before = acked(&collector, 0);
    wait_for("the agent of before", || {
        (acked(&collector, 0) > acked_before + 2).then_some(())
    });
    wait_for("the agent that came late", || {
        (acked(&collector, 1) > 2).then_some(())
    });
    wait_for("a sealing", || (sealed() > sealed_before).then_some(()));
    let open = std::fs::read_dir(format!("/proc/{}/fd", collector.process.id()))
        .unwrap()
        .count();
    assert!(open < 600, "{open} descriptors");
    assert!(
        !collector.log().contains("Too many open files"),
        "{}",
        collector.log()
    );
    drop(idle);
    for worker in [worker, late] {
        let (record, log) = worker.finish_with_log();
        assert!(!log.contains("collector unreachable"), "{log}");
        assert_eq!(number(&record["report"], "unacked_ns"), 0, "{record}");
    }
}

fn acked(collector: &Collector, id: usize) -> u64 {
    let epochs = collector.epochs();
    epochs.get(id).map_or(0, |epoch| number(epoch, "acked_seq"))
}

#[test]
fn a_collector_without_protection_warns() {
    let warning = "other machines can reach this collector without TLS or without a token";
    let open = Collector::start_with(&["--listen", "0.0.0.0:0", "--insecure-listen"]);
    wait_for("the warning", || open.log().contains(warning).then_some(()));
    let own = Collector::start_with(&["--listen", "127.0.0.1:0", "--insecure-listen"]);
    assert_eq!(own.get("/livez").0, 200);
    assert!(!own.log().contains(warning), "{}", own.log());
}
