//! `emberline tasks`

use std::path::Path;

use super::{range_query, trace};
use crate::args::{RangeArgs, TasksArgs, TasksFormat};
use crate::client::{Client, Query};
use crate::exit::BadInput;
use crate::format;
use crate::output::{print, say, write_file};
use crate::view::tasks::{Summary, Tasks};

/// Rows on a terminal, unless told otherwise.
const ROWS_DEFAULT: u32 = 50;

pub(crate) fn run(args: &TasksArgs) -> anyhow::Result<()> {
    let file = args.output.as_deref().filter(|file| *file != Path::new("-"));
    let format = format::choose(args.format, file)?;
    let client = Client::new(&args.url.url)?;
    if format == TasksFormat::Trace {
        if args.summary {
            let text = "a trace has tasks one by one: leave out --summary, or --format trace";
            return Err(BadInput(text.to_owned()).into());
        }
        return trace::run(args, &client, file);
    }
    let mut body = client.get("tasks", &query(args, format))?.body;
    if format == TasksFormat::Json {
        body.push(b'\n');
        return put(file, &body);
    }
    let (notes, table) = if args.summary {
        let summary: Summary = client.parse(&body)?;
        (summary.notes(), summary.table())
    } else {
        let tasks: Tasks = client.parse(&body)?;
        (tasks.notes(), tasks.table())
    };
    notes.iter().for_each(|note| say(note));
    put(file, table.as_bytes())
}

fn put(file: Option<&Path>, data: &[u8]) -> anyhow::Result<()> {
    let Some(file) = file else {
        return print(data);
    };
    write_file(file, data)?;
    say(&format!("wrote {}", file.display()));
    Ok(())
}

/// The question for tasks of these names, keys and types.
pub(super) fn question(args: &TasksArgs, range: &RangeArgs) -> Query {
    range_query(range)
        .with_each("task", &args.task)
        .with_each("key", &args.key)
        .with_each("type", &args.type_name)
}

fn query(args: &TasksArgs, format: TasksFormat) -> Query {
    let query = question(args, &args.range);
    if args.summary {
        return query.with("summary", "true");
    }
    let shown = (format == TasksFormat::Table).then_some(ROWS_DEFAULT);
    let limit = args.limit.or(shown);
    query.with_each("limit", limit.map(|limit| limit.to_string()))
}
