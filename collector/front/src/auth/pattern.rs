//! Patterns of worker ids.

use std::fmt;

use serde::{Deserialize, Serialize};

use base::limits::WORKER_PATTERN_BYTES_MAX;

/// A pattern of worker ids: `*` stands for any text, everything else for itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkerPattern(String);

/// The text is not a pattern.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a pattern of workers has 1 to {WORKER_PATTERN_BYTES_MAX} bytes without control characters, such \
     as `etl-*`"
)]
pub struct WorkerPatternError;

impl WorkerPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// [`WorkerPatternError`] if it is empty, too long or has control characters.
    pub fn parse(text: &str) -> Result<WorkerPattern, WorkerPatternError> {
        let has_length = (1..=WORKER_PATTERN_BYTES_MAX).contains(&text.len());
        if !has_length || text.chars().any(char::is_control) {
            return Err(WorkerPatternError);
        }
        Ok(WorkerPattern(text.to_owned()))
    }

    /// Whether the pattern stands for this worker.
    #[must_use]
    pub fn matches(&self, worker: &str) -> bool {
        let Some((head, rest)) = self.0.split_once('*') else {
            return self.0 == worker;
        };
        let Some(mut left) = worker.strip_prefix(head) else {
            return false;
        };
        let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
        // The first place of each part leaves the most text for the later ones.
        for part in middle.split('*') {
            match left.find(part) {
                Some(at) => left = &left[at + part.len()..],
                None => return false,
            }
        }
        left.ends_with(tail)
    }
}

impl fmt::Display for WorkerPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for WorkerPattern {
    type Error = WorkerPatternError;

    fn try_from(text: String) -> Result<WorkerPattern, WorkerPatternError> {
        WorkerPattern::parse(&text)
    }
}

impl From<WorkerPattern> for String {
    fn from(pattern: WorkerPattern) -> String {
        pattern.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, matched: &[&str], others: &[&str]) {
        let parsed = WorkerPattern::parse(pattern).unwrap();
        for worker in matched {
            assert!(parsed.matches(worker), "{pattern} {worker}");
        }
        for worker in others {
            assert!(!parsed.matches(worker), "{pattern} {worker}");
        }
    }

    #[test]
    fn a_star_stands_for_any_text() {
        check("etl-1", &["etl-1"], &["etl-", "etl-11", "xetl-1", ""]);
        check("*", &["", "a", "*"], &[]);
        check("etl-*", &["etl-", "etl-1", "etl-*"], &["etl", "xetl-1"]);
        check("*-gpu", &["-gpu", "a-gpu", "-gpu-gpu"], &["a-gpu-1", "gpu"]);
        check(
            "a*b*c",
            &["abc", "aXbYc", "abbcc", "abcbc"],
            &["ac", "acb", "abcd", "bac"],
        );
        check("a*a", &["aa", "aba"], &["a", "ab"]);
        check("a**a", &["aa", "aba"], &["a"]);
        check("ab*bc", &["abbc", "ab bc"], &["abc"]);
        // Brackets and question marks stand for themselves.
        check("w[1]?", &["w[1]?"], &["w1", "w[1]x"]);
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_time() {
        let pattern = WorkerPattern::parse(&"*a".repeat(100)).unwrap();
        assert!(!pattern.matches(&("a".repeat(4_096) + "b")));
    }

    #[test]
    fn empty_and_long_patterns_are_rejected() {
        let long = "x".repeat(WORKER_PATTERN_BYTES_MAX + 1);
        for text in ["", &long, "a\nb"] {
            assert_eq!(WorkerPattern::parse(text), Err(WorkerPatternError));
        }
    }
}
