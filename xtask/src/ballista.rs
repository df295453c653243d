//! Programs of a cluster for SQL: `emberline` and `emberline-sql` with its client, and the stock programs of Ballista.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use crate::{announce, cargo, root};

/// The version of Ballista, which the client in `emberline-sql` needs too.
const BALLISTA: &str = "55.0.0";

/// Its programs.
const PROGRAMS: [&str; 2] = ["ballista-scheduler", "ballista-executor"];

/// Apart from the other builds, whose dependencies have fewer features.
const TARGET_FOLDER: &str = "target/ballista";

/// Builds `emberline`, and next to it `emberline-sql` with the feature `ballista`.
///
/// # Errors
/// If the build fails.
pub fn emberline() -> Result<PathBuf> {
    run(&[
        "build",
        "--release",
        "--package=emberline-cli",
        "--features=s3",
    ])?;
    run(&[
        "build",
        "--release",
        "--manifest-path=sql/Cargo.toml",
        "--features=ballista",
    ])?;
    Ok(root().join(TARGET_FOLDER).join("release/emberline"))
}

/// Installs the programs of Ballista where they are missing. Returns their folder.
///
/// # Errors
/// If the build fails.
pub fn programs() -> Result<PathBuf> {
    let folder = root().join(TARGET_FOLDER).join("programs");
    let programs = folder.join("bin");
    let missing: Vec<String> = PROGRAMS
        .iter()
        .filter(|name| !programs.join(name).exists())
        .map(|name| format!("{name}@{BALLISTA}"))
        .collect();
    if !missing.is_empty() {
        let folder = folder.to_str().context("the folder's path is not UTF-8")?;
        let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
        run(&[&["install", "--locked", "--root", folder][..], &missing].concat())?;
    }
    Ok(programs)
}

fn run(arguments: &[&str]) -> Result<()> {
    let text = format!("cargo {}", arguments.join(" "));
    announce(&text);
    let status = cargo(arguments)
        .env("CARGO_TARGET_DIR", TARGET_FOLDER)
        .status()?;
    ensure!(status.success(), "`{text}` failed ({status})");
    Ok(())
}
