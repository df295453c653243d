//! Developer commands: `cargo xtask --help`.

mod bench;
mod crash;
mod proto;
mod readers;
mod soak;
mod test;
mod tidy;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;
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
    /// Kills a real collector under load, again and again, and holds what it answers to an independent
    /// record.
    Crash(crash::Options),
    /// Wears out the sampler: a million threads, 100,000 libraries, 10,000 processes under 1 kHz.
    Soak(soak::Options),
    /// What `bench ingest` measures beside the collector.
    #[command(hide = true)]
    Serve(bench::ingest::bare::Options),
    /// Writes the Rust code of profiler-core/proto/emberline.proto (no protoc needed).
    Proto,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Test(options) => test::run(&options),
        Task::Tidy => tidy::run(),
        Task::Bench(bench) => bench.run(),
        Task::Crash(options) => crash::run(&options),
        Task::Soak(options) => soak::run(&options),
        Task::Serve(options) => bench::ingest::bare::serve(&options),
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

/// The `emberline` binary, built anew if anything changed.
fn emberline() -> anyhow::Result<PathBuf> {
    let build = ["build", "--release", "--package", "emberline-cli", "--message-format", "json"];
    let output = cargo(&build).stderr(Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "cargo {} failed", build.join(" "));
    // Cargo says where it put the binary, wherever the target folder is.
    let messages = String::from_utf8(output.stdout)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
    let mut path = messages.filter_map(|message: serde_json::Value| {
        let is_ours = message["target"]["name"] == "emberline";
        is_ours.then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    path.next_back().context("cargo built no `emberline`")
}

/// The cargo that started us, run at the workspace's root.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    command
}
