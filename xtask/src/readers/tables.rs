//! Answers of a collector with the golden store, read by other programs: files of rows by DuckDB, and tasks
//! as spans by an OTLP receiver.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::emberline;

const SCRIPT: &str = include_str!("tables.py");
const SPANS_SCRIPT: &str = include_str!("spans.py");

/// Compares the files of rows and the spans of the collector at `url` with its JSON; then the spans that a
/// collector forwards with the tasks of workers. The environment of the readers must exist.
pub(super) fn run(folder: &Path, url: &str) -> Result<()> {
    let mut reader = Command::new(folder.join("bin/python"));
    reader.args(["-c", SCRIPT, url]).arg(folder.join("rows"));
    if !reader.status().context("starting python")?.success() {
        bail!("DuckDB reads other rows than JSON has; the difference is above");
    }
    let mut receiver = Command::new(folder.join("bin/python"));
    let worker = emberline()?.with_file_name("test-worker");
    let receiver = receiver
        .args(["-c", SPANS_SCRIPT])
        .arg(emberline()?)
        .arg(url)
        .arg(worker);
    if !receiver.status().context("starting python")?.success() {
        bail!("an OTLP receiver has other spans than JSON has tasks; the difference is above");
    }
    Ok(())
}
