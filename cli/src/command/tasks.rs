//! `emberline tasks`

use super::range_query;
use crate::args::{RowFormat, TasksArgs};
use crate::client::{Client, Query};
use crate::output::{print, say};
use crate::view::tasks::{Summary, Tasks};

/// Rows on a terminal, unless told otherwise.
const ROWS_DEFAULT: u32 = 50;

pub(crate) fn run(args: &TasksArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.ask.url.url)?;
    let mut body = client.get("tasks", &query(args))?.body;
    if args.ask.format == RowFormat::Json {
        body.push(b'\n');
        return print(&body);
    }
    let (notes, table) = if args.summary {
        let summary: Summary = client.parse(&body)?;
        (summary.notes(), summary.table())
    } else {
        let tasks: Tasks = client.parse(&body)?;
        (tasks.notes(), tasks.table())
    };
    notes.iter().for_each(|note| say(note));
    print(table.as_bytes())
}

fn query(args: &TasksArgs) -> Query {
    let query = range_query(&args.range)
        .with_each("task", &args.task)
        .with_each("key", &args.key)
        .with_each("type", &args.type_name);
    if args.summary {
        return query.with("summary", "true");
    }
    let shown = (args.ask.format == RowFormat::Table).then_some(ROWS_DEFAULT);
    let limit = args.limit.or(shown);
    query.with_each("limit", limit.map(|limit| limit.to_string()))
}
