//! Profiles, and the lines above a flame graph.

use axum::response::Response;
use flamegraph::SvgOptions;
use flamegraph::text::tick_rate;
use profiler_core::{StateSet, WorkerId};
use serde::Serialize;

use super::{ErrorAnswer, FilterBody, RangeBody, SamplingBody, WeightBody, json_text};
use crate::query::{By, ProfileAnswer, ProfileQuery, format_time};

/// Answer of `/api/v1/profile` in JSON, but for its last member, the profile itself.
#[derive(Serialize)]
pub(crate) struct ProfileBody<'a> {
    range: RangeBody,
    filter: FilterBody,
    by: &'static str,
    workers: Vec<String>,
    #[serde(flatten)]
    sampling: SamplingBody,
    totals: WeightBody,
    empty: bool,
    data: Option<RangeBody>,
    corrupt_files: &'a [String],
}

impl<'a> ProfileBody<'a> {
    pub(crate) fn new(query: &ProfileQuery, answer: &'a ProfileAnswer) -> Self {
        ProfileBody {
            range: answer.facts.range.into(),
            filter: (&query.filter).into(),
            by: by_name(query.by),
            workers: answer.facts.workers.iter().map(WorkerId::to_string).collect(),
            sampling: (&answer.facts.sampling).into(),
            totals: WeightBody(answer.profile.total()),
            empty: answer.profile.is_empty(),
            data: answer.facts.data.map(RangeBody::from),
            corrupt_files: &answer.facts.damaged,
        }
    }

    /// The whole answer; `write` adds the profile, as JSON.
    pub(crate) fn with_profile(
        &self,
        write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
    ) -> Result<Response, ErrorAnswer> {
        let mut text = serde_json::to_vec(self).map_err(|error| ErrorAnswer::internal(&error))?;
        // The object goes on.
        text.pop();
        text.extend_from_slice(b",\"profile\":");
        write(&mut text).map_err(|error| ErrorAnswer::internal(&error))?;
        text.push(b'}');
        Ok(json_text(text))
    }
}

fn by_name(by: By) -> &'static str {
    match by {
        By::Function => "function",
        By::Line => "line",
    }
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
    let (from, to) = (format_time(range.start()), format_time(range.stop()));
    let workers = answer.facts.workers.len();
    let sampling = &answer.facts.sampling;
    let rate = tick_rate(sampling.ticks, sampling.sampled_ns);
    let rate = rate.map_or(String::new(), |rate| format!(", {rate}"));
    let subtitle = Some(format!("{from} to {to}, {workers} workers{rate}"));
    SvgOptions { title, subtitle, by_line: query.by == By::Line, ..SvgOptions::default() }
}
