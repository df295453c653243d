//! What the store takes on disk, and how soon and with how much work it answers. All of it goes in
//! as agents send it and comes out as a person asks for it; the collector is a process of its own.

mod feed;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use simulation::Api;
use simulation::pattern::Busyness;
use simulation::process::{Running, Serve, folder_bytes};

use self::feed::{Fed, Feed};
use super::contest::Took;
use super::sampler::machine;

/// How much.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Workers of the synthetic hour.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=100))]
    workers: u16,
    /// Seconds of the hour, for a quick look.
    #[arg(long, default_value_t = 3_600, value_parser = clap::value_parser!(u16).range(1..=3_600))]
    seconds: u16,
    /// Workers of the hour that is asked for second by second, against the origin's merge.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=200))]
    merged: u16,
    /// Days that the stretched capture covers with a cycle a minute, and a year with one an hour.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=60))]
    days: u16,
    /// Tasks of the ledger, in thousands.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    thousand_tasks: u32,
    /// Times that each question is asked, after two that do not count.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rounds: u16,
    /// Of all contents.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How far weights are from whole samples, in tenths of one. The known figures are of whole ones;
    /// real weights are measured times.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=9))]
    noise: u64,
}

/// Measures and prints.
///
/// # Errors
/// If the collector has no store, or does not get along with what it is given.
pub(crate) fn run(options: &Options) -> Result<()> {
    let load = machine::load_average();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let mut rows = Vec::new();
    for part in [hour, stretched, merged, ledger] {
        let bench = Bench::new(options)?;
        rows.extend(part(&bench, &runtime)?);
    }
    println!("\n{}\n\n| what | target | measured |\n|---|---|---|", machine::describe(&load));
    rows.iter().for_each(|row| println!("{row}"));
    Ok(())
}

/// A collector's folder, empty at first.
struct Bench<'a> {
    options: &'a Options,
    serve: Serve,
    data: PathBuf,
    /// Goes away with this.
    _folder: tempfile::TempDir,
}

impl Bench<'_> {
    fn new(options: &Options) -> Result<Bench<'_>> {
        let mut serve = Serve::new(&crate::emberline()?);
        let folder = tempfile::Builder::new().prefix("emberline-bench-").tempdir()?;
        let data = folder.path().join("data");
        let path = data.to_str().context("the folder's path is not UTF-8")?.to_owned();
        if !serve.takes(&["--data", &path])? {
            bail!("this `emberline serve` has no --data, so there is no store to measure");
        }
        serve.arguments.extend(["--data".to_owned(), path]);
        Ok(Bench { options, serve, data, _folder: folder })
    }

    /// Puts it in, and ends the collector in good order, so that all of it is in tables. Also gives
    /// the most memory that it took.
    fn feed(&self, runtime: &tokio::runtime::Runtime, feed: Feed) -> Result<(Fed, u64)> {
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

    /// Bytes of a table's folder.
    fn table_bytes(&self, table: &str) -> u64 {
        folder_bytes(&self.data.join("tables").join(table)).unwrap_or(0)
    }

    /// All tables with their bytes, for the reader.
    fn tables(&self) -> String {
        let entries = fs::read_dir(self.data.join("tables")).into_iter().flatten().flatten();
        let mut tables: Vec<String> = entries
            .map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                format!("{name} {:.2} MB", self.table_bytes(&name) as f64 / 1e6)
            })
            .collect();
        tables.sort();
        if tables.is_empty() { "no tables".into() } else { tables.join(", ") }
    }

    /// A row for each question: how long it takes warm, and what the collector works for it.
    fn ask(&self, questions: &[(&str, &str, String)]) -> Result<Vec<String>> {
        let running = self.serve.start()?;
        let api = Api::new(running.address);
        let mut rows = Vec::new();
        for (what, target, path) in questions {
            let measured = match answer(&api, &running, path, self.options.rounds) {
                Ok(measured) => measured,
                // A question that this collector does not understand.
                Err(error) => format!("not answered: {error}"),
            };
            rows.push(format!("| {what} | {target} | {measured} |"));
        }
        let memory = running.process.usage()?.memory_peak_bytes as f64 / 1e6;
        rows.push(format!(
            "| memory of the collector after these questions, at its peak | – | {memory:.0} MB |"
        ));
        running.process.stop()?;
        Ok(rows)
    }
}

/// Asks again and again: latency as a reader sees it, the answer's size, and work.
fn answer(api: &Api, running: &Running, path: &str, rounds: u16) -> Result<String> {
    let (cold, bytes) = api.time(path)?;
    api.time(path)?;
    let before = running.process.usage()?.cpu;
    let times = (0..rounds).map(|_| Ok(api.time(path)?.0.as_secs_f64() * 1e3));
    let times = Took::new(times.collect::<Result<_>>()?);
    let cpu = (running.process.usage()?.cpu - before) / rounds.into();
    Ok(format!(
        "{} ms warm, {:.1} ms cold; {:.1} ms of CPU; {:.0} kB",
        times.spread(),
        cold.as_secs_f64() * 1e3,
        cpu.as_secs_f64() * 1e3,
        bytes as f64 / 1e3
    ))
}

/// As the synthetic samples of the first design: 8 threads in tasks, 14 outside.
fn synthetic(options: &Options) -> Busyness {
    let noise_quanta = options.noise;
    Busyness { slots: 8, samples: 100, switch: 0.15, idle: true, noise_quanta, prepared: 0 }
}

fn hour(bench: &Bench<'_>, runtime: &tokio::runtime::Runtime) -> Result<Vec<String>> {
    let feed = Feed {
        name: "hour",
        workers: bench.options.workers.into(),
        step_s: 1,
        steps: bench.options.seconds.into(),
        tasks: 200,
        stacks_per_task: 100,
        busyness: synthetic(bench.options),
    };
    let (fed, memory_bytes) = bench.feed(runtime, feed)?;
    let per_row = |bytes: u64| bytes as f64 / fed.pairs as f64;
    let samples = bench.table_bytes("samples_1s");
    let names = bench.table_bytes("frames") + bench.table_bytes("nodes");
    let mut rows = vec![
        format!(
            "| bytes a sample row, 1 s tier, with its share of the dictionaries | ≤ 2.0 | {:.2}; \
             {:.2} without ({:.1} M rows of {} workers, {} nodes; {}) |",
            per_row(samples + names),
            per_row(samples),
            fed.pairs as f64 / 1e6,
            feed.workers,
            fed.nodes,
            bench.tables()
        ),
        format!(
            "| taking that in | – | {:.1} s, {:.2} M pairs a second; memory {:.0} MB |",
            fed.took.as_secs_f64(),
            fed.pairs as f64 / fed.took.as_secs_f64() / 1e6,
            memory_bytes as f64 / 1e6
        ),
    ];
    let range = format!("from={}&to={}", fed.from, fed.to);
    rows.extend(bench.ask(&[
        ("profile of one task over 1 h", "≤ 5 ms", format!("profile?{range}&task=task-3")),
        ("all tasks over 1 h", "≤ 10 ms", format!("profile?{range}")),
        ("timeline of 1 h, 1 s steps", "–", format!("timeline?{range}&step=1s")),
        ("timeline of 1 h, 10 s steps", "–", format!("timeline?{range}&step=10s")),
    ])?);
    Ok(rows)
}

fn stretched(bench: &Bench<'_>, runtime: &tokio::runtime::Runtime) -> Result<Vec<String>> {
    let mut feed = Feed {
        name: "minutes",
        workers: 4,
        step_s: 60,
        steps: i64::from(bench.options.days) * 1_440,
        tasks: 20,
        stacks_per_task: 100,
        busyness: Busyness { prepared: 512, ..synthetic(bench.options) },
    };
    let (month, _) = bench.feed(runtime, feed)?;
    feed = Feed { name: "hours", step_s: 3_600, steps: 364 * 24, ..feed };
    let (year, _) = bench.feed(runtime, feed)?;
    let (month, year) = [month, year].map(|fed| format!("from={}&to={}", fed.from, fed.to)).into();
    bench.ask(&[
        ("profile of one task over 30 d", "≤ 15 ms", format!("profile?{month}&task=task-3")),
        ("all tasks over 30 d", "≤ 20 ms", format!("profile?{month}")),
        ("all tasks over 1 y", "≤ 30 ms", format!("profile?{year}")),
        ("timeline of 30 d", "–", format!("timeline?{month}")),
        ("timeline of 1 y", "–", format!("timeline?{year}")),
    ])
}

fn merged(bench: &Bench<'_>, runtime: &tokio::runtime::Runtime) -> Result<Vec<String>> {
    /// What the origin's merge of as many cycles takes, as `b4_merge.py` measured it.
    const ORIGIN: &str = "119 s of CPU; ≥ 1,000 × less";
    let feed = Feed {
        name: "merged",
        workers: bench.options.merged.into(),
        step_s: 1,
        steps: bench.options.seconds.into(),
        tasks: 50,
        stacks_per_task: 100,
        // 400 samples a cycle, as there.
        busyness: Busyness { slots: 4, prepared: 512, ..synthetic(bench.options) },
    };
    let (fed, _) = bench.feed(runtime, feed)?;
    let range = format!("from={}&to={}", fed.from, fed.to);
    let workers: String =
        (0..feed.workers).map(|index| format!("&worker=merged-{index}")).collect();
    bench.ask(&[
        ("1 h × 1 s × 100 workers, as anybody asks", ORIGIN, format!("profile?{range}")),
        ("the same, each worker by name", ORIGIN, format!("profile?{range}{workers}")),
        ("the same, second by second", ORIGIN, format!("timeline?{range}&step=1s")),
    ])
}

fn ledger(bench: &Bench<'_>, runtime: &tokio::runtime::Runtime) -> Result<Vec<String>> {
    /// Tasks that end in each flush.
    const SLOTS: usize = 200;
    const WORKERS: usize = 10;
    let tasks = i64::from(bench.options.thousand_tasks) * 1_000;
    let feed = Feed {
        name: "tasks",
        workers: WORKERS,
        step_s: 1,
        steps: tasks.div_euclid((SLOTS * WORKERS).try_into()?).max(1),
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
    };
    let (fed, memory_bytes) = bench.feed(runtime, feed)?;
    let ended = (fed.flushes - WORKERS as u64) * SLOTS as u64;
    let mut rows = vec![format!(
        "| bytes a task | ≤ 25 | {:.1} of {:.2} M ({:.1} s; memory {:.0} MB; {}) |",
        bench.table_bytes("tasks") as f64 / ended as f64,
        ended as f64 / 1e6,
        fed.took.as_secs_f64(),
        memory_bytes as f64 / 1e6,
        bench.tables()
    )];
    let range = format!("from={}&to={}", fed.from, fed.to);
    let last_hour = format!("from={}&to={}", fed.to - 3_600, fed.to);
    rows.extend(bench.ask(&[
        ("look-up of a task by key", "≤ 15 ms", format!("tasks?{range}&key=7-1234")),
        ("percentiles by name, 1 h", "≤ 5 ms", format!("tasks?summary=true&{last_hour}")),
        ("newest 100 tasks of 1 h", "–", format!("tasks?{last_hour}&limit=100")),
    ])?);
    Ok(rows)
}
