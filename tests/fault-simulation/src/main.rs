//! `cargo xtask simulate`: runs seeds, or repeats one.

use std::process::ExitCode;

use clap::Parser;
use emberline_fault_simulation::run;
use emberline_fault_simulation::seeds::{self, Report};

/// Seeds between two lines of output.
const GROUP_SEEDS: usize = 100;

/// Agents and collectors with a network, disks and clocks that fail, by seeds.
#[derive(Parser)]
#[command(name = "cargo xtask simulate")]
struct Options {
    /// Repeat this seed and print its events.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of seeds to run.
    #[arg(long, default_value_t = 300, conflicts_with = "seed")]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0, conflicts_with = "seed")]
    first: u64,
    /// Stop after this many failures.
    #[arg(long, default_value_t = 1)]
    failures: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(seed) = options.seed {
        return match run(seed, true) {
            Ok(summary) => {
                println!("seed {seed} kept all promises: {summary:?}");
                ExitCode::SUCCESS
            }
            Err(failure) => {
                eprintln!("seed {seed} failed {}", failure.reason);
                ExitCode::FAILURE
            }
        };
    }
    let last = options.first.saturating_add(options.seeds);
    let mut total = Report::default();
    // In groups, so that a long run shows where it is, and that an end from outside loses little.
    for first in (options.first..last).step_by(GROUP_SEEDS) {
        let end = last.min(first.saturating_add(GROUP_SEEDS as u64));
        let report = seeds::run_all(first..end, options.failures - total.failures.len());
        eprint!("{}", report.failures());
        println!("seeds {first} to {}: {}", end - 1, report.summary());
        total.add(report);
        if total.failures.len() >= options.failures {
            break;
        }
    }
    println!("all: {}", total.summary());
    print!("{}", total.fault_counts());
    if total.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
