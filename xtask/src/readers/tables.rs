//! What a collector with the golden store answers, read by others: files of rows by DuckDB, and tasks as
//! spans by an OTLP receiver.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use xtask::page::Collector;
use xtask::root;

use super::STORE;

const SCRIPT: &str = include_str!("tables.py");
const SPANS_SCRIPT: &str = include_str!("spans.py");

/// Serves a copy of the golden store, and compares its files of rows and its spans with its JSON; then the
/// spans that a collector forwards with the tasks of workers. The environment of the readers must exist.
pub(super) fn run(folder: &Path) -> Result<()> {
    let files = folder.join("rows");
    if files.exists() {
        fs::remove_dir_all(&files).with_context(|| format!("removing {}", files.display()))?;
    }
    fs::create_dir_all(&files).with_context(|| format!("creating {}", files.display()))?;
    let data = files.join("store");
    let copied = Command::new("cp").arg("-r").arg(root().join(STORE)).arg(&data).status();
    ensure!(copied.context("starting cp")?.success(), "copying {STORE} failed");
    let data = data.to_str().context("the path of the store is UTF-8")?;
    let options = ["serve", "--listen", "127.0.0.1:0", "--data", data];
    let emberline = root().join("target/release/emberline");
    let collector = Collector::start(&emberline, &options)?;
    let mut reader = Command::new(folder.join("bin/python"));
    let reader = reader.args(["-c", SCRIPT, &collector.url]).arg(&files);
    if !reader.status().context("starting python")?.success() {
        bail!("DuckDB reads other rows than JSON has; the difference is above");
    }
    let mut receiver = Command::new(folder.join("bin/python"));
    let worker = emberline.with_file_name("test-worker");
    let receiver =
        receiver.args(["-c", SPANS_SCRIPT]).arg(&emberline).arg(&collector.url).arg(worker);
    if !receiver.status().context("starting python")?.success() {
        bail!("an OTLP receiver has other spans than JSON has tasks; the difference is above");
    }
    Ok(())
}
