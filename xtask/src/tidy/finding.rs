//! A breach of a rule.

use std::fmt;

/// A breach of a rule.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) rule: &'static str,
    /// Path from the root, with `/`.
    pub(super) path: String,
    /// From 1; 0 for the whole file.
    pub(super) line: usize,
    pub(super) text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding {
            rule, path, line, ..
        } = self;
        match line {
            0 => write!(f, "{path}: {} [{rule}]", self.text),
            line => write!(f, "{path}:{line}: {} [{rule}]", self.text),
        }
    }
}

/// The findings as they are printed.
#[cfg(test)]
pub(super) fn printed(findings: &[Finding]) -> String {
    findings
        .iter()
        .map(|finding| format!("{finding}\n"))
        .collect()
}
