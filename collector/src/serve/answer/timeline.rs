//! Timelines.

use profiler_core::{FrameKind, State, Weight};

use super::{filter, sampling, time_range, totals};
use query::{Series, TimelineAnswer, TimelineQuery};

/// Answer of `/api/v1/timeline`.
pub(crate) fn timeline(query: &TimelineQuery, answer: TimelineAnswer) -> api::TimelineAnswer {
    api::TimelineAnswer {
        range: time_range(answer.facts.range),
        filter: filter(&query.filter),
        first_ns: answer.first.unix_ns(),
        step_ns: answer.step_ns,
        steps: answer.steps,
        series: answer.series.iter().map(series).collect(),
        others: answer.others,
        sampling: sampling(&answer.facts.sampling),
        data: answer.facts.data.map(time_range),
        corrupt_files: answer.facts.damaged,
    }
}

fn series(series: &Series) -> api::Series {
    let kind = match series.kind {
        Some(FrameKind::Task) => "task",
        Some(FrameKind::NoTask) => "no_task",
        Some(FrameKind::Agent) => "agent",
        Some(FrameKind::Group) => "group",
        // Agents put nothing else at the first level.
        Some(_) => "overflow",
        None => "other",
    };
    let steps = |state| {
        series
            .weights
            .iter()
            .map(|weight| weight.get(state))
            .collect::<Vec<u64>>()
    };
    let sum: Weight = series.weights.iter().copied().sum();
    // A kind of waiting that is 0 throughout is omitted.
    let wait = |state| (sum.get(state) > 0).then(|| steps(state));
    api::Series {
        kind: kind.into(),
        name: series.name.to_string(),
        totals: totals(sum),
        cpu_ns: steps(State::Cpu),
        runnable_ns: steps(State::Runnable),
        lock_ns: wait(State::Lock),
        interpreter_ns: wait(State::Interpreter),
        sleep_ns: wait(State::Sleep),
        network_ns: wait(State::Network),
        disk_ns: wait(State::Disk),
        other_ns: wait(State::Other),
        wait_ns: series.weights.iter().map(Weight::wait_ns).collect(),
    }
}
