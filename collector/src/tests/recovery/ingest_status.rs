//! Ingestion stops and resumes with one event each; and a data directory that is not a directory.

use std::os::unix::fs::symlink;

use super::*;
use state::events::EventKind;
use state::ingest_status::Cause;

/// Its ingest events since the start, oldest first.
fn told(collector: &Collector) -> Vec<&'static str> {
    let events = collector.state.events.recent(usize::MAX);
    let kinds = events.iter().rev().map(|event| event.kind);
    kinds
        .filter(|kind: &_| matches!(kind, EventKind::IngestStopped | EventKind::IngestResumed))
        .map(EventKind::name)
        .collect()
}

fn reason(collector: &Collector) -> Option<(Cause, String)> {
    collector
        .ingest
        .blocked()
        .map(|found| (found.cause, found.reason))
}

#[test]
fn a_full_disk_is_reported_when_it_begins_and_when_it_ends() {
    let mut fleet = Fleet::new(1);
    assert_eq!(reason(&fleet.collector), None);
    for (free_bytes, expected) in [
        ((32 << 20) - 1, full("31 MiB")),
        (5, full("5 B")),
        (32 << 20, None),
    ] {
        lock(&fleet.disk.0).free_bytes = free_bytes;
        fleet.flush(&[0], "load;main");
        for _ in 0..2 {
            assert_eq!(reason(&fleet.collector), expected, "{free_bytes}");
        }
    }
    assert_eq!(told(&fleet.collector), ["ingest_stopped", "ingest_resumed"]);
    assert_eq!(held(&fleet.collector).len(), 3);
}

fn full(free: &str) -> Option<(Cause, String)> {
    let reason = format!("the disk is full: {free} free, 32 MiB needed");
    Some((Cause::DiskFull, reason))
}

/// A disk may say that it has room and take nothing: a quota.
#[test]
fn the_systems_error_of_a_full_disk_is_reported_until_a_file_can_be_created() {
    let mut fleet = Fleet::new(1);
    fleet.flush(&[0], "load;main");
    // Of the flush, and of the file that is begun in place of the one that failed.
    lock(&fleet.disk.0)
        .faults
        .extend([Fault::Full, Fault::Full]);
    lock(&fleet.disk.0).free_bytes = 4 << 30;
    fleet.flush(&[0], "load;main");
    let expected = "the disk is full (no storage space): 4096 MiB free, 32 MiB needed";
    for _ in 0..2 {
        assert_eq!(
            reason(&fleet.collector),
            Some((Cause::DiskFull, expected.to_owned()))
        );
        fleet.collector.log().commit_waiting();
    }
    fleet.send();
    assert_eq!(
        (reason(&fleet.collector), held(&fleet.collector).len()),
        (None, 2)
    );
}

#[test]
fn a_failing_log_is_reported_until_a_sync_succeeds() {
    let mut fleet = Fleet::new(1);
    fleet.flush(&[0], "load;main");
    lock(&fleet.disk.0).faults.push(Fault::Sync);
    fleet.flush(&[0], "load;main");
    let expected = "the log could not be written (the disk does not answer)";
    assert_eq!(
        reason(&fleet.collector),
        Some((Cause::LogFailed, expected.to_owned()))
    );
    // A record that nobody waits for is not synced, and proves nothing.
    let _ = at_once(fleet.collector.ingest.attach(
        &state::testing::account(),
        TestWorker::new("x", 1).hello(),
        at(50),
    ));
    fleet.collector.log().commit_waiting();
    assert_eq!(told(&fleet.collector), ["ingest_stopped"]);
    assert!(reason(&fleet.collector).is_some());
    fleet.send();
    assert_eq!(reason(&fleet.collector), None);
    assert_eq!(told(&fleet.collector), ["ingest_stopped", "ingest_resumed"]);
}

#[test]
fn a_path_that_is_not_a_folder_is_named_with_its_type() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::write(path("file"), "x").unwrap();
    symlink(path("nothing"), path("dangling")).unwrap();
    symlink(path("file"), path("to-file")).unwrap();
    symlink(path("loop"), path("loop")).unwrap();
    let device = "a special file";
    for (asked, expected) in [
        (path("file"), Some((path("file"), "a file"))),
        (path("file/below/it"), Some((path("file"), "a file"))),
        (path("to-file"), Some((path("to-file"), "a file"))),
        (
            path("dangling"),
            Some((path("dangling"), "a dangling link")),
        ),
        (
            path("dangling/x"),
            Some((path("dangling"), "a dangling link")),
        ),
        ("/dev/null".into(), Some(("/dev/null".into(), device))),
        (path("loop"), None),
    ] {
        let error = Collector::open_folder(Settings::default(), &asked)
            .unwrap_err()
            .to_string();
        let expected = match expected {
            Some((path, what)) => format!("{} is {what}, not a folder; ", path.display()),
            None => format!("cannot write to {}; ", asked.display()),
        };
        assert!(error.starts_with(&expected), "{error}");
    }
}
