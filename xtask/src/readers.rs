//! Reads a store with a foreign Parquet reader and compares the result with our own.
//!
//! The store is the golden store of format 1. The reader is DuckDB from PyPI, in a virtual environment
//! below `target`, which is created once.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use xtask::root;

/// The golden store.
const STORE: &str = "collector/golden/store-1";

/// A download of 20 MB; pyarrow is twice as large.
const READER: &str = "duckdb==2.0.0";

const SCRIPT: &str = include_str!("readers.py");

/// Runs the comparison. The binary must be built.
pub(crate) fn run() -> Result<()> {
    let python = environment(&root().join("target/readers"))?;
    let verified = Command::new(root().join("target/release/emberline"))
        .current_dir(root())
        .args(["store", "verify", "--format", "json", "--data", STORE])
        .stderr(Stdio::inherit())
        .output()
        .context("starting target/release/emberline")?;
    if !verified.status.success() {
        bail!("`emberline store verify --data {STORE}` failed: the golden store must not change");
    }
    let mut reader = Command::new(python)
        .current_dir(root())
        .args(["-c", SCRIPT, STORE])
        .stdin(Stdio::piped())
        .spawn()
        .context("starting python")?;
    let mut stdin = reader.stdin.take().context("the reader has no standard input")?;
    std::io::Write::write_all(&mut stdin, &verified.stdout).context("writing to the reader")?;
    drop(stdin);
    if !reader.wait().context("waiting for the reader")?.success() {
        bail!("{READER} reads other rows from {STORE} than Emberline; the difference is above");
    }
    Ok(())
}

/// Creates the environment if it is missing; returns its interpreter.
fn environment(folder: &Path) -> Result<PathBuf> {
    let python = folder.join("bin/python");
    // A complete environment contains the name of its reader.
    let complete = folder.join("reader");
    if std::fs::read_to_string(&complete).is_ok_and(|reader| reader == READER) {
        return Ok(python);
    }
    let advice = "install python3 with its modules venv and pip, with access to PyPI (Debian: \
                  `apt-get install python3-venv`); it is needed for this comparison alone";
    let mut make = Command::new("python3");
    step(make.args(["-m", "venv", "--clear"]).arg(folder), advice)?;
    let mut install = Command::new(&python);
    step(install.args(["-m", "pip", "install", "--quiet", READER]), advice)?;
    std::fs::write(&complete, READER).context("noting that the environment is complete")?;
    Ok(python)
}

fn step(command: &mut Command, advice: &str) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {command:?}; {advice}"))?;
    if !status.success() {
        bail!("{command:?} failed ({status}); {advice}");
    }
    Ok(())
}
