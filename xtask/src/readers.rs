//! Reads our files with foreign readers and compares the results with our own: a store and files of rows
//! with DuckDB, logs of histograms, and exported profiles. And fetches debug information from a foreign server.
//!
//! The store is the golden store of format 1. The reader is DuckDB from PyPI, in a virtual environment
//! below `target`, which is created once.

mod debuginfod;
mod exports;
mod prometheus;
mod tables;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use xtask::{announce, root};

/// The golden store.
const STORE: &str = "collector/golden/store-1";

/// A download of 20 MB; pyarrow is twice as large.
const READER: &str = "duckdb==2.0.0";

/// Reads logs of histograms.
const HISTOGRAM_READER: &str = "hdrhistogram==0.10.8";

/// Reads spans.
const SPANS_READER: &str = "opentelemetry-proto==1.45.2";

const SCRIPT: &str = include_str!("readers.py");

/// Runs the comparisons. The binary and the examples must be built. Returns which readers of exports
/// are missing.
pub(crate) fn run() -> Result<Option<String>> {
    announce("reading the golden store with DuckDB");
    let folder = root().join("target/readers");
    read_store(&folder)?;
    announce("reading files of rows with DuckDB, and spans with an OTLP receiver");
    tables::run(&folder)?;
    announce("reading exported profiles with their readers");
    let mut missing = exports::run(&folder)?;
    announce("fetching debug information from debuginfod");
    missing.extend(debuginfod::run(&folder)?);
    announce("checking metrics with promtool");
    missing.extend(prometheus::run(&folder)?);
    Ok((!missing.is_empty()).then(|| missing.join("; ")))
}

fn read_store(folder: &Path) -> Result<()> {
    let python = environment(folder)?;
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
    // A complete environment contains the names of its readers.
    let readers = [READER, HISTOGRAM_READER, SPANS_READER];
    let complete = folder.join("reader");
    if std::fs::read_to_string(&complete).is_ok_and(|known| known == readers.join(" ")) {
        return Ok(python);
    }
    let advice = "install python3 with its modules venv and pip, with access to PyPI (Debian: \
                  `apt-get install python3-venv`); it is needed for this comparison alone";
    let mut make = Command::new("python3");
    step(make.args(["-m", "venv", "--clear"]).arg(folder), advice)?;
    let mut install = Command::new(&python);
    step(install.args(["-m", "pip", "install", "--quiet"]).args(readers), advice)?;
    std::fs::write(&complete, readers.join(" "))
        .context("noting that the environment is complete")?;
    Ok(python)
}

fn step(command: &mut Command, advice: &str) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {command:?}; {advice}"))?;
    if !status.success() {
        bail!("{command:?} failed ({status}); {advice}");
    }
    Ok(())
}
