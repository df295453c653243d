//! Developer commands: `cargo xtask --help`.

mod readers;
mod soak;
mod test;
mod tidy;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use xtask::page_bundle;

/// Developer commands of Emberline.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs every check and test that a change must pass, and prints a table of the steps.
    Test(test::Options),
    /// Checks what no compiler does: dependencies between our crates and files, where unsafe code
    /// and protocols are used, names, wording, lengths of files, unfinished work, links.
    Tidy(tidy::Options),
    /// Measures against a peer in one run and prints ratios; `cargo xtask bench --help` lists what.
    Bench(Forwarded),
    /// Kills a real collector under load, again and again, and compares its answers with an
    /// independent record.
    Crash(Forwarded),
    /// Stresses the sampler: a million threads, 100,000 libraries, 10,000 processes at 1 kHz.
    Soak(soak::Options),
    /// Writes the Rust code of profiler-core/proto/emberline.proto (no protoc needed).
    Proto(Forwarded),
    /// Writes the page's bundle, collector/page, from its sources in collector/ui (needs Node.js).
    Page(page_bundle::Options),
}

/// Arguments that `emberline-bench` reads.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
struct Forwarded {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Test(options) => test::run(&options),
        Task::Tidy(options) => tidy::run(&options),
        Task::Bench(forwarded) => forwarded.run("bench"),
        Task::Crash(forwarded) => forwarded.run("crash"),
        Task::Soak(options) => soak::run(&options),
        Task::Proto(forwarded) => forwarded.run("proto"),
        Task::Page(options) => page_bundle::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Forwarded {
    /// Runs `emberline-bench`, which needs our own crates and gRPC; this program needs neither.
    fn run(&self, command: &str) -> Result<()> {
        let mut bench =
            xtask::cargo(&["run", "--release", "--quiet", "--package", "emberline-bench", "--"]);
        let status = bench.arg(command).args(&self.arguments).status().context("starting cargo")?;
        if !status.success() {
            bail!("`cargo xtask {command}` failed ({status})");
        }
        Ok(())
    }
}
