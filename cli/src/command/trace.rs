//! `emberline tasks --format trace`: requests a range piece by piece, because a response holds a limited
//! number of tasks.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use anyhow::Context as _;
use api::{Task, TasksAnswer};
use jiff::Timestamp;

use super::tasks::base_query;
use crate::args::{RangeArgs, TasksArgs};
use crate::client::Client;
use crate::output::{say, write_to};
use crate::trace::{About, Trace};
use crate::view::{aggregated, corrupt_files, grouped, span};

/// Most tasks in one response: about 25 MB.
const PAGE_TASKS: u32 = 50_000;

/// Writes all tasks of the range, or the newest `--limit` ones, as a trace.
pub(super) fn run(args: &TasksArgs, client: &Client, file: Option<&Path>) -> anyhow::Result<()> {
    let failed = || match file {
        Some(file) => format!("could not write {}", file.display()),
        None => "could not write to stdout".to_owned(),
    };
    let (about, processes) = write_to(file, |out| {
        let mut trace = Trace::new(out).with_context(failed)?;
        let about = read_tasks(args, client, &mut |tasks| trace.write(tasks).with_context(failed))?;
        let processes = trace.processes();
        trace.finish(&about).with_context(failed)?;
        Ok((about, processes))
    })?;
    notes(&about).iter().for_each(|note| say(note));
    if let Some(file) = file {
        say(&format!(
            "wrote {}: {} tasks of {processes} worker processes; open it at ui.perfetto.dev or \
             chrome://tracing",
            file.display(),
            grouped(about.tasks)
        ));
    }
    Ok(())
}

/// Passes all tasks of the range, or the newest `--limit` ones, to `take`, some tens of thousands at once.
pub(super) fn read_tasks(
    args: &TasksArgs,
    client: &Client,
    take: &mut dyn FnMut(Vec<Task>) -> anyhow::Result<()>,
) -> anyhow::Result<About> {
    let mut ask = |piece: Option<Range<i64>>| -> anyhow::Result<TasksAnswer> {
        let range = piece.map(|piece| absolute(&args.range, &piece)).transpose()?;
        let query = base_query(args, range.as_ref().unwrap_or(&args.range));
        let limit = args.limit.unwrap_or(PAGE_TASKS);
        Ok(client.get_json("tasks", &query.with("limit", limit.to_string()))?)
    };
    match args.limit {
        Some(_) => newest(&mut ask, take),
        None => all(&mut ask, take),
    }
}

/// The same workers, in that piece of time.
fn absolute(range: &RangeArgs, piece: &Range<i64>) -> anyhow::Result<RangeArgs> {
    let text = |ns: i64| -> anyhow::Result<Option<String>> {
        Ok(Some(format!("{:.9}", Timestamp::from_nanosecond(ns.into())?)))
    };
    Ok(RangeArgs {
        from: text(piece.start)?,
        to: text(piece.end)?,
        run: None,
        worker: range.worker.clone(),
        label: range.label.clone(),
    })
}

pub(super) fn notes(about: &About) -> Vec<String> {
    let mut notes = Vec::new();
    if about.tasks == 0 {
        notes.push(format!("no matching tasks in {}", span(&about.from, &about.to)));
    }
    if about.omitted > 0 {
        notes.push(format!("{} tasks are not in the trace", grouped(about.omitted)));
    }
    notes.extend(aggregated(about.aggregated));
    notes.extend(corrupt_files(&about.corrupt_files));
    notes
}

/// The newest tasks, by one request.
fn newest(
    ask: &mut dyn FnMut(Option<Range<i64>>) -> anyhow::Result<TasksAnswer>,
    take: &mut dyn FnMut(Vec<Task>) -> anyhow::Result<()>,
) -> anyhow::Result<About> {
    let page = ask(None)?;
    let mut about = begin(&page);
    about.tasks = page.tasks.len() as u64;
    about.omitted = page.total.saturating_sub(about.tasks);
    take(page.tasks)?;
    Ok(about)
}

fn begin(page: &TasksAnswer) -> About {
    About {
        from: page.range.from.clone(),
        to: page.range.to.clone(),
        tasks: 0,
        omitted: 0,
        // The first response covers the whole range: it may omit rows, but no counts.
        aggregated: page.aggregated,
        corrupt_files: page.corrupt_files.clone(),
    }
}

/// All tasks in the order of their starts: one piece of the range after the other, each short enough for
/// one response. A piece has the tasks that start in it; the first piece also those that ran before.
fn all(
    ask: &mut dyn FnMut(Option<Range<i64>>) -> anyhow::Result<TasksAnswer>,
    take: &mut dyn FnMut(Vec<Task>) -> anyhow::Result<()>,
) -> anyhow::Result<About> {
    let mut page = ask(None)?;
    let mut about = begin(&page);
    let mut corrupt = BTreeSet::new();
    let total = page.total;
    let mut is_cut = false;
    let api::TimeRange { from_ns, to_ns, .. } = page.range;
    let mut piece = from_ns..to_ns;
    loop {
        corrupt.append(&mut page.corrupt_files.drain(..).collect());
        let listed = page.tasks.len() as u64;
        let is_first = piece.start == from_ns;
        let starts_in = |task: &Task| is_first || task.start_ns >= piece.start;
        // Responses list the newest: one that reaches back before the piece has all of the piece.
        let is_whole = page.total <= listed || !page.tasks.last().is_none_or(starts_in);
        let length_ns = piece.end.abs_diff(piece.start);
        if !is_whole && length_ns > 1 {
            // A little less than should fit, because tasks are not spread evenly.
            let fits =
                u128::from(length_ns) * u128::from(listed) * 3 / (u128::from(page.total) * 4);
            let fits = u64::try_from(fits).unwrap_or(u64::MAX).clamp(1, length_ns / 2);
            piece.end = piece.start.saturating_add_unsigned(fits);
            page = ask(Some(piece.clone()))?;
            continue;
        }
        is_cut |= !is_whole;
        page.tasks.retain(starts_in);
        about.tasks += page.tasks.len() as u64;
        take(std::mem::take(&mut page.tasks))?;
        if piece.end >= to_ns {
            break;
        }
        let next_ns = if listed < u64::from(PAGE_TASKS) / 2 {
            length_ns.saturating_mul(2)
        } else {
            length_ns
        };
        piece = piece.end..piece.end.saturating_add_unsigned(next_ns).min(to_ns);
        page = ask(Some(piece.clone()))?;
    }
    about.corrupt_files = corrupt.into_iter().collect();
    // More tasks started in one nanosecond, or ran at the range's start, than a response holds. Tasks
    // that arrive meanwhile do not count as omitted.
    if is_cut {
        about.omitted = total.saturating_sub(about.tasks);
    }
    Ok(about)
}

#[cfg(test)]
mod tests;
