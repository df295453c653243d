//! `emberline compare`

use api::time::RangeEnd;
use api::{NameComparison, TaskComparisonAnswer, TimeRange};
use flamegraph::{SvgOptions, diff_svg};
use profiler_core::Profile;

use super::profile::Body;
use crate::args::{CompareArgs, CompareFormat, TimeSpan};
use crate::client::{Client, Query};
use crate::format;
use crate::output::{json_line, put, say_wrapped};
use crate::view::compare::{FunctionChanges, Shown, comparison, explanation, notes};
use crate::view::range;
use crate::zone;

/// Names of a table without --limit.
const NAMES_DEFAULT: u32 = 20;

/// Most names that the collector lists.
const NAMES_MAX: u32 = 10_000;

/// Most names whose functions are compared, unless names are given.
const EXPLAINED_MAX: usize = 3;

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<()> {
    let file = args.output.file();
    let format = format::choose(args.format, file)?;
    let client = Client::new(&args.url.url)?;
    let names_max = match format {
        CompareFormat::Table => Some(args.limit.unwrap_or(NAMES_DEFAULT)),
        CompareFormat::Json => args.limit,
        // A picture lists no names, so it omits none.
        CompareFormat::Svg => Some(NAMES_MAX),
    };
    let limit = names_max.map(|limit| limit.to_string());
    let body = client
        .get("tasks/compare", &query(args).with_each("limit", limit))?
        .body;
    if format == CompareFormat::Json {
        return put(file, &json_line(body));
    }
    let answer: TaskComparisonAnswer = client.parse(&body)?;
    notes(&answer).iter().for_each(|note| say_wrapped(note));
    if format == CompareFormat::Svg {
        return put(file, picture(args, &client, &answer)?.as_bytes());
    }
    let shown = if args.task.is_empty() {
        Shown::Changes
    } else {
        Shown::All
    };
    let mut text = comparison(&answer, shown);
    for name in explained(&answer, !args.task.is_empty()) {
        text.push('\n');
        text.push_str(&explanation(
            &name.name,
            &function_changes(args, &client, &answer, name)?,
        ));
    }
    put(file, text.as_bytes())
}

/// A flame graph of the difference.
fn picture(
    args: &CompareArgs,
    client: &Client,
    answer: &TaskComparisonAnswer,
) -> anyhow::Result<String> {
    let [before, after] = profiles(args, client, answer, &args.task)?;
    let tasks = if args.task.is_empty() {
        "all tasks".to_owned()
    } else {
        args.task.join(", ")
    };
    let options = SvgOptions {
        title: format!("Change of {tasks}"),
        subtitle: Some(format!(
            "{}, then {}",
            range(&answer.before),
            range(&answer.after)
        )),
        ..SvgOptions::default()
    };
    Ok(diff_svg(&before, &after, &options)?)
}

/// The names whose functions are shown: the requested ones, else the first ones that changed.
pub(super) fn explained(
    answer: &TaskComparisonAnswer,
    are_asked_for: bool,
) -> Vec<&NameComparison> {
    let on_both = answer
        .names
        .iter()
        .filter(|name| name.before.ended > 0 && name.after.ended > 0);
    let most = if are_asked_for {
        usize::MAX
    } else {
        EXPLAINED_MAX
    };
    on_both
        .filter(|name: &&NameComparison| {
            are_asked_for || ["slower", "mixed", "faster"].contains(&&*name.verdict)
        })
        .take(most)
        .collect()
}

fn function_changes(
    args: &CompareArgs,
    client: &Client,
    answer: &TaskComparisonAnswer,
    name: &NameComparison,
) -> anyhow::Result<FunctionChanges> {
    let [before, after] = profiles(args, client, answer, std::slice::from_ref(&name.name))?;
    Ok(FunctionChanges::of(
        &before,
        &after,
        [name.before.ended, name.after.ended],
    ))
}

/// The time of these tasks on both sides.
fn profiles(
    args: &CompareArgs,
    client: &Client,
    answer: &TaskComparisonAnswer,
    tasks: &[String],
) -> anyhow::Result<[Profile; 2]> {
    let profile = |range: &TimeRange, side: Side<'_>| {
        // The range of an imported run is not enough: the collector selects its worker too.
        let range = side.run.is_none().then_some(range);
        let query = Query::default()
            .with_each("run", side.run)
            .with_each("from", range.map(|range| &range.from))
            .with_each("to", range.map(|range| &range.to))
            .with_each("task", tasks)
            .with("outside", "hidden")
            .with("stacks", "simple")
            .with_each("worker", side.workers)
            .with_each("label", side.labels);
        client.get_json::<Body>("profile", &query)
    };
    let before = profile(&answer.before, Side::before(args))?;
    let after = profile(&answer.after, Side::after(args))?;
    Ok([before.profile.0, after.profile.0])
}

/// The tasks of one side.
struct Side<'a> {
    span: &'a Option<TimeSpan>,
    run: &'a Option<String>,
    workers: &'a [String],
    labels: &'a [String],
}

impl<'a> Side<'a> {
    fn before(args: &'a CompareArgs) -> Side<'a> {
        Side {
            span: &args.before,
            run: &args.before_run,
            workers: own_or_shared(&args.before_worker, &args.worker),
            labels: own_or_shared(&args.before_label, &args.label),
        }
    }

    fn after(args: &'a CompareArgs) -> Side<'a> {
        Side {
            span: &args.after,
            run: &args.after_run,
            workers: own_or_shared(&args.after_worker, &args.worker),
            labels: own_or_shared(&args.after_label, &args.label),
        }
    }

    /// Its parameters by these names: from, to, run, task, worker, label.
    fn query(&self, query: Query, names: [&'static str; 6], tasks: &[String]) -> Query {
        let [
            from_name,
            to_name,
            run_name,
            task_name,
            worker_name,
            label_name,
        ] = names;
        let from = self
            .span
            .as_ref()
            .map(|span| zone::for_collector(&span.from, RangeEnd::From));
        let to = self
            .span
            .as_ref()
            .map(|span| zone::for_collector(&span.to, RangeEnd::To));
        query
            .with_each(from_name, from)
            .with_each(to_name, to)
            .with_each(run_name, self.run)
            .with_each(task_name, tasks)
            .with_each(worker_name, self.workers)
            .with_each(label_name, self.labels)
    }
}

fn own_or_shared<'a>(own: &'a [String], shared: &'a [String]) -> &'a [String] {
    if own.is_empty() { shared } else { own }
}

fn query(args: &CompareArgs) -> Query {
    const AFTER: [&str; 6] = ["from", "to", "run", "task", "worker", "label"];
    const BEFORE: [&str; 6] = [
        "before_from",
        "before_to",
        "before_run",
        "before_task",
        "before_worker",
        "before_label",
    ];
    let query = Side::after(args).query(Query::default(), AFTER, &args.task);
    let one_sided = [
        &args.before_worker,
        &args.after_worker,
        &args.before_label,
        &args.after_label,
    ];
    let has_own_before = args.before.is_some()
        || args.before_run.is_some()
        || one_sided.iter().any(|values| !values.is_empty());
    // Without parameters of its own, the side before is the time right before the side after.
    if has_own_before {
        Side::before(args).query(query, BEFORE, &args.task)
    } else {
        query
    }
}
