//! `cargo xtask chaos`: the long form of the chaos test in `cargo xtask test --all`.

use anyhow::Result;
use simulation::chaos;

/// Length and seed.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds: one fault each, of a collector or a network.
    #[arg(long, default_value_t = 1_000)]
    rounds: u32,
    /// Rounds of a group, which has its own server, collectors and workers, and ends with the comparison.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..))]
    rounds_per_group: u32,
    /// Groups that run at a time.
    #[arg(long, default_value_t = 2)]
    groups: u32,
    /// Seed of faults, their order and their lengths. The scheduler does not follow it, so a seed that failed
    /// may have to run more than once.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the test and prints its result.
///
/// # Errors
/// If an acked cycle was lost, one was counted twice, or a collector did not continue.
pub(crate) fn run(options: &Options) -> Result<()> {
    let programs = xtask::test_programs()?;
    let report = chaos::run(&chaos::Options {
        program: programs.emberline,
        worker: programs.test_worker,
        rounds: options.rounds,
        rounds_per_group: options.rounds_per_group,
        groups: options.groups,
        seed: options.seed,
        longest_s: 30.0,
        tell: |line| eprintln!("{line}"),
    })?;
    println!("{report}");
    Ok(())
}
