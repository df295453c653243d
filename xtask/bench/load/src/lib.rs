//! The loads of `cargo xtask bench sampler`. One run of the program is one load under one profiler;
//! it prints its figures as lines of a name and a number, for the benchmark to read.
//!
//! `sampler-load <load> --profiler <name> --hertz <n> --threads <n> --units <n> --settle-ms <n>
//! --window-ms <n>`; a load ignores the settings that it does not use.
//!
//! The loads: `cpu` and `server` do a fixed number of units of work; `idle`, `waking` and `running`
//! hold many threads and measure those of the agent; `bare` is the least that a sampler costs, and `calls` makes
//! the system calls of one as well; `crowd` and `bare-crowd` are `running` and `bare` among threads of the same priority;
//! `waits` counts interrupted system calls; `awake` keeps the processors from idling.

mod cpu;
mod figure;
mod own;
mod profiler;
mod server;
mod settings;
mod threads;
mod waits;
mod work;

use std::process::ExitCode;

use anyhow::{Result, bail};

pub use profiler::{Peer, Running, Totals};

use crate::settings::Settings;
use crate::threads::{Kind, NICE_EQUAL, NICE_MAX};

/// Runs the load that the command line names; `peers` are the profilers that it may name in addition
/// to `none` and `emberline`.
#[must_use]
pub fn main(peers: &[Peer]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments, peers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String], peers: &[Peer]) -> Result<()> {
    let Some((load, settings)) = arguments.split_first() else {
        bail!(
            "name a load: cpu, server, idle, waking, running, crowd, bare, bare-crowd, calls, waits or \
             awake"
        );
    };
    let settings = Settings::parse(settings)?;
    match load.as_str() {
        "cpu" => cpu::run(&settings, peers),
        "server" => server::run(&settings, peers),
        "idle" => threads::run(Kind::Idle, &settings, peers),
        "waking" => threads::run(Kind::Waking, &settings, peers),
        "running" => threads::run(Kind::Running(NICE_MAX), &settings, peers),
        "crowd" => threads::run(Kind::Running(NICE_EQUAL), &settings, peers),
        "bare" => threads::run_bare(NICE_MAX, &settings),
        "bare-crowd" => threads::run_bare(NICE_EQUAL, &settings),
        "calls" => threads::run_calls(&settings),
        "waits" => waits::run(&settings, peers),
        "awake" => threads::keep_awake(),
        _ => bail!("there is no load `{load}`"),
    }
}
