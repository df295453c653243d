//! A profile in the command line of the Firefox Profiler.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// Longest wait until its daemon answers.
const DAEMON_MAX: Duration = Duration::from_secs(20);
const RETRY_EVERY: Duration = Duration::from_millis(200);

/// A session, whose daemon has the profile until this is dropped.
pub(super) struct Session {
    /// The packages of npm.
    packages: PathBuf,
    name: String,
}

impl Session {
    /// Loads a file.
    pub(super) fn load(packages: PathBuf, name: &str, file: &Path) -> Result<Session> {
        fs::create_dir_all(packages.join("sessions"))?;
        let session = Session {
            packages,
            name: format!("{name}-{}", std::process::id()),
        };
        let file = file.to_str().context("the path of the file is UTF-8")?;
        let loaded = session.ask(&["load", file])?;
        // It fails if its daemon takes longer than half a second to start, which then answers later.
        let deadline = Instant::now() + DAEMON_MAX;
        while !session.ask(&["status"])?.status.success() {
            if Instant::now() > deadline {
                bail!("profiler-cli: {}", String::from_utf8_lossy(&loaded.stderr));
            }
            thread::sleep(RETRY_EVERY);
        }
        Ok(session)
    }

    /// The threads, with their handles and numbers of markers.
    pub(super) fn threads(&self) -> Result<Vec<Value>> {
        let mut listed = self.json(&["thread", "list", "--limit", "0"])?;
        match listed["threads"].take() {
            Value::Array(threads) => Ok(threads),
            _ => bail!("profiler-cli lists no threads: {listed}"),
        }
    }

    /// The time of all samples of a thread, in nanoseconds.
    pub(super) fn sampled_ns(&self, thread: &Value) -> Result<u64> {
        let handle = thread["threadHandle"]
            .as_str()
            .context("a thread without a handle")?;
        let samples = self.json(&[
            "thread",
            "samples",
            "--include-idle",
            "--limit",
            "1",
            "--thread",
            handle,
        ])?;
        let ms = samples["categoryBreakdown"]["totalSamples"]
            .as_f64()
            .with_context(|| format!("no time of samples in {samples}"))?;
        Ok((ms * 1e6).round() as u64)
    }

    fn json(&self, arguments: &[&str]) -> Result<Value> {
        let answer = self.ask(&[arguments, &["--json"]].concat())?;
        let error = String::from_utf8_lossy(&answer.stderr);
        ensure!(
            answer.status.success(),
            "profiler-cli {arguments:?}: {error}"
        );
        Ok(serde_json::from_slice(&answer.stdout)?)
    }

    fn ask(&self, arguments: &[&str]) -> std::io::Result<Output> {
        self.command()
            .args(arguments)
            .args(["--session", &self.name])
            .output()
    }

    fn command(&self) -> Command {
        let mut command = Command::new("node");
        command
            .current_dir(&self.packages)
            .arg("node_modules/.bin/profiler-cli");
        command.env("PROFILER_CLI_SESSION_DIR", self.packages.join("sessions"));
        command
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.command().args(["stop", &self.name]).output();
    }
}
