//! `cargo xtask tidy`: the rules of the house that no compiler checks.
//!
//! [`edges`] reads cargo's own account of our crates; [`source`] reads every file of ours, Rust as
//! [`tokens`]; [`markdown`] and [`features`] read the documentation. What must stand in spite of a
//! rule is on the list [`ALLOWED`], with its reason.

mod circles;
mod edges;
mod features;
mod markdown;
mod names;
mod source;
mod style;
mod tokens;
mod wording;

use std::collections::BTreeMap;
use std::path::Path;
use std::{fmt, fs};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use xtask::{cargo, root};

/// What one rule may overlook in one place.
struct Allowed {
    rule: &'static str,
    /// A file, or a folder with all that is in it.
    path: &'static str,
    reason: &'static str,
}

const ALLOWED: &[Allowed] = &[
    Allowed {
        rule: source::SIGNALS,
        path: "agent/src/agent.rs",
        reason: "the agent's threads start with the program's signals blocked",
    },
    Allowed {
        rule: source::SLEEP,
        path: "agent/tests/local.rs",
        reason: "a sleep is one of the waits that must be distinguished",
    },
    Allowed {
        rule: source::SLEEP,
        path: "tests/src/test_worker.rs",
        reason: "the worker idles for a known time: that is the truth to be measured",
    },
    Allowed {
        rule: source::UNFINISHED,
        path: "xtask/src/tidy",
        reason: "the rule names what it looks for",
    },
];

/// Rules that the tree does not hold yet: `--words` prints their findings, and they fail nothing.
const PENDING: &[&str] = &[names::NAMES, wording::WORDING, style::STYLE];

/// Folders that hold nothing of ours, at any depth.
const SKIPPED_FOLDERS: &[&str] =
    &[".git", "target", "node_modules", "dist", "out", "emberline-data"];

/// What is against a rule, and where.
#[derive(Debug)]
struct Finding {
    rule: &'static str,
    /// Path from the root, with `/`.
    path: String,
    /// From 1; 0 for the whole file.
    line: usize,
    text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { rule, path, line, .. } = self;
        match line {
            0 => write!(f, "{path}: {} [{rule}]", self.text),
            line => write!(f, "{path}:{line}: {} [{rule}]", self.text),
        }
    }
}

/// What to do.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Print the largest group of files that use each other, for each crate, and the references
    /// inside it. Checks nothing.
    #[arg(long)]
    circles: bool,
    /// Print the findings of the rules on names, wording and style, and their number in each
    /// directory. Checks nothing.
    #[arg(long)]
    words: bool,
}

/// Checks the workspace, or prints one of the reports.
///
/// # Errors
/// If anything breaks a rule; each finding was printed.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.circles {
        return circles::print(&metadata()?, &root());
    }
    if options.words {
        return print_pending();
    }
    check()
}

fn print_pending() -> Result<()> {
    let mut counts: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for finding in check_files(&root())?.iter().filter(|finding| PENDING.contains(&finding.rule)) {
        println!("{finding}");
        let directory = finding.path.split('/').take(3).collect::<Vec<_>>().join("/");
        *counts.entry((finding.rule, directory)).or_default() += 1;
    }
    for ((rule, directory), count) in &counts {
        println!("{rule} {count:5} {directory}");
    }
    Ok(())
}

fn metadata() -> Result<Value> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("starting cargo metadata")?;
    if !metadata.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&metadata.stderr));
    }
    Ok(serde_json::from_slice(&metadata.stdout)?)
}

/// Checks the workspace.
///
/// # Errors
/// If anything breaks a rule; each finding was printed.
pub(crate) fn check() -> Result<()> {
    let mut findings = edges::check(&metadata()?)?;
    findings.extend(check_files(&root())?);
    findings.retain(|finding| !PENDING.contains(&finding.rule));
    let findings = without_allowed(findings, ALLOWED);
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!(
            "tidy: {count} findings; what must stay is allowed, with its reason, in \
             xtask/src/tidy/mod.rs"
        ),
    }
}

/// All findings in the files below `root`, in order of paths.
fn check_files(root: &Path) -> Result<Vec<Finding>> {
    let mut paths = Vec::new();
    list(root, "", &mut paths)?;
    paths.sort();
    let mut findings = Vec::new();
    let mut tests = features::FeatureTests::default();
    for path in paths {
        // Golden data of tests may be anything, not only text.
        let Ok(text) = fs::read_to_string(root.join(&path)) else {
            continue;
        };
        findings.extend(source::check(&path, &text));
        tests.read(&path, &text);
        if path.ends_with(".md") {
            findings
                .extend(markdown::check_links(&path, &text, |target| root.join(target).exists()));
        }
        if path == "README.md" {
            findings.extend(markdown::check_readme(&text));
        }
    }
    findings.extend(tests.check());
    Ok(findings)
}

/// Collects the files below `folder`, which is a path from `root`.
fn list(root: &Path, folder: &str, paths: &mut Vec<String>) -> Result<()> {
    let absolute = root.join(folder);
    let entries = fs::read_dir(&absolute).with_context(|| absolute.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            bail!("a file below {folder} has a name that is not UTF-8");
        };
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_file() {
            paths.push(path);
        } else if kind.is_dir() && !SKIPPED_FOLDERS.contains(&name.as_str()) {
            list(root, &path, paths)?;
        }
    }
    Ok(())
}

/// Takes out what is allowed. An allowance that allows nothing is a finding, so that the list stays
/// as short as it can be.
fn without_allowed(findings: Vec<Finding>, allowed: &[Allowed]) -> Vec<Finding> {
    let covers = |allowed: &Allowed, finding: &Finding| {
        let rest = finding.path.strip_prefix(allowed.path);
        allowed.rule == finding.rule
            && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let unused = allowed
        .iter()
        .filter(|allowed| !findings.iter().any(|finding| covers(allowed, finding)))
        .map(|allowed| Finding {
            rule: allowed.rule,
            path: allowed.path.into(),
            line: 0,
            text: format!("is allowed ({}) and need not be", allowed.reason),
        });
    let unused: Vec<_> = unused.collect();
    let mut rest = findings;
    rest.retain(|finding| !allowed.iter().any(|allowed| covers(allowed, finding)));
    rest.extend(unused);
    rest
}

/// The findings as a person sees them.
#[cfg(test)]
fn printed(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

#[cfg(test)]
mod tests;
