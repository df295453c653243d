//! Programs from PyPI, in folders that are filled once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Seconds that a step of an installation may take.
const INSTALL_SECONDS_MAX: &str = "300";

/// Installs a package of PyPI below `folder` with Python's own tools. Returns the folder of its programs.
///
/// # Errors
/// If it cannot be installed.
pub fn install(folder: &Path, package: &str) -> Result<PathBuf> {
    let environment = folder.join(package.replace(['[', ']', ',', '='], "-"));
    let programs = environment.join("bin");
    let marker = environment.join("installed");
    fs::create_dir_all(folder)?;
    // Another process may be about to install the same.
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    if marker.exists() {
        return Ok(programs);
    }
    let shown = environment.display().to_string();
    run(Path::new("python3"), &["-m", "venv", "--clear", &shown])?;
    run(&programs.join("pip"), &["install", "--quiet", package])?;
    fs::write(marker, "")?;
    Ok(programs)
}

fn run(program: &Path, arguments: &[&str]) -> Result<()> {
    let shown = || format!("{} {}", program.display(), arguments.join(" "));
    let mut command = Command::new("timeout");
    command.arg(INSTALL_SECONDS_MAX).arg(program);
    let done = command
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(shown)?;
    if !done.status.success() {
        bail!(
            "{} fails: {}",
            shown(),
            String::from_utf8_lossy(&done.stderr)
        );
    }
    Ok(())
}
