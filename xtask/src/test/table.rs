//! The table at the end of `cargo xtask test`.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};

/// One step.
pub(crate) struct Row {
    pub(crate) step: String,
    pub(crate) seconds: f64,
    /// Of the commands that the step ran and waited for.
    pub(crate) cpu_seconds: f64,
    pub(crate) outcome: Outcome,
}

/// How a step ended.
pub(crate) enum Outcome {
    Passed,
    Failed,
    /// It passed, with figures.
    Note(String),
    /// It did not run, with the reason.
    Skipped(String),
}

/// Measures a step.
pub(crate) struct Stopwatch {
    start: Instant,
    cpu_at_start: f64,
}

impl Stopwatch {
    /// # Errors
    /// If the system does not tell the CPU time of commands.
    pub(crate) fn start() -> Result<Stopwatch> {
        Ok(Stopwatch {
            start: Instant::now(),
            cpu_at_start: cpu_of_commands()?,
        })
    }

    /// The row of the step that was started with this.
    ///
    /// # Errors
    /// Like [`Stopwatch::start`].
    pub(crate) fn stop(self, step: String, outcome: Outcome) -> Result<Row> {
        Ok(Row {
            step,
            seconds: self.start.elapsed().as_secs_f64(),
            cpu_seconds: cpu_of_commands()? - self.cpu_at_start,
            outcome,
        })
    }
}

/// CPU seconds of all commands so far that have ended and were waited for.
fn cpu_of_commands() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("reading the CPU time of commands")?;
    let times = [usage.user_time(), usage.system_time()];
    Ok(times
        .iter()
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6)
        .sum())
}

/// Step, seconds, CPU seconds and result of each row.
pub(crate) fn render(rows: &[Row]) -> String {
    let width = rows
        .iter()
        .map(|row| row.step.len())
        .max()
        .unwrap_or(0)
        .max("step".len());
    let mut text = format!("{:width$}  seconds   CPU s  result\n", "step");
    for row in rows {
        let result = match &row.outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed => "FAILED".to_owned(),
            Outcome::Note(figures) => figures.clone(),
            Outcome::Skipped(reason) => format!("skipped: {reason}"),
        };
        let Row {
            step,
            seconds,
            cpu_seconds,
            ..
        } = row;
        let _ = writeln!(
            text,
            "{step:width$}  {seconds:7.1}  {cpu_seconds:6.0}  {result}"
        );
    }
    let total: f64 = rows.iter().map(|row| row.seconds).sum();
    let cpu_total: f64 = rows.iter().map(|row| row.cpu_seconds).sum();
    let _ = writeln!(text, "{:width$}  {total:7.1}  {cpu_total:6.0}", "total");
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn each_step_is_a_row_with_its_time_and_result() {
        let rows = [
            row("format", 1.26, 2.4, Outcome::Passed),
            row("clippy-small-agent", 123.0, 201.0, Outcome::Failed),
            row(
                "page",
                0.0,
                0.0,
                Outcome::Skipped("an earlier step failed".into()),
            ),
        ];
        expect![[r#"
            step                seconds   CPU s  result
            format                  1.3       2  passed
            clippy-small-agent    123.0     201  FAILED
            page                    0.0       0  skipped: an earlier step failed
            total                 124.3     203
        "#]]
        .assert_eq(&render(&rows));
    }

    fn row(step: &str, seconds: f64, cpu_seconds: f64, outcome: Outcome) -> Row {
        Row {
            step: step.into(),
            seconds,
            cpu_seconds,
            outcome,
        }
    }
}
