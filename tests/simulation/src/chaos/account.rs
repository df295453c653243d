//! Compares the workers' own accounts with what is stored and found.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::site::Shared;
use super::worker::{Record, number};
use crate::Api;
use crate::process::Serve;
use crate::s3;

/// A worker and what it knows.
#[derive(Clone)]
pub(super) struct Account {
    pub(super) worker: String,
    pub(super) record: Record,
}

/// A falsification of a worker's record, as if the collectors had done the opposite.
#[derive(Clone, Copy, Debug)]
enum Tamper {
    /// As if a nanosecond had been lost.
    Lost,
    /// As if a nanosecond had been counted twice.
    Twice,
    /// As if a task had been lost.
    Task,
}

impl Tamper {
    fn falsify(self, record: &mut Record) {
        match self {
            Tamper::Lost => {
                record.accepted_ns += 1;
                record.stored_ns += 1;
            }
            Tamper::Twice => {
                record.accepted_ns -= 1;
                record.stored_ns -= 1;
            }
            Tamper::Task => record.tasks += 1,
        }
    }
}

/// Sums of a group, or of all.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sums {
    pub(super) workers: u64,
    /// Moves of workers to another collector.
    pub(super) moves: u64,
    /// Flushes that were acknowledged.
    pub(super) cycles: u64,
    pub(super) tasks: u64,
    pub(super) accepted_ns: u64,
    pub(super) stored_ns: u64,
    pub(super) found_ns: u64,
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Sums) {
        self.workers += other.workers;
        self.moves += other.moves;
        self.cycles += other.cycles;
        self.tasks += other.tasks;
        self.accepted_ns += other.accepted_ns;
        self.stored_ns += other.stored_ns;
        self.found_ns += other.found_ns;
    }
}

/// Longest wait for a reader to have everything.
const READER_MAX: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(200);

/// Most rows that a collector returns.
const ROWS_MAX: u64 = 100_000;
/// Older than every group.
const FROM: &str = "-6h";
/// After all samples. A collector estimates the difference to a worker's clock, and with a network that was held
/// the estimate may be off by seconds: the newest samples are in its future then.
const TO_AFTER_NOW: Duration = Duration::from_secs(600);

/// Compares accounts with the answers of all collectors.
///
/// # Errors
/// At the first difference, or if a difference of a nanosecond or a task is not detected.
pub(super) fn compare(accounts: &[Account], apis: &[Api]) -> Result<Sums> {
    let mut sums = Sums::default();
    for Account { worker, record } in accounts {
        let of_worker = compare_worker(worker, record, apis)
            .with_context(|| format!("{worker}: {record:?}"))?;
        sums += of_worker;
    }
    for tamper in [Tamper::Lost, Tamper::Twice, Tamper::Task] {
        let Account { worker, mut record } = accounts[0].clone();
        tamper.falsify(&mut record);
        ensure!(
            compare_worker(&worker, &record, apis).is_err(),
            "{tamper:?} is not detected"
        );
    }
    Ok(sums)
}

fn compare_worker(worker: &str, record: &Record, apis: &[Api]) -> Result<Sums> {
    ensure!(record.lost == 0, "its agent counts something as lost");
    ensure!(
        record.unacked_ns == 0,
        "flushes have no answer though all collectors are there"
    );
    ensure!(
        record.accepted_ns == record.stored_ns,
        "its own account is not balanced"
    );
    let mut sums = Sums {
        workers: 1,
        tasks: record.tasks,
        ..Sums::default()
    };
    sums.accepted_ns = record.accepted_ns;
    let mut stays = 0;
    let mut with_worker = Vec::new();
    for api in apis {
        let epochs = epochs(api, worker)?;
        if epochs.is_empty() {
            continue;
        }
        for epoch in epochs {
            let account = &epoch["account"];
            ensure!(
                account["balanced"] == true,
                "an account is not balanced: {epoch}"
            );
            sums.stored_ns += number(account, "stored_ns")?;
            sums.cycles += number(&epoch, "acked_seq")?;
            stays += 1;
        }
        sums.found_ns += found_ns(api, worker)?;
        with_worker.push(api);
    }
    ensure!(stays > 0, "no collector knows it");
    sums.moves = stays - 1;
    check_weight("the collectors' accounts have", record, sums.stored_ns)?;
    check_weight("queries find", record, sums.found_ns)?;
    check_tasks(worker, record, &with_worker)?;
    Ok(sums)
}

/// The lives of a worker at a collector, one for each stay.
fn epochs(api: &Api, worker: &str) -> Result<Vec<Value>> {
    let answer = api.json("workers")?;
    let workers = answer["workers"].as_array().context("no workers")?;
    let of_worker = workers.iter().filter(|entry| entry["worker"] == worker);
    let epochs = of_worker.filter_map(|entry| entry["epochs"].as_array());
    Ok(epochs.flatten().cloned().collect())
}

/// The parameters of a range that has everything.
fn range() -> Result<String> {
    let to = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)? + TO_AFTER_NOW;
    Ok(format!("from={FROM}&to={}", to.as_secs()))
}

fn found_ns(api: &Api, worker: &str) -> Result<u64> {
    let range = range()?;
    let answer = api.json(&format!("profile?{range}&threads=all&worker={worker}"))?;
    let corrupt = answer["corrupt_files"].as_array().map_or(0, Vec::len);
    ensure!(
        corrupt == 0,
        "files cannot be read: {}",
        answer["corrupt_files"]
    );
    number(&answer["totals"], "total_ns")
}

fn check_weight(subject: &str, record: &Record, got_ns: u64) -> Result<()> {
    let lost_ns = record.stored_ns.saturating_sub(got_ns);
    let twice_ns = got_ns.saturating_sub(record.stored_ns);
    ensure!(
        lost_ns == 0 && twice_ns == 0,
        "{subject} {got_ns} ns: {lost_ns} ns are lost, {twice_ns} ns count twice",
    );
    Ok(())
}

/// Each task has one row in all, with a good end.
fn check_tasks(worker: &str, record: &Record, apis: &[&Api]) -> Result<()> {
    let mut rows = BTreeMap::<String, u64>::new();
    for api in apis {
        let path = format!("tasks?{}&limit={ROWS_MAX}&worker={worker}", range()?);
        let answer = api.json(&path)?;
        ensure!(
            answer["truncated"] == false,
            "{} rows exceed one answer",
            answer["total"]
        );
        for row in answer["tasks"].as_array().context("no tasks")? {
            ensure!(row["outcome"] == "ok", "a task without a good end: {row}");
            let key = row["key"].as_str().context("a task without a key")?;
            *rows.entry(key.to_owned()).or_default() += 1;
        }
    }
    let twice: Vec<&String> = rows
        .iter()
        .filter(|row| *row.1 > 1)
        .map(|row| row.0)
        .collect();
    ensure!(twice.is_empty(), "tasks have two rows: {twice:?}");
    let found = rows.len() as u64;
    ensure!(
        found == record.tasks,
        "{found} tasks are found, {} ran",
        record.tasks
    );
    Ok(())
}

/// Compares accounts with the answers of a reader of all stores, whose collectors are gone.
///
/// # Errors
/// If there is a difference for two minutes.
pub(super) fn compare_with_reader(accounts: &[Account], shared: &Shared) -> Result<()> {
    let mut serve = Serve::new(&shared.program);
    serve.environment = s3::environment(shared.server_port);
    let arguments = ["--store", &shared.place, "--read-only"];
    serve.arguments.extend(arguments.map(str::to_owned));
    let reader = serve.start()?;
    let api = Api::new(reader.address);
    let begin = Instant::now();
    loop {
        match compare_found(accounts, &api) {
            Ok(()) => return reader.process.stop().map(drop),
            Err(error) if begin.elapsed() > READER_MAX => {
                bail!(
                    "{error:#}; end of the reader's log:\n{}",
                    reader.process.log()
                )
            }
            Err(_) => std::thread::park_timeout(POLL_EVERY),
        }
    }
}

fn compare_found(accounts: &[Account], reader: &Api) -> Result<()> {
    for Account { worker, record } in accounts {
        let found_ns = found_ns(reader, worker)?;
        check_weight("the reader finds", record, found_ns).context(worker.clone())?;
        check_tasks(worker, record, &[reader]).context(worker.clone())?;
    }
    Ok(())
}
