//! The measured programs, and the profilers of this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use xtask::{BENCH_MANIFEST, cargo};

use super::child::{self, Figures};

/// The program that a load runs in: each peer has a binary of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Binary {
    /// With no profiler except the agent.
    Load,
    /// With pprof, which unwinds by the backtrace crate.
    Pprof,
    /// With pprof, which unwinds by framehop.
    Framehop,
}

/// The programs that can run here.
pub(super) struct Programs {
    load: PathBuf,
    pprof: Option<PathBuf>,
    framehop: Option<PathBuf>,
    pub(super) has_perf: bool,
    /// Sentences about missing programs.
    pub(super) notes: Vec<String>,
}

/// One run of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) load: &'static str,
    pub(super) profiler: &'static str,
    pub(super) hertz: u32,
    pub(super) threads: usize,
    pub(super) units: u64,
    pub(super) settle: Duration,
    pub(super) window: Duration,
}

/// The profiler that records from outside the process.
pub(super) const PERF: &str = "perf";

impl Programs {
    /// Builds the load program and the peers that build here.
    ///
    /// # Errors
    /// If the load program does not build. A peer that does not build becomes a note.
    pub(super) fn build() -> Result<Programs> {
        let target = xtask::target()?;
        build(&target, &[BENCH_MANIFEST, "--package", "emberline-load"])?;
        let mut notes = Vec::new();
        let mut try_peer = |mode: &str, features: &[&str]| {
            peer(&target, mode, features).map_err(|error| {
                notes.push(format!(
                    "Without pprof's mode {mode}, which was not built: {error:#}."
                ));
            })
        };
        let pprof = try_peer("backtrace", &[]).ok();
        let framehop = try_peer("framehop", &["--features", "framehop"]).ok();
        let has_perf = match probe_perf() {
            Ok(()) => true,
            Err(reason) => {
                notes.push(format!("Without perf: {reason:#}."));
                false
            }
        };
        let load = target.join("release/sampler-load");
        Ok(Programs {
            load,
            pprof,
            framehop,
            has_perf,
            notes,
        })
    }

    /// Runs a load; `None` if its program is missing, or if it fails, which is printed.
    pub(super) fn try_run(&self, binary: Binary, run: &Run) -> Option<Figures> {
        child::try_run(&mut self.command(binary, run)?, run.settle + run.window)
    }

    /// The command of a run; `None` if its program is missing.
    pub(super) fn command(&self, binary: Binary, run: &Run) -> Option<Command> {
        let program = match binary {
            Binary::Load => &self.load,
            Binary::Pprof => self.pprof.as_ref()?,
            Binary::Framehop => self.framehop.as_ref()?,
        };
        let mut command = if run.profiler == PERF {
            if !self.has_perf {
                return None;
            }
            let mut perf = Command::new(PERF);
            perf.args([
                "record",
                "-F",
                &run.hertz.to_string(),
                "-g",
                "-o",
                "/dev/null",
                "--",
            ]);
            perf.arg(program);
            perf
        } else {
            Command::new(program)
        };
        command.args(run.arguments());
        Some(command)
    }
}

impl Run {
    fn arguments(&self) -> Vec<String> {
        // The load itself knows nothing of perf.
        let profiler = if self.profiler == PERF {
            "none"
        } else {
            self.profiler
        };
        let mut arguments = vec![self.load.to_owned(), "--profiler".into(), profiler.into()];
        for (name, number) in [
            ("--hertz", u128::from(self.hertz)),
            ("--threads", self.threads as u128),
            ("--units", u128::from(self.units)),
            ("--settle-ms", self.settle.as_millis()),
            ("--window-ms", self.window.as_millis()),
        ] {
            arguments.extend([name.to_owned(), number.to_string()]);
        }
        arguments
    }
}

fn build(target: &Path, arguments: &[&str]) -> Result<()> {
    eprintln!("==> cargo build --release {}", arguments.join(" "));
    let mut command = cargo(&["build", "--release", "--quiet"]);
    let status = command
        .args(arguments)
        .arg("--target-dir")
        .arg(target)
        .status()?;
    if !status.success() {
        bail!("`cargo build --release {}` failed", arguments.join(" "));
    }
    Ok(())
}

/// Builds one mode of pprof. Both builds write the same file, so each is copied.
fn peer(target: &Path, mode: &str, features: &[&str]) -> Result<PathBuf> {
    let folder = target.join("peers");
    let arguments = [&["--manifest-path", "xtask/peers/Cargo.toml"], features].concat();
    build(&folder, &arguments)?;
    let copy = folder.join(format!("sampler-load-pprof-{mode}"));
    fs::copy(folder.join("release/sampler-load-peers"), &copy)?;
    Ok(copy)
}

/// Whether perf is installed and may record.
fn probe_perf() -> Result<()> {
    let mut command = Command::new(PERF);
    command.args(["record", "-F", "100", "-g", "-o", "/dev/null", "--", "true"]);
    let output = command.output().context("perf is not on this machine")?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!(
            "perf may not record here: {}",
            stderr.lines().next().unwrap_or("no reason given")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Run = Run {
        load: "cpu",
        profiler: "emberline",
        hertz: 100,
        threads: 2,
        units: 7,
        settle: Duration::from_millis(5),
        window: Duration::from_secs(1),
    };

    fn check(has_perf: bool, run: &Run) -> Option<String> {
        let load = "load".into();
        let programs = Programs {
            load,
            pprof: None,
            framehop: None,
            has_perf,
            notes: vec![],
        };
        assert!(programs.command(Binary::Pprof, run).is_none());
        programs
            .command(Binary::Load, run)
            .map(|command| format!("{command:?}").replace('"', ""))
    }

    #[test]
    fn a_run_is_a_load_and_its_settings() {
        let rest = "--hertz 100 --threads 2 --units 7 --settle-ms 5 --window-ms 1000";
        assert_eq!(
            check(false, &RUN),
            Some(format!("load cpu --profiler emberline {rest}"))
        );
        let perf = Run {
            profiler: PERF,
            ..RUN
        };
        assert_eq!(check(false, &perf), None);
        let command =
            format!("perf record -F 100 -g -o /dev/null -- load cpu --profiler none {rest}");
        assert_eq!(check(true, &perf), Some(command));
    }
}
