//! Cost of a run.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

/// File in a program's folder with the number of requests that it has served, if that differs from run to run.
pub(super) const UNITS: &str = "units";

/// One run.
#[derive(Debug)]
pub(super) struct Ran {
    wall: Duration,
    cpu: Duration,
    units: f64,
    /// The exit code; -1 after a signal.
    pub(super) code: i32,
    /// Standard output, or a hash of a long one.
    pub(super) output: Vec<u8>,
}

impl Ran {
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.cpu.as_secs_f64()
    }

    pub(super) fn cpu_per_unit(&self) -> f64 {
        self.cpu.as_secs_f64() / self.units
    }

    pub(super) fn wall_per_unit(&self) -> f64 {
        self.wall.as_secs_f64() / self.units
    }
}

/// CPU time of all processes that were waited for.
fn children_cpu() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let microseconds =
        usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(microseconds.try_into()?))
}

/// Runs a command in a folder to its end. Its messages go to the file `messages` there.
///
/// # Errors
/// If it cannot be started.
pub(super) fn run(command: &mut Command, work: &Path) -> Result<Ran> {
    let output = work.join("output");
    let units_file = work.join(UNITS);
    // It may be the first run.
    let _ = fs::remove_file(&units_file);
    let cpu_before = children_cpu()?;
    let begin = Instant::now();
    let status = command
        .current_dir(work)
        .stdin(Stdio::null())
        .stdout(File::create(&output)?)
        .stderr(File::create(work.join("messages"))?)
        .status()
        .with_context(|| format!("starting {command:?}"))?;
    let wall = begin.elapsed();
    let units_text = fs::read_to_string(units_file).unwrap_or_default();
    Ok(Ran {
        wall,
        cpu: children_cpu()?.saturating_sub(cpu_before),
        units: units_text.trim().parse().unwrap_or(1.0),
        code: status.code().unwrap_or(-1),
        output: fs::read(&output)?,
    })
}

/// Sorts and returns the middle.
pub(super) fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    if numbers.len() % 2 == 1 {
        numbers[middle]
    } else {
        f64::midpoint(numbers[middle - 1], numbers[middle])
    }
}
