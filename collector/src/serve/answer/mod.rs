//! The bodies of answers, in the names and units of `docs/API.md`. Here are the parts that several
//! share.

mod budget;
mod fleet;
mod live;
mod profile;
mod records;
mod task_columns;
mod tasks;
mod timeline;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use profiler_core::{Filter, State, StateSet, ThreadKind, TimeRange, Weight};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

pub(crate) use self::budget::BudgetBody;
pub(crate) use self::fleet::WorkersBody;
pub(crate) use self::live::{SettingsBody, StacksBody};
pub(crate) use self::profile::{ProfileBody, svg_options};
pub(crate) use self::records::{
    EventsBody, ProgressBody, ResourcesBody, RunBody, RunsBody, SubjectBody, TransferSummaryBody,
    TransfersBody,
};
pub(crate) use self::task_columns::TaskColumnsBody;
pub(crate) use self::tasks::{SummaryBody, TasksBody};
pub(crate) use self::timeline::TimelineBody;
use super::error::ErrorAnswer;
use crate::query::{Sampling, format_time};

/// Answers with `body` as JSON.
pub(crate) fn json(body: &impl Serialize) -> Result<Response, ErrorAnswer> {
    let text = serde_json::to_vec(body).map_err(|error| ErrorAnswer::internal(&error))?;
    Ok(json_text(text))
}

/// Answers with a text that is JSON.
fn json_text(text: Vec<u8>) -> Response {
    let application_json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, application_json)], text).into_response()
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
        FilterBody {
            tasks: filter.tasks.clone(),
            workers: filter.workers.clone(),
            states: state_names(filter.states),
            threads: match filter.threads {
                ThreadKind::Program => "program",
                ThreadKind::Agent => "agent",
                ThreadKind::All => "all",
            },
        }
    }
}

/// The names of a set of states.
fn state_names(states: StateSet) -> Vec<&'static str> {
    states.states().map(State::name).collect()
}

/// Every state, the sum of the waits, and the sum of all.
struct WeightBody(Weight);

impl Serialize for WeightBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        for state in State::ALL {
            body.serialize_entry(key(state), &self.0.get(state))?;
        }
        body.serialize_entry("wait_ns", &self.0.wait_ns())?;
        body.serialize_entry("total_ns", &self.0.total_ns())?;
        body.end()
    }
}

/// The name of a state's nanoseconds.
const fn key(state: State) -> &'static str {
    match state {
        State::Cpu => "cpu_ns",
        State::Runnable => "runnable_ns",
        State::Lock => "lock_ns",
        State::Sleep => "sleep_ns",
        State::Network => "network_ns",
        State::Disk => "disk_ns",
        State::Other => "other_ns",
    }
}

#[derive(Serialize)]
struct SamplingBody {
    worker_seconds: u64,
    sampled_ns: u64,
    ticks: u64,
    ticks_expected: u64,
    ticks_throttled: u64,
    ticks_missed: u64,
    achieved_rate_hz: Option<f64>,
    achieved_share: Option<f64>,
}

impl From<&Sampling> for SamplingBody {
    fn from(sampling: &Sampling) -> Self {
        SamplingBody {
            worker_seconds: sampling.windows,
            sampled_ns: sampling.sampled_ns,
            ticks: sampling.ticks.made,
            ticks_expected: sampling.ticks.expected,
            ticks_throttled: sampling.ticks.throttled,
            ticks_missed: sampling.ticks.missed(),
            achieved_rate_hz: sampling.rate_hz(),
            achieved_share: sampling.share(),
        }
    }
}
