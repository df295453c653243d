//! A collector that hangs ends by itself, says what hung, and loses nothing that it acknowledged. The hangs are real: a
//! file is replaced by a pipe, whose opening waits for a reader that never comes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::harness::{Collector, Worker, emberline, number, wait_for};

/// Longest time from SIGTERM to the end, as `docs/DEPLOY.md` promises.
const STOP_MAX: Duration = Duration::from_secs(15);

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A collector whose log hangs at the next flush, and a worker that sends it.
fn collector_that_hangs(data: &Path, watchdog: &str) -> (Collector, Worker) {
    let folder = data.to_str().unwrap();
    let options = [
        "--listen",
        "127.0.0.1:0",
        "--data",
        folder,
        "--watchdog",
        watchdog,
    ];
    let collector = Collector::start_with(&options);
    make_pipe(&data.join("wal/acknowledged"));
    let worker = Worker::start("steady", "steady-1", &collector.url(), &[]);
    wait_for("the log's thread to hang", || {
        is_opening(&collector).then_some(())
    });
    (collector, worker)
}

/// Whether the thread of the log is in the system call that opens a file.
fn is_opening(collector: &Collector) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", collector.process.id())).unwrap();
    let opening = format!("{} ", libc::SYS_openat);
    threads.flatten().map(|thread| thread.path()).any(|thread| {
        let read = |name| fs::read_to_string(thread.join(name)).unwrap_or_default();
        read("comm").trim() == "emberline-log" && read("syscall").starts_with(&opening)
    })
}

/// The log of a collector that has ended, with this line in it.
fn log_with(collector: &Collector, line: &str) -> String {
    wait_for(line, || {
        Some(collector.log()).filter(|log| log.contains(line))
    })
}

#[test]
fn a_disk_that_hangs_ends_the_collector_with_its_stacks_and_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let before = Collector::start_with_data("127.0.0.1:0", folder.path());
    let worker = Worker::start("steady", "before", &before.url(), &[]);
    wait_for("a flush", || (stored_ns(&before) > 0).then_some(()));
    drop(worker);
    let acknowledged_ns = stored_ns(&before);
    drop(before);
    fs::remove_file(folder.path().join("wal/acknowledged")).unwrap();

    let (mut collector, _worker) = collector_that_hangs(folder.path(), "5");
    assert_eq!(collector.get("/livez").0, 200, "only the log hangs");
    assert_eq!(
        collector.process.wait().code(),
        Some(70),
        "{}",
        collector.log()
    );
    let log = log_with(&collector, "stack: ");
    assert!(log.contains("a hang: the thread emberline-log"), "{log}");
    assert!(log.contains("thread emberline-log ("), "{log}");
    assert!(log.contains("write_mark"), "{log}");

    fs::remove_file(folder.path().join("wal/acknowledged")).unwrap();
    let collector = Collector::start_with_data("127.0.0.1:0", folder.path());
    assert!(
        stored_ns(&collector) >= acknowledged_ns,
        "{acknowledged_ns} ns were acknowledged"
    );
}

fn stored_ns(collector: &Collector) -> u64 {
    collector
        .epochs()
        .iter()
        .map(|epoch| number(&epoch["account"], "stored_ns"))
        .sum()
}

#[test]
fn a_stop_during_a_hang_ends_and_says_what_hung() {
    let folder = tempfile::tempdir().unwrap();
    let (mut collector, _worker) = collector_that_hangs(folder.path(), "0");
    let begin = Instant::now();
    collector.process.signal(Signal::SIGTERM);
    assert_eq!(
        collector.process.wait().code(),
        Some(71),
        "{}",
        collector.log()
    );
    assert!(begin.elapsed() < STOP_MAX, "{:?}", begin.elapsed());
    let log = log_with(&collector, "is cut off; what hangs:");
    assert!(log.contains("the thread emberline-log"), "{log}");

    fs::remove_file(folder.path().join("wal/acknowledged")).unwrap();
    let (mut collector, _worker) = collector_that_hangs(folder.path(), "0");
    collector.process.signal(Signal::SIGINT);
    log_with(&collector, "stopping; a second Ctrl-C stops at once");
    collector.process.signal(Signal::SIGINT);
    assert_eq!(
        collector.process.wait().code(),
        Some(130),
        "{}",
        collector.log()
    );
}

#[test]
fn a_runtime_that_hangs_ends_the_collector() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.json");
    let file = tokens.to_str().unwrap();
    let created = Command::new(emberline())
        .args(["token", "new", "--role", "agent", "--tokens", file])
        .output()
        .unwrap();
    assert!(created.status.success(), "{created:?}");
    let options = [
        "--listen",
        "127.0.0.1:0",
        "--tokens",
        file,
        "--watchdog",
        "5",
    ];
    let mut collector = Collector::start_with(&options);
    std::fs::remove_file(&tokens).unwrap();
    make_pipe(&tokens);
    assert_eq!(
        collector.process.wait().code(),
        Some(70),
        "{}",
        collector.log()
    );
    log_with(&collector, "a hang: the runtime");
}
