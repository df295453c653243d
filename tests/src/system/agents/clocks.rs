//! All times are the collector's, whatever the workers' clocks say.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::harness::{Collector, Worker, alone, number, wait_for};

const MS: i64 = 1_000_000;
const HOUR_MS: i64 = 3_600_000;

/// A worker whose clock is this many milliseconds ahead, gains this many microseconds per second,
/// and after four seconds jumps ahead by this many milliseconds.
struct Wrong {
    name: &'static str,
    offset_ms: i64,
    drift_ppm: i64,
    leap_ms: i64,
}

const WORKERS: [Wrong; 6] = [
    Wrong {
        name: "ahead",
        offset_ms: 10_000,
        drift_ppm: 0,
        leap_ms: 0,
    },
    Wrong {
        name: "behind",
        offset_ms: -10_000,
        drift_ppm: 0,
        leap_ms: 0,
    },
    Wrong {
        name: "far-ahead",
        offset_ms: 6 * HOUR_MS,
        drift_ppm: 0,
        leap_ms: 0,
    },
    Wrong {
        name: "far-behind",
        offset_ms: -6 * HOUR_MS,
        drift_ppm: 0,
        leap_ms: 0,
    },
    Wrong {
        name: "drifting",
        offset_ms: 0,
        drift_ppm: 200,
        leap_ms: 0,
    },
    Wrong {
        name: "leaping",
        offset_ms: -10_000,
        drift_ppm: -100,
        leap_ms: 3_000,
    },
];

/// When the clock jumped, in seconds; rows of that flush may be off by the jump.
const LEAP_S: i64 = 4;

/// Error of the collector's times against the worker's own record of real time, for each task. The
/// record has a time before and after the start, and before and after the end.
fn residuals(collector: &Collector, worker: &str, record: &Value) -> Vec<(i64, i64)> {
    let answer = collector.json(&format!("/api/v1/tasks?worker={worker}&limit=10000"));
    let rows = answer["tasks"].as_array().unwrap();
    let truth = record["times"].as_array().unwrap();
    assert_eq!(rows.len(), truth.len(), "{worker}: every task is there");
    let begin = truth[0][0].as_i64().unwrap();
    let mut residuals = Vec::new();
    for row in rows {
        let index: usize = row["key"].as_str().unwrap().parse().unwrap();
        let times: Vec<i64> = truth[index]
            .as_array()
            .unwrap()
            .iter()
            .map(|time| time.as_i64().unwrap())
            .collect();
        let [before, after, before_end, after_end] = times[..] else {
            panic!("{times:?}")
        };
        let start = distance(row["start_ns"].as_i64().unwrap(), before, after);
        let stop = distance(row["stop_ns"].as_i64().unwrap(), before_end, after_end);
        residuals.push((before - begin, start.max(stop)));
    }
    residuals
}

fn distance(time: i64, from: i64, to: i64) -> i64 {
    (time - time.clamp(from, to)).abs()
}

/// The worst error of one round, by worker. Every task and window must be present.
fn round(number_of_round: u32, workers: &[&Wrong]) -> Vec<i64> {
    let collector = Collector::start();
    let running: Vec<Worker> = workers
        .iter()
        .map(|wrong: &&Wrong| {
            let shift = [
                wrong.offset_ms,
                wrong.drift_ppm,
                LEAP_S * 1_000,
                wrong.leap_ms,
            ];
            let numbers = shift.map(|number| number.to_string());
            let arguments: Vec<&str> = numbers.iter().map(String::as_str).collect();
            Worker::start("clock", wrong.name, &collector.url(), &arguments)
        })
        .collect();
    let begin = Instant::now();
    wait_for("ten seconds of tasks", || {
        (begin.elapsed().as_secs() >= 10).then_some(())
    });
    let worst = |(wrong, worker): (&&Wrong, Worker)| {
        let record = worker.finish();
        let report = &record["report"];
        assert_eq!(
            number(report, "accepted_ns"),
            number(report, "stored_ns"),
            "{report}"
        );
        for lost in [
            "lost_rejected_ns",
            "lost_queue_ns",
            "lost_tasks",
            "unacked_ns",
        ] {
            assert_eq!(number(report, lost), 0, "{}: {lost}", wrong.name);
        }
        let residuals = residuals(&collector, wrong.name, &record);
        let counts = residuals
            .iter()
            .filter(|(at, _)| wrong.leap_ms == 0 || !is_near_leap(*at));
        let counted: Vec<i64> = counts.map(|(_, residual)| *residual).collect();
        let worst = counted.iter().copied().max().unwrap();
        let tasks = counted.len();
        let name = wrong.name;
        println!(
            "round {number_of_round}, {name}: {tasks} tasks, at most {} µs off",
            worst / 1_000
        );
        assert!(
            tasks > 100 && worst < 100 * MS,
            "{name}: {tasks} tasks, {worst} ns"
        );
        worst
    };
    workers.iter().zip(running).map(worst).collect()
}

fn is_near_leap(since_ns: i64) -> bool {
    (since_ns / MS - LEAP_S * 1_000).abs() < 2_500
}

/// Tasks of one thread do not overlap, although the worker's clock gains 2 ms a second and each
/// flush is sent with another offset.
#[test]
fn corrections_of_a_clock_keep_the_order_of_a_threads_tasks() {
    let collector = Collector::start();
    let shift = ["0", "2000", "0", "0"];
    let worker = Worker::start("sequence", "sequence", &collector.url(), &shift);
    // The newest tasks may start a millisecond in the collector's future, where its clock has not been
    // compared with the worker's yet.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let until = now.as_secs() + 3_600;
    let rows = || {
        let answer = collector.json(&format!("/api/v1/tasks?to={until}&from=-1h&limit=10000"));
        answer["tasks"].as_array().cloned().unwrap_or_default()
    };
    wait_for("tasks of several flushes", || {
        (rows().len() > 1_500).then_some(())
    });
    let record = worker.finish();
    let rows = rows();
    // On a busy machine the agent may have summarized some.
    let aggregated = number(&record["report"], "aggregated_tasks");
    assert_eq!(
        rows.len() as u64 + aggregated,
        number(&record, "tasks"),
        "{record}"
    );
    assert_eq!(number(&record["report"], "lost_tasks"), 0, "{record}");
    let mut tasks: Vec<(i64, i64)> = rows
        .iter()
        .map(|row| (time_of(row, "start_ns"), time_of(row, "stop_ns")))
        .collect();
    tasks.sort_unstable();
    let overlaps = tasks
        .windows(2)
        .filter(|pair| pair[1].0 < pair[0].1)
        .count();
    assert_eq!(overlaps, 0, "of {} tasks", tasks.len());
}

fn time_of(row: &Value, name: &str) -> i64 {
    row[name].as_i64().unwrap_or_else(|| panic!("{row}"))
}

/// Six workers with wrong clocks side by side: every task is where it really was, to 5 ms, so all
/// are in their true order; and every window arrives. On a busy machine messages wait longer in one
/// direction than in the other, so a worker has three rounds.
#[test]
fn tasks_of_workers_with_wrong_clocks_have_true_times() {
    let _alone = alone();
    let mut left: Vec<&Wrong> = WORKERS.iter().collect();
    for number_of_round in 1..=3 {
        let mut worst = round(number_of_round, &left).into_iter();
        left.retain(|_| worst.next().is_some_and(|worst| worst >= 5 * MS));
        if left.is_empty() {
            return;
        }
    }
    let names: Vec<_> = left.iter().map(|wrong| wrong.name).collect();
    panic!("never within 5 ms: {names:?}");
}
