//! `emberline profile`

use std::ops::Range;
use std::path::Path;

use api::{Task, TasksAnswer};
use flamegraph::text::{duration, printable};
use flamegraph::{ParsedProfile, TableOptions, TableOrder};
use serde::Deserialize;

use super::report::{self, Part, Scope};
use super::server::local_server::LocalReader;
use super::sql::SCHEDULER_OF_COLLECTOR;
use super::{nothing_written, range_query, rows};
use crate::args::{
    ProfileArgs, ProfileFormat, ProfileSort, Stacks, State, Threads, ViewArgs, word,
};
use crate::client::{Client, Query};
use crate::exit::BadInput;
use crate::format;
use crate::grid::line_columns;
use crate::output::{json_line, print, say, say_wrapped, write_file};
use crate::view::profile::Sampling;
use crate::view::range;

const SECOND_NS: i64 = 1_000_000_000;

/// The part of a profile's JSON that a table needs.
#[derive(Deserialize)]
pub(crate) struct Body {
    pub(crate) profile: ParsedProfile,
}

/// A table has a line for each function and no tree.
const INVERTED_TABLE: &str = "--invert needs a format with a tree, and a table has none: -o profile.svg, or \
                              --format collapsed, svg, json, speedscope or nested. Self times, which are \
                              its roots, are the table's default order";

pub(crate) fn run(args: &ProfileArgs) -> anyhow::Result<()> {
    let file = args.output.file();
    let format = format::choose(args.format, file)?;
    match format {
        ProfileFormat::Pprof => rows::reject_terminal("pprof", file, "profile.pb.gz")?,
        ProfileFormat::Parquet => rows::reject_terminal("parquet", file, "profile.parquet")?,
        _ => {}
    }
    if format == ProfileFormat::Table && args.view.invert {
        return Err(BadInput(INVERTED_TABLE.to_owned()).into());
    }
    let is_distributed = args.cluster.scheduler.is_some();
    let reader = match &args.store {
        Some(place) => Some(LocalReader::start(place, &args.cluster)?),
        None if is_distributed => return Err(BadInput(SCHEDULER_OF_COLLECTOR.to_owned()).into()),
        None => None,
    };
    let client = match &reader {
        Some(reader) => Client::with_token(reader.url(), None)?,
        None => Client::new(&args.url.url)?,
    };
    let samples = match &args.key {
        Some(key) => {
            let task = find_task(&client, args, key)?;
            say_wrapped(&coverage(&task));
            samples_of(task)
        }
        None => Samples {
            place: range_query(&args.range),
            workers: args.range.worker.clone(),
            labels: args.range.label.clone(),
            filter: Query::default().with_each("task", &args.task),
        },
    };
    if format == ProfileFormat::Html {
        return document(args, &client, samples, file);
    }
    let samples = samples.place.and(samples.filter);
    let answer = client.get("profile", &query(samples, args, format))?;

    let sampling = Sampling::from_headers(&answer);
    let data = match format {
        // The lines about the sampling say why.
        ProfileFormat::Table if sampling.empty => Vec::new(),
        ProfileFormat::Table => {
            let body: Body = client.parse(&answer.body)?;
            flamegraph::table(&body.profile.0, table_options(args)).into_bytes()
        }
        format => data_of(format, answer.body),
    };
    let is_for_people = file.is_none() && format == ProfileFormat::Table;
    match file {
        _ if sampling.empty && !is_for_people => {
            sampling.lines().iter().for_each(|line| say(line));
            Err(nothing_written("samples").into())
        }
        None => {
            sampling.lines().iter().for_each(|line| say(line));
            print(&data)
        }
        Some(file) => {
            write_file(file, &data)?;
            say(&format!("wrote {}", file.display()));
            sampling.lines().iter().for_each(|line| say(line));
            Ok(())
        }
    }
}

/// The data of a file, of the collector's answer in that format.
fn data_of(format: ProfileFormat, body: Vec<u8>) -> Vec<u8> {
    match format {
        ProfileFormat::Json
        | ProfileFormat::Speedscope
        | ProfileFormat::Firefox
        | ProfileFormat::Nested => json_line(body),
        ProfileFormat::Svg
        | ProfileFormat::Html
        | ProfileFormat::Collapsed
        | ProfileFormat::Pprof
        | ProfileFormat::Csv
        | ProfileFormat::Parquet
        | ProfileFormat::Table => body,
    }
}

/// Writes the CPU time of all threads of a range. Returns `false` if there is none; nothing is written then.
///
/// # Errors
/// If the collector does not answer, or the file cannot be written.
pub(super) fn write_cpu_time(
    client: &Client,
    range: Query,
    format: ProfileFormat,
    file: &Path,
) -> anyhow::Result<bool> {
    let query = range
        .with("threads", word(Threads::Program))
        .with("state", word(State::Cpu))
        .with("outside", "shown")
        .with("stacks", word(Stacks::Simple))
        .with("format", word(format));
    let answer = client.get("profile", &query)?;
    if Sampling::from_headers(&answer).empty {
        return Ok(false);
    }
    write_file(file, &data_of(format, answer.body))?;
    Ok(true)
}

/// The samples of a profile.
struct Samples {
    /// The range and the workers.
    place: Query,
    workers: Vec<String>,
    labels: Vec<String>,
    /// The tasks and the threads.
    filter: Query,
}

/// Writes the page's views of the profile as one file.
fn document(
    args: &ProfileArgs,
    client: &Client,
    samples: Samples,
    file: Option<&Path>,
) -> anyhow::Result<()> {
    let scope = Scope {
        part: Some("profile"),
        run: args.range.run.as_deref(),
        program: None,
        timeline: samples
            .place
            .with_each("task", &args.task)
            .with_each("phase", &args.phase),
        workers: &samples.workers,
        labels: &samples.labels,
    };
    report::write_parts(client, &scope, file, |same_range| {
        let samples = same_range.clone().and(samples.filter);
        let query = query(samples, args, ProfileFormat::Html);
        vec![Part {
            name: "profile",
            path: "profile",
            query,
        }]
    })
}

fn table_options(args: &ProfileArgs) -> TableOptions {
    let order = match args.sort {
        ProfileSort::SelfTime => TableOrder::SelfTime,
        ProfileSort::Total => TableOrder::Total,
        ProfileSort::Name => TableOrder::Name,
    };
    TableOptions {
        rows: args.top as usize,
        order,
        columns: line_columns(),
    }
}

/// The newest task with that key in the range.
fn find_task(client: &Client, args: &ProfileArgs, key: &str) -> anyhow::Result<Task> {
    let query = range_query(&args.range).with_each("task", &args.task);
    let tasks: TasksAnswer =
        client.get_json("tasks", &query.with("key", key).with("limit", "1"))?;
    tasks.tasks.into_iter().next().ok_or_else(|| {
        let range = range(&tasks.range);
        let text =
            format!("no task with the key {key:?} in {range}; search further back with --from -1d");
        BadInput(text).into()
    })
}

/// The seconds that hold a task's samples: a cycle belongs to the second in which it starts, so the first
/// samples may be in the second before the task's own.
fn seconds_of(task: &Task) -> Range<i64> {
    let first_s = task.start_ns.div_euclid(SECOND_NS) - 1;
    let stop_ns = task.start_ns.saturating_add_unsigned(task.duration_ns);
    first_s..stop_ns.div_euclid(SECOND_NS) + 1
}

/// Describes the coverage of a profile of one task.
fn coverage(task: &Task) -> String {
    let seconds = seconds_of(task);
    format!(
        "{} {} ran {} on thread {} of {}; the profile covers the {} s of that thread around it, in tasks of \
         this name",
        printable(&task.name),
        printable(&task.key),
        duration(task.duration_ns),
        printable(&task.thread_name),
        printable(&task.worker),
        seconds.end - seconds.start
    )
}

/// The samples of a task's name, worker, thread and seconds. The time of a short-lived thread is summed by
/// name, with the id 0.
fn samples_of(task: Task) -> Samples {
    let seconds = seconds_of(&task);
    let range = Query::default()
        .with("from", seconds.start.to_string())
        .with("to", seconds.end.to_string());
    Samples {
        place: range.with("worker", &task.worker),
        workers: vec![task.worker],
        labels: Vec::new(),
        filter: Query::default()
            .with("task", task.name)
            .with("thread", task.thread_name)
            .with("thread_id", task.thread_id.to_string())
            .with("thread_id", "0"),
    }
}

fn query(samples: Query, args: &ProfileArgs, format: ProfileFormat) -> Query {
    let format = match format {
        // A table is made here, from the nodes.
        ProfileFormat::Table => word(ProfileFormat::Json),
        ProfileFormat::Html => "columns".to_owned(),
        format => word(format),
    };
    let query = samples
        .with_each("thread", &args.thread)
        .with_each("phase", &args.phase)
        .with_each("phases", args.phases.then_some("true"))
        .with_each("group", &args.group)
        .with("threads", word(args.threads))
        .with("format", format);
    with_view(query, &args.view)
}

/// The query with the parameters of a view. All are explicit, because the collector's own default is the
/// whole profile.
fn with_view(query: Query, view: &ViewArgs) -> Query {
    let mut states: Vec<String> = view.state.iter().map(|state| word(*state)).collect();
    if states.is_empty() {
        states.push("cpu".to_owned());
    }
    query
        .with_each("state", states)
        .with_each("state", view.runnable.then_some("runnable"))
        .with_each("state", view.waiting.then_some("wait"))
        .with("outside", if view.outside { "shown" } else { "hidden" })
        .with("stacks", word(view.stacks))
        .with_each("focus", &view.focus)
        .with_each("hide", &view.hide)
        .with_each("merge", &view.merge)
        .with_each("recursion", view.recursion.then_some("true"))
        .with_each("invert", view.invert.then_some("true"))
        .with_each("zoom", &view.zoom)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn view_of(words: &str) -> Query {
        let words = ["emberline", "profile"]
            .into_iter()
            .chain(words.split_whitespace());
        let Command::Profile(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("profile was typed");
        };
        with_view(Query::default(), &args.view)
    }

    #[test]
    fn the_default_view_is_that_of_the_page() {
        assert_eq!(view_of(""), view_query(&["cpu"], "hidden", "simple"));
        let everything = "--runnable --waiting --outside --stacks full";
        assert_eq!(
            view_of(everything),
            view_query(&["cpu", "runnable", "wait"], "shown", "full")
        );
        assert_eq!(
            view_of("--state disk"),
            view_query(&["disk"], "hidden", "simple")
        );
    }

    fn view_query(states: &[&str], outside: &str, stacks: &str) -> Query {
        let query = Query::default().with_each("state", states.iter().copied());
        query.with("outside", outside).with("stacks", stacks)
    }

    #[test]
    fn a_task_has_the_seconds_in_which_its_cycles_start() {
        assert_eq!(seconds_of(&task(10 * SECOND_NS + 1, 1)), 9..11);
        assert_eq!(seconds_of(&task(10 * SECOND_NS, 1_260_000_000)), 9..12);
        assert_eq!(seconds_of(&task(-1, 0)), -2..0);
    }

    fn task(start_ns: i64, duration_ns: u64) -> Task {
        Task {
            start_ns,
            duration_ns,
            ..Task::default()
        }
    }

    #[test]
    fn the_coverage_of_a_task_is_told() {
        let task = Task {
            name: "load".to_owned(),
            key: "load-7".to_owned(),
            worker: "w".to_owned(),
            thread_name: "pool-1".to_owned(),
            start_ns: 10 * SECOND_NS + 1,
            duration_ns: 1_260_000_000,
            ..Task::default()
        };
        let expected = "load load-7 ran 1.26 s on thread pool-1 of w; the profile covers the 3 s of that \
                        thread around it, in tasks of this name";
        assert_eq!(coverage(&task), expected);
    }
}
