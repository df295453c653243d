//! What each command does.

pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod profile;
pub(crate) mod resources;
pub(crate) mod runs;
pub(crate) mod serve;
pub(crate) mod store;
pub(crate) mod tasks;
pub(crate) mod thread_dump;
pub(crate) mod time;
mod trace;
pub(crate) mod transfers;
pub(crate) mod watch;
pub(crate) mod workers;

use crate::args::{AskArgs, RangeArgs, RowFormat};
use crate::client::{Client, Query};
use crate::output::{print, say};
use crate::view::View;

/// The parameters of a range that were given; the collector has defaults for the others.
fn range_query(range: &RangeArgs) -> Query {
    Query::default()
        .with_each("from", &range.from)
        .with_each("to", &range.to)
        .with_each("run", &range.run)
        .with_each("worker", &range.worker)
        .with_each("label", &range.label)
}

/// Requests `path` and prints the response: as it came, or as the view of `T`.
fn show<T: View>(ask: &AskArgs, path: &str, query: &Query) -> anyhow::Result<()> {
    let client = Client::new(&ask.url.url)?;
    let mut body = client.get(path, query)?.body;
    if ask.format == RowFormat::Json {
        body.push(b'\n');
        return print(&body);
    }
    let answer: T = client.parse(&body)?;
    answer.notes().iter().for_each(|note| say(note));
    print(answer.text().as_bytes())
}
