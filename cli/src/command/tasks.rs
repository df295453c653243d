//! `emberline tasks`

mod firefox;
pub(super) mod otlp;
mod trace;

use std::path::Path;

use api::{TaskSummaryAnswer, TasksAnswer};

use super::report::{self, Scope};
use super::{range_query, rows};
use crate::args::{RangeArgs, TaskOutcome, TasksArgs, TasksFormat, word};
use crate::client::{Client, Query};
use crate::exit::BadInput;
use crate::format;
use crate::output::{json_line, put, say_wrapped};
use crate::view::View;

/// Rows of a table without --limit.
const ROWS_DEFAULT: u32 = 50;

pub(crate) fn run(args: &TasksArgs) -> anyhow::Result<()> {
    let file = args.output.file();
    let format = format::choose(args.format, file)?;
    let client = Client::new(&args.url.url)?;
    if args.send_to.is_some() && format != TasksFormat::Otlp {
        return Err(BadInput("--send-to needs --format otlp".to_owned()).into());
    }
    if matches!(
        format,
        TasksFormat::Trace | TasksFormat::Firefox | TasksFormat::Otlp
    ) {
        let name = word(format);
        if args.summary {
            let text =
                format!("--summary cannot be used with --format {name}: it has single tasks");
            return Err(BadInput(text).into());
        }
        if args.sort.is_some() {
            let text = format!("--sort cannot be used with --format {name}: it has an order");
            return Err(BadInput(text).into());
        }
        return match format {
            TasksFormat::Otlp => otlp::run(args, &client, file),
            TasksFormat::Firefox => firefox::run(args, &client, file),
            _ => trace::run(args, &client, file),
        };
    }
    if format == TasksFormat::Html {
        return document(args, &client, file);
    }
    if format == TasksFormat::Hlog {
        return histograms(args, &client, file);
    }
    if matches!(format, TasksFormat::Csv | TasksFormat::Parquet) {
        if format != TasksFormat::Csv {
            rows::reject_terminal(&word(format), file, &format!("tasks.{}", word(format)))?;
        }
        let query = query(args, format).with("format", word(format));
        return rows::write(&client, "tasks", &query, file);
    }
    let body = client.get("tasks", &query(args, format))?.body;
    if format == TasksFormat::Json {
        return put(file, &json_line(body));
    }
    if args.summary {
        show::<TaskSummaryAnswer>(&client, &body, file)
    } else {
        show::<TasksAnswer>(&client, &body, file)
    }
}

/// Writes a log of histograms, which are of all outcomes, keys and types.
fn histograms(args: &TasksArgs, client: &Client, file: Option<&Path>) -> anyhow::Result<()> {
    let by_task = range_query(&args.range).with_each("task", &args.task);
    let has_lists = args.summary || args.sort.is_some() || args.limit.is_some();
    if has_lists || base_query(args, &args.range) != by_task {
        let text = "--format hlog has all durations: of other options it takes --task, --worker, --label and \
                    the range alone";
        return Err(BadInput(text.to_owned()).into());
    }
    rows::write(
        client,
        "tasks/durations",
        &by_task.with("format", "hlog"),
        file,
    )
}

/// Writes the page's task stream as one file. Totals by name are of all outcomes, keys and types, so they
/// are left out with these filters.
fn document(args: &TasksArgs, client: &Client, file: Option<&Path>) -> anyhow::Result<()> {
    if args.summary || args.sort.is_some() || args.limit.is_some() {
        let text = "--summary, --sort and --limit cannot be used with --format html: it has totals and \
                    the newest tasks";
        return Err(BadInput(text.to_owned()).into());
    }
    let filter = filter_query(Query::default(), args);
    let has_totals = filter == Query::default().with_each("task", &args.task);
    report::write_parts(
        client,
        &Scope::of(&args.range, Some("tasks")),
        file,
        |same_range| {
            let query = same_range.clone().and(filter);
            let mut parts = Vec::from(report::task_parts(&query));
            if has_totals {
                parts.push(report::summary_part(query));
            }
            parts
        },
    )
}

fn show<T: View>(client: &Client, body: &[u8], file: Option<&Path>) -> anyhow::Result<()> {
    let answer: T = client.parse(body)?;
    answer.notes().iter().for_each(|note| say_wrapped(note));
    put(file, answer.text().as_bytes())
}

/// The parameters of the range, and the names, keys, types and outcomes of the tasks.
pub(super) fn base_query(args: &TasksArgs, range: &RangeArgs) -> Query {
    filter_query(range_query(range), args)
}

fn filter_query(query: Query, args: &TasksArgs) -> Query {
    let failed: &[TaskOutcome] = if args.failed {
        &TaskOutcome::FAILED
    } else {
        &[]
    };
    let outcomes = args
        .outcome
        .iter()
        .chain(failed)
        .map(|outcome| word(*outcome));
    query
        .with_each("outcome", outcomes)
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
    query
        .with_each("sort", args.sort.map(word))
        .with_each("limit", limit.map(|limit| limit.to_string()))
}
