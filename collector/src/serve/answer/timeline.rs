//! Timelines.

use profiler_core::{FrameKind, State, Weight};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::{FilterBody, RangeBody, SamplingBody, WeightBody, key};
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
    damaged: Vec<String>,
}

#[derive(Serialize)]
struct SeriesBody {
    kind: &'static str,
    name: String,
    totals: WeightBody,
    #[serde(flatten)]
    steps: StepsBody,
}

/// A list of nanoseconds by step for each state, and for the sum of the waits. The kinds of waiting
/// that are 0 throughout are left out.
struct StepsBody(Vec<Weight>);

impl Serialize for StepsBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let list = |of: &dyn Fn(&Weight) -> u64| self.0.iter().map(of).collect::<Vec<u64>>();
        let mut body = serializer.serialize_map(None)?;
        for state in State::ALL {
            let steps = list(&|weight| weight.get(state));
            if !state.is_wait() || steps.iter().any(|step| *step > 0) {
                body.serialize_entry(key(state), &steps)?;
            }
        }
        body.serialize_entry("wait_ns", &list(&Weight::wait_ns))?;
        body.end()
    }
}

impl From<&Series> for SeriesBody {
    fn from(series: &Series) -> Self {
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
            totals: WeightBody(series.weights.iter().copied().sum()),
            steps: StepsBody(series.weights.clone()),
        }
    }
}

impl TimelineBody {
    pub(crate) fn new(query: &TimelineQuery, answer: &TimelineAnswer) -> TimelineBody {
        TimelineBody {
            range: answer.facts.range.into(),
            filter: (&query.filter).into(),
            first_ns: answer.first.unix_ns(),
            step_ns: answer.step_ns,
            steps: answer.steps,
            series: answer.series.iter().map(SeriesBody::from).collect(),
            others: answer.others,
            sampling: (&answer.facts.sampling).into(),
            data: answer.facts.data.map(RangeBody::from),
            damaged: answer.facts.damaged.clone(),
        }
    }
}
