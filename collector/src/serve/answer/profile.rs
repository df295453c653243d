//! Profiles, and the lines above a flame graph.

use axum::response::Response;
use flamegraph::SvgOptions;
use flamegraph::text::tick_rate;
use profiler_core::{StateSet, WorkerId};

use super::{ErrorAnswer, filter, json_text, sampling, time_range, totals};
use crate::query::{By, ProfileAnswer, ProfileQuery, format_time};

/// Answer of `/api/v1/profile` as JSON, without the profile itself.
pub(crate) fn profile(query: &ProfileQuery, answer: &ProfileAnswer) -> api::ProfileAnswer {
    let by = match query.by {
        By::Function => "function",
        By::Line => "line",
    };
    api::ProfileAnswer {
        range: time_range(answer.facts.range),
        filter: filter(&query.filter),
        by: by.into(),
        workers: answer.facts.workers.iter().map(WorkerId::to_string).collect(),
        sampling: sampling(&answer.facts.sampling),
        totals: totals(answer.profile.total()),
        empty: answer.profile.is_empty(),
        data: answer.facts.data.map(time_range),
        corrupt_files: answer.facts.damaged.clone(),
    }
}

/// The whole answer: `write` appends the profile, as JSON, without a copy of it in between.
pub(crate) fn with_profile(
    head: &api::ProfileAnswer,
    write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
) -> Result<Response, ErrorAnswer> {
    let mut text = serde_json::to_vec(head).map_err(|error| ErrorAnswer::internal(&error))?;
    // Reopens the object to add a last member.
    text.pop();
    text.extend_from_slice(b",\"profile\":");
    write(&mut text).map_err(|error| ErrorAnswer::internal(&error))?;
    text.push(b'}');
    Ok(json_text(text))
}

/// Title and second line of a flame graph.
pub(crate) fn svg_options(query: &ProfileQuery, answer: &ProfileAnswer) -> SvgOptions {
    let tasks = match &query.filter.tasks[..] {
        [] => "All tasks".to_owned(),
        tasks => tasks.join(", "),
    };
    let title = match query.filter.states {
        StateSet::ALL => tasks,
        states => format!("{tasks}: {}", states.names().join(", ")),
    };
    let range = answer.facts.range;
    let from = format_time(range.start());
    let to = format_time(range.stop());
    let workers = answer.facts.workers.len();
    let sampling = &answer.facts.sampling;
    let mut subtitle = format!("{from} to {to}, {workers} workers");
    if let Some(rate) = tick_rate(sampling.ticks, sampling.sampled_ns) {
        subtitle.push_str(", ");
        subtitle.push_str(&rate);
    }
    SvgOptions {
        title,
        subtitle: Some(subtitle),
        by_line: query.by == By::Line,
        ..SvgOptions::default()
    }
}
