//! Implementations of the commands.

pub(crate) mod access;
pub(crate) mod compare;
pub(crate) mod demo;
pub(crate) mod fleet;
pub(crate) mod import;
pub(crate) mod profile;
pub(crate) mod record;
pub(crate) mod reference;
pub(crate) mod report;
mod rows;
pub(crate) mod run;
pub(crate) mod server;
pub(crate) mod sql;
pub(crate) mod symbols;
pub(crate) mod tasks;

use std::path::Path;

use api::time::RangeEnd;

use crate::args::{AskArgs, FileFormat, RangeArgs, RowFormat, word};
use crate::client::{Client, Query};
use crate::exit::BadInput;
use crate::output::{json_line, print, print_json, put, say_wrapped};
use crate::view::View;
use crate::zone;

/// The parameters of a range that were given; the collector has defaults for the others.
fn range_query(range: &RangeArgs) -> Query {
    let from = range
        .from
        .as_deref()
        .map(|text| zone::for_collector(text, RangeEnd::From));
    let to = range
        .to
        .as_deref()
        .map(|text| zone::for_collector(text, RangeEnd::To));
    Query::default()
        .with_each("from", &from)
        .with_each("to", &to)
        .with_each("run", &range.run)
        .with_each("worker", &range.worker)
        .with_each("label", &range.label)
}

/// The error about a range that has none of what a file would hold.
fn nothing_written(rows: &str) -> BadInput {
    BadInput(format!(
        "no matching {rows} in this range, so nothing was written"
    ))
}

/// Requests `path` and prints the response: as it came, or as the view of `T`.
fn show<T: View>(ask: &AskArgs, path: &str, query: &Query) -> anyhow::Result<()> {
    show_changed(ask, path, query, |_: &mut T| None)
}

/// Like [`show`], after a change of the view, which may add a note about it.
fn show_changed<T: View>(
    ask: &AskArgs,
    path: &str,
    query: &Query,
    change: impl FnOnce(&mut T) -> Option<String>,
) -> anyhow::Result<()> {
    let client = Client::new(&ask.url.url)?;
    let body = client.get(path, query)?.body;
    if ask.format == RowFormat::Json {
        return print_json(body);
    }
    let mut answer: T = client.parse(&body)?;
    let note = change(&mut answer);
    answer
        .notes()
        .iter()
        .chain(&note)
        .for_each(|note| say_wrapped(note));
    print(answer.text().as_bytes())
}

/// Requests `path` and writes the response: rows and JSON as they came, a table as the view of `T`.
fn write_rows<T: View>(
    client: &Client,
    path: &'static str,
    query: &Query,
    format: FileFormat,
    file: Option<&Path>,
) -> anyhow::Result<()> {
    match format {
        FileFormat::Table => {
            let answer: T = client.get_json(path, query)?;
            answer.notes().iter().for_each(|note| say_wrapped(note));
            put(file, answer.text().as_bytes())
        }
        FileFormat::Json => put(file, &json_line(client.get(path, query)?.body)),
        FileFormat::Csv | FileFormat::Parquet => {
            let name = word(format);
            if format != FileFormat::Csv {
                rows::reject_terminal(&name, file, &format!("{path}.{name}"))?;
            }
            rows::write(client, path, &query.clone().with("format", name), file)
        }
    }
}
