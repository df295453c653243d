//! `emberline tasks --format trace`: asks for a range piece by piece, for the collector gives at most
//! so many tasks at once.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Deserialize;

use super::tasks::question;
use crate::args::{RangeArgs, TasksArgs};
use crate::client::Client;
use crate::output::{say, write_to};
use crate::trace::{About, Task, Trace};
use crate::view::{Span, grouped};

/// Most tasks of one answer: some 25 MB.
const PAGE_TASKS: u32 = 50_000;

/// An answer about tasks.
#[derive(Deserialize, Debug)]
struct Page {
    range: Bounds,
    total: u64,
    aggregated: u64,
    #[serde(default)]
    corrupt_files: Vec<String>,
    /// The newest first.
    tasks: Vec<Task>,
}

#[derive(Deserialize, Debug)]
struct Bounds {
    #[serde(flatten)]
    span: Span,
    from_ns: i64,
    to_ns: i64,
}

/// Writes all tasks of the range, or the newest so many, as a trace.
pub(super) fn run(args: &TasksArgs, client: &Client, file: Option<&Path>) -> anyhow::Result<()> {
    let mut ask = |piece: Option<Range<i64>>| -> anyhow::Result<Page> {
        let range = piece.map(|piece| absolute(&args.range, &piece)).transpose()?;
        let query = question(args, range.as_ref().unwrap_or(&args.range));
        let limit = args.limit.unwrap_or(PAGE_TASKS);
        Ok(client.get_json("tasks", &query.with("limit", limit.to_string()))?)
    };
    let failed = || match file {
        Some(file) => format!("could not write {}", file.display()),
        None => "could not write to stdout".to_owned(),
    };
    let (about, processes) = write_to(file, |out| {
        let mut trace = Trace::new(out).with_context(failed)?;
        let mut take = |tasks| trace.write(tasks).with_context(failed);
        let about = match args.limit {
            Some(_) => newest(&mut ask, &mut take)?,
            None => all(&mut ask, &mut take)?,
        };
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

/// The same workers, in that piece of time.
fn absolute(range: &RangeArgs, piece: &Range<i64>) -> anyhow::Result<RangeArgs> {
    let text = |ns: i64| -> anyhow::Result<Option<String>> {
        Ok(Some(format!("{:.9}", Timestamp::from_nanosecond(ns.into())?)))
    };
    let (from, to) = (text(piece.start)?, text(piece.end)?);
    let (worker, label) = (range.worker.clone(), range.label.clone());
    Ok(RangeArgs { from, to, run: None, worker, label })
}

fn notes(about: &About) -> Vec<String> {
    let mut notes = Vec::new();
    if about.tasks == 0 {
        let range = Span { from: about.from.clone(), to: about.to.clone() };
        notes.push(format!("no tasks of what was asked for in {range}"));
    }
    if about.omitted > 0 {
        notes.push(format!("{} tasks are not in the trace", grouped(about.omitted)));
    }
    notes.extend(crate::view::tasks::aggregated(about.aggregated));
    notes.extend(crate::view::corrupt_files(&about.corrupt_files));
    notes
}

/// The newest tasks, by one question.
fn newest(
    ask: &mut dyn FnMut(Option<Range<i64>>) -> anyhow::Result<Page>,
    take: &mut dyn FnMut(Vec<Task>) -> anyhow::Result<()>,
) -> anyhow::Result<About> {
    let page = ask(None)?;
    let mut about = begin(&page);
    about.tasks = page.tasks.len() as u64;
    about.omitted = page.total.saturating_sub(about.tasks);
    take(page.tasks)?;
    Ok(about)
}

fn begin(page: &Page) -> About {
    About {
        from: page.range.span.from.clone(),
        to: page.range.span.to.clone(),
        tasks: 0,
        omitted: 0,
        // The first answer is about the whole range, of which it leaves rows out, but no counts.
        aggregated: page.aggregated,
        corrupt_files: page.corrupt_files.clone(),
    }
}

/// All tasks in the order of their starts: one piece of the range after the other, each as long as one
/// answer holds. A piece takes the tasks that start in it; the first, those that ran before, too.
fn all(
    ask: &mut dyn FnMut(Option<Range<i64>>) -> anyhow::Result<Page>,
    take: &mut dyn FnMut(Vec<Task>) -> anyhow::Result<()>,
) -> anyhow::Result<About> {
    let mut page = ask(None)?;
    let mut about = begin(&page);
    let mut damaged = BTreeSet::new();
    let (total, mut is_cut) = (page.total, false);
    let Bounds { from_ns, to_ns, .. } = page.range;
    let mut piece = from_ns..to_ns;
    loop {
        damaged.append(&mut page.corrupt_files.drain(..).collect());
        let told = page.tasks.len() as u64;
        let is_first = piece.start == from_ns;
        let starts_in = |task: &Task| is_first || task.start_ns >= piece.start;
        // Answers have the newest: with one that started before the piece, they have all of the piece.
        let is_whole = page.total <= told || !page.tasks.last().is_none_or(starts_in);
        let length_ns = piece.end.abs_diff(piece.start);
        if !is_whole && length_ns > 1 {
            // As long as should fit, and a little less, for tasks do not come evenly.
            let fits = u128::from(length_ns) * u128::from(told) * 3 / (u128::from(page.total) * 4);
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
        let next_ns =
            if told < u64::from(PAGE_TASKS) / 2 { length_ns.saturating_mul(2) } else { length_ns };
        piece = piece.end..piece.end.saturating_add_unsigned(next_ns).min(to_ns);
        page = ask(Some(piece.clone()))?;
    }
    about.corrupt_files = damaged.into_iter().collect();
    // More started in one nanosecond, or ran at the range's start, than an answer holds. What comes in
    // meanwhile is no reason to say so.
    if is_cut {
        about.omitted = total.saturating_sub(about.tasks);
    }
    Ok(about)
}

#[cfg(test)]
mod tests;
