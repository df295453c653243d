//! Profiles.

use axum::response::Response;
use flamegraph::Hidden;
use profiler_core::WorkerId;

use super::{filter, json_text, sampling, time_range, totals, unnamed};
use base::limits::PROFILE_WORKERS_MAX;
use front::error::ErrorAnswer;
use query::{By, ProfileAnswer, ProfileQuery};

/// Answer of `/api/v1/profile` as JSON, without the profile itself.
pub(crate) fn profile(query: &ProfileQuery, answer: &ProfileAnswer) -> api::ProfileAnswer {
    let by = match query.by {
        By::Function => "function",
        By::Line => "line",
    };
    let workers = &answer.facts.workers;
    api::ProfileAnswer {
        range: time_range(answer.facts.range),
        filter: filter(&query.filter),
        by: by.into(),
        workers: workers
            .iter()
            .take(PROFILE_WORKERS_MAX)
            .map(WorkerId::to_string)
            .collect(),
        worker_count: workers.len(),
        sampling: sampling(&answer.facts.sampling),
        totals: totals(answer.profile.total()),
        hidden: hidden(&answer.hidden),
        folded: answer.folded,
        others: answer.others,
        empty: answer.profile.is_empty(),
        data: answer.facts.data.map(time_range),
        corrupt_files: answer.facts.damaged.clone(),
        unnamed: unnamed(&answer.unnamed),
    }
}

fn hidden(hidden: &Hidden) -> api::Hidden {
    api::Hidden {
        outside_ns: hidden.outside.total_ns(),
        states: totals(hidden.states),
        functions_ns: hidden.functions.total_ns(),
        zoom_ns: hidden.zoom.total_ns(),
        total_ns: hidden.total().total_ns(),
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
