//! Symbol files.

use std::path::Path;

use api::{SymbolFetch, SymbolFile, SymbolsAnswer, SymbolsGcAnswer, SymbolsVerifyAnswer};
use flamegraph::text::printable;
use symbol_files::Facts;

use super::{counted, grouped};
use crate::grid::Align::{Left, Right, Time};
use crate::grid::Grid;

/// The outcome for one file.
pub(crate) fn uploaded(path: &Path, facts: &Facts, bytes: usize, was_known: bool) -> String {
    let Facts {
        build_id,
        detail,
        source_bytes,
        frames,
        ..
    } = facts;
    let path = path.display().to_string();
    let known = if was_known { ", already there" } else { "" };
    format!(
        "{}: build id {build_id}, {}, {} frames, {} bytes of {}{known}\n",
        printable(&path),
        detail.name(),
        grouped(u64::from(*frames)),
        grouped(bytes as u64),
        grouped(*source_bytes)
    )
}

pub(crate) fn list(list: &SymbolsAnswer) -> String {
    let mut grid = Grid::new(&[
        ("BUILD ID", Left),
        ("DETAIL", Left),
        ("BYTES", Right),
        ("LAST USE", Time),
        ("MADE FROM", Right),
        ("PROBLEM", Left),
    ]);
    for file in &list.files {
        grid.push([
            file.build_id.clone(),
            file.detail.to_string(),
            grouped(file.bytes),
            file.used_at.chars().take(10).collect(),
            grouped(file.source_bytes),
            file.problem.clone(),
        ]);
    }
    let files = counted(list.files.len() as u64, "symbol file");
    let end = format!(
        "{files}, {} of {} bytes\n",
        grouped(list.bytes),
        grouped(list.bytes_max)
    );
    let fetches = list.fetches.iter().map(|fetch| {
        let problem = match &*fetch.problem {
            "" => String::new(),
            problem => format!(": {}", printable(problem)),
        };
        format!(
            "build id {}: {}{problem}\n",
            fetch.build_id,
            progress(fetch)
        )
    });
    grid.text() + &end + &fetches.collect::<String>()
}

/// The answer to a request for a fetch.
pub(crate) fn asked(agents: usize) -> String {
    format!(
        "{} with this build id; one of them is asked",
        counted(agents as u64, "worker")
    )
}

/// How far a fetch is.
pub(crate) fn progress(fetch: &SymbolFetch) -> String {
    let SymbolFetch {
        state,
        worker,
        received,
        bytes,
        ..
    } = fetch;
    match (&**state, *bytes) {
        ("running", 0) => "a worker is asked".to_owned(),
        ("running", bytes) => format!(
            "worker {} has sent {} of {} bytes",
            printable(worker),
            grouped(*received),
            grouped(bytes)
        ),
        ("waiting", _) => "waiting for the fetch of another build id".to_owned(),
        _ => "not fetched".to_owned(),
    }
}

/// The outcome of a fetch.
pub(crate) fn fetched(file: &SymbolFile) -> String {
    let SymbolFile {
        build_id,
        detail,
        bytes,
        source_bytes,
        ..
    } = file;
    format!(
        "build id {build_id}: {detail}, {} bytes of {}\n",
        grouped(*bytes),
        grouped(*source_bytes)
    )
}

pub(crate) fn verified(verified: &SymbolsVerifyAnswer) -> String {
    let problems = verified
        .problems
        .iter()
        .map(|found| format!("{}: {}\n", found.build_id, printable(&found.problem)));
    let files = counted(verified.files as u64, "symbol file");
    format!("{files} read\n{}", problems.collect::<String>())
}

pub(crate) fn removed(removed: &SymbolsGcAnswer) -> String {
    let files = counted(removed.removed.len() as u64, "symbol file");
    let ids = removed
        .removed
        .iter()
        .map(|build_id| format!("{build_id}\n"));
    format!(
        "{}{files} removed, {} bytes\n",
        ids.collect::<String>(),
        grouped(removed.bytes)
    )
}
