//! Timelines.

use profiler_core::{FrameKind, State, Weight};
use serde::Serialize;

use super::{FilterBody, RangeBody, SamplingBody, WeightBody};
use crate::query::{Series, TimelineAnswer, TimelineQuery};

/// Answer of `/api/v1/timeline`.
#[derive(Serialize)]
pub(crate) struct TimelineBody {
    range: RangeBody,
    filter: FilterBody,
    first_ns: i64,
    step_ns: u64,
    steps: u64,
    series: Vec<SeriesBody>,
    others: usize,
    #[serde(flatten)]
    sampling: SamplingBody,
    data: Option<RangeBody>,
}

#[derive(Serialize)]
struct SeriesBody {
    kind: &'static str,
    name: String,
    totals: WeightBody,
    cpu_ns: Vec<u64>,
    runnable_ns: Vec<u64>,
    wait_ns: Vec<u64>,
}

impl From<&Series> for SeriesBody {
    fn from(series: &Series) -> Self {
        let of = |state| series.weights.iter().map(|weight| weight.get(state)).collect();
        SeriesBody {
            kind: match series.kind {
                Some(FrameKind::Task) => "task",
                Some(FrameKind::NoTask) => "no_task",
                Some(FrameKind::Agent) => "agent",
                // Agents put nothing else at the first level.
                Some(_) => "overflow",
                None => "other",
            },
            name: series.name.clone(),
            totals: series.weights.iter().copied().sum::<Weight>().into(),
            cpu_ns: of(State::Cpu),
            runnable_ns: of(State::Runnable),
            wait_ns: of(State::Wait),
        }
    }
}

impl TimelineBody {
    pub(crate) fn new(query: &TimelineQuery, answer: &TimelineAnswer) -> TimelineBody {
        TimelineBody {
            range: query.range.into(),
            filter: (&query.filter).into(),
            first_ns: answer.first.unix_ns(),
            step_ns: answer.step_ns,
            steps: answer.steps,
            series: answer.series.iter().map(SeriesBody::from).collect(),
            others: answer.others,
            sampling: (&answer.sampling).into(),
            data: answer.data.map(RangeBody::from),
        }
    }
}
