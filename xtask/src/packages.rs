//! Packages from PyPI and npm, in folders below `target` that are filled once, and what programs print.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Names what a folder has. Written last, so that only a complete folder has it.
const COMPLETE: &str = "complete";

/// The interpreter of an environment with these packages of PyPI.
///
/// # Errors
/// If they cannot be installed; then the error says what is needed.
pub(crate) fn python(environment: &Path, packages: &[&str]) -> Result<PathBuf> {
    let python = environment.join("bin/python");
    if is_complete(environment, packages) {
        return Ok(python);
    }
    let advice = "install python3 with its modules venv and pip (Debian: `apt-get install \
                  python3-venv`), with access to PyPI";
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(environment);
    text_of(&mut make).context(advice)?;
    let mut install = Command::new(&python);
    install
        .args(["-m", "pip", "install", "--quiet"])
        .args(packages);
    text_of(&mut install).context(advice)?;
    complete(environment, packages)?;
    Ok(python)
}

/// Installs packages of npm in a folder, with these options of `npm install`. Returns whether there is an npm.
///
/// # Errors
/// If they cannot be installed.
pub(crate) fn npm(folder: &Path, options: &[&str], packages: &[&str]) -> Result<bool> {
    if Command::new("npm").arg("--version").output().is_err() {
        return Ok(false);
    }
    if is_complete(folder, packages) {
        return Ok(true);
    }
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let mut install = Command::new("npm");
    install
        .args(["install", "--no-audit", "--no-fund", "--silent", "--prefix"])
        .arg(folder);
    text_of(install.args(options).args(packages)).context("npm needs access to its registry")?;
    complete(folder, packages)?;
    Ok(true)
}

fn is_complete(folder: &Path, packages: &[&str]) -> bool {
    fs::read_to_string(folder.join(COMPLETE)).is_ok_and(|known| known == packages.join(" "))
}

fn complete(folder: &Path, packages: &[&str]) -> Result<()> {
    fs::write(folder.join(COMPLETE), packages.join(" "))
        .with_context(|| format!("noting that {} is complete", folder.display()))
}

/// Returns the standard output of a command, if it succeeds.
///
/// # Errors
/// If it fails; then the error has what it printed on its standard error.
pub(crate) fn text_of(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    let says = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{command:?} failed ({}):\n{says}",
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
