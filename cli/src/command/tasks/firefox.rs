//! `emberline tasks --format firefox`: tasks, transfers and CPU usage on one axis of time, as the collector writes
//! them.

use std::path::Path;

use super::base_query;
use super::trace::{WITHOUT_TRANSFERS, has_transfers};
use crate::args::TasksArgs;
use crate::client::Client;
use crate::command::{nothing_written, rows};
use crate::output::{print, say, say_wrapped, write_file};
use crate::view::counted;

pub(super) fn run(args: &TasksArgs, client: &Client, file: Option<&Path>) -> anyhow::Result<()> {
    let query = base_query(args, &args.range)
        .with("format", "firefox")
        .with_each("limit", args.limit.map(|limit| limit.to_string()));
    let answer = client.get("tasks", &query)?;
    let tasks = answer.count("x-emberline-rows");
    if tasks == 0 {
        return Err(nothing_written("tasks").into());
    }
    match file {
        Some(file) => write_file(file, &answer.body)?,
        None => print(&answer.body)?,
    }
    if !has_transfers(args) {
        say(WITHOUT_TRANSFERS);
    }
    rows::notes(&answer)
        .iter()
        .for_each(|note| say_wrapped(note));
    let transfers = answer.count("x-emberline-transfers");
    let omitted = answer
        .count("x-emberline-transfers-total")
        .saturating_sub(transfers);
    if omitted > 0 {
        say(&format!("left out: {}", counted(omitted, "transfer")));
    }
    if let Some(file) = file {
        let file = file.display();
        let tasks = counted(tasks, "task");
        let transfers = counted(transfers, "transfer");
        say(&format!(
            "wrote {file}: {tasks} and {transfers}; open it at profiler.firefox.com"
        ));
    }
    Ok(())
}
