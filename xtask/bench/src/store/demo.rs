//! A capture of the real fleet that `emberline demo` runs.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use simulation::Api;
use simulation::capture::Capture;

use super::Bench;

/// Workers of the demo: the minimum.
pub(super) const WORKERS: usize = 4;

/// Runs the demo for `seconds` with the bench's data directory, and reads its cycles back.
pub(super) fn capture(bench: &Bench<'_>, seconds: u16) -> Result<Capture> {
    let out = tempfile::Builder::new()
        .prefix("emberline-bench-")
        .tempdir()?;
    let workers = WORKERS.to_string();
    let seconds = seconds.to_string();
    let mut command = Command::new(&bench.serve.program);
    command
        .args([
            "demo",
            "--listen",
            "127.0.0.1:0",
            "--workers",
            &workers,
            "--seconds",
            &seconds,
        ])
        .arg("--data")
        .arg(&bench.data)
        .arg("--out")
        .arg(out.path())
        .env("EMBERLINE_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    ensure!(command.status()?.success(), "the demo failed");
    let running = bench.serve.start()?;
    let api = Api::new(running.address);
    let held = api.json("workers")?;
    let edge = |name: &str| {
        let edge = held["retained"]["data"][name].as_i64();
        edge.with_context(|| format!("the demo's store does not report {name}"))
    };
    const SECOND_NS: i64 = 1_000_000_000;
    let from = edge("from_ns")?.div_euclid(SECOND_NS);
    let to = edge("to_ns")?.div_euclid(SECOND_NS) + 1;
    let capture = Capture::read(&api, from..to)?;
    running.process.stop()?;
    Ok(capture)
}
