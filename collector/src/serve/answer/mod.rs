//! The bodies of answers, in the names and units of `docs/API.md`. Here are the parts that several
//! share.

mod fleet;
mod profile;
mod tasks;
mod timeline;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use profiler_core::{Filter, State, ThreadKind, TimeRange, Weight};
use serde::Serialize;

pub(crate) use self::fleet::WorkersBody;
pub(crate) use self::profile::{ProfileBody, svg_options};
pub(crate) use self::tasks::{SummaryBody, TasksBody};
pub(crate) use self::timeline::TimelineBody;
use super::error::ErrorAnswer;
use crate::query::{Sampling, format_time};

/// Answers with `body` as JSON.
pub(crate) fn json(body: &impl Serialize) -> Result<Response, ErrorAnswer> {
    let text = serde_json::to_vec(body).map_err(|error| ErrorAnswer::internal(&error))?;
    let application_json = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, application_json)], text).into_response())
}

#[derive(Serialize)]
struct RangeBody {
    from: String,
    to: String,
    from_ns: i64,
    to_ns: i64,
}

impl From<TimeRange> for RangeBody {
    fn from(range: TimeRange) -> Self {
        RangeBody {
            from: format_time(range.start()),
            to: format_time(range.stop()),
            from_ns: range.start().unix_ns(),
            to_ns: range.stop().unix_ns(),
        }
    }
}

#[derive(Serialize)]
struct FilterBody {
    tasks: Vec<String>,
    workers: Vec<String>,
    states: Vec<&'static str>,
    threads: &'static str,
}

impl From<&Filter> for FilterBody {
    fn from(filter: &Filter) -> Self {
        let states = State::ALL.into_iter().filter(|state| filter.states.contains(*state));
        FilterBody {
            tasks: filter.tasks.clone(),
            workers: filter.workers.clone(),
            states: states.map(State::name).collect(),
            threads: match filter.threads {
                ThreadKind::Program => "program",
                ThreadKind::Agent => "agent",
                ThreadKind::All => "all",
            },
        }
    }
}

#[derive(Serialize)]
struct WeightBody {
    cpu_ns: u64,
    runnable_ns: u64,
    wait_ns: u64,
    total_ns: u64,
}

impl From<Weight> for WeightBody {
    fn from(weight: Weight) -> Self {
        let Weight { cpu_ns, runnable_ns, wait_ns } = weight;
        WeightBody { cpu_ns, runnable_ns, wait_ns, total_ns: weight.total_ns() }
    }
}

#[derive(Serialize)]
struct SamplingBody {
    windows: u64,
    sampled_ns: u64,
    ticks: u64,
    ticks_expected: u64,
    ticks_missed: u64,
    achieved_rate_hz: Option<f64>,
    achieved_share: Option<f64>,
}

impl From<&Sampling> for SamplingBody {
    fn from(sampling: &Sampling) -> Self {
        SamplingBody {
            windows: sampling.windows,
            sampled_ns: sampling.sampled_ns,
            ticks: sampling.ticks,
            ticks_expected: sampling.ticks_expected,
            ticks_missed: sampling.missed(),
            achieved_rate_hz: sampling.rate_hz(),
            achieved_share: sampling.share(),
        }
    }
}
