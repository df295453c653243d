//! The cost of tasks to the thread that starts and stops them, and whether the totals of a minute of
//! many tasks are exact. `cargo xtask bench tasks` runs it: `cost ROUNDS` or `minute SECONDS`. Figures
//! are lines of a name and a number on stdout.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent::{AgentBuilder, LocalAgent, Phase, phase, task};
use anyhow::{Context as _, Result, bail};
use nix::time::{ClockId, clock_gettime};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Tasks in one batch: their starts and ends fill less than half of the ring.
const BATCH: u32 = 400;
/// Pause between batches, in which the symbolizer empties the ring.
const PAUSE: Duration = Duration::from_millis(60);
/// Tasks of one batch that fills the ring at once.
const BATCH_PAST_RING: u32 = 50_000;
/// Tasks of a minute, and how many are started in a row.
const TASKS_A_MINUTE: u64 = 1_000_000;
const TASKS_IN_A_ROW: u64 = 50;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.next().context("`cost` or `minute`?")?;
    let number = arguments
        .next()
        .context("how many rounds or seconds?")?
        .parse()?;
    match &*part {
        "cost" => cost(number),
        "minute" => minute(number),
        other => bail!("`{other}` is neither `cost` nor `minute`"),
    }
}

/// Accepts every span and ignores it.
struct NoOp;

impl Subscriber for NoOp {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn plain() {
    let _task = task("plain").start();
    black_box(());
}

fn with_phases() {
    let _task = task("phases").start();
    drop(black_box(phase(Phase::Transfer)));
    drop(black_box(phase(Phase::Serialize)));
}

fn with_key(key: &Arc<str>) {
    let _task = task("keyed").shared_key(key.clone()).start();
    black_box(());
}

fn cost(rounds: u32) -> Result<()> {
    for _ in 0..rounds {
        report("nobody", BATCH, plain)?;
    }
    tracing::subscriber::set_global_default(NoOp)?;
    let agent = AgentBuilder::default().start_local()?;
    let key: Arc<str> = "load-17".into();
    for _ in 0..rounds {
        report("span", BATCH, || {
            drop(black_box(tracing::info_span!("load").entered()))
        })?;
        report("clock", BATCH, || {
            _ = (black_box(Instant::now()), black_box(Instant::now()))
        })?;
        report("task", BATCH, plain)?;
        report("keyed", BATCH, || with_key(&key))?;
        report("phases", BATCH, with_phases)?;
        report("full", BATCH_PAST_RING, plain)?;
    }
    drop(agent.finish());
    Ok(())
}

/// Prints the CPU nanoseconds per call in a batch, after a warm-up batch.
fn report(name: &str, calls: u32, mut call: impl FnMut()) -> Result<()> {
    for counts in [false, true] {
        std::thread::sleep(PAUSE);
        let begin = processor_time()?;
        (0..calls).for_each(|_| call());
        let took = processor_time()? - begin;
        if counts {
            println!("{name} {:.2}", took.as_secs_f64() * 1e9 / f64::from(calls));
        }
    }
    Ok(())
}

fn processor_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// Rows of ended tasks per second: fewer than tasks, so that most are aggregated.
const ROWS_A_SECOND: u32 = 1_000;

/// A million tasks a minute from one thread, each with a phase, for `seconds`.
fn minute(seconds: u32) -> Result<()> {
    let agent = AgentBuilder::default()
        .task_rows_per_second(ROWS_A_SECOND)
        .start_local()?;
    let tasks = TASKS_A_MINUTE * u64::from(seconds) / 60;
    let a_row = Duration::from_secs(60) / u32::try_from(TASKS_A_MINUTE / TASKS_IN_A_ROW)?;
    let mut done = Counts::new();
    let begin = Instant::now();
    let mut due = begin;
    for number in 0..tasks {
        let name = NAMES[number as usize % NAMES.len()];
        let short = task(name).start();
        drop(black_box(phase(Phase::Deserialize)));
        let failed = number % 1_000 == 0;
        if failed {
            short.fail("no")
        } else {
            drop(short)
        }
        *done
            .entry((name.into(), if failed { "failed" } else { "ok" }))
            .or_default() += 1;
        if number % TASKS_IN_A_ROW == 0 {
            due += a_row;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
    println!("elapsed_ms {}", begin.elapsed().as_millis());
    println!("done {tasks}");
    print_counts(agent, &done);
    Ok(())
}

const NAMES: [&str; 4] = ["load", "sum", "store", "fetch"];

/// Tasks by name and outcome.
type Counts = BTreeMap<(String, &'static str), u64>;

/// Prints the agent's counts of the tasks that were `done`.
fn print_counts(agent: LocalAgent, done: &Counts) {
    let cost = agent.overhead();
    let recording = agent.finish();
    let mut counted = Counts::new();
    for row in &recording.tasks {
        *counted
            .entry((row.name.to_string(), row.outcome.name()))
            .or_default() += 1;
    }
    for totals in &recording.totals {
        let key = (totals.name.to_string(), totals.outcome.name());
        *counted.entry(key).or_default() += totals.count();
    }
    let wrong = done
        .iter()
        .map(|(key, count)| counted.get(key).unwrap_or(&0).abs_diff(*count));
    println!(
        "miscounted {}",
        wrong.sum::<u64>() + counted.len().abs_diff(done.len()) as u64
    );
    println!("rows {}", recording.tasks.len());
    println!("aggregated {}", recording.aggregated_tasks);
    println!("lost {}", recording.lost_tasks);
    println!("symbolizer_cpu_ms {}", cost.other_cpu_ns / 1_000_000);
}
