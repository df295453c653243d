//! The lines above a flame graph: what it shows, and what it does not.

use std::collections::BTreeSet;

use flamegraph::text::{cell, duration, tick_rate};
use flamegraph::{ExportOptions, Hidden, SUBTITLE_CHARS_MAX, Selector, Stacks, SvgOptions, View};
use jiff::tz::TimeZone;
use profiler_core::{State, StateSet, ThreadKind, TimeRange, Timestamp};

use query::{By, ProfileAnswer, ProfileQuery};
use state::tree::PhaseFilter;

/// Longest name in these lines, in characters.
const NAME_CHARS_MAX: usize = 40;

/// Longest list of reasons, in characters: with range and time it fits into the line.
const REASONS_CHARS_MAX: usize = 64;

/// Most names that are listed.
const NAMES_MAX: usize = 3;

/// Title and second line of a flame graph of workers on these `hosts`.
pub(crate) fn svg_options(
    query: &ProfileQuery,
    answer: &ProfileAnswer,
    hosts: &BTreeSet<String>,
) -> SvgOptions {
    let tasks = match &query.filter.tasks[..] {
        [] => "All tasks".to_owned(),
        tasks => listed(tasks.iter().map(String::as_str)),
    };
    let title = [
        format!("{tasks} on {}", place(answer, hosts)),
        states(query.filter.states),
    ];
    let range = answer.facts.range;
    let mut facts = vec![
        span(range),
        format!(
            "{} of thread time",
            duration(answer.profile.total().total_ns())
        ),
    ];
    facts.extend(hidden(&answer.hidden));
    facts.extend(changes(&query.view, answer));
    facts.extend(selection(query));
    let sampling = &answer.facts.sampling;
    facts.extend(tick_rate(sampling.ticks, sampling.sampled_ns));
    SvgOptions {
        title: title.join(", "),
        subtitle: Some(fitted(&facts)),
        by_line: query.by == By::Line,
        ..SvgOptions::default()
    }
}

/// Description of the profile in exports: the lines above its flame graph, and the rate.
pub(crate) fn export_options(
    query: &ProfileQuery,
    answer: &ProfileAnswer,
    hosts: &BTreeSet<String>,
) -> ExportOptions {
    let SvgOptions {
        title, subtitle, ..
    } = svg_options(query, answer, hosts);
    let sampling = &answer.facts.sampling;
    ExportOptions {
        title,
        subtitle,
        range: Some(answer.facts.range),
        interval_ns: sampling
            .sampled_ns
            .checked_div(sampling.ticks.made)
            .unwrap_or(0),
        group: query.group.as_ref().map(|group| group.name().to_owned()),
        worker: match &answer.facts.workers[..] {
            [worker] => Some(worker.to_string()),
            _ => None,
        },
    }
}

/// As many of the facts as fit into one line; the most important ones are first.
fn fitted(facts: &[String]) -> String {
    let mut line = String::new();
    for fact in facts {
        let separator = if line.is_empty() { "" } else { "; " };
        let chars = line.chars().count() + separator.len() + fact.chars().count();
        if chars > SUBTITLE_CHARS_MAX {
            break;
        }
        line.push_str(separator);
        line.push_str(fact);
    }
    line
}

/// `worker-0 (host-1)`, `4 workers (host-1)`, `4 workers (2 hosts)`.
fn place(answer: &ProfileAnswer, hosts: &BTreeSet<String>) -> String {
    let workers = match &answer.facts.workers[..] {
        [worker] => cell(&worker.0, NAME_CHARS_MAX),
        workers => format!("{} workers", workers.len()),
    };
    match hosts.len() {
        0 => workers,
        1 => format!("{workers} ({})", listed(hosts.iter().map(String::as_str))),
        count => format!("{workers} ({count} hosts)"),
    }
}

fn states(states: StateSet) -> String {
    match states {
        StateSet::ALL => "in all states".to_owned(),
        states if states.states().eq([State::Cpu]) => "on CPU".to_owned(),
        states => states.names().join(" and "),
    }
}

/// The length and the ends of a range.
fn span(range: TimeRange) -> String {
    let start = range.start();
    let stop = range.stop();
    let last_day = if day(start) == day(stop) {
        String::new()
    } else {
        day(stop) + " "
    };
    let length = duration(range.length_ns());
    let is_whole = [start, stop]
        .iter()
        .all(|at| at.unix_ns() % 1_000_000_000 == 0);
    let clock = if is_whole { "%H:%M:%S" } else { "%H:%M:%S%.3f" };
    let from = format!("{} {}", day(start), utc(start, clock));
    let to = utc(stop, clock);
    format!("{length} from {from} to {last_day}{to} UTC")
}

fn utc(at: Timestamp, format: &str) -> String {
    let at = jiff::Timestamp::from_nanosecond(i128::from(at.unix_ns()));
    at.map_or_else(
        |_| "?".to_owned(),
        |at| at.to_zoned(TimeZone::UTC).strftime(format).to_string(),
    )
}

fn day(at: Timestamp) -> String {
    utc(at, "%Y-%m-%d")
}

/// Hidden time, by reason.
fn hidden(hidden: &Hidden) -> Option<String> {
    let mut reasons = [
        ("outside tasks", hidden.outside.total_ns()),
        ("on CPU", hidden.states.get(State::Cpu)),
        ("runnable", hidden.states.get(State::Runnable)),
        ("waiting", hidden.states.wait_ns()),
        ("in other functions", hidden.functions.total_ns()),
        ("outside of the zoom", hidden.zoom.total_ns()),
    ]
    .into_iter()
    .filter(|(_, time)| *time > 0)
    .map(|(reason, time)| format!("{} {reason}", duration(time)))
    .collect::<Vec<_>>()
    .join(", ");
    if reasons.chars().count() > REASONS_CHARS_MAX {
        reasons = duration(hidden.total().total_ns());
    }
    (!reasons.is_empty()).then(|| format!("hidden: {reasons}"))
}

/// Phases and threads.
fn selection(query: &ProfileQuery) -> Vec<String> {
    let mut parts = Vec::new();
    if let PhaseFilter::Named(phases) = &query.phases {
        parts.push(format!(
            "phase {}",
            listed(phases.iter().map(|phase| &**phase))
        ));
    }
    if let Some(threads) = query.threads.text() {
        parts.push(format!("thread {threads}"));
    }
    match query.filter.threads {
        ThreadKind::Program => {}
        ThreadKind::Agent => parts.push("profiler threads".to_owned()),
        ThreadKind::All => parts.push("with profiler threads".to_owned()),
    }
    parts
}

/// Changes of the tree.
fn changes(view: &View, answer: &ProfileAnswer) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some(zoomed) = &answer.zoomed {
        parts.push(format!("zoomed into {}", cell(zoomed, NAME_CHARS_MAX)));
    }
    for (verb, names) in [
        ("focus on", &view.focus),
        ("without", &view.hide),
        ("merged", &view.merge),
    ] {
        if !names.is_empty() {
            parts.push(format!(
                "{verb} {}",
                listed(names.iter().map(Selector::text))
            ));
        }
    }
    if view.merges_recursion {
        parts.push("recursion collapsed".to_owned());
    }
    if view.is_inverted {
        parts.push("inverted".to_owned());
    }
    match view.stacks {
        Stacks::Full => {}
        Stacks::Simple => parts.push("simplified stacks".to_owned()),
        Stacks::Own => parts.push("own code only".to_owned()),
        Stacks::Python => parts.push("functions of Python only".to_owned()),
        Stacks::Native => parts.push("without functions of Python".to_owned()),
    }
    parts
}

fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(NAMES_MAX);
    let names = names
        .take(NAMES_MAX)
        .map(|name| cell(name, NAME_CHARS_MAX))
        .collect::<Vec<_>>()
        .join(", ");
    if more > 0 {
        format!("{names} and {more} more")
    } else {
        names
    }
}
