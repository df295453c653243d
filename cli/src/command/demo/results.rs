//! Files that a demo writes at its end, requested from its collector as any client would.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use api::{TaskSummaryAnswer, TasksAnswer};
use flamegraph::{TableOptions, TableOrder};

use crate::client::{Client, Query};
use crate::command::profile::Body;
use crate::command::report;
use crate::grid::line_columns;
use crate::output::{print, say, say_wrapped, write_file};
use crate::view::View as _;
use crate::view::profile::Sampling;
use crate::view::tasks::missing_from_file;

/// Functions in the summary.
const FUNCTIONS: usize = 12;
/// The default view of the page and of `emberline profile`.
const VIEW: [(&str, &str); 3] = [
    ("state", "cpu"),
    ("outside", "hidden"),
    ("stacks", "simple"),
];
/// Most tasks in the file of the ledger: the limit of one response.
const LEDGER_ROWS_MAX: &str = "100000";

/// Writes the files into the folder `out` and a summary to stdout.
///
/// # Errors
/// If the collector or the disk fails, or if there is nothing to show.
pub(super) fn write(out: &Path, client: &Client, started: SystemTime) -> anyhow::Result<()> {
    std::fs::create_dir_all(out)
        .with_context(|| format!("could not create the folder {}", out.display()))?;
    let since = started.duration_since(UNIX_EPOCH)?;
    let whole = || {
        let from = format!("{}.{:09}", since.as_secs(), since.subsec_nanos());
        Query::default().with("from", from).with("to", "now")
    };
    let busy = || {
        VIEW.iter()
            .fold(whole(), |query, (name, value)| query.with(name, *value))
    };

    let mut written = Vec::new();
    for (name, format) in [("profile.svg", "svg"), ("profile.collapsed", "collapsed")] {
        let answer = client.get("profile", &busy().with("format", format))?;
        written.push(file(out, name, &answer.body)?);
    }
    let ledger = client.get("tasks", &whole().with("limit", LEDGER_ROWS_MAX))?;
    written.push(file(out, "ledger.json", &ledger.body)?);
    let names = ["report.html", "report.json"].map(|name| out.join(name));
    let files = report::Files::DocumentAndJson(&names[0], &names[1]);
    let report = report::write_whole(client, whole(), None, files)?;
    let tables = report::write_tables(client, &names[0], &report)?;
    written.extend(
        names
            .iter()
            .chain(&tables)
            .map(|name| name.display().to_string()),
    );

    let profile = client.get("profile", &busy().with("format", "json"))?;
    let sampling = Sampling::from_headers(&profile);
    let body: Body = client.parse(&profile.body)?;
    let summary: TaskSummaryAnswer = client.get_json("tasks", &whole().with("summary", "true"))?;
    let options = TableOptions {
        rows: FUNCTIONS,
        order: TableOrder::SelfTime,
        columns: line_columns(),
    };
    let functions = flamegraph::table(&body.profile.0, options);
    say(&format!("\n{}", sampling.lines().join("\n")));
    print(format!("{}\n{functions}", summary.text()).as_bytes())?;
    say(&format!("\nwrote {}", written.join(", ")));
    let tasks: TasksAnswer = client.parse(&ledger.body)?;
    missing_from_file(&tasks)
        .iter()
        .for_each(|note| say_wrapped(note));
    if sampling.empty {
        bail!("the profile is empty: {}", sampling.lines().join(" "));
    }
    Ok(())
}

/// Writes one file and returns its path.
fn file(out: &Path, name: &str, data: &[u8]) -> anyhow::Result<String> {
    let path = out.join(name);
    write_file(&path, data)?;
    Ok(path.display().to_string())
}
