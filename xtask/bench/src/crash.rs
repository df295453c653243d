//! `cargo xtask crash`: the long form of the crash test in `cargo xtask test`.

use std::path::PathBuf;

use anyhow::Result;
use simulation::crash;

/// Length and seed.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Kills of the collector.
    #[arg(long, default_value_t = 300)]
    cycles: u32,
    /// Seed of contents and instants. The scheduler does not follow it, so a seed that failed may have
    /// to run more than once.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Simulated workers.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    agents: u16,
    /// The collector's data directory, which is not deleted. By default a temporary one, deleted after
    /// success.
    #[arg(long)]
    data: Option<PathBuf>,
    /// A store in a bucket, s3://BUCKET/PREFIX, that has all acknowledged data: the data directory is deleted
    /// at each kill. Credentials and endpoint are in the AWS_ variables.
    #[arg(long)]
    store: Option<String>,
    /// Sample only the last ten minutes, for a collector without tables.
    #[arg(long)]
    recent: bool,
}

/// Runs the test and prints its result.
///
/// # Errors
/// If an acked cycle was lost, one was counted twice, or the collector did not restart.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut crash = crash::Options::new(&xtask::emberline()?, options.cycles, options.seed);
    crash.agents = options.agents.into();
    crash.recent = options.recent;
    crash.data.clone_from(&options.data);
    crash.store = options.store.as_ref().map(|store| crash::StoreTarget {
        arguments: crash::store_arguments(store, "crash"),
        environment: Vec::new(),
    });
    crash.tell = |line| eprintln!("{line}");
    println!("{}", crash::run(&crash)?);
    Ok(())
}
