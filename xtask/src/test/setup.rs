//! `cargo xtask test --setup`: the tools that the steps need, from Debian's packages, rustup and crates.io.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::unistd::geteuid;
use xtask::{announce, cargo, page};

use super::commands::has_subcommand;
use super::published::{OLDEST_RUST, has_oldest_rust};
use crate::{aarch64, dist, python};

/// Programs that steps run, each with the package of Debian that has it.
const PROGRAMS: [(&str, &str); 12] = [
    ("c++", "g++"),
    ("npm", "npm"),
    ("python3", "python3"),
    (aarch64::LINKER, "g++-aarch64-linux-gnu"),
    ("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu"),
    (aarch64::EMULATOR, "qemu-user"),
    ("debuginfod", "debuginfod"),
    ("promtool", "prometheus"),
    ("prometheus", "prometheus"),
    ("go", "golang-go"),
    ("java", "default-jdk-headless"),
    (python::REDIS, "redis-server"),
];

/// Installs what is missing.
///
/// # Errors
/// If an installation fails; names its command.
pub(super) fn run() -> Result<()> {
    let packages = missing_packages(is_installed, has_venv(), page::has_chromium());
    if !packages.is_empty() {
        as_root(&["apt-get", "update"])?;
        let install = ["apt-get", "install", "--yes", "--no-install-recommends"];
        as_root(&[&install[..], &packages].concat())?;
    }
    if !aarch64::has_target()? {
        ran(Command::new("rustup").args(["target", "add", aarch64::TARGET]))?;
    }
    if !has_oldest_rust() {
        let install = ["toolchain", "install", OLDEST_RUST, "--profile", "minimal"];
        ran(Command::new("rustup").args(install))?;
    }
    for (subcommand, package) in [
        ("deny", "cargo-deny"),
        ("semver-checks", "cargo-semver-checks"),
    ] {
        if !has_subcommand(subcommand)? {
            ran(&mut cargo(&["install", package, "--locked"]))?;
        }
    }
    println!("the tools of all steps are installed");
    Ok(())
}

/// The packages of Debian that lack, each once.
fn missing_packages(
    is_installed: impl Fn(&str) -> bool,
    has_venv: bool,
    has_chromium: bool,
) -> Vec<&'static str> {
    let programs = PROGRAMS.iter().chain(&dist::TOOLS);
    let mut packages: Vec<&str> = programs
        .filter(|(program, _)| !is_installed(program))
        .map(|(_, package)| *package)
        .collect();
    if !has_venv {
        packages.push("python3-venv");
    }
    if !has_chromium {
        packages.push("chromium");
    }
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Whether a program is in the path, or where Debian has those for root.
fn is_installed(program: &str) -> bool {
    aarch64::find(program).is_some() || Path::new("/usr/sbin").join(program).exists()
}

/// Whether Python can install packages in environments of their own.
fn has_venv() -> bool {
    let probe = Command::new("python3")
        .args(["-m", "ensurepip", "--version"])
        .output();
    probe.is_ok_and(|output| output.status.success())
}

fn as_root(command: &[&str]) -> Result<()> {
    let sudo: &[&str] = if geteuid().is_root() { &[] } else { &["sudo"] };
    let words = [sudo, command].concat();
    let mut command = Command::new(words[0]);
    ran(command
        .args(&words[1..])
        .env("DEBIAN_FRONTEND", "noninteractive"))
}

fn ran(command: &mut Command) -> Result<()> {
    announce(&format!("{command:?}").replace('"', ""));
    let status = command
        .status()
        .with_context(|| format!("starting {command:?}"))?;
    ensure!(status.success(), "{command:?} failed ({status})");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_packages_are_installed_and_each_once() {
        assert!(missing_packages(|_| true, true, true).is_empty());
        assert_eq!(
            missing_packages(
                |program: &str| !program.starts_with("aarch64-linux-gnu"),
                false,
                false
            ),
            ["chromium", "g++-aarch64-linux-gnu", "python3-venv"]
        );
        assert!(missing_packages(|_| false, true, true).contains(&"default-jdk-headless"));
    }
}
