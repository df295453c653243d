//! Reads what a collector with the golden store exports: profiles with `go tool pprof` over HTTP, and tasks
//! with the command line of the Firefox Profiler.
//!
//! A reader that is not installed is skipped, and the reason names how to get it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::exports::npm_packages;
use super::firefox::Session;
use super::{emberline, get};
use crate::packages::text_of;

/// The range of the store, with time in every state.
pub(super) const FROM: &str = "2023-11-14T00:00:00Z";
pub(super) const TO: &str = "2023-11-16T00:00:00Z";
pub(super) const WHOLE: &str = "state=all&outside=shown";

/// Reads exports of the collector at `url`. Returns which readers are missing.
pub(super) fn run(folder: &Path, url: &str) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    missing.extend(go_pprof(folder, url)?);
    missing.extend(firefox(folder, url)?);
    Ok(missing)
}

/// The sum of each task, and of all, is that of our JSON.
fn go_pprof(folder: &Path, url: &str) -> Result<Option<String>> {
    if Command::new("go").arg("version").output().is_err() {
        // Already said of exported files.
        return Ok(None);
    }
    let query = format!("from={FROM}&to={TO}&{WHOLE}");
    let answer: Value = serde_json::from_str(&get(&format!("{url}/api/v1/profile?{query}"))?)?;
    let total_ns = answer["totals"]["total_ns"].as_u64().context("no total")?;
    let address = format!("{url}/api/v1/profile.pb.gz?{query}");
    let read = |view: &str| {
        let mut pprof = Command::new("go");
        pprof.args([
            "tool",
            "pprof",
            view,
            "-nodefraction=0",
            "-unit=ns",
            &address,
        ]);
        // Where it keeps what it downloads.
        text_of(pprof.env("PPROF_TMPDIR", folder.join("pprof")))
    };
    let top = read("-top")?;
    let expected = format!("accounting for {total_ns}ns, 100% of {total_ns}ns total");
    ensure!(
        top.contains(&expected),
        "go tool pprof over HTTP: no {expected:?} in:\n{top}"
    );
    let tags = read("-tags")?;
    let nodes = answer["profile"]["nodes"].as_array().context("no nodes")?;
    for task in nodes.iter().filter(|node| node["parent"] == 0) {
        let name = task["name"].as_str().context("no name")?;
        let states = task["total"].as_object().context("no sums")?;
        let number = |state: &str| states[state].as_u64().unwrap_or(0);
        // `lock`, `sleep` and such are parts of `wait`.
        let task_ns = number("cpu") + number("runnable") + number("wait");
        let is_its_line = |line: &str| {
            let line = line.trim();
            // Go before 1.26 writes a decimal.
            let has_sum = line.starts_with(&format!("{task_ns}ns ("))
                || line.starts_with(&format!("{task_ns}.0ns ("));
            has_sum && line.ends_with(&format!(": {name}"))
        };
        ensure!(
            tags.lines().any(is_its_line),
            "{name} is not {task_ns} ns in:\n{tags}"
        );
    }
    println!("go tool pprof over HTTP agrees: {total_ns} ns, and each task");
    Ok(None)
}

/// Tasks, phases and transfers of the file are markers of its threads.
fn firefox(folder: &Path, url: &str) -> Result<Option<String>> {
    let Some(packages) = npm_packages(folder)? else {
        // Already said of exported files.
        return Ok(None);
    };
    let file = folder.join("rows/tasks.firefox.json");
    let mut export = Command::new(emberline()?);
    export
        .args(["tasks", "--url", url, "--from", FROM, "--to", TO, "-o"])
        .arg(&file);
    text_of(&mut export)?;

    let query = format!("from={FROM}&to={TO}&limit=100000");
    let rows = |path: &str| -> Result<Value> {
        Ok(serde_json::from_str(&get(&format!(
            "{url}/api/v1/{path}?{query}"
        ))?)?)
    };
    let tasks_answer = rows("tasks")?;
    let tasks = tasks_answer["tasks"].as_array().context("no tasks")?;
    let phases: usize = tasks
        .iter()
        .filter_map(|task: &Value| {
            Some(
                task["phases"]
                    .as_array()?
                    .iter()
                    .filter(|phase: &&Value| phase["count"].as_u64().is_none_or(|count| count <= 1))
                    .count(),
            )
        })
        .sum();
    let transfers_answer = rows("transfers")?;
    let transfers = transfers_answer["transfers"]
        .as_array()
        .context("no transfers")?
        .len();
    let expected = tasks.len() + phases + transfers;

    let session = Session::load(packages, "tasks", &file)?;
    let threads = session.threads()?;
    let markers = threads
        .iter()
        .filter_map(|thread| thread["markerCount"].as_u64())
        .sum::<u64>();
    ensure!(
        markers == expected as u64,
        "profiler-cli has {markers} markers instead of {expected}"
    );
    println!(
        "profiler-cli reads {expected} markers of {} threads",
        threads.len()
    );
    Ok(None)
}
