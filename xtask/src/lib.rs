//! Common parts of the developer commands: the workspace's root, cargo, the built `emberline`, and the
//! page in a browser.

pub mod ballista;
pub mod page;
pub mod page_bundle;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The workspace's root.
#[must_use]
pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask
        .parent()
        .expect("xtask is a folder of the workspace")
        .into()
}

/// The cargo that started us, to be run at the workspace's root.
///
/// It does not inherit what `cargo run` says about the package xtask: the build script of `ring`
/// depends on these variables, and ours and a person's builds would recompile the agent in turns.
#[must_use]
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    for (name, _) in env::vars_os() {
        let describes_xtask = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if describes_xtask {
            command.env_remove(name);
        }
    }
    command
}

/// Names cargo's target directory.
pub const TARGET_VARIABLE: &str = "CARGO_TARGET_DIR";

/// Cargo's target directory.
///
/// # Errors
/// If cargo cannot name it.
pub fn target() -> Result<PathBuf> {
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1"]).output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let folder = metadata["target_directory"].as_str();
    Ok(folder
        .context("cargo metadata names no target directory")?
        .into())
}

/// The folder of the programs that `cargo xtask test` builds.
///
/// # Errors
/// Like [`target`].
pub fn light() -> Result<PathBuf> {
    Ok(target()?.join("light"))
}

/// Builds `emberline` as it is shipped, in the release profile, and returns its path.
///
/// # Errors
/// If the build fails.
pub fn emberline() -> Result<PathBuf> {
    let build = ["build", "--release", "--package", "emberline-cli"];
    executable(&built(&build)?, "emberline")
}

/// The same with the client of S3 servers.
///
/// # Errors
/// If the build fails.
pub fn emberline_with_s3() -> Result<PathBuf> {
    let build = [
        "build",
        "--release",
        "--package",
        "emberline-cli",
        "--features",
        "s3",
    ];
    executable(&built(&build)?, "emberline")
}

/// Programs of `cargo xtask test`.
#[derive(Debug)]
pub struct TestPrograms {
    /// With the client of S3 servers.
    pub emberline: PathBuf,
    /// The worker of the tests.
    pub test_worker: PathBuf,
}

/// The crates that tests need, and their features: the client of S3 servers is in every program but the one that is
/// shipped.
pub const TEST_BUILD: [&str; 3] = [
    "--profile=light",
    "--workspace",
    "--features=emberline-cli/s3",
];

/// The benchmarks are a workspace of their own.
pub const BENCH_MANIFEST: &str = "--manifest-path=xtask/bench/Cargo.toml";

/// A command of cargo's for the benchmarks, which are built into the same folder as everything else.
///
/// # Errors
/// Like [`target`].
pub fn bench_cargo(subcommand: &str, arguments: &[&str]) -> Result<Command> {
    let mut command = cargo(&[subcommand, BENCH_MANIFEST]);
    command.args(arguments).env(TARGET_VARIABLE, target()?);
    Ok(command)
}

/// Builds them like `cargo xtask test`, whose builds are used again.
///
/// # Errors
/// If the build fails.
pub fn test_programs() -> Result<TestPrograms> {
    let messages = built(&[&["build", "--all-targets"], &TEST_BUILD[..]].concat())?;
    Ok(TestPrograms {
        emberline: executable(&messages, "emberline")?,
        test_worker: executable(&messages, "test-worker")?,
    })
}

/// Builds, and returns cargo's messages. They name the binaries, wherever the target directory is.
fn built(build: &[&str]) -> Result<Vec<Value>> {
    let output = cargo(build)
        .args(["--message-format", "json"])
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "cargo {} failed", build.join(" "));
    let messages = String::from_utf8(output.stdout)?;
    Ok(messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect())
}

fn executable(messages: &[Value], name: &str) -> Result<PathBuf> {
    let mut paths = messages.iter().filter_map(|message| {
        let is_it = message["target"]["name"] == name && message["profile"]["test"] == false;
        is_it.then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    paths
        .next_back()
        .with_context(|| format!("cargo built no `{name}`"))
}

/// Prints the step that begins.
pub fn announce(step: &str) {
    eprintln!("==> {step}");
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    #[test]
    fn cargo_does_not_inherit_the_package_that_runs_it() {
        // Cargo describes the package to its tests, too.
        let name = OsStr::new("CARGO_PKG_NAME");
        assert!(std::env::var_os(name).is_some());
        let cargo = super::cargo(&["build"]);
        assert!(cargo.get_envs().any(|variable| variable == (name, None)));
    }
}
