//! `cargo xtask tidy`: the rules of the house that no compiler checks.
//!
//! [`edges`] reads cargo's own account of our crates; [`source`] reads every one of our files, Rust as
//! [`tokens`]; [`markdown`] and [`features`] read the documentation. The list [`ALLOWED`] has the
//! exceptions to the rules, each with its reason.

mod circles;
mod edges;
mod features;
mod finding;
mod guards;
mod markdown;
mod names;
mod source;
mod style;
mod tokens;
mod wording;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use xtask::{cargo, root};

use self::finding::Finding;

/// An exception from a rule in one place.
struct Allowed {
    rule: &'static str,
    /// A file, or a directory with everything in it.
    path: &'static str,
    reason: &'static str,
}

const ALLOWED: &[Allowed] = &[
    Allowed {
        rule: source::SLEEP,
        path: "agent/tests/ground_truth.rs",
        reason: "a sleep is one of the waits that must be distinguished",
    },
    Allowed {
        rule: source::SLEEP,
        path: "agent/tests/law.rs",
        reason: "sleeps are the waits that are measured, and programs run for a chosen time",
    },
    Allowed {
        rule: source::SLEEP,
        path: "agent/tests/local.rs",
        reason: "a sleep is one of the waits that must be distinguished",
    },
    Allowed {
        rule: source::SLEEP,
        path: "agent/tests/many_threads.rs",
        reason: "the threads compute for a chosen time, and are counted as time passes",
    },
    Allowed {
        rule: source::SLEEP,
        path: "agent/tests/scratch_crate.rs",
        reason: "the standard library cannot wait for a process with a deadline",
    },
    Allowed {
        rule: source::SLEEP,
        path: "agent/tests/short_threads.rs",
        reason: "threads wait for a known time: that is the truth to be measured",
    },
    Allowed {
        rule: source::SLEEP,
        path: "agent/tests/short_waits.rs",
        reason: "sleeps are the waits that are measured",
    },
    Allowed {
        rule: source::SLEEP,
        path: "agent/tests/waits_for_processor.rs",
        reason: "a sleep is one of the waits that must be distinguished",
    },
    Allowed {
        rule: source::SLEEP,
        path: "tests/src/test_worker.rs",
        reason: "the worker idles for a known time: that is the truth to be measured",
    },
    Allowed {
        rule: source::SLEEP,
        path: "tests/src/test_worker/stacks.rs",
        reason: "a sleep is one of the waits that must be distinguished",
    },
    Allowed {
        rule: source::UNFINISHED,
        path: "xtask/src/tidy",
        reason: "the rule names the words that it finds",
    },
    Allowed {
        rule: wording::WORDING,
        path: "xtask/src/tidy",
        reason: "the rule names the phrases that it finds",
    },
];

/// Folders of programs outside of the workspace whose edges are checked too.
const PACKAGES_APART: [&str; 3] = ["python", "sql", "xtask/bench"];

/// Directories without our sources, at any depth.
const SKIPPED_DIRECTORIES: &[&str] = &[
    ".git",
    "target",
    "node_modules",
    "dist",
    "out",
    "emberline-data",
];

/// Options of the checks.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Print the largest group of files that use each other, for each crate, and the references
    /// inside it. Checks nothing.
    #[arg(long)]
    circles: bool,
}

/// Checks the workspace, or prints the circles.
///
/// # Errors
/// If anything breaks a rule; each finding was printed.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.circles {
        return circles::print(&metadata()?, &root());
    }
    check()
}

/// The packages of the workspace, and those of [`PACKAGES_APART`].
fn metadata() -> Result<Value> {
    let mut all = packages(&root().join("Cargo.toml"))?;
    for folder in PACKAGES_APART {
        all.extend(packages(&root().join(folder).join("Cargo.toml"))?);
    }
    Ok(json!({ "packages": all }))
}

fn packages(manifest: &Path) -> Result<Vec<Value>> {
    let metadata = cargo(&[
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--manifest-path",
    ])
    .arg(manifest)
    .output()
    .context("starting cargo metadata")?;
    if !metadata.status.success() {
        bail!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&metadata.stderr)
        );
    }
    let mut metadata: Value = serde_json::from_slice(&metadata.stdout)?;
    match metadata["packages"].take() {
        Value::Array(packages) => Ok(packages),
        _ => bail!("cargo metadata has no packages"),
    }
}

/// Checks the workspace.
///
/// # Errors
/// If anything breaks a rule; each finding was printed.
pub(crate) fn check() -> Result<()> {
    let metadata = metadata()?;
    let mut findings = edges::check(&metadata)?;
    findings.extend(circles::check(&metadata, &root())?);
    findings.extend(check_files(&root())?);
    let findings = without_allowed(findings, ALLOWED);
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => bail!(
            "tidy: {count} findings; exceptions, with their reasons, are in xtask/src/tidy/mod.rs"
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
    let mut documents = markdown::Documents::default();
    for path in paths {
        // Golden data of tests may be anything, not only text.
        let Ok(text) = fs::read_to_string(root.join(&path)) else {
            continue;
        };
        findings.extend(source::check(&path, &text));
        tests.read(&path, &text);
        if path.ends_with(".md") {
            findings.extend(markdown::check_links(&path, &text, |target| {
                root.join(target).exists()
            }));
            documents.read(&path, &text);
        }
        if path == "README.md" {
            findings.extend(markdown::check_readme(&text));
        }
    }
    findings.extend(tests.check());
    findings.extend(documents.check());
    Ok(findings)
}

/// Collects the files below `directory`, which is a path from `root`.
fn list(root: &Path, directory: &str, paths: &mut Vec<String>) -> Result<()> {
    let absolute = root.join(directory);
    let entries = fs::read_dir(&absolute).with_context(|| absolute.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            bail!("a file below {directory} has a name that is not UTF-8");
        };
        let path = if directory.is_empty() {
            name.clone()
        } else {
            format!("{directory}/{name}")
        };
        let kind = entry.file_type()?;
        if kind.is_file() {
            paths.push(path);
        } else if kind.is_dir() && !SKIPPED_DIRECTORIES.contains(&name.as_str()) {
            list(root, &path, paths)?;
        }
    }
    Ok(())
}

/// Removes the allowed findings. An exception without a finding is a finding itself, so that the list
/// stays short.
fn without_allowed(findings: Vec<Finding>, allowed: &[Allowed]) -> Vec<Finding> {
    let unused: Vec<_> = allowed
        .iter()
        .filter(|allowed| !findings.iter().any(|finding| covers(allowed, finding)))
        .map(|allowed| Finding {
            rule: allowed.rule,
            path: allowed.path.into(),
            line: 0,
            text: format!("is allowed ({}) without need", allowed.reason),
        })
        .collect();
    let mut rest = findings;
    rest.retain(|finding| !allowed.iter().any(|allowed| covers(allowed, finding)));
    rest.extend(unused);
    rest
}

fn covers(allowed: &Allowed, finding: &Finding) -> bool {
    let rest = finding.path.strip_prefix(allowed.path);
    allowed.rule == finding.rule
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests;
