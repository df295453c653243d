//! Compares the collector's account of a fleet with the fleet's own log: phases of every task to a
//! millisecond and 200 millionths, bytes of transfers to the byte, the time of threads to a percent.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use examples::fleet::{FleetEvent, LOG_VARIABLE, WorkerRecord};
use serde_json::Value;

use crate::harness::{Collector, alone, emberline, output, run};

/// Largest distance of a moment from the fleet's own record, both relative to the task's start, besides
/// [`SLEW_PPM`].
const SLACK_NS: i64 = 1_000_000;
/// By how much a correction of the agent's clock offset changes a length while it is spread, if it is of
/// 12 ms or less. The first estimate on a busy machine is off by some milliseconds.
const SLEW_PPM: i64 = 200;
/// Range in which a row is looked up; keys are unique. `clocks` checks the accuracy of clock
/// offsets.
const CLOCK_SLACK_NS: i64 = 1_000_000_000;
const WORKERS: usize = 4;

/// One worker's log.
struct Log {
    worker: String,
    events: Vec<FleetEvent>,
    record: WorkerRecord,
}

/// The demo runs for some seconds and ends; a collector over its data answers every query.
#[test]
fn the_account_equals_the_fleets_log() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let [data, out, logs] = ["data", "out", "logs"].map(|name| folder.path().join(name));
    fs::create_dir(&logs).unwrap();
    let demo = output(
        Command::new(emberline())
            .args([
                "demo",
                "--seconds",
                "12",
                "--listen",
                "127.0.0.1:0",
                "--out",
            ])
            .args([&out, Path::new("--data"), &data])
            .env(LOG_VARIABLE, &logs)
            .stdin(Stdio::null()),
    );
    assert!(
        demo.status.success(),
        "{}",
        String::from_utf8_lossy(&demo.stderr)
    );
    let logs: Vec<Log> = (0..WORKERS).map(|index| read_log(&logs, index)).collect();
    let collector = Collector::start_with_data("127.0.0.1:0", &data);
    check_tasks(&collector, &logs);
    check_transfers(&collector, &logs);
    check_budget(&collector, &logs);
    check_commands(&collector);
}

fn read_log(folder: &Path, index: usize) -> Log {
    let worker = format!("worker-{index}");
    let read = |ending| fs::read_to_string(folder.join(format!("{worker}.{ending}"))).unwrap();
    let events = read("jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let record = serde_json::from_str(&read("json")).unwrap();
    Log {
        worker,
        events,
        record,
    }
}

/// A time interval whose ends have bounds.
#[derive(Clone, Debug)]
struct ObservedInterval {
    name: String,
    start_ns: Bounds,
    stop_ns: Bounds,
}

/// The clock's readings before and after a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Bounds {
    before: i64,
    after: i64,
}

impl ObservedInterval {
    fn of(name: &str, event: &FleetEvent) -> ObservedInterval {
        ObservedInterval {
            name: name.to_owned(),
            start_ns: Bounds::of(event.start_ns),
            stop_ns: Bounds::of(event.stop_ns),
        }
    }

    /// A moment's bounds relative to the start of this task.
    fn since_start(&self, moment: Bounds) -> Bounds {
        Bounds {
            before: moment.before - self.start_ns.after,
            after: moment.after - self.start_ns.before,
        }
    }
}

impl Bounds {
    fn of(readings: (u64, u64)) -> Bounds {
        Bounds {
            before: readings.0.cast_signed(),
            after: readings.1.cast_signed(),
        }
    }

    /// Whether a length in the ledger is within the bounds: a moment since the start of a task, or a sum.
    fn contain(self, length_ns: i64) -> bool {
        let slewed_ns = length_ns.abs() * SLEW_PPM / 1_000_000;
        let slack_ns = SLACK_NS + slewed_ns;
        (self.before - slack_ns..=self.after + slack_ns).contains(&length_ns)
    }
}

fn start_of(row: &Value) -> i64 {
    row["start_ns"].as_i64().unwrap()
}

/// Every task in a worker's log is in the ledger, with its thread, times and phases.
fn check_tasks(collector: &Collector, logs: &[Log]) {
    let answer = collector.json("/api/v1/tasks?from=-1h&limit=100000");
    assert_eq!(answer["truncated"], false);
    let mut rows: HashMap<(&str, &str, &str), Vec<&Value>> = HashMap::new();
    for row in answer["tasks"].as_array().unwrap() {
        let [worker, name, key] =
            ["worker", "name", "key"].map(|field| row[field].as_str().unwrap());
        rows.entry((worker, name, key)).or_default().push(row);
    }
    let mut tasks = 0;
    let mut phases = BTreeMap::new();
    for log in logs {
        let mut by_thread: HashMap<i32, Vec<&FleetEvent>> = HashMap::new();
        for event in log.events.iter().filter(|event| event.phase.is_some()) {
            by_thread.entry(event.thread_id).or_default().push(event);
        }
        for event in &log.events {
            let (Some(name), Some(key)) = (&event.task, &event.key) else {
                continue;
            };
            let task = ObservedInterval::of(name, event);
            let found = rows.get(&(&*log.worker, name, key)).into_iter().flatten();
            let from = task.start_ns.before - CLOCK_SLACK_NS;
            let to = task.start_ns.after + CLOCK_SLACK_NS;
            let row = found
                .copied()
                .find(|row| (from..=to).contains(&start_of(row)))
                .unwrap_or_else(|| panic!("no row for {} {event:?}", log.worker));
            let stop_ns = row["stop_ns"].as_i64().unwrap() - start_of(row);
            assert!(
                task.since_start(task.stop_ns).contain(stop_ns),
                "{event:?} {row}"
            );
            assert_eq!(row["thread_id"], event.thread_id, "{row}");
            let inside = by_thread
                .get(&event.thread_id)
                .into_iter()
                .flatten()
                .filter(|phase| {
                    phase.start_ns.0 >= event.start_ns.0 && phase.stop_ns.1 <= event.stop_ns.1
                });
            let mut expected: Vec<ObservedInterval> = inside
                .map(|event| ObservedInterval::of(event.phase.as_deref().unwrap(), event))
                .collect();
            expected.extend(event.queued_ns.map(|queued_ns| queue(queued_ns, &task)));
            check_phases(row, &task, expected, &mut phases);
            tasks += 1;
        }
    }
    assert_eq!(
        tasks,
        answer["total"].as_u64().unwrap(),
        "as many rows as tasks"
    );
    assert!(tasks > 500, "a fleet does something: {tasks}");
    let names: Vec<&str> = phases.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["deserialize", "disk-read", "queue", "serialize", "transfer"],
        "{phases:?}"
    );
}

/// The wait before a task, as measured by its worker.
fn queue(queued_ns: u64, task: &ObservedInterval) -> ObservedInterval {
    let queued_ns = queued_ns.cast_signed();
    let start_ns = Bounds {
        before: task.start_ns.before - queued_ns,
        after: task.start_ns.after - queued_ns,
    };
    ObservedInterval {
        name: "queue".into(),
        start_ns,
        stop_ns: task.start_ns,
    }
}

/// The row's phases equal the expected ones: one by one if the row lists them, by sum if it had no
/// room.
fn check_phases(
    row: &Value,
    task: &ObservedInterval,
    mut expected: Vec<ObservedInterval>,
    seen: &mut BTreeMap<String, u64>,
) {
    expected.sort_by_key(|phase| phase.start_ns);
    let told = row["phases"].as_array().unwrap();
    assert_eq!(
        told.iter().map(count).sum::<u64>(),
        expected.len() as u64,
        "{row} {expected:#?}"
    );
    for phase in &expected {
        *seen.entry(phase.name.clone()).or_default() += 1;
    }
    if told.iter().all(|phase| count(phase) == 1) {
        for (told, expected) in told.iter().zip(&expected) {
            assert_eq!(told["name"], expected.name, "{row} {expected:?}");
            let start_ns = start_of(told) - start_of(row);
            let stop_ns = start_ns + told["duration_ns"].as_i64().unwrap();
            for (told_ns, expected_ns) in
                [(start_ns, expected.start_ns), (stop_ns, expected.stop_ns)]
            {
                let bounds = task.since_start(expected_ns);
                assert!(bounds.contain(told_ns), "{told} {expected:?} {row}");
            }
        }
        return;
    }
    let mut sums: BTreeMap<&str, (i64, i64, i64)> = BTreeMap::new();
    for phase in &expected {
        let sum = sums.entry(&phase.name).or_default();
        sum.0 += phase.stop_ns.before - phase.start_ns.after;
        sum.1 += phase.stop_ns.after - phase.start_ns.before;
    }
    for phase in told {
        let name = phase["name"].as_str().unwrap();
        sums.get_mut(name)
            .unwrap_or_else(|| panic!("{name} in {row}"))
            .2 += phase["duration_ns"].as_i64().unwrap();
    }
    for (name, (least, most, told)) in sums {
        assert!(
            Bounds {
                before: least,
                after: most
            }
            .contain(told),
            "{name} in {row}"
        );
    }
}

fn count(phase: &Value) -> u64 {
    phase["count"].as_u64().unwrap()
}

/// The workers' transfers sum to the bytes that went through their sockets.
fn check_transfers(collector: &Collector, logs: &[Log]) {
    let answer = collector.json("/api/v1/transfers?from=-1h&summary=true");
    let rows = collector.json("/api/v1/transfers?from=-1h&limit=100000");
    let workers = collector.json("/api/v1/workers");
    for worker in workers["workers"].as_array().unwrap() {
        let account = &worker["epochs"][0]["account"];
        assert_eq!(
            (&account["lost_telemetry"], &account["lost_tasks"]),
            (&0.into(), &0.into()),
            "{worker}"
        );
    }
    for log in logs {
        for (direction, bytes) in [
            ("outgoing", log.record.bytes_sent),
            ("incoming", log.record.bytes_received),
        ] {
            for (what, list) in [("links", &answer), ("transfers", &rows)] {
                let sum: u64 = list[what]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|row| row["worker"] == *log.worker && row["direction"] == direction)
                    .map(|row| row["bytes"].as_u64().unwrap())
                    .sum();
                assert_eq!(sum, bytes, "{direction} {what} of {}", log.worker);
            }
            assert!(bytes > 0, "{direction} of {}", log.worker);
        }
    }
}

/// Longest unobserved time at each end of a thread's life when its sampler waits for a CPU too.
const UNSEEN_NS: u64 = 250_000_000;

/// Threads have all of the time from their first task to their last, to a percent, and not more
/// than elapsed. Measured over the whole run: time that a running thread is owed at the end of a
/// cycle, up to a second on a busy machine, counts in the next one. A thread is not seen before its
/// first tick and after its last.
fn check_budget(collector: &Collector, logs: &[Log]) {
    for log in logs {
        let worker = &log.worker;
        let budget = collector.json(&format!("/api/v1/thread-time?from=-1h&worker={worker}"));
        let elapsed_ns = budget["elapsed_ns"].as_u64().unwrap();
        let mut blocked_ns: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for event in &log.events {
            let thread = u64::try_from(event.thread_id).unwrap();
            let (from, to) = blocked_ns.entry(thread).or_insert((u64::MAX, 0));
            *from = event.start_ns.1.min(*from);
            *to = event.stop_ns.0.max(*to);
        }
        let longest_ns = blocked_ns
            .values()
            .map(|(from, to)| to - from)
            .max()
            .unwrap_or(0);
        let mut count = 0;
        for thread in budget["threads"].as_array().unwrap() {
            let parts = thread["parts"].as_array().unwrap().iter();
            let sum_ns: u64 = parts.map(|part| part["time_ns"].as_u64().unwrap()).sum();
            assert_eq!(thread["total_ns"].as_u64(), Some(sum_ns), "{thread}");
            assert!(
                sum_ns * 100 <= elapsed_ns * 101,
                "{sum_ns} of {elapsed_ns} in {thread}"
            );
            let id = thread["thread_id"].as_u64();
            let Some((from, to)) = id.and_then(|id| blocked_ns.get(&id)) else {
                continue;
            };
            let least_ns = to - from;
            let is_whole = (sum_ns + UNSEEN_NS) * 100 >= least_ns * 99;
            assert!(is_whole, "{sum_ns} of {least_ns} in {thread}");
            count += u32::from(least_ns * 2 > longest_ns);
        }
        // Each worker of the demo has a thread that computes. On a busy machine those that transfer begin late.
        assert!(count > 0, "{worker} has no thread that works: {budget}");
    }
}

/// The command line shows the same as a table.
fn check_commands(collector: &Collector) {
    let url = collector.url();
    for (command, parts) in [
        (vec!["time"], vec!["TASK", "PHASE", "execute", "transfer"]),
        (vec!["time", "--by", "thread"], vec!["THREAD", "pipeline-0"]),
        // On a busy machine no matrix is sent in this time.
        (vec!["transfers"], vec!["outgoing", "worker-1"]),
        (
            vec!["transfers", "--rows", "--type", "answer"],
            vec!["BYTES", "answer"],
        ),
        (
            vec!["resources", "--measure", "process_memory"],
            vec!["process_memory", "worker-3"],
        ),
        (vec!["tasks", "--summary"], vec!["compress"]),
        (vec!["profile", "--phases", "--task", "exchange"], vec![""]),
        (vec!["profile", "--phase", "disk-read"], vec!["read"]),
        (vec!["profile", "--group", "worker"], vec![""]),
        (
            vec!["profile", "--label", "role=qr", "--task", "qr"],
            vec!["matrixmultiply"],
        ),
    ] {
        let range = ["--url", &url, "--from", "-1h"];
        let output = run(&[&command[..], &range].concat());
        let [stdout, stderr] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(output.status.success(), "{command:?}: {stderr}");
        for part in parts {
            assert!(stdout.contains(part), "{command:?}: no {part} in\n{stdout}");
        }
    }
    let runs = run(&["runs", "--url", &url]);
    let runs = String::from_utf8_lossy(&runs.stdout);
    assert!(
        runs.contains("qr-round-0") && runs.contains("worker-0"),
        "{runs}"
    );
    // A fast machine has more rounds.
    let rounds = runs
        .lines()
        .filter(|line| line.contains("qr-round-"))
        .count();
    assert!(
        run(&["run", "start", "second", "--url", &url])
            .status
            .success()
    );
    let newest = run(&["runs", "--url", &url, "--limit", "1"]);
    let stdout = String::from_utf8_lossy(&newest.stdout).into_owned();
    let text = stdout + &String::from_utf8_lossy(&newest.stderr);
    assert!(
        text.contains(&format!("the newest 1 of {} runs", rounds + 1))
            && text.contains("--limit shows more"),
        "{runs}{text}"
    );
    let of_run = run(&[
        "tasks",
        "--url",
        &url,
        "--run",
        "qr-round-0",
        "--task",
        "qr",
    ]);
    assert!(
        String::from_utf8_lossy(&of_run.stdout).contains("qr-0-"),
        "tasks of the run"
    );
    check_zones(&url);
}

/// Times are read and printed in local time, or in UTC on request; JSON is in UTC.
fn check_zones(url: &str) {
    let json = tasks_in_zone(url, &["--from", "-1h", "--format", "json"]);
    let answer: Value = serde_json::from_str(&json).unwrap();
    let start = answer["tasks"][0]["start"].as_str().unwrap();
    let in_utc = format!("{} {}", &start[..10], &start[11..23]);
    let utc = tasks_in_zone(url, &["--from", "-1h", "--utc"]);
    assert!(
        utc.contains("START (UTC)") && utc.contains(&in_utc),
        "{in_utc}: {utc}"
    );
    let local = tasks_in_zone(url, &["--from", "-1h"]);
    assert!(
        local.contains("START (local time)") && !local.contains(&in_utc),
        "{local}"
    );
    let printed = &local.lines().last().unwrap()[..in_utc.len()];
    assert_eq!(
        tasks_in_zone(url, &["--from", printed]),
        local,
        "a printed time is read back"
    );
}

fn tasks_in_zone(url: &str, options: &[&str]) -> String {
    let mut command = Command::new(emberline());
    command
        .args(["tasks", "--url", url, "--task", "qr", "--limit", "1"])
        .args(options);
    let output = output(command.env("TZ", "<+0530>-5:30"));
    String::from_utf8(output.stdout).unwrap()
}
