//! The table at the end of `cargo xtask test`.

use std::fmt::Write as _;

/// One step.
pub(crate) struct Row {
    pub(crate) step: String,
    pub(crate) seconds: f64,
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

/// Step, seconds and result of each row.
pub(crate) fn render(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.step.len()).max().unwrap_or(0).max("step".len());
    let mut text = format!("{:width$}  seconds  result\n", "step");
    for row in rows {
        let result = match &row.outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed => "FAILED".to_owned(),
            Outcome::Note(figures) => figures.clone(),
            Outcome::Skipped(reason) => format!("skipped: {reason}"),
        };
        let _ = writeln!(text, "{:width$}  {:7.1}  {result}", row.step, row.seconds);
    }
    let total: f64 = rows.iter().map(|row| row.seconds).sum();
    let _ = writeln!(text, "{:width$}  {total:7.1}", "total");
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn each_step_is_a_row_with_its_time_and_result() {
        let row = |step: &str, seconds, outcome| Row { step: step.into(), seconds, outcome };
        let rows = [
            row("format", 1.26, Outcome::Passed),
            row("clippy-small-agent", 123.0, Outcome::Failed),
            row("page", 0.0, Outcome::Skipped("an earlier step failed".into())),
        ];
        expect![[r#"
            step                seconds  result
            format                  1.3  passed
            clippy-small-agent    123.0  FAILED
            page                    0.0  skipped: an earlier step failed
            total                 124.3
        "#]]
        .assert_eq(&render(&rows));
    }
}
