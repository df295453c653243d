//! Developer commands: `cargo xtask --help`.

mod aarch64;
mod clients;
mod dist;
mod fuzz;
mod packages;
mod python;
mod readers;
mod soak;
mod sql;
mod test;
mod tidy;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

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
    /// Runs the checks and tests that a change must pass, and prints a table of the steps; with `--all`, all that
    /// there are.
    Test(test::Options),
    /// Checks what no compiler does: dependencies between our crates and files, where unsafe code
    /// and protocols are used, names, wording, lengths of files, unfinished work, links.
    Tidy(tidy::Options),
    /// Measures against a peer in one run and prints ratios; `cargo xtask bench --help` lists what.
    Bench(Forwarded),
    /// Kills a real collector under load, again and again, and compares its answers with an
    /// independent record.
    Crash(Forwarded),
    /// Kills, pauses, cuts off and replaces collectors with stores in a bucket, while real workers move between
    /// them, and compares the workers' own accounts with all answers (needs Python with `venv`).
    Chaos(Forwarded),
    /// Feeds hostile inputs to everything that reads what others wrote, guided by coverage (needs a
    /// C++ compiler).
    Fuzz(fuzz::Options),
    /// Runs agents and a collector by seeds, with a network, a disk and clocks that fail; `--seed N`
    /// repeats one run and prints its events.
    Simulate(Forwarded),
    /// Runs 6,000 seeds of `simulate`, then stresses the sampler: a million threads, 100,000 libraries,
    /// 10,000 processes at 1 kHz.
    Soak(soak::Options),
    /// Starts a bucket, two collectors, a fleet and a Ballista cluster on this machine, prints their addresses,
    /// and ends all of it at Ctrl-C.
    Cluster(Forwarded),
    /// Writes the Rust code of profiler-core/proto/emberline.proto (no protoc needed).
    Proto(Forwarded),
    /// Writes the header of the C interface, agent/c/include/emberline.h, from the functions of agent/c.
    Header(Forwarded),
    /// Writes the page's bundle, collector/page, from its sources in collector/ui (needs Node.js).
    Page(page_bundle::Options),
    /// Makes what a release consists of, in `target/dist`: the program without debug information, that
    /// information, manual pages, completions, a Debian package.
    Dist(dist::Options),
    /// Answers six questions on the page of a demo: clicks and seconds of each, and pictures of the answers
    /// (needs Node.js and Chromium).
    Walk,
}

/// Arguments that another program reads.
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
        Task::Cluster(forwarded) => forwarded.become_command("cluster"),
        Task::Crash(forwarded) => forwarded.run("crash"),
        Task::Chaos(forwarded) => forwarded.run("chaos"),
        Task::Simulate(forwarded) => simulate(&forwarded.arguments),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Soak(options) => soak::run(&options),
        Task::Proto(forwarded) => forwarded.run("proto"),
        Task::Header(forwarded) => forwarded.run("header"),
        Task::Dist(options) => dist::run(&options),
        Task::Page(options) => page_bundle::run(&options),
        Task::Walk => xtask::emberline().and_then(|path| xtask::page::walk(&path)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the fault simulation, which needs our own crates; this program needs none.
fn simulate(arguments: &[OsString]) -> Result<()> {
    let package = "emberline-fault-simulation";
    let mut simulate = xtask::cargo(&["run", "--release", "--quiet", "--package", package, "--"]);
    let status = simulate
        .args(arguments)
        .status()
        .context("starting cargo")?;
    if !status.success() {
        bail!("`cargo xtask simulate` failed ({status})");
    }
    Ok(())
}

impl Forwarded {
    /// Runs `emberline-bench`, which needs our own crates and gRPC; this program needs neither.
    fn run(&self, command: &str) -> Result<()> {
        let status = self.command(command)?.status().context("starting cargo")?;
        if !status.success() {
            bail!("`cargo xtask {command}` failed ({status})");
        }
        Ok(())
    }

    /// The same in place of this process, so that Ctrl-C goes to the command alone and its end is ours.
    fn become_command(&self, command: &str) -> Result<()> {
        Err(self.command(command)?.exec()).context("starting cargo")
    }

    fn command(&self, command: &str) -> Result<Command> {
        let package = ["--package", "emberline-bench"];
        let mut bench = xtask::bench_cargo("run", &["--release", "--quiet"])?;
        bench
            .args(package)
            .args(["--", command])
            .args(&self.arguments);
        Ok(bench)
    }
}
