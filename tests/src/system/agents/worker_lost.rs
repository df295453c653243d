//! A killed worker: acknowledged data stays, its running tasks end as `lost`, and its end is reported
//! wherever a person looks.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{Collector, RESTARTABLE, Worker, alone, number, run, wait_for};

#[test]
fn a_killed_workers_samples_stay_and_its_tasks_end_as_lost() {
    let _alone = alone();
    let collector = Collector::start();
    let mut worker = Worker::start("doomed", "doomed-1", &collector.url(), &[]);
    assert_eq!(worker.line(), "ready");
    let stored = number(&collector.epochs()[0]["account"], "stored_ns");
    assert!(stored > 0);
    let running = collector.json("/api/v1/tasks");
    assert_eq!(running["tasks"][0]["outcome"], "running");
    worker.process.kill();

    let task = wait_for("the task's end", || {
        let task = collector.json("/api/v1/tasks")["tasks"][0].clone();
        (task["outcome"] != "running").then_some(task)
    });
    assert_eq!(
        (&task["outcome"], &task["name"]),
        (&"lost".into(), &"doomed".into())
    );
    assert_eq!(task["key"], "doomed-1");
    assert!(number(&task, "stop_ns") >= number(&task, "start_ns"));
    let epoch = &collector.epochs()[0];
    assert!(number(&epoch["account"], "stored_ns") >= stored);
    assert!(epoch["account"]["balanced"].as_bool().unwrap());
    let profile = collector.json("/api/v1/profile?task=doomed");
    assert!(
        number(&profile["totals"], "total_ns") > 0,
        "its acked samples stay"
    );
    let failed = run(&["tasks", "--failed", "--url", &collector.url()]);
    let table = String::from_utf8(failed.stdout).unwrap();
    let row = table
        .lines()
        .find(|line| line.contains("doomed"))
        .expect(&table);
    assert!(row.contains("lost"), "{table}");
}

/// The only life of a worker.
fn life(collector: &Collector, worker: &str) -> Value {
    let answer = collector.json(&format!("/api/v1/workers?worker={worker}"));
    answer["workers"][0]["epochs"][0].clone()
}

/// The newest version of the store in a data folder.
fn manifest_version(data: &Path) -> u64 {
    let files = fs::read_dir(data.join("manifest")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let versions = names.filter_map(|name| name.strip_suffix(".json")?.parse().ok());
    versions.max().unwrap_or(0)
}

#[test]
fn a_killed_worker_is_reported_everywhere_and_a_clean_exit_is_not() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let start = |address: &str| {
        Collector::start_with(&["--listen", address, "--data", data, "--seal-every", "100ms"])
    };
    let mut collector = start(RESTARTABLE);
    // Its flushes cause sealings after the ends of the others.
    let _steady = Worker::start("steady", "steady-1", &collector.url(), &[]);
    let mut doomed = Worker::start("doomed", "doomed-1", &collector.url(), &[]);
    assert_eq!(doomed.line(), "ready");
    let clean = Worker::start("steady", "clean-1", &collector.url(), &[]);
    wait_for("all workers", || {
        (collector.epochs().len() == 3).then_some(())
    });
    clean.finish();
    let pid = doomed.process.id();
    doomed.process.kill();

    let crash = gone(&collector, "doomed-1");
    assert_eq!(crash["reason"], "crashed", "{crash}");
    let next_step = crash["next_step"].as_str().unwrap();
    assert!(
        next_step.contains(&format!("process {pid} on ")),
        "{next_step}"
    );
    let exit = gone(&collector, "clean-1");
    assert_eq!(
        (&exit["reason"], &exit["next_step"]),
        (&"clean".into(), &Value::Null)
    );

    assert_eq!(event(&collector, "doomed-1")["disconnect"], crash);
    assert_eq!(
        number(&event(&collector, "doomed-1"), "pid"),
        u64::from(pid)
    );
    assert!(
        event(&collector, "doomed-1")["last_seen"]
            .as_str()
            .unwrap()
            .ends_with('Z')
    );
    assert_eq!(event(&collector, "clean-1")["disconnect"], exit);

    let workers = run(&["workers", "--url", &collector.url()]);
    let table = String::from_utf8_lossy(&workers.stdout);
    assert_eq!(
        ["doomed-1", "clean-1", "steady-1"].map(|worker: &str| {
            let row = table.lines().find(|row| row.starts_with(worker)).unwrap();
            row.split_whitespace().nth(1).unwrap().to_owned()
        }),
        ["crashed", "gone", "connected"]
    );
    let notes = String::from_utf8_lossy(&workers.stderr);
    assert!(
        notes.contains(&format!("doomed-1 crashed (process {pid} on ")),
        "{notes}"
    );
    assert!(!notes.contains("clean-1"), "{notes}");
    let doctor = run(&["doctor", "--url", &collector.url()]);
    let findings = String::from_utf8_lossy(&doctor.stdout);
    assert_eq!(doctor.status.code(), Some(1), "{findings}");
    assert!(
        findings.contains("bad   workers            doomed-1 crashed"),
        "{findings}"
    );

    // The next sealing stores how they ended, and the collector knows it after a restart. One that
    // is under way may have read the sessions before.
    let version = manifest_version(folder.path());
    wait_for("two sealings", || {
        (manifest_version(folder.path()) >= version + 2).then_some(())
    });
    let address = collector.address.clone();
    collector.process.signal(Signal::SIGTERM);
    assert!(collector.process.wait().success(), "{}", collector.log());
    collector = start(&address);
    assert_eq!(life(&collector, "doomed-1")["disconnect"], crash);
    assert_eq!(life(&collector, "clean-1")["disconnect"], exit);
    wait_for("the worker that lives", || {
        (life(&collector, "steady-1")["state"] == "connected").then_some(())
    });
}

fn event(collector: &Collector, worker: &str) -> Value {
    let path = format!("/api/v1/events/recent?kind=worker_gone&worker={worker}");
    collector.json(&path)["events"][0]["data"].clone()
}

fn gone(collector: &Collector, worker: &str) -> Value {
    wait_for("the end of a life", || {
        let life = life(collector, worker);
        (life["state"] == "gone").then(|| life["disconnect"].clone())
    })
}
