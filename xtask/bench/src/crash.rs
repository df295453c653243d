//! `cargo xtask crash`: the long form of what `cargo xtask test` does in short.

use std::path::PathBuf;

use anyhow::Result;
use simulation::crash;

/// How long, and from which seed.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often the collector is killed.
    #[arg(long, default_value_t = 300)]
    cycles: u32,
    /// Of contents and instants. What the scheduler does is not in it, so a seed that failed may have
    /// to be run more than once.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Simulated workers.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    agents: u16,
    /// The collector's folder, which is kept; by default one that goes away if all is well.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Let all workers sample the last ten minutes only, for a collector without tables.
    #[arg(long)]
    recent: bool,
}

/// Runs it and prints what it came to.
///
/// # Errors
/// If an acked cycle was lost, one was counted twice, or the collector did not come back.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut crash = crash::Options::new(&xtask::emberline()?, options.cycles, options.seed);
    crash.agents = options.agents.into();
    crash.recent = options.recent;
    crash.data.clone_from(&options.data);
    crash.tell = |line| eprintln!("{line}");
    println!("{}", crash::run(&crash)?);
    Ok(())
}
