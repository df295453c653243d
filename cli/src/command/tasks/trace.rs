//! `emberline tasks --format trace`: requests a range piece by piece, because a response holds a limited
//! number of tasks or transfers.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use anyhow::Context as _;
use api::{Task, TasksAnswer, Transfer, TransfersAnswer};
use jiff::Timestamp;

use super::base_query;
use crate::args::{RangeArgs, TasksArgs};
use crate::client::Client;
use crate::command::{nothing_written, range_query};
use crate::output::{say, say_wrapped, write_to};
use crate::progress;
use crate::trace::{About, Trace};
use crate::view::{aggregated, corrupt_files, grouped, span};

/// Most rows in one response: about 25 MB.
const PAGE_ROWS: u32 = 50_000;

/// Said of files that have no transfers.
pub(super) const WITHOUT_TRANSFERS: &str =
    "transfers are left out with --key, --type, --outcome, --failed and --limit";

/// Writes all tasks of the range, or the newest `--limit` ones, as a trace.
pub(super) fn run(args: &TasksArgs, client: &Client, file: Option<&Path>) -> anyhow::Result<()> {
    let failed = || match file {
        Some(file) => format!("could not write {}", file.display()),
        None => "could not write to stdout".to_owned(),
    };
    let (about, processes) = write_to(file, |out| {
        let mut trace = Trace::new(out).with_context(failed)?;
        let mut about = read_tasks(args, client, &mut |tasks| {
            trace.write(tasks).with_context(failed)
        })?;
        if has_transfers(args) {
            read_transfers(args, client, &mut about, &mut |transfers| {
                trace.write_transfers(&transfers).with_context(failed)
            })?;
        }
        let processes = trace.processes();
        if file.is_some() && processes == 0 {
            notes(&about).iter().for_each(|note| say(note));
            return Err(nothing_written("tasks").into());
        }
        trace.finish(&about).with_context(failed)?;
        Ok((about, processes))
    })?;
    if !has_transfers(args) {
        say(WITHOUT_TRANSFERS);
    }
    notes(&about).iter().for_each(|note| say_wrapped(note));
    if let Some(file) = file {
        say(&format!(
            "wrote {}: {} tasks and {} transfers of {processes} worker processes; open it at \
             ui.perfetto.dev or chrome://tracing",
            file.display(),
            grouped(about.tasks),
            grouped(about.transfers)
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
    match args.limit {
        Some(limit) => {
            newest(&mut |piece| request(args, client, limit, piece), take).map(About::from)
        }
        None => all(&mut |piece| request(args, client, PAGE_ROWS, piece), take).map(About::from),
    }
}

fn request(
    args: &TasksArgs,
    client: &Client,
    limit: u32,
    piece: Option<Range<i64>>,
) -> anyhow::Result<Page<Task>> {
    let range = piece
        .map(|piece| absolute(&args.range, &piece))
        .transpose()?;
    let query = base_query(args, range.as_ref().unwrap_or(&args.range));
    let answer: TasksAnswer = client.get_json("tasks", &query.with("limit", limit.to_string()))?;
    Ok(answer.into())
}

/// Whether the tasks are selected by no more than their names, which select transfers too.
pub(super) fn has_transfers(args: &TasksArgs) -> bool {
    let TasksArgs {
        key,
        type_name,
        outcome,
        failed,
        limit,
        ..
    } = args;
    key.is_empty() && type_name.is_empty() && outcome.is_empty() && !failed && limit.is_none()
}

/// Passes all transfers of the range of `about` to `take`, and counts them there.
fn read_transfers(
    args: &TasksArgs,
    client: &Client,
    about: &mut About,
    take: &mut dyn FnMut(Vec<Transfer>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let whole = RangeArgs {
        from: Some(about.from.clone()),
        to: Some(about.to.clone()),
        run: None,
        worker: args.range.worker.clone(),
        label: args.range.label.clone(),
    };
    let mut ask = |piece: Option<Range<i64>>| -> anyhow::Result<Page<Transfer>> {
        let range = piece
            .map(|piece| absolute(&args.range, &piece))
            .transpose()?;
        let query = range_query(range.as_ref().unwrap_or(&whole)).with_each("task", &args.task);
        let answer: TransfersAnswer =
            client.get_json("transfers", &query.with("limit", PAGE_ROWS.to_string()))?;
        Ok(answer.into())
    };
    let read = all(&mut ask, take)?;
    about.transfers = read.rows;
    about.omitted_transfers = read.omitted;
    about.corrupt_files.extend(read.corrupt_files);
    about.corrupt_files.sort();
    about.corrupt_files.dedup();
    Ok(())
}

/// The same workers, in that piece of time.
fn absolute(range: &RangeArgs, piece: &Range<i64>) -> anyhow::Result<RangeArgs> {
    Ok(RangeArgs {
        from: unix_seconds(piece.start)?,
        to: unix_seconds(piece.end)?,
        run: None,
        worker: range.worker.clone(),
        label: range.label.clone(),
    })
}

/// Seconds since 1970, as a query has them.
fn unix_seconds(ns: i64) -> anyhow::Result<Option<String>> {
    Ok(Some(format!(
        "{:.9}",
        Timestamp::from_nanosecond(ns.into())?
    )))
}

pub(super) fn notes(about: &About) -> Vec<String> {
    let mut notes = Vec::new();
    if about.tasks == 0 {
        notes.push(format!(
            "no matching tasks in {}",
            span(&about.from, &about.to)
        ));
    }
    if about.omitted > 0 {
        notes.push(format!("{} tasks are left out", grouped(about.omitted)));
    }
    if about.omitted_transfers > 0 {
        notes.push(format!(
            "{} transfers are left out",
            grouped(about.omitted_transfers)
        ));
    }
    notes.extend(aggregated(about.aggregated));
    notes.extend(corrupt_files(&about.corrupt_files));
    notes
}

/// A row that the collector lists.
trait Row {
    /// Name of such rows.
    const NOUN: &'static str;
    /// Whether a response that is too short lists those that started last; else those that stopped last.
    const IS_BY_START: bool;

    fn start_ns(&self) -> i64;
}

impl Row for Task {
    const NOUN: &'static str = "tasks";
    const IS_BY_START: bool = true;

    fn start_ns(&self) -> i64 {
        self.start_ns
    }
}

impl Row for Transfer {
    const NOUN: &'static str = "transfers";
    const IS_BY_START: bool = false;

    fn start_ns(&self) -> i64 {
        self.start_ns
    }
}

/// The rows of one response.
struct Page<R> {
    range: api::TimeRange,
    total: u64,
    aggregated: u64,
    corrupt_files: Vec<String>,
    rows: Vec<R>,
}

impl From<TasksAnswer> for Page<Task> {
    fn from(answer: TasksAnswer) -> Page<Task> {
        let TasksAnswer {
            range,
            total,
            aggregated,
            corrupt_files,
            tasks,
            ..
        } = answer;
        Page {
            range,
            total,
            aggregated,
            corrupt_files,
            rows: tasks,
        }
    }
}

impl From<TransfersAnswer> for Page<Transfer> {
    fn from(answer: TransfersAnswer) -> Page<Transfer> {
        let TransfersAnswer {
            range,
            total,
            corrupt_files,
            transfers,
            ..
        } = answer;
        Page {
            range,
            total,
            aggregated: 0,
            corrupt_files,
            rows: transfers,
        }
    }
}

/// Summary of the rows read of a range.
struct Reading {
    range: api::TimeRange,
    rows: u64,
    omitted: u64,
    aggregated: u64,
    corrupt_files: Vec<String>,
}

impl Reading {
    /// The first response covers the whole range: it may omit rows, but no counts.
    fn begin<R>(first: &Page<R>) -> Reading {
        Reading {
            range: first.range.clone(),
            rows: 0,
            omitted: 0,
            aggregated: first.aggregated,
            corrupt_files: first.corrupt_files.clone(),
        }
    }
}

impl From<Reading> for About {
    fn from(reading: Reading) -> About {
        About {
            from: reading.range.from,
            to: reading.range.to,
            tasks: reading.rows,
            omitted: reading.omitted,
            aggregated: reading.aggregated,
            transfers: 0,
            omitted_transfers: 0,
            corrupt_files: reading.corrupt_files,
        }
    }
}

/// The newest rows, by one request.
fn newest<R>(
    ask: &mut dyn FnMut(Option<Range<i64>>) -> anyhow::Result<Page<R>>,
    take: &mut dyn FnMut(Vec<R>) -> anyhow::Result<()>,
) -> anyhow::Result<Reading> {
    let page = ask(None)?;
    let mut reading = Reading::begin(&page);
    reading.rows = page.rows.len() as u64;
    reading.omitted = page.total.saturating_sub(reading.rows);
    take(page.rows)?;
    Ok(reading)
}

/// All rows, one piece of the range after the other, each short enough for one response. A piece has the
/// rows that start in it; the first piece also those that started before. Tasks come in the order of
/// their starts by that.
fn all<R: Row>(
    ask: &mut dyn FnMut(Option<Range<i64>>) -> anyhow::Result<Page<R>>,
    take: &mut dyn FnMut(Vec<R>) -> anyhow::Result<()>,
) -> anyhow::Result<Reading> {
    let mut page = ask(None)?;
    let mut reading = Reading::begin(&page);
    let mut corrupt = BTreeSet::new();
    let total = page.total;
    let mut is_cut = false;
    let api::TimeRange { from_ns, to_ns, .. } = page.range;
    let mut piece = from_ns..to_ns;
    let bar = progress::bar(R::NOUN, to_ns.abs_diff(from_ns));
    loop {
        corrupt.append(&mut page.corrupt_files.drain(..).collect());
        let listed = page.rows.len() as u64;
        let is_first = piece.start == from_ns;
        let starts_in = |row: &R| is_first || row.start_ns() >= piece.start;
        // Responses list the newest: one that reaches back before the piece has all of the piece.
        let reaches_back = R::IS_BY_START && !page.rows.last().is_none_or(starts_in);
        let is_whole = page.total <= listed || reaches_back;
        let length_ns = piece.end.abs_diff(piece.start);
        if !is_whole && length_ns > 1 {
            // A little less than should fit, because rows are not spread evenly.
            let fits =
                u128::from(length_ns) * u128::from(listed) * 3 / (u128::from(page.total) * 4);
            let fits = u64::try_from(fits)
                .unwrap_or(u64::MAX)
                .clamp(1, length_ns / 2);
            piece.end = piece.start.saturating_add_unsigned(fits);
            page = ask(Some(piece.clone()))?;
            continue;
        }
        is_cut |= !is_whole;
        page.rows.retain(starts_in);
        reading.rows += page.rows.len() as u64;
        take(std::mem::take(&mut page.rows))?;
        bar.set_position(piece.end.abs_diff(from_ns));
        if piece.end >= to_ns {
            break;
        }
        let next_ns = if listed < u64::from(PAGE_ROWS) / 2 {
            length_ns.saturating_mul(2)
        } else {
            length_ns
        };
        piece = piece.end..piece.end.saturating_add_unsigned(next_ns).min(to_ns);
        page = ask(Some(piece.clone()))?;
    }
    bar.finish_and_clear();
    reading.corrupt_files = corrupt.into_iter().collect();
    // More rows started in one nanosecond, or ran at the range's start, than a response holds. Rows that
    // arrive meanwhile do not count as omitted.
    if is_cut {
        reading.omitted = total.saturating_sub(reading.rows);
    }
    Ok(reading)
}

#[cfg(test)]
mod tests;
