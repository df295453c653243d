//! Files that a demo writes at its end, requested from its collector as any client would.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use api::{TaskSummaryAnswer, TasksAnswer};

use crate::client::{Client, Query};
use crate::command::profile::Body;
use crate::output::{print, say, write_file};
use crate::view::View as _;
use crate::view::profile::Sampling;
use crate::view::tasks::missing_from_file;

/// Functions in the summary.
const FUNCTIONS: usize = 12;
/// Only time on a CPU or ready for one: idle threads would fill most of the picture.
const STATES: [&str; 2] = ["cpu", "runnable"];
/// Most tasks in the file of the ledger: the limit of one response.
const LEDGER_ROWS_MAX: &str = "100000";

/// Writes the files into the folder `out` and a summary to stdout.
///
/// # Errors
/// If the collector or the disk fails, or if there is nothing to show.
pub(super) fn write(out: &Path, url: &str, started: SystemTime) -> anyhow::Result<()> {
    std::fs::create_dir_all(out)
        .with_context(|| format!("could not create the folder {}", out.display()))?;
    let client = Client::new(url)?;
    let since = started.duration_since(UNIX_EPOCH)?;
    let whole = || {
        let from = format!("{}.{:09}", since.as_secs(), since.subsec_nanos());
        Query::default().with("from", from).with("to", "now")
    };
    let busy = || whole().with_each("state", STATES);

    let mut written = Vec::new();
    for (name, format) in [("profile.svg", "svg"), ("profile.collapsed", "collapsed")] {
        let answer = client.get("profile", &busy().with("format", format))?;
        written.push(file(out, name, &answer.body)?);
    }
    let ledger = client.get("tasks", &whole().with("limit", LEDGER_ROWS_MAX))?;
    written.push(file(out, "ledger.json", &ledger.body)?);

    let profile = client.get("profile", &busy().with("format", "json"))?;
    let sampling = Sampling::from_headers(&profile);
    let body: Body = client.parse(&profile.body)?;
    let summary: TaskSummaryAnswer = client.get_json("tasks", &whole().with("summary", "true"))?;
    let functions = flamegraph::table(&body.profile.0, FUNCTIONS);
    say(&format!("\n{}", sampling.line()));
    print(format!("{}\n{functions}", summary.text()).as_bytes())?;
    say(&format!("\nwrote {}", written.join(", ")));
    let tasks: TasksAnswer = client.parse(&ledger.body)?;
    missing_from_file(&tasks).iter().for_each(|note| say(note));
    if sampling.empty {
        bail!("the profile is empty: {}", sampling.line());
    }
    Ok(())
}

/// Writes one file and returns its path.
fn file(out: &Path, name: &str, data: &[u8]) -> anyhow::Result<String> {
    let path = out.join(name);
    write_file(&path, data)?;
    Ok(path.display().to_string())
}
