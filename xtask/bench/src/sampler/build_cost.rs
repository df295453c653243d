//! Build cost of a program that embeds the agent: crates, and CPU time of a build from scratch.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use super::{Headline, Section};

/// Counts crates, and measures the builds if `with_builds`.
///
/// # Errors
/// If cargo fails.
pub(super) fn measure(with_builds: bool) -> Result<Section> {
    let crates = count_crates()?;
    let seconds = if with_builds {
        eprintln!("==> a build of the agent");
        let folder = tempfile::tempdir()?;
        let without = build_seconds(&folder.path().join("without"), false)?;
        let with = build_seconds(&folder.path().join("with"), true)?;
        format!("+{:.1} CPU-s", with - without)
    } else {
        "not measured (--build)".to_owned()
    };
    let headline = Headline {
        what: "crates with `ship`; a release build",
        target: "≤ 60; ≤ 45 CPU-s",
        before: "77 crates; +76 CPU-s",
        measured: format!("{crates} crates; {seconds}"),
        peers: "–".into(),
    };
    Ok(Section {
        headlines: vec![headline],
        text: String::new(),
    })
}

/// The crates of the agent's tree, itself included.
fn count_crates() -> Result<usize> {
    let arguments = [
        "tree",
        "--package",
        "emberline-agent",
        "--edges",
        "normal,build",
    ];
    let output = xtask::cargo(&arguments)
        .args(["--prefix", "none", "--format", "{p}", "--locked"])
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(distinct_lines(&String::from_utf8(output.stdout)?))
}

/// Lines without the mark of a repeated crate.
fn distinct_lines(tree: &str) -> usize {
    let lines = tree
        .lines()
        .map(|line| line.trim_end_matches(" (*)").trim());
    lines
        .filter(|line| !line.is_empty())
        .collect::<BTreeSet<_>>()
        .len()
}

/// CPU time of a release build of an empty program in `folder`, with or without the agent.
fn build_seconds(folder: &Path, with_agent: bool) -> Result<f64> {
    let source = folder.join("src");
    fs::create_dir_all(&source)?;
    fs::write(source.join("main.rs"), "fn main() {}\n")?;
    let agent = xtask::root().join("agent");
    let dependency = if with_agent {
        format!("emberline-agent = {{ path = {agent:?} }}\n")
    } else {
        String::new()
    };
    let manifest = format!(
        "[package]\nname = \"scratch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\n{dependency}\n[workspace]\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    // The versions of the workspace.
    fs::copy(xtask::root().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    let before = children_seconds()?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--release", "--quiet", "--offline"])
        .current_dir(folder);
    cargo
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env_remove("RUSTFLAGS");
    let output = cargo.output().context("starting cargo")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(children_seconds()? - before)
}

/// CPU time of all children that have ended, and of theirs.
fn children_seconds() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let cpu_us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(cpu_us as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_counts_once() {
        assert_eq!(distinct_lines("a v1\nb v1\n\nb v1 (*)\nb v2\n"), 3);
    }
}
