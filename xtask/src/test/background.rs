//! A step that runs in the background, in a process of its own: a browser waits most of the time.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result, bail};
use xtask::{announce, cargo, light};

use super::Step;
use super::table::Outcome;

/// A running step, whose output goes to a file.
pub(super) struct Background {
    step: Step,
    child: Child,
    output: PathBuf,
}

impl Background {
    pub(super) fn start(step: Step) -> Result<Background> {
        let name = step.name();
        let output = light()?.join(format!("{name}.log"));
        let file =
            File::create(&output).with_context(|| format!("creating {}", output.display()))?;
        // Not this program's file: the step `build` may have replaced it.
        let arguments = ["xtask", "test", "--only", &name];
        announce(&format!("cargo {} > {} &", arguments.join(" "), output.display()));
        let child = cargo(&arguments)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("starting a step in the background")?;
        Ok(Background { step, child, output })
    }

    /// Waits until the step ends, and prints its output.
    pub(super) fn finish(mut self) -> Result<Outcome> {
        let status = self.child.wait()?;
        let output = fs::read(&self.output)?;
        io::Write::write_all(&mut io::stderr(), &output)?;
        if !status.success() {
            bail!("its output is above");
        }
        Ok(outcome_in(&String::from_utf8_lossy(&output), &self.step.name()))
    }
}

/// A successful step was skipped if its last lines say so.
fn outcome_in(output: &str, step: &str) -> Outcome {
    let prefix = format!("skipped: {step}: ");
    let reason = output.lines().find_map(|line| line.strip_prefix(&prefix));
    reason.map_or(Outcome::Passed, |reason| Outcome::Skipped(reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_step_says_why_to_the_process_that_started_it() {
        let row = super::super::Row {
            step: Step::Page.name(),
            seconds: 0.0,
            cpu_seconds: 0.0,
            outcome: Outcome::Skipped("no chromium".into()),
        };
        let printed = super::super::skipped(&[row]);
        let Outcome::Skipped(reason) = outcome_in(&printed, "page") else {
            panic!("not skipped: {printed}");
        };
        assert_eq!(reason, "no chromium");
        assert!(matches!(outcome_in("page 715 checks\n", "page"), Outcome::Passed));
    }
}
