//! Bare readers of the pushed profiles, in the same run: the least that a push can cost, and what Go takes.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::time::{ClockId, clock_gettime};

use crate::ingest::pprof;

/// Reads of each profile.
const ROUNDS: u32 = 10;

/// The program around `profile.ParseData`, and the version of its module.
const READER: &str = include_str!("reader.go");
const MODULE: &str = "module reader\n\ngo 1.21\n\nrequire github.com/google/pprof v0.0.0-20250403155104-27863c87afa6\n";

/// The mean CPU time of one profile.
pub(super) struct Floor {
    /// Inflated and decoded by `flate2` and `prost`, which look no name up and store nothing.
    pub(super) decoded: Duration,
    /// Read by Go's own reader; `None` without Go or its module.
    pub(super) go: Option<Duration>,
}

impl Floor {
    pub(super) fn measure(profiles: &[Vec<u8>]) -> Result<Floor> {
        let go = match read_by_go(profiles) {
            Ok(go) => Some(go),
            Err(error) => {
                eprintln!("Go's reader is missing from the table: {error:#}");
                None
            }
        };
        Ok(Floor {
            decoded: decode(profiles)?,
            go,
        })
    }
}

fn decode(profiles: &[Vec<u8>]) -> Result<Duration> {
    let mut begin = thread_cpu();
    // The first round warms up.
    for round in 0..=ROUNDS {
        if round == 1 {
            begin = thread_cpu();
        }
        for profile in profiles {
            ensure!(pprof::sample_count(profile)? > 0, "a profile is empty");
        }
    }
    Ok((thread_cpu() - begin) / ROUNDS / u32::try_from(profiles.len())?)
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn read_by_go(profiles: &[Vec<u8>]) -> Result<Duration> {
    let temporary = tempfile::Builder::new()
        .prefix("emberline-bench-")
        .tempdir()?;
    let folder = temporary.path();
    for (number, profile) in profiles.iter().enumerate() {
        fs::write(folder.join(format!("{number}.pb.gz")), profile)?;
    }
    fs::write(folder.join("main.go"), READER)?;
    fs::write(folder.join("go.mod"), MODULE)?;
    for arguments in [&["mod", "tidy"][..], &["build", "-o", "reader", "."]] {
        output(Command::new("go").current_dir(folder).args(arguments))
            .context("go needs access to its proxy")?;
    }
    let mut reader = Command::new(folder.join("reader"));
    let text = output(reader.arg(folder).arg(ROUNDS.to_string()))?;
    let nanoseconds = text.trim().parse().context("the reader prints a number")?;
    Ok(Duration::from_nanos(nanoseconds))
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}
