//! `emberline tasks --format firefox`: tasks, transfers and CPU usage on one axis of time.

use std::path::Path;

use anyhow::Context as _;
use api::{Task, TransfersAnswer};

use super::range_query;
use super::trace::{WITHOUT_TRANSFERS, has_transfers, notes, read_newest};
use crate::args::{RangeArgs, TasksArgs};
use crate::client::Client;
use crate::exit::BadInput;
use crate::firefox::{CPU_MEASURE, MEMORY_MEASURE, Rows, profile};
use crate::output::{say, write_to};
use crate::view::{counted, span};

/// Most tasks, and most transfers: what one response holds, and what the reader draws without long pauses.
const ROWS_MAX: u32 = 100_000;

pub(super) fn run(args: &TasksArgs, client: &Client, file: Option<&Path>) -> anyhow::Result<()> {
    let mut rows = Rows::default();
    let mut take = |mut tasks: Vec<Task>| {
        rows.tasks.append(&mut tasks);
        Ok(())
    };
    let mut about = read_newest(args, client, args.limit.unwrap_or(ROWS_MAX), &mut take)?;
    if rows.tasks.is_empty() {
        let range = span(&about.from, &about.to);
        let text = format!("no matching tasks in {range}, so nothing was written");
        return Err(BadInput(text).into());
    }
    rows.tasks.sort_by_key(|task| (task.start_ns, task.id));
    let range = range_query(&RangeArgs {
        from: Some(about.from.clone()),
        to: Some(about.to.clone()),
        run: None,
        worker: args.range.worker.clone(),
        label: args.range.label.clone(),
    });
    if has_transfers(args) {
        let query = range.clone().with_each("task", &args.task);
        let query = query.with("limit", ROWS_MAX.to_string());
        let answer: TransfersAnswer = client.get_json("transfers", &query)?;
        about.transfers = answer.transfers.len() as u64;
        about.omitted_transfers = answer.total.saturating_sub(about.transfers);
        rows.transfers = answer.transfers;
    }
    let query = range.with("measure", CPU_MEASURE).with("measure", MEMORY_MEASURE);
    rows.resources = client.get_json("resources", &query)?;
    write_to(file, |out| {
        serde_json::to_writer(out, &profile(&rows)).context("could not write the profile")
    })?;
    if !has_transfers(args) {
        say(WITHOUT_TRANSFERS);
    }
    notes(&about).iter().for_each(|note| say(note));
    if let Some(file) = file {
        let file = file.display();
        let tasks = counted(about.tasks, "task");
        let transfers = counted(about.transfers, "transfer");
        say(&format!("wrote {file}: {tasks} and {transfers}; open it at profiler.firefox.com"));
    }
    Ok(())
}
