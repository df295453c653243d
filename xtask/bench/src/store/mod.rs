//! Size of the store on disk, and latency and CPU time of its answers. Data goes in as agents send it
//! and comes out through the HTTP API; the collector is a process of its own.

mod demo;
mod feed;
mod memory;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use simulation::pattern::Busyness;
use simulation::process::{Running, Serve, folder_bytes};
use simulation::record::Detail;
use simulation::{Api, Timed};

pub(crate) use self::feed::{Contents, Fed, Feed, TEAM, ZONE, last_whole_hour, team, zone};
use super::contest::Timings;
use super::sampler::machine;

/// CPU time of Dask's merge of an hour of 100 workers second by second, measured with distributed
/// 2026.8.0: each worker's cycles, then the workers'.
const DASK_CPU: Duration = Duration::from_secs(119);
const DASK: &str = "119 s of CPU; ≥ 1,000 × less";

/// Size of each part.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Workers of the synthetic hour.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=100))]
    workers: u16,
    /// Seconds of the hour, for a quick run.
    #[arg(long, default_value_t = 3_600, value_parser = clap::value_parser!(u16).range(1..=3_600))]
    seconds: u16,
    /// Workers of the hour that is queried second by second, against Dask's merge.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=200))]
    merged: u16,
    /// Days over which the capture of the demo is stretched, in addition to a year.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=60))]
    days: u16,
    /// Seconds of the demo that are captured.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(5..=600))]
    captured: u16,
    /// Tasks of the ledger, in thousands.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    thousand_tasks: u32,
    /// Rounds of each query, after two that do not count.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rounds: u16,
    /// Only this part.
    #[arg(long, value_enum)]
    part: Option<Part>,
    /// Seed of all contents.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Deviation of weights from whole samples, in tenths of a sample. The published figures have 0;
    /// real weights are measured times.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=9))]
    noise: u64,
}

/// The parts, each with a collector of its own.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The synthetic hour.
    Hour,
    /// The stretched capture of the demo.
    Stretched,
    /// The hour that Dask merged.
    Merged,
    /// The ledger.
    Ledger,
}

impl Part {
    fn measure(self, bench: &Bench<'_>, runtime: &tokio::runtime::Runtime) -> Result<Vec<String>> {
        match self {
            Part::Hour => hour(bench, runtime),
            Part::Stretched => stretched(bench, runtime),
            Part::Merged => merged(bench, runtime),
            Part::Ledger => ledger(bench, runtime),
        }
    }
}

/// Measures and prints.
///
/// # Errors
/// If the collector has no store or fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let load = machine::load_average();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let _entered = runtime.enter();
    let mut rows = Vec::new();
    let parts = Part::value_variants().iter();
    for part in parts.filter(|part| options.part.is_none_or(|only| only == **part)) {
        let begin = Instant::now();
        let part_rows = part.measure(&Bench::new(options)?, &runtime)?;
        part_rows.iter().for_each(|row| eprintln!("{row}"));
        eprintln!("{:.0} s", begin.elapsed().as_secs_f64());
        rows.extend(part_rows);
    }
    println!(
        "\n{}\n\n| what | target | measured |\n|---|---|---|",
        machine::describe(&load)
    );
    rows.iter().for_each(|row| println!("{row}"));
    Ok(())
}

/// A collector with a data directory, empty at first.
struct Bench<'a> {
    options: &'a Options,
    serve: Serve,
    data: PathBuf,
    /// Deleted when dropped.
    _folder: tempfile::TempDir,
}

impl Bench<'_> {
    fn new(options: &Options) -> Result<Bench<'_>> {
        let mut serve = Serve::new(&xtask::emberline()?);
        let folder = tempfile::Builder::new()
            .prefix("emberline-bench-")
            .tempdir()?;
        let data = folder.path().join("data");
        let path = data
            .to_str()
            .context("the folder's path is not UTF-8")?
            .to_owned();
        if !serve.takes(&["--data", &path])? {
            bail!("this `emberline serve` has no --data, so there is no store to measure");
        }
        serve.arguments.extend(["--data".to_owned(), path]);
        Ok(Bench {
            options,
            serve,
            data,
            _folder: folder,
        })
    }

    /// Feeds a collector and stops it cleanly, so that all data is in tables. Also returns its peak
    /// memory.
    fn feed(&self, runtime: &tokio::runtime::Runtime, feed: Feed<'_>) -> Result<(Fed, u64)> {
        let running = self.serve.start()?;
        let fed = runtime.block_on(feed.run(&running, self.options.seed))?;
        let memory_bytes = running.process.usage()?.memory_peak_bytes;
        running.process.stop()?;
        eprintln!(
            "{}: {} flushes, {} pairs in {:.1} s",
            feed.name,
            fed.flushes,
            fed.pairs,
            fed.took.as_secs_f64()
        );
        Ok((fed, memory_bytes))
    }

    /// Bytes of each table's files in the newest version. The directory also contains, for a while,
    /// the files that were merged into them.
    fn tables(&self) -> Result<BTreeMap<String, u64>> {
        let versions = fs::read_dir(self.data.join("manifest"))?.flatten();
        let newest = versions
            .map(|entry| entry.path())
            .max()
            .context("a store without versions")?;
        let newest: serde_json::Value = serde_json::from_slice(&fs::read(newest)?)?;
        let files = newest["body"]["files"]
            .as_array()
            .context("a version without files")?;
        let mut tables = BTreeMap::new();
        for file in files {
            let table = file["table"].as_str().context("a file without a table")?;
            let bytes = file["bytes"].as_u64().context("a file without bytes")?;
            *tables.entry(table.to_owned()).or_default() += bytes;
        }
        Ok(tables)
    }

    /// A row for each query: its latency when warm and its CPU time.
    fn ask(&self, queries: &[(&str, &str, String)]) -> Result<Vec<String>> {
        let running = self.serve.start()?;
        let api = Api::new(running.address);
        let mut rows = Vec::new();
        for (what, target, path) in queries {
            // An older collector may not support the query.
            let measured = match answer(&api, &running, path, self.options.rounds) {
                Ok(measured) if *target == DASK => measured.compared_with_dask(),
                Ok(measured) => measured.text(),
                Err(error) => format!("not answered: {error}"),
            };
            rows.push(format!("| {what} | {target} | {measured} |"));
        }
        let memory = running.process.usage()?.memory_peak_bytes as f64 / 1e6;
        rows.push(format!(
            "| memory of the collector after these queries, at its peak | – | {memory:.0} MB |"
        ));
        running.process.stop()?;
        Ok(rows)
    }

    /// A row for a full compaction, in a process of its own.
    fn compact(&self) -> Result<String> {
        let before = folder_bytes(&self.data.join("tables"))?;
        let mut command = Command::new(&self.serve.program);
        command.args(["store", "compact", "--data"]).arg(&self.data);
        let (peak_bytes, took) = memory::peak_bytes(&mut command)?;
        Ok(format!(
            "| memory of a compaction of all of it | ≤ 256 MB | {:.0} MB ({:.1} MB in {:.1} s) |",
            peak_bytes as f64 / 1e6,
            before as f64 / 1e6,
            took.as_secs_f64(),
        ))
    }
}

/// Lists all tables with their bytes.
fn in_words(tables: &BTreeMap<String, u64>) -> String {
    let tables = tables
        .iter()
        .map(|(table, bytes)| format!("{table} {:.2} MB", *bytes as f64 / 1e6));
    tables.collect::<Vec<_>>().join(", ")
}

/// Latency and cost of a query.
struct Measured {
    /// Until the client has the whole text.
    warm_ms: Timings,
    /// Of that, until the answer was computed, if the collector reports it.
    made_ms: Option<Timings>,
    cold: Duration,
    /// CPU time of the collector for one query.
    cpu: Duration,
    bytes: usize,
}

impl Measured {
    fn text(&self) -> String {
        let made = self.made_ms.as_ref().map_or(String::new(), |made_ms| {
            format!("answer made in {} ms, as text ", made_ms.summary())
        });
        format!(
            "{made}{} ms warm, {:.1} ms cold; {:.1} ms of CPU; {:.0} kB",
            self.warm_ms.summary(),
            self.cold.as_secs_f64() * 1e3,
            self.cpu.as_secs_f64() * 1e3,
            self.bytes as f64 / 1e3
        )
    }

    fn compared_with_dask(&self) -> String {
        let ratio = DASK_CPU.as_secs_f64() / self.cpu.as_secs_f64().max(1e-4);
        format!("{ratio:.0} × less: {}", self.text())
    }
}

/// Repeats a query: latency for the client, size of the answer, CPU time.
fn answer(api: &Api, running: &Running, path: &str, rounds: u16) -> Result<Measured> {
    let Timed {
        took: cold, bytes, ..
    } = api.time(path)?;
    api.time(path)?;
    let before = running.process.usage()?.cpu;
    let timed: Vec<Timed> = (0..rounds).map(|_| api.time(path)).collect::<Result<_>>()?;
    let cpu = (running.process.usage()?.cpu - before) / rounds.into();
    let warm_ms = Timings::new(
        timed
            .iter()
            .map(|timed| timed.took.as_secs_f64() * 1e3)
            .collect(),
    );
    let made_ms = timed
        .iter()
        .map(|timed| timed.made_ms)
        .collect::<Option<Vec<f64>>>()
        .map(Timings::new);
    Ok(Measured {
        warm_ms,
        made_ms,
        cold,
        cpu,
        bytes,
    })
}

/// The synthetic samples of the first design: 8 threads in tasks, 14 outside.
fn synthetic(options: &Options) -> Busyness {
    let noise_quanta = options.noise;
    Busyness {
        slots: 8,
        samples: 100,
        switch: 0.15,
        idle: true,
        noise_quanta,
        prepared: 0,
    }
}

fn hour(bench: &Bench<'_>, runtime: &tokio::runtime::Runtime) -> Result<Vec<String>> {
    let feed = Feed {
        name: "hour",
        detail: Detail::Totals,
        first: 0,
        workers: bench.options.workers.into(),
        workers_per_connection: 1,
        to: last_whole_hour(),
        step_s: 1,
        burst: 1,
        steps: bench.options.seconds.into(),
        contents: Contents::Synthetic {
            tasks: 200,
            stacks_per_task: 100,
            busyness: synthetic(bench.options),
        },
    };
    let (fed, memory_bytes) = bench.feed(runtime, feed)?;
    let compaction = bench.compact()?;
    let tables = bench.tables()?;
    let per_row = |bytes: u64| bytes as f64 / fed.pairs as f64;
    let bytes = |table: &str| tables.get(table).copied().unwrap_or(0);
    let samples = bytes("samples_1s");
    let names = bytes("frames") + bytes("nodes");
    let mut rows = vec![
        format!(
            "| bytes a sample row, 1 s tier, with its share of the dictionaries | ≤ 2.0 | {:.2}; \
             {:.2} without ({:.1} M rows of {} workers, {} nodes; {}) |",
            per_row(samples + names),
            per_row(samples),
            fed.pairs as f64 / 1e6,
            feed.workers,
            fed.nodes,
            in_words(&tables)
        ),
        format!(
            "| ingesting it | – | {:.1} s, {:.2} M pairs a second; memory {:.0} MB |",
            fed.took.as_secs_f64(),
            fed.pairs as f64 / fed.took.as_secs_f64() / 1e6,
            memory_bytes as f64 / 1e6
        ),
        compaction,
    ];
    let range = format!("from={}&to={}", fed.from, fed.to);
    rows.extend(bench.ask(&[
        (
            "profile of one task over 1 h",
            "≤ 5 ms",
            format!("profile?{range}&task=task-3"),
        ),
        ("all tasks over 1 h", "≤ 10 ms", format!("profile?{range}")),
        (
            "timeline of 1 h, 1 s steps",
            "–",
            format!("timeline?{range}&step=1s"),
        ),
        (
            "timeline of 1 h, 10 s steps",
            "–",
            format!("timeline?{range}&step=10s"),
        ),
    ])?);
    Ok(rows)
}

/// Seconds of each hour of the stretched month that have a cycle.
const BURST_OF_HOUR: i64 = 60;
/// Seconds of each day of the stretched year that have a cycle. The finer tiers then have a file per
/// day, not per hour, whose syncs would take minutes.
const BURST_OF_DAY: i64 = 24;

fn stretched(bench: &Bench<'_>, runtime: &tokio::runtime::Runtime) -> Result<Vec<String>> {
    let options = bench.options;
    let capture = demo::capture(&Bench::new(options)?, options.captured)?;
    let mut feed = Feed {
        name: "month",
        detail: Detail::Totals,
        first: 0,
        workers: demo::WORKERS,
        workers_per_connection: 1,
        to: last_whole_hour(),
        step_s: 3_600,
        burst: BURST_OF_HOUR,
        steps: i64::from(options.days) * 24 * BURST_OF_HOUR,
        contents: Contents::Captured(&capture),
    };
    let (month, _) = bench.feed(runtime, feed)?;
    feed.name = "year";
    feed.step_s = 86_400;
    feed.burst = BURST_OF_DAY;
    feed.steps = 364 * BURST_OF_DAY;
    let (year, _) = bench.feed(runtime, feed)?;
    let mut rows = vec![format!(
        "| the demo's capture | – | {} cycles of {} workers, {} nodes; said again {BURST_OF_HOUR} s of \
         each hour of {} days ({} cycles, {:.1} M pairs) and {BURST_OF_DAY} s of each of 364 days ({}, \
         {:.1} M), any of them each time |",
        capture.cycle_count(),
        demo::WORKERS,
        month.nodes,
        options.days,
        month.flushes,
        month.pairs as f64 / 1e6,
        year.flushes,
        year.pairs as f64 / 1e6
    )];
    rows.push(bench.compact()?);
    let (month, year) = [month, year]
        .map(|fed| format!("from={}&to={}", fed.from, fed.to))
        .into();
    let task = capture.task().context("the demo ran no task")?;
    rows.extend(bench.ask(&[
        (
            "profile of one task over 30 d",
            "≤ 15 ms",
            format!("profile?{month}&task={task}"),
        ),
        ("all tasks over 30 d", "≤ 20 ms", format!("profile?{month}")),
        ("all tasks over 1 y", "≤ 30 ms", format!("profile?{year}")),
        ("timeline of 30 d", "–", format!("timeline?{month}")),
        ("timeline of 1 y", "–", format!("timeline?{year}")),
    ])?);
    Ok(rows)
}

fn merged(bench: &Bench<'_>, runtime: &tokio::runtime::Runtime) -> Result<Vec<String>> {
    let feed = Feed {
        name: "merged",
        detail: Detail::Totals,
        first: 0,
        workers: bench.options.merged.into(),
        workers_per_connection: 1,
        to: last_whole_hour(),
        step_s: 1,
        burst: 1,
        steps: bench.options.seconds.into(),
        contents: Contents::Synthetic {
            tasks: 50,
            stacks_per_task: 100,
            // 400 samples per cycle, as in Dask's.
            busyness: Busyness {
                slots: 4,
                prepared: 512,
                ..synthetic(bench.options)
            },
        },
    };
    let (fed, _) = bench.feed(runtime, feed)?;
    let range = format!("from={}&to={}", fed.from, fed.to);
    let workers: String = (0..feed.workers)
        .map(|index| format!("&worker=merged-{index}"))
        .collect();
    let mut rows = vec![bench.compact()?];
    rows.extend(bench.ask(&[
        ("1 h × 1 s × 100 workers", DASK, format!("profile?{range}")),
        (
            "the same, each worker by name",
            DASK,
            format!("profile?{range}{workers}"),
        ),
        (
            "the same, second by second",
            DASK,
            format!("timeline?{range}&step=1s"),
        ),
    ])?);
    Ok(rows)
}

fn ledger(bench: &Bench<'_>, runtime: &tokio::runtime::Runtime) -> Result<Vec<String>> {
    /// Tasks that end in each flush.
    const SLOTS: usize = 200;
    const WORKERS: usize = 10;
    let tasks = i64::from(bench.options.thousand_tasks) * 1_000;
    let feed = Feed {
        name: "tasks",
        detail: Detail::Totals,
        first: 0,
        workers: WORKERS,
        workers_per_connection: 1,
        to: last_whole_hour(),
        step_s: 1,
        burst: 1,
        steps: tasks.div_euclid((SLOTS * WORKERS).try_into()?).max(1),
        contents: Contents::Synthetic {
            tasks: 50,
            stacks_per_task: 10,
            busyness: Busyness {
                slots: SLOTS,
                samples: 1,
                switch: 1.0,
                idle: false,
                noise_quanta: 0,
                prepared: 64,
            },
        },
    };
    let (fed, memory_bytes) = bench.feed(runtime, feed)?;
    let ended = (fed.flushes - WORKERS as u64) * SLOTS as u64;
    let compaction = bench.compact()?;
    let tables = bench.tables()?;
    let mut rows = vec![format!(
        "| bytes a task | ≤ 25 | {:.1} of {:.2} M ({:.1} s; memory {:.0} MB; {}) |",
        tables.get("tasks").copied().unwrap_or(0) as f64 / ended as f64,
        ended as f64 / 1e6,
        fed.took.as_secs_f64(),
        memory_bytes as f64 / 1e6,
        in_words(&tables)
    )];
    rows.push(compaction);
    let range = format!("from={}&to={}", fed.from, fed.to);
    let last_hour = format!("from={}&to={}", fed.to - 3_600, fed.to);
    rows.extend(bench.ask(&[
        (
            "look-up of a task by key",
            "≤ 15 ms",
            format!("tasks?{range}&key=7-1234"),
        ),
        (
            "percentiles by name, 1 h",
            "≤ 5 ms",
            format!("tasks?summary=true&{last_hour}"),
        ),
        (
            "newest 100 tasks of 1 h",
            "–",
            format!("tasks?{last_hour}&limit=100"),
        ),
    ])?);
    Ok(rows)
}
