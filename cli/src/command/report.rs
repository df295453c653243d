//! `emberline report`: a range as one document that needs no collector, and as JSON.

mod diff;
mod file;
mod run_end;
mod tables;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use api::{Run, TasksAnswer, TimeRange, TimelineAnswer};
use profiler_core::WorkerId;
use serde::Serialize;

use super::range_query;
use crate::args::{ProfileFormat, RangeArgs, ReportArgs, ReportCommand};
use crate::client::{Client, Query};
use crate::exit::BadInput;
use crate::format;
use crate::output::{check_writable, say, write_to};
use crate::progress;
use crate::report::Report;
use crate::view::{range, span};

/// Most tasks that are drawn, about 23 bytes each; totals count all.
const TASKS_DRAWN_MAX: u32 = 200_000;

/// Newest tasks with full records, about 500 bytes each.
const TASK_RECORDS_MAX: u32 = 1000;

const NS_PER_SECOND: i64 = 1_000_000_000;

/// Longest tasks with full records.
const LONGEST_MAX: u32 = 10;

/// Most steps of each series of resources in a range of more than 150 s, about 55 bytes each. A process has 20 series.
const RESOURCE_STEPS_MAX: u64 = 200;
const LONG_S: u64 = 150;

/// Newest events; the collector holds few more.
const EVENTS_MAX: u32 = 1000;

/// One answer of the collector: its name in the report, its path and its parameters.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) path: &'static str,
    pub(super) query: Query,
}

/// Metadata of a report.
#[derive(Serialize)]
struct About<'a> {
    run: Option<&'a str>,
    /// The part that it is, if it is only one: `profile`, `tasks` or `resources`.
    part: Option<&'static str>,
    command: String,
    /// The command line of the program that ran, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<&'a str>,
    version: &'static str,
}

/// Subject of a document: its part, run, program, range, workers and labels.
pub(super) struct Scope<'a> {
    pub(super) part: Option<&'static str>,
    pub(super) run: Option<&'a str>,
    /// The command line of the program that ran, if it is known.
    pub(super) program: Option<&'a str>,
    /// The parameters of the timeline, whose range all parts have.
    pub(super) timeline: Query,
    pub(super) workers: &'a [String],
    pub(super) labels: &'a [String],
}

impl<'a> Scope<'a> {
    /// A range, and of its time that with these parameters.
    pub(super) fn of(range: &'a RangeArgs, part: Option<&'static str>) -> Scope<'a> {
        Scope {
            part,
            run: range.run.as_deref(),
            program: None,
            timeline: range_query(range),
            workers: &range.worker,
            labels: &range.label,
        }
    }
}

pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<()> {
    if let Some(ReportCommand::Diff(args)) = &args.command {
        return diff::run(args);
    }
    let client = Client::new(&args.url.url)?;
    let file = args.output.file();
    if let Some(file) = file
        && format::of_file::<ProfileFormat>(file).ok() != Some(ProfileFormat::Html)
    {
        let text = format!(
            "a report is HTML, with JSON next to it, and {} has another extension; expected a name such as report.html. \
             `emberline profile` writes other formats",
            file.display()
        );
        return Err(BadInput(text).into());
    }
    let json = file.map(json_path);
    // A run may end in hours.
    for path in file.into_iter().chain(json.as_deref()) {
        check_writable(path)?;
    }
    let mut scope = Scope {
        program: args.about.as_deref(),
        ..Scope::of(&args.range, None)
    };
    if let (Some(name), Some(limit)) = (&args.range.run, args.wait) {
        let run = run_end::wait_for(&client, name, Duration::from_secs(limit))?;
        scope.timeline = whole_seconds(&run)
            .with_each("worker", &args.range.worker)
            .with_each("label", &args.range.label);
    }
    if args.parquet && file.is_none() {
        let text =
            "--parquet writes files next to the report; expected a file, such as -o report.html";
        return Err(BadInput(text.to_owned()).into());
    }
    let (Some(file), Some(json)) = (file, json) else {
        write(&client, &scope, Files::Document(file), whole_report)?;
        return Ok(());
    };
    let files = Files::DocumentAndJson(file, &json);
    let written = write(&client, &scope, files, whole_report)?;
    let mut others = vec![json];
    if args.parquet {
        others.extend(write_tables(&client, file, &written)?);
    }
    let others: Vec<_> = others
        .iter()
        .map(|other| other.display().to_string())
        .collect();
    let bytes = written.bytes;
    say(&format!(
        "wrote {} ({bytes} bytes) and {}",
        file.display(),
        others.join(", ")
    ));
    Ok(())
}

/// Files of a report.
#[derive(Clone, Copy, Debug)]
pub(super) enum Files<'a> {
    /// The document alone; on stdout without a file.
    Document(Option<&'a Path>),
    /// The document, and its data.
    DocumentAndJson(&'a Path, &'a Path),
    /// The data alone.
    Json(&'a Path),
}

/// A document that was written.
pub(super) struct Written {
    pub(super) bytes: u64,
    /// The parameters that all of its parts have.
    same_range: Query,
}

/// Writes the report of all workers in the range of `timeline`. `program` is the command line of what ran.
///
/// # Errors
/// As for [`write()`].
pub(super) fn write_whole(
    client: &Client,
    timeline: Query,
    program: Option<&str>,
    files: Files<'_>,
) -> anyhow::Result<Written> {
    let scope = Scope {
        part: None,
        run: None,
        program,
        timeline,
        workers: &[],
        labels: &[],
    };
    write(client, &scope, files, whole_report)
}

/// Writes some parts of a range as a document of their own.
///
/// # Errors
/// As for [`write()`].
pub(super) fn write_parts(
    client: &Client,
    scope: &Scope<'_>,
    file: Option<&Path>,
    parts: impl FnOnce(&Query) -> Vec<Part>,
) -> anyhow::Result<()> {
    let written = write(client, scope, Files::Document(file), |query, _| {
        parts(query)
    })?;
    if let Some(file) = file {
        say(&format!(
            "wrote {} ({} bytes)",
            file.display(),
            written.bytes
        ));
    }
    Ok(())
}

/// The range of a run from the beginning of its first second to the end of its last one: profiles and counts are
/// stored by second, and a run may be shorter.
fn whole_seconds(run: &Run) -> Query {
    let stop_ns = run.stop_ns.unwrap_or(run.start_ns);
    Query::default()
        .with("from", whole_second(run.start_ns).to_string())
        .with("to", (whole_second(stop_ns) + 1).to_string())
}

fn whole_second(ns: i64) -> i64 {
    ns.div_euclid(NS_PER_SECOND)
}

/// The path of the JSON file next to a document.
pub(super) fn json_path(document: &Path) -> PathBuf {
    document.with_extension("json")
}

/// Writes the parts of a range.
///
/// # Errors
/// [`BadInput`] if the range has no data; no file is written or changed then.
pub(super) fn write(
    client: &Client,
    scope: &Scope<'_>,
    files: Files<'_>,
    parts: impl FnOnce(&Query, &TimeRange) -> Vec<Part>,
) -> anyhow::Result<Written> {
    let timeline: TimelineAnswer = client.get_json("timeline", &scope.timeline)?;
    // All parts have the same range, even if it ends now.
    let same_range = Query::default()
        .with("from", &timeline.range.from)
        .with("to", &timeline.range.to)
        .with_each("worker", workers(scope, &timeline))
        .with_each("label", scope.labels);
    if !has_data(client, &timeline, &same_range)? {
        return Err(no_data(&timeline).into());
    }
    let about = About {
        run: scope.run,
        part: scope.part,
        command: command_line(),
        program: scope.program,
        version: env!("CARGO_PKG_VERSION"),
    };
    let parts = parts(&same_range, &timeline.range);
    let in_document = |out: &mut dyn Write, json: &mut dyn Write| -> anyhow::Result<u64> {
        let mut report = Report::start(out, json)?;
        report.part("about", &mut serde_json::to_vec(&about)?.as_slice())?;
        report.part("timeline", &mut serde_json::to_vec(&timeline)?.as_slice())?;
        let bar = progress::bar("writing", parts.len() as u64);
        for Part { name, path, query } in &parts {
            let mut body = client.stream(path, query)?;
            report
                .part(name, &mut body)
                .with_context(|| format!("could not copy {name}"))?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(report.finish()?)
    };
    let bytes = match files {
        Files::Document(file) => write_to(file, |out| in_document(out, &mut io::sink())),
        Files::DocumentAndJson(document, json) => write_to(Some(document), |out| {
            write_to(Some(json), |json| in_document(out, json))
        }),
        Files::Json(json) => write_to(Some(json), |json| in_document(&mut io::sink(), json)),
    }?;
    Ok(Written { bytes, same_range })
}

/// Whether a range has samples or tasks. The query has its bounds.
pub(super) fn has_data(
    client: &Client,
    timeline: &TimelineAnswer,
    same_range: &Query,
) -> anyhow::Result<bool> {
    let tasks: TasksAnswer = client.get_json("tasks", &same_range.clone().with("limit", "1"))?;
    Ok(timeline.sampling.worker_seconds > 0 || tasks.total > 0)
}

/// Writes the Parquet files of a whole report next to its document.
pub(super) fn write_tables(
    client: &Client,
    document: &Path,
    written: &Written,
) -> anyhow::Result<Vec<PathBuf>> {
    tables::write(client, document, &written.same_range)
}

/// The requested workers. The run of an imported profile selects its worker too, unlike its range.
fn workers<'a>(scope: &Scope<'a>, timeline: &'a TimelineAnswer) -> &'a [String] {
    let found = &timeline.filter.workers;
    let is_selected = scope.run.is_some()
        && scope.workers.is_empty()
        && found
            .iter()
            .all(|worker: &String| worker.starts_with(WorkerId::IMPORT_PREFIX));
    if is_selected { found } else { scope.workers }
}

/// The command without the folder of the program.
fn command_line() -> String {
    let arguments = std::env::args().skip(1);
    ["emberline".to_owned()]
        .into_iter()
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

fn no_data(timeline: &TimelineAnswer) -> BadInput {
    let retained = match &timeline.data {
        Some(data) => format!("the collector has data of {}", span(&data.from, &data.to)),
        None => "the collector has no data yet".to_owned(),
    };
    BadInput(format!(
        "no data in {}, so nothing was written; {retained}",
        range(&timeline.range)
    ))
}

fn whole_report(same_range: &Query, range: &TimeRange) -> Vec<Part> {
    let mut parts = vec![summary_part(same_range.clone())];
    parts.extend(task_parts(same_range));
    parts.extend(other_parts(same_range, resource_step(range)));
    parts
}

/// The step of resources in a long range, in whole seconds; in others the collector's choice is right.
fn resource_step(range: &TimeRange) -> Option<String> {
    let second_ns = NS_PER_SECOND.unsigned_abs();
    let length_ns = u64::try_from(range.to_ns - range.from_ns).unwrap_or(0);
    let step_s = length_ns.div_ceil(RESOURCE_STEPS_MAX * second_ns);
    (length_ns > LONG_S * second_ns).then(|| format!("{step_s}s"))
}

/// Totals of tasks by name.
pub(super) fn summary_part(query: Query) -> Part {
    Part {
        name: "summary",
        path: "tasks",
        query: query.with("summary", "true"),
    }
}

/// The tasks as they are drawn, and the newest and the longest in full.
pub(super) fn task_parts(query: &Query) -> [Part; 3] {
    let longest = query
        .clone()
        .with("sort", "duration")
        .with("limit", LONGEST_MAX.to_string());
    let rows = query.clone().with("limit", TASK_RECORDS_MAX.to_string());
    let columns = query
        .clone()
        .with("format", "columns")
        .with("limit", TASKS_DRAWN_MAX.to_string());
    [("tasks", rows), ("longest", longest), ("columns", columns)].map(|(name, query)| Part {
        name,
        path: "tasks",
        query,
    })
}

fn other_parts(same_range: &Query, resource_step: Option<String>) -> Vec<Part> {
    let query = || same_range.clone();
    let resources = resource_step
        .into_iter()
        .fold(query(), |query, step| query.with("step", step));
    let profile = |threads: &str, states: &[&str]| {
        query()
            .with("format", "columns")
            .with("threads", threads)
            .with("outside", "shown")
            .with("stacks", "simple")
            .with_each("state", states.iter().copied())
    };
    vec![
        part("profile", "profile", profile("program", &["cpu"])),
        part("blocked", "profile", profile("program", &["wait"])),
        part("agent", "profile", profile("agent", &["cpu"])),
        part("threads", "thread-time", query().with("by", "thread")),
        part("resources", "resources", resources),
        part("transfers", "transfers", query().with("summary", "true")),
        part(
            "workers",
            "workers",
            Query::default().with("sort", "attention"),
        ),
        part(
            "events",
            "events/recent",
            Query::default().with("limit", EVENTS_MAX.to_string()),
        ),
    ]
}

fn part(name: &'static str, path: &'static str, query: Query) -> Part {
    Part { name, path, query }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_ranges_have_a_limited_number_of_steps() {
        let step = |seconds: i64| {
            resource_step(&TimeRange {
                to_ns: seconds * NS_PER_SECOND,
                ..TimeRange::default()
            })
        };
        assert_eq!(step(150), None);
        assert_eq!(step(151).as_deref(), Some("1s"));
        assert_eq!(step(600).as_deref(), Some("3s"));
        assert_eq!(step(86_400).as_deref(), Some("432s"));
    }
}
