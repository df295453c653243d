//! Diagnoses problems that spoil profiles: of a program's file, of this machine, of a fleet.

pub(crate) mod collector;
pub(crate) mod machine;
pub(crate) mod program;
mod quality;

use flamegraph::text::{printable, wrapped_words};
use serde::Serialize;

use crate::grid::line_columns;
use crate::output::json_line;

/// Where the text of a finding begins, after its level and name.
const FOUND_COLUMN: usize = 25;

/// Severity of a finding.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// No problem.
    Ok,
    /// Profiles are less detailed or accurate than they could be.
    Warn,
    /// Something essential is missing.
    Bad,
}

/// A check, its result, and advice.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    check: &'static str,
    level: Level,
    found: String,
    advice: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            check,
            level: Level::Ok,
            found: found.into(),
            advice: None,
        }
    }

    fn warn(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding {
            check,
            level: Level::Warn,
            found: found.into(),
            advice: Some(advice.into()),
        }
    }

    fn bad(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding {
            level: Level::Bad,
            ..Finding::warn(check, found, advice)
        }
    }
}

/// The findings about a subject.
#[derive(Serialize, Debug)]
pub(crate) struct Report {
    pub(crate) subject: String,
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn count(&self, level: Level) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.level == level)
            .count()
    }

    /// A line for each finding, with its advice below. Longer ones continue below themselves.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n", printable(&self.subject));
        for Finding {
            check,
            level,
            found,
            advice,
        } in &self.findings
        {
            let level = match level {
                Level::Ok => "ok",
                Level::Warn => "warn",
                Level::Bad => "bad",
            };
            let found = format!("{level:<5} {check:<18} {}", printable(found));
            text += &wrapped_words(&found, FOUND_COLUMN, line_columns());
            text.push('\n');
            for line in advice.iter().flat_map(|advice| advice.lines()) {
                let line = format!("{:<24} → {}", "", printable(line));
                text += &wrapped_words(&line, FOUND_COLUMN + 2, line_columns());
                text.push('\n');
            }
        }
        text
    }

    pub(crate) fn json(&self) -> serde_json::Result<Vec<u8>> {
        Ok(json_line(serde_json::to_vec_pretty(self)?))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn findings_are_lines_with_advice_below() {
        let report = Report {
            subject: "a\u{1b}[31m".to_owned(),
            findings: vec![
                Finding::ok("kernel", "6.18"),
                Finding::bad("names", "none", "first\nsecond"),
            ],
        };
        expect![[r#"
            a\u{1b}[31m
            ok    kernel             6.18
            bad   names              none
                                     → first
                                     → second
        "#]]
        .assert_eq(&report.text());
        assert_eq!(
            (report.count(Level::Bad), report.count(Level::Warn)),
            (1, 0)
        );
    }
}
