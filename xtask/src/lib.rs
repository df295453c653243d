//! What the developer commands share: the workspace's root, cargo, the built `emberline`, and the
//! page in a browser.

pub mod ballista;
pub mod page;
pub mod page_bundle;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The workspace's root.
#[must_use]
pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask is a folder of the workspace").into()
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

/// Builds `emberline` in the release profile and returns its path.
///
/// # Errors
/// If the build fails.
pub fn emberline() -> Result<PathBuf> {
    built(&["build", "--release", "--package", "emberline-cli", "--message-format", "json"])
}

/// The same with the client of S3 servers, in the selection of features that `cargo xtask test` uses.
///
/// # Errors
/// If the build fails.
pub fn emberline_with_s3() -> Result<PathBuf> {
    let features = ["--features", "emberline-cli/s3", "--message-format", "json"];
    built(&[&["build", "--release", "--workspace", "--all-targets"][..], &features].concat())
}

fn built(build: &[&str]) -> Result<PathBuf> {
    let output = cargo(build).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "cargo {} failed", build.join(" "));
    // Cargo's messages name the binary, wherever the target directory is.
    let messages = String::from_utf8(output.stdout)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
    let mut paths = messages.filter_map(|message: serde_json::Value| {
        let is_ours = message["target"]["name"] == "emberline";
        is_ours.then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    paths.next_back().context("cargo built no `emberline`")
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
