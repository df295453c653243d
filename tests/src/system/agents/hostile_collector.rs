//! The agent of a program whose collector is hostile: the program works on, the agent's cost stays
//! bounded, and a healthy collector at the same address gets what was kept, exactly once.
//!
//! Reading order: [`attacks`] (the table), [`server`] (the collector that runs them), [`frames`] (its
//! bytes).

mod attacks;
mod frames;
mod server;

use std::collections::BTreeSet;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::Value;

use self::attacks::{CASES, Case, Retained};
use self::server::Server;
use crate::harness::{Collector, Worker, alone, number};

/// Workers at a time.
const PARALLEL: usize = 12;

/// Most that a worker's memory may ever have been above that of one without a collector, in bytes.
const MEMORY_MAX: u64 = 8 << 20;

/// Most connections of an agent in the five seconds of an attack: after 0.1, 0.2, 0.4, … seconds, each
/// shortened by up to half.
const CONNECTIONS_MAX: u64 = 8;

/// Most wake-ups of the shipper: one each 20 ms, and some for each connection.
const WAKEUPS_PER_SECOND_MAX: u64 = 100;
const WAKEUPS_PER_CONNECTION_MAX: u64 = 100;

/// Most bytes that the agent reads, with those that wait in the buffers of the system for each
/// connection.
const WRITTEN_BYTES_MAX: u64 = 16 << 20;

/// Most CPU time of the agent's threads, in percent of the time that an attack takes.
const CPU_PERCENT_MAX: u64 = 10;

/// Tasks of a worker.
const TASKS: usize = 500;

/// Most that the end of an agent may take beyond its limit, on a busy machine.
const FINISH_SLACK_MS: u64 = 2_000;

/// The most memory that a worker has had, in bytes.
fn memory_peak(worker: &Worker) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", worker.process.id())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Runs `check` for all cases, several at a time; panics with all failures.
fn check_all(check: impl Fn(&Case) -> Result<(), String> + Sync) {
    let only = std::env::var("ATTACK").ok();
    let cases: Vec<&Case> = CASES
        .iter()
        .filter(|case: &&Case| only.as_ref().is_none_or(|only| case.name.contains(&**only)))
        .collect();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = check(case) {
                        failures
                            .lock()
                            .unwrap()
                            .push(format!("{}: {why}", case.name));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} attacks:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Fails if not.
fn ensure(is_so: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what()) }
}

/// The peak memory of a worker after its first tasks, without a collector.
fn memory_alone() -> u64 {
    // Nothing listens there.
    let mut worker = Worker::start("attacked", "alone", "http://127.0.0.1:1", &["1"]);
    worker.line();
    let memory = memory_peak(&worker);
    worker.finish();
    memory
}

#[test]
#[ignore = "long"]
fn a_hostile_collector_costs_little_and_loses_nothing() {
    let _alone = alone();
    let memory_alone = memory_alone();
    check_all(|case| {
        let server = Server::start(case.attack);
        let url = format!("http://{}", server.address);
        let mut worker = Worker::start("attacked", case.name, &url, &["60"]);
        let cost: Value = serde_json::from_str(&worker.line()).unwrap();
        check_cost(
            case,
            &server,
            &cost,
            memory_peak(&worker).saturating_sub(memory_alone),
        )?;
        let address = server.address.clone();
        drop(server);
        let collector = Collector::start_at(&address);
        let (record, log) = worker.finish_with_log();
        check_log(&log)?;
        check_kept(case, &record, &collector)
    });
}

fn check_cost(case: &Case, server: &Server, cost: &Value, memory: u64) -> Result<(), String> {
    let connections = count(&server.counts.connections);
    let written = count(&server.counts.written_bytes);
    let replies = count(&server.counts.replies);
    let seconds = number(cost, "attacked_ms") / 1_000 + 1;
    let wakeups = number(cost, "wakeups");
    let cpu_ms = number(cost, "cpu_ms");
    println!(
        "{}: {connections} connections, {wakeups} wake-ups and {cpu_ms} ms of CPU in {seconds} s, \
         {written} bytes, {replies} replies, {memory} bytes of memory",
        case.name
    );
    ensure(connections >= 1, || "was not reached".into())?;
    ensure(connections <= CONNECTIONS_MAX, || {
        format!("{connections} connections")
    })?;
    ensure(cpu_ms <= seconds * 10 * CPU_PERCENT_MAX, || {
        format!("{cpu_ms} ms of CPU")
    })?;
    ensure(memory <= MEMORY_MAX, || format!("{memory} bytes of memory"))?;
    ensure(written <= WRITTEN_BYTES_MAX * connections, || {
        format!("{written} bytes")
    })?;
    let wakeups_max = WAKEUPS_PER_SECOND_MAX * seconds + WAKEUPS_PER_CONNECTION_MAX * connections;
    ensure(wakeups <= wakeups_max, || {
        format!("{wakeups} wake-ups in {seconds} s")
    })
}

fn count(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The log has few lines, none with text that controls a terminal, and no panic.
fn check_log(log: &str) -> Result<(), String> {
    ensure(log.lines().count() <= 8, || {
        format!("a log of many lines:\n{log}")
    })?;
    ensure(!log.contains('\x1b'), || {
        format!("escape sequences in the log:\n{log:?}")
    })?;
    ensure(!log.contains("bug in Emberline"), || {
        format!("a panic:\n{log}")
    })
}

/// Everything is accounted for, and what the healthy collector stores is there once.
fn check_kept(case: &Case, record: &Value, collector: &Collector) -> Result<(), String> {
    let report = &record["report"];
    let lost = number(report, "lost_rejected_ns")
        + number(report, "lost_by_collector_ns")
        + number(report, "lost_queue_ns");
    ensure(number(report, "unacked_ns") == 0, || {
        format!("unacknowledged at the end: {record}")
    })?;
    ensure(
        number(report, "accepted_ns") == number(report, "stored_ns") + lost,
        || format!("the account: {record}"),
    )?;
    let profile = collector.json("/api/v1/profile?from=-1h&threads=all");
    let stored = number(&profile["totals"], "total_ns");
    ensure(stored == number(report, "stored_ns"), || {
        format!("{stored} ns stored: {record}")
    })?;
    let answer = collector.json("/api/v1/tasks?from=-1h&limit=10000");
    let tasks = answer["tasks"].as_array().unwrap();
    let keys: BTreeSet<&str> = tasks
        .iter()
        .map(|task| task["key"].as_str().unwrap())
        .collect();
    ensure(keys.len() == tasks.len(), || {
        "a task is stored twice".into()
    })?;
    if case.kept == Retained::All {
        ensure(lost == 0 && number(report, "lost_tasks") == 0, || {
            format!("something is lost: {record}")
        })?;
        ensure(keys.len() == TASKS, || {
            format!("{} tasks: {record}", keys.len())
        })?;
    }
    ensure(keys.contains("499"), || "the last task is missing".into())
}

/// With TLS, the attack comes before anything of HTTP/2.
#[test]
fn a_peer_that_never_answers_a_handshake_costs_little() {
    let _alone = alone();
    let memory_alone = memory_alone();
    check_all(|case| {
        if case.name != "accepts and is silent" {
            return Ok(());
        }
        let server = Server::start(case.attack);
        let url = format!("https://{}#sha256={}", server.address, "0".repeat(64));
        let mut worker = Worker::start("attacked", case.name, &url, &["1"]);
        let cost: Value = serde_json::from_str(&worker.line()).unwrap();
        check_cost(
            case,
            &server,
            &cost,
            memory_peak(&worker).saturating_sub(memory_alone),
        )?;
        let (record, log) = worker.finish_with_log();
        check_log(&log)?;
        let report = &record["report"];
        ensure(
            number(report, "accepted_ns") == number(report, "unacked_ns"),
            || format!("the account: {record}"),
        )
    });
}

/// The hostile collector is still there when the agent ends.
#[test]
fn the_end_of_an_agent_keeps_its_limit_under_attack() {
    let _alone = alone();
    check_all(|case| {
        let server = Server::start(case.attack);
        let url = format!("http://{}", server.address);
        let mut worker = Worker::start("attacked", case.name, &url, &["1"]);
        worker.line();
        let record = worker.finish();
        let report = &record["report"];
        let kept_ns = number(report, "stored_ns")
            + number(report, "unacked_ns")
            + number(report, "lost_rejected_ns");
        let sum =
            kept_ns + number(report, "lost_by_collector_ns") + number(report, "lost_queue_ns");
        ensure(number(report, "accepted_ns") == sum, || {
            format!("the account: {record}")
        })?;
        let finish_ms = number(&record, "finish_ms");
        ensure(finish_ms <= 1_000 + FINISH_SLACK_MS, || {
            format!("the end took {finish_ms} ms")
        })
    });
}
