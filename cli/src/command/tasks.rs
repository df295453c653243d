//! `emberline tasks`

use std::path::Path;

use api::{TaskSummaryAnswer, TasksAnswer};

use super::{range_query, trace};
use crate::args::{RangeArgs, TasksArgs, TasksFormat};
use crate::client::{Client, Query};
use crate::exit::BadInput;
use crate::format;
use crate::output::{print, say, write_file};
use crate::view::View;

/// Rows of a table without --limit.
const ROWS_DEFAULT: u32 = 50;

pub(crate) fn run(args: &TasksArgs) -> anyhow::Result<()> {
    let file = args.output.as_deref().filter(|file| *file != Path::new("-"));
    let format = format::choose(args.format, file)?;
    let client = Client::new(&args.url.url)?;
    if format == TasksFormat::Trace {
        if args.summary {
            let text =
                "--summary cannot be used with --format trace: a trace lists tasks one by one";
            return Err(BadInput(text.to_owned()).into());
        }
        return trace::run(args, &client, file);
    }
    let mut body = client.get("tasks", &query(args, format))?.body;
    if format == TasksFormat::Json {
        body.push(b'\n');
        return put(file, &body);
    }
    if args.summary {
        show::<TaskSummaryAnswer>(&client, &body, file)
    } else {
        show::<TasksAnswer>(&client, &body, file)
    }
}

fn show<T: View>(client: &Client, body: &[u8], file: Option<&Path>) -> anyhow::Result<()> {
    let answer: T = client.parse(body)?;
    answer.notes().iter().for_each(|note| say(note));
    put(file, answer.text().as_bytes())
}

fn put(file: Option<&Path>, data: &[u8]) -> anyhow::Result<()> {
    let Some(file) = file else {
        return print(data);
    };
    write_file(file, data)?;
    say(&format!("wrote {}", file.display()));
    Ok(())
}

/// The parameters of the range, and the names, keys and types of the tasks.
pub(super) fn base_query(args: &TasksArgs, range: &RangeArgs) -> Query {
    range_query(range)
        .with_each("task", &args.task)
        .with_each("key", &args.key)
        .with_each("type", &args.type_name)
}

fn query(args: &TasksArgs, format: TasksFormat) -> Query {
    let query = base_query(args, &args.range);
    if args.summary {
        return query.with("summary", "true");
    }
    let rows = (format == TasksFormat::Table).then_some(ROWS_DEFAULT);
    let limit = args.limit.or(rows);
    query.with_each("limit", limit.map(|limit| limit.to_string()))
}
