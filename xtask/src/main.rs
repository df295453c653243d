//! Developer commands: `cargo xtask --help`.

mod bench;
mod proto;
mod soak;
mod test;
mod tidy;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

/// Developer commands of Emberline.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs every check and test that a change must pass, stopping at the first failure.
    Test(test::Options),
    /// Checks what no compiler does: edges between our crates, where unsafe and protocols live,
    /// lengths of files, unfinished work, links in the documentation.
    Tidy,
    /// Measures, beside a peer and in one run; prints ratios. Results are kept in
    /// docs/BENCHMARKS.md.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Wears out the sampler: a million threads, 100,000 libraries, 10,000 processes under 1 kHz.
    Soak(soak::Options),
    /// Writes the Rust code of profiler-core/proto/emberline.proto (no protoc needed).
    Proto,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Test(options) => test::run(&options),
        Task::Tidy => tidy::run(),
        Task::Bench(bench) => bench.run(),
        Task::Soak(options) => soak::run(&options),
        Task::Proto => proto::write(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root.
fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask is a folder of the workspace").into()
}

/// The cargo that started us, run at the workspace's root.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    command
}
