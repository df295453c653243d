//! The steps `oldest-rust` and `semver`: what programs that use the published crates rely on.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use xtask::{announce, cargo, root};

use super::commands::{PUBLISHED, has_subcommand};

/// `rust-version` of the published crates. A test compares.
pub(super) const OLDEST_RUST: &str = "1.85";

/// Compiles the published crates with the oldest compiler that they support. Returns what is missing, if anything.
///
/// # Errors
/// If a crate does not compile.
pub(super) fn check_oldest_rust() -> Result<Option<String>> {
    if !has_oldest_rust() {
        let install = format!("rustup toolchain install {OLDEST_RUST} --profile minimal");
        return Ok(Some(format!("no Rust {OLDEST_RUST}: {install}")));
    }
    let check = [
        "run",
        OLDEST_RUST,
        "cargo",
        "check",
        "--locked",
        "--all-features",
    ];
    let mut command = Command::new("rustup");
    command.current_dir(root()).args(check).args(packages());
    succeed(command.args(["--target-dir", "target/oldest-rust"]))?;
    Ok(None)
}

/// Whether rustup has the oldest compiler.
pub(super) fn has_oldest_rust() -> bool {
    let mut probe = Command::new("rustup");
    probe
        .args(["run", OLDEST_RUST, "cargo", "--version"])
        .stderr(Stdio::null());
    probe.output().is_ok_and(|output| output.status.success())
}

/// Compares the API of the published crates with the newest release. Returns what is missing, if anything.
///
/// # Errors
/// If the version does not allow a change.
pub(super) fn check_semver() -> Result<Option<String>> {
    if !has_subcommand("semver-checks")? {
        let install = "cargo install cargo-semver-checks --locked";
        return Ok(Some(format!("no cargo-semver-checks: {install}")));
    }
    let mut describe = Command::new("git");
    describe
        .current_dir(root())
        .args(["describe", "--tags", "--abbrev=0", "--match=v*"]);
    let release = describe.output().context("starting git")?;
    if !release.status.success() {
        return Ok(Some("no tag of a release (v*) to compare with".into()));
    }
    let release = String::from_utf8(release.stdout)?;
    let compare = ["semver-checks", "--baseline-rev", release.trim()];
    succeed(cargo(&compare).args(packages()))?;
    Ok(None)
}

fn packages() -> impl Iterator<Item = &'static str> {
    PUBLISHED.iter().flat_map(|package| ["--package", package])
}

fn succeed(command: &mut Command) -> Result<()> {
    let text = format!("{command:?}").replace('"', "");
    announce(&text);
    let status = command
        .status()
        .with_context(|| format!("starting `{text}`"))?;
    ensure!(status.success(), "`{text}` failed ({status})");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn published_crates_state_the_oldest_compiler() {
        let folders = [
            "profiler-core",
            "symbols",
            "tls",
            "agent/system",
            "agent/symbolize",
            "agent/ship",
            "agent",
            "agent/diagnostics",
        ];
        let stated = format!("\nrust-version = \"{OLDEST_RUST}\"\n");
        for (folder, package) in folders.into_iter().zip(PUBLISHED) {
            let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
            assert!(
                manifest.contains(&format!("name = \"{package}\"")),
                "{folder}: {package}"
            );
            assert!(manifest.contains(&stated), "{folder}");
        }
    }
}
