//! `cargo xtask bench tasks`: the cost of a task to the thread that starts and stops it, compared with
//! a span of `tracing` and a no-op subscriber; its bytes on the wire; and whether the totals of a
//! million tasks a minute are exact. The timed code is a process of its own, `task-load` of
//! `xtask/bench/load`.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use profiler_core::wire::encode_task;
use profiler_core::{Outcome, PhaseInterval, TaskDetail, TaskId, TaskRecord, Timestamp};
use prost::Message as _;

use xtask::bench_cargo;

use super::contest::Timings;

/// Bytes per task of Dask's task stream; see `docs/benchmarks`.
const DASK_BYTES_PER_TASK: f64 = 1_289.0;
/// Upper bound on the nanoseconds of a start and stop.
const TARGET_NS: f64 = 150.0;

/// How to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Check that everything works: seconds, and figures without meaning.
    #[arg(long)]
    quick: bool,
}

/// Measures and prints.
///
/// # Errors
/// If the measured program fails, or counts of tasks are not exact.
pub(super) fn run(options: &Options) -> Result<()> {
    let (rounds, seconds) = if options.quick {
        ("5", "3")
    } else {
        ("41", "60")
    };
    let program = build()?;
    let costs = figures(&program, &["cost", rounds])?;
    print_costs(&costs)?;
    print_bytes();
    let minute = figures(&program, &["minute", seconds])?;
    print_minute(&minute, seconds)
}

/// The numbers of each name.
type Figures = BTreeMap<String, Vec<f64>>;

fn build() -> Result<String> {
    let arguments = [
        "--release",
        "--package",
        "emberline-load",
        "--bin",
        "task-load",
    ];
    let mut command = bench_cargo("build", &arguments)?;
    let output = command
        .args(["--message-format", "json"])
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(
        output.status.success(),
        "cargo build {} failed",
        arguments.join(" ")
    );
    let text = String::from_utf8(output.stdout)?;
    let messages = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let mut programs = messages.filter_map(|message: serde_json::Value| {
        message["executable"].as_str().map(ToOwned::to_owned)
    });
    programs.next_back().context("cargo built no `task-load`")
}

fn figures(program: &str, arguments: &[&str]) -> Result<Figures> {
    let output = std::process::Command::new(program)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(
        output.status.success(),
        "task-load {} failed",
        arguments.join(" ")
    );
    parse(&String::from_utf8(output.stdout)?)
}

fn parse(text: &str) -> Result<Figures> {
    let mut figures = Figures::new();
    for line in text.lines() {
        let (name, number) = line
            .split_once(' ')
            .context("a line is a name and a number")?;
        figures
            .entry(name.to_owned())
            .or_default()
            .push(number.parse()?);
    }
    Ok(figures)
}

/// The timed operations: names in the load's output and in the report.
const COSTS: [(&str, &str); 7] = [
    ("nobody", "task, while no agent runs"),
    ("clock", "two readings of the clock, for comparison"),
    ("span", "`tracing` span, entered, no-op subscriber"),
    ("task", "task, start and stop"),
    ("keyed", "task with a shared key"),
    ("phases", "task with two phases"),
    ("full", "task, its ring full: summed"),
];

fn print_costs(costs: &Figures) -> Result<()> {
    println!("Processor time on the worker's thread, median (least–most) of the rounds:\n");
    println!("| | ns each |\n|---|--:|");
    for (name, label) in COSTS {
        let rounds = costs
            .get(name)
            .with_context(|| format!("task-load did not print `{name}`"))?;
        println!("| {label} | {} |", Timings::new(rounds.clone()).summary());
    }
    let median = Timings::new(costs["task"].clone()).summary().median;
    let verdict = if median <= TARGET_NS {
        "holds"
    } else {
        "does not hold"
    };
    println!("\nTarget, at most {TARGET_NS:.0} ns for start and stop: {verdict}.\n");
    Ok(())
}

fn print_bytes() {
    println!("| a task on the wire | bytes | of Dask's {DASK_BYTES_PER_TASK} |\n|---|--:|--:|");
    for (label, key, phases) in [
        ("with a key", "load-1234567", 0),
        ("and three phases", "load-1234567", 3),
        ("bare", "", 0),
    ] {
        let bytes = bytes(key, phases) as f64;
        println!(
            "| {label} | {bytes} | {:.1} % |",
            bytes / DASK_BYTES_PER_TASK * 100.0
        );
    }
    println!();
}

/// Bytes of an ended task in a flush, with the tag and length of its message.
fn bytes(key: &str, phases: u64) -> usize {
    let start = Timestamp::from_unix_ns(1_790_000_000_123_456_789);
    let phase = |place: u64| PhaseInterval {
        name: ["transfer", "deserialize", "serialize"][place as usize % 3].into(),
        start_ns: (place * 4_000_000).cast_signed(),
        duration_ns: 3_000_000,
        count: 1,
    };
    let detail = TaskDetail {
        phases: (0..phases).map(phase).collect(),
        ..TaskDetail::default()
    };
    let record = TaskRecord {
        id: TaskId(1_234_567),
        name: "load".into(),
        key: key.into(),
        thread_id: 12_345,
        thread_name: "pool-1".into(),
        parent: None,
        start,
        stop: Some(start.shifted(15_000_000)),
        outcome: Outcome::Ok,
        cause: "".into(),
        detail: (phases > 0).then(|| Box::new(detail)),
    };
    // Names are in the dictionary: a small number each.
    let message = encode_task(&record, &mut |text| u32::from(!text.is_empty()) * 200);
    let length = message.encoded_len();
    1 + prost::length_delimiter_len(length) + length
}

fn print_minute(minute: &Figures, seconds: &str) -> Result<()> {
    let get = |name: &str| {
        let value = minute.get(name).and_then(|values| values.first());
        value
            .copied()
            .with_context(|| format!("task-load did not print `{name}`"))
    };
    let done = get("done")?;
    let rows = get("rows")?;
    let aggregated = get("aggregated")?;
    println!(
        "A million tasks a minute from one thread, for {seconds} s, at most 1,000 rows a second: \
         {done} done in {} s, {rows} rows, {aggregated} in sums, {} lost, {} miscounted by name and \
         outcome; the symbolizer used {} ms.",
        get("elapsed_ms")? / 1e3,
        get("lost")?,
        get("miscounted")?,
        get("symbolizer_cpu_ms")?,
    );
    ensure!(
        get("lost")? == 0.0 && get("miscounted")? == 0.0 && rows + aggregated == done,
        "the totals are not exact"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_figures_and_others_are_rejected() {
        let figures = parse("task 5\nspan 7.5\ntask 6").unwrap();
        assert_eq!(
            (&figures["task"][..], &figures["span"][..]),
            (&[5.0, 6.0][..], &[7.5][..])
        );
        assert!(parse("task").is_err() && parse("task x").is_err());
    }

    #[test]
    fn phases_and_keys_take_bytes() {
        assert!(bytes("", 0) < bytes("key", 0) && bytes("key", 0) < bytes("key", 1));
    }
}
