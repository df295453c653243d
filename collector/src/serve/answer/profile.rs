//! Profiles, and the lines above a flame graph.

use flamegraph::{ProfileJson, SvgOptions};
use profiler_core::{State, StateSet, WorkerId};
use serde::Serialize;

use super::{FilterBody, RangeBody, SamplingBody, WeightBody};
use crate::query::{By, ProfileAnswer, ProfileQuery, format_time};

/// Answer of `/api/v1/profile?format=json`.
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
    profile: ProfileJson<'a>,
}

impl<'a> ProfileBody<'a> {
    pub(crate) fn new(query: &ProfileQuery, answer: &'a ProfileAnswer) -> ProfileBody<'a> {
        ProfileBody {
            range: query.range.into(),
            filter: (&query.filter).into(),
            by: by_name(query.by),
            workers: answer.workers.iter().map(WorkerId::to_string).collect(),
            sampling: (&answer.sampling).into(),
            totals: answer.profile.total().into(),
            empty: answer.profile.is_empty(),
            data: answer.data.map(RangeBody::from),
            profile: ProfileJson(&answer.profile),
        }
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
    let states = query.filter.states;
    let states: Vec<&str> = State::ALL
        .into_iter()
        .filter(|state| states != StateSet::ALL && states.contains(*state))
        .map(State::name)
        .collect();
    let title = if states.is_empty() { tasks } else { format!("{tasks}: {}", states.join(", ")) };
    let (from, to) = (format_time(query.range.start()), format_time(query.range.stop()));
    let workers = answer.workers.len();
    let sampling = &answer.sampling;
    let rate = sampling.rate_hz().map_or(String::new(), |rate_hz| {
        format!(", {rate_hz:.1} ticks/s and worker, {} missed", sampling.missed())
    });
    let subtitle = Some(format!("{from} to {to}, {workers} workers{rate}"));
    SvgOptions { title, subtitle, by_line: query.by == By::Line, ..SvgOptions::default() }
}
