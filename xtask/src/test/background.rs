//! Runs steps that no clock judges, and compiles and installs what later steps need, while the tests run:
//! tests wait for almost half of their time.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use xtask::{announce, root};

/// `cargo xtask test` with other steps, at the lowest priority, so that tests find the processors free.
pub(super) struct Background {
    process: Child,
}

impl Background {
    /// Prepares steps and runs others, by their names. If a preparation fails, the step repeats it
    /// itself and then says what is wrong.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub(super) fn start(prepared: &[String], run: &[String]) -> Result<Background> {
        let log = File::create(log())?;
        let mut command = Command::new("nice");
        // Not the program's path: the step `build` may have replaced the file.
        let program = format!("/proc/{}/exe", std::process::id());
        command.args(["-n", "19", &program, "test"]);
        for (option, steps) in [("--prepare", prepared), ("--only", run)] {
            if !steps.is_empty() {
                command.arg(option).arg(steps.join(","));
            }
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // A group of its own: it starts cargo, which starts compilers.
        let process = command.process_group(0).spawn().context("starting nice")?;
        Ok(Background { process })
    }

    /// Waits for its end, and prints its table.
    ///
    /// # Errors
    /// If a step failed, whose output is printed then.
    pub(super) fn wait(mut self) -> Result<()> {
        let status = self.process.wait().context("waiting for the steps in the background")?;
        announce("in the background");
        let text = fs::read_to_string(log())?;
        if status.success() {
            eprint!("{}", table_at_end(&text));
            return Ok(());
        }
        eprint!("{text}");
        bail!("a step in the background failed ({status}); it is named above")
    }
}

impl Drop for Background {
    /// Ends the compilers too, if a step fails before they are done.
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            let _ = killpg(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGTERM);
            let _ = self.process.wait();
        }
    }
}

/// The table that `cargo xtask test` prints last.
fn table_at_end(text: &str) -> &str {
    text.rfind("\nstep ").map_or("", |start| &text[start..])
}

/// Everything that the steps in the background print.
fn log() -> PathBuf {
    root().join("target/background.log")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::table::{Outcome, Row, render};

    #[test]
    fn the_table_is_found_at_the_end_of_a_log() {
        let row = Row {
            step: "package".into(),
            seconds: 1.0,
            cpu_seconds: 2.0,
            outcome: Outcome::Passed,
        };
        let table = render(&[row]);
        let log = format!("==> cargo package\nstep by step\n\n{table}");
        assert_eq!(table_at_end(&log), format!("\n{table}"));
        assert_eq!(table_at_end("==> cargo package\n"), "");
    }
}
