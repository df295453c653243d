//! Timelines.

use profiler_core::{FrameKind, State, Weight};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::{FilterBody, RangeBody, SamplingBody, WeightBody, key};
use crate::query::{Series, TimelineAnswer, TimelineQuery};

/// Answer of `/api/v1/timeline`.
#[derive(Serialize)]
pub(crate) struct TimelineBody<'a> {
    range: RangeBody,
    filter: FilterBody,
    first_ns: i64,
    step_ns: u64,
    steps: u64,
    series: Vec<SeriesBody<'a>>,
    others: usize,
    #[serde(flatten)]
    sampling: SamplingBody,
    data: Option<RangeBody>,
    corrupt_files: &'a [String],
}

#[derive(Serialize)]
struct SeriesBody<'a> {
    kind: &'static str,
    name: &'a str,
    totals: WeightBody,
    #[serde(flatten)]
    steps: StepsBody<'a>,
}

/// A list of nanoseconds by step for each state, and for the sum of the waits. The kinds of waiting
/// that are 0 throughout are left out.
struct StepsBody<'a>(&'a [Weight]);

impl Serialize for StepsBody<'_> {
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

impl<'a> From<&'a Series> for SeriesBody<'a> {
    fn from(series: &'a Series) -> Self {
        SeriesBody {
            kind: match series.kind {
                Some(FrameKind::Task) => "task",
                Some(FrameKind::NoTask) => "no_task",
                Some(FrameKind::Agent) => "agent",
                // Agents put nothing else at the first level.
                Some(_) => "overflow",
                None => "other",
            },
            name: &series.name,
            totals: WeightBody(series.weights.iter().copied().sum()),
            steps: StepsBody(&series.weights),
        }
    }
}

impl<'a> TimelineBody<'a> {
    pub(crate) fn new(query: &TimelineQuery, answer: &'a TimelineAnswer) -> TimelineBody<'a> {
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
            corrupt_files: &answer.facts.damaged,
        }
    }
}
