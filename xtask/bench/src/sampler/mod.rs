//! `cargo xtask bench sampler`: what the sampler costs a program, compared with no profiler, the pprof
//! crate in both its modes, and perf.
//!
//! Every figure comes from a process of its own ([`child`]), one of the loads of `xtask/bench/load`, built
//! by [`programs`]. The sections: [`small_host`], a minute of a small program; [`threads`], the cost of
//! observing a thread; [`overhead`], the cost to whole programs; [`interrupts`], system calls that fail
//! because of a profiler; [`build_cost`], what a build of the agent takes. Each returns its tables and
//! [`Headline`]s, which the head of the report compares with their targets.

mod build_cost;
mod child;
mod interrupts;
pub(super) mod machine;
mod overhead;
mod programs;
mod small_host;
mod threads;

use std::time::Duration;

use anyhow::Result;

use self::programs::Programs;
use super::contest::{self, Timings};

/// How to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Check that everything works: a minute, and figures without meaning.
    #[arg(long)]
    quick: bool,
    /// Measure a build of the agent too: two builds from nothing in a temporary folder.
    #[arg(long)]
    build: bool,
}

/// How long and how often to measure.
#[derive(Clone, Copy)]
struct Plan {
    /// Rounds with whole programs.
    rounds: u32,
    window: Duration,
    /// Time for a profiler to read its symbols, as Emberline's agent does after its first second.
    settle: Duration,
    /// Rounds with each number of threads.
    thread_rounds: u32,
    thread_window: Duration,
    thread_settle: Duration,
    thread_counts: &'static [usize],
    /// A small program, from its first steady second to its end.
    host_settle: Duration,
    host_window: Duration,
    /// Work of a short program.
    short_window: Duration,
}

const WHOLE: Plan = Plan {
    rounds: contest::ROUNDS_MIN,
    window: Duration::from_millis(1_000),
    settle: Duration::from_millis(1_500),
    thread_rounds: 4,
    // Whole seconds: a blocked thread's site is verified once a second.
    thread_window: Duration::from_secs(1),
    thread_settle: Duration::from_millis(500),
    thread_counts: &[10, 100, 1_000, 10_000],
    host_settle: Duration::from_secs(5),
    host_window: Duration::from_secs(55),
    short_window: Duration::from_secs(3),
};

const QUICK: Plan = Plan {
    rounds: 1,
    window: Duration::from_millis(200),
    settle: Duration::from_millis(1_200),
    thread_rounds: 1,
    thread_window: Duration::from_millis(300),
    thread_settle: Duration::from_millis(200),
    thread_counts: &[10, 100],
    host_settle: Duration::from_millis(1_200),
    host_window: Duration::from_millis(500),
    short_window: Duration::from_millis(500),
};

/// A row of the table at the head of the report.
struct Headline {
    what: &'static str,
    target: &'static str,
    /// The figure of the build of 20 November 2026, which the targets were set for; a dash if it was
    /// not one of them.
    before: &'static str,
    measured: String,
    peers: String,
}

/// Measures and prints.
///
/// # Errors
/// If the load program cannot be built, or fails without a peer in it.
pub(crate) fn run(options: &Options) -> Result<()> {
    let plan = if options.quick { QUICK } else { WHOLE };
    let programs = Programs::build()?;
    let load_before = machine::load_average();
    let small_host = small_host::measure(&programs, plan);
    let threads = threads::measure(&programs, plan)?;
    let overhead = overhead::measure(&programs, plan)?;
    let interrupts = interrupts::measure(&programs, plan);
    println!("{}\n", machine::describe(&load_before));
    for note in &programs.notes {
        println!("{note}\n");
    }
    let build = build_cost::measure(options.build)?;
    println!("| what | target | before | after | other profilers |\n|---|---|--:|--:|---|");
    let sections = [&small_host, &threads, &overhead, &build, &interrupts];
    for line in sections.iter().flat_map(|section| &section.headlines) {
        let Headline {
            what,
            target,
            before,
            measured,
            peers,
        } = line;
        println!("| {what} | {target} | {before} | {measured} | {peers} |");
    }
    println!("\n{}\n{}\n{}", threads.text, overhead.text, interrupts.text);
    Ok(())
}

/// A section of the report.
struct Section {
    headlines: Vec<Headline>,
    /// Markdown.
    text: String,
}

/// The measured rounds as a table cell; a dash if there are none.
fn cell(rounds: &[Option<f64>], show: impl Fn(&Timings) -> String) -> String {
    let measured: Vec<f64> = rounds.iter().flatten().copied().collect();
    if measured.is_empty() {
        "–".to_owned()
    } else {
        show(&Timings::new(measured))
    }
}

/// A number whose unit is in the table's head.
fn plain(took: &Timings) -> String {
    took.summary().to_string()
}

/// Ratios as differences in percent: 1.003 is +0.3 %.
fn percent_more(took: &Timings) -> String {
    let summary = took.summary();
    let [median, min, max] = [summary.median, summary.min, summary.max]
        .map(|ratio: f64| format!("{:+.1}", (ratio - 1.0) * 100.0));
    format!("{median} % ({min}…{max})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_rounds_are_omitted() {
        assert_eq!(
            cell(&[Some(3.0), None, Some(1.0), Some(2.0)], plain),
            "2.00 (1.00–3.00)"
        );
        assert_eq!(cell(&[None], plain), "–");
    }

    #[test]
    fn a_ratio_is_shown_as_a_difference_in_percent() {
        let took = Timings::new(vec![1.003, 0.995, 1.102]);
        assert_eq!(percent_more(&took), "+0.3 % (-0.5…+10.2)");
    }
}
