//! The span of time of a query: two times, or a named run.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::time::{SPAN_ALLOWED, parse_span_ns};
use profiler_core::{TimeRange, Timestamp};

use crate::QueryError;
use crate::error::echo;
use crate::parameters::parameter::Parameter;
use crate::parameters::params::{Params, RangeText, unknown};
use base::limits::TIMELINE_STEPS_MAX;
use base::sync::read;
use state::CollectorState;
use store::rows::RunRow;

pub(crate) const FROM: Parameter =
    Parameter::time("from", "-10m", "Start of the range.").default("-5m");

pub(crate) const TO: Parameter =
    Parameter::time("to", "-1m", "End of the range, which is not part of it.").default("now");

/// Parameters of every query about a span of time.
pub(crate) const RANGE: [Parameter; 3] = [
    FROM,
    TO,
    Parameter::text(
        "run",
        "nightly",
        "A named run instead of `from` and `to`: `NAME`, `WORKER/NAME` or `NAME@ID`.",
    ),
];

/// The same for queries that overlay several runs.
pub(crate) const RANGE_OR_RUNS: [Parameter; 3] = [
    FROM,
    TO,
    Parameter::text(
        "run",
        "nightly",
        "Named runs instead of `from` and `to`: `NAME`, `WORKER/NAME` or `NAME@ID`.",
    )
    .repeated(),
];

/// The range of the parameters (the last five minutes by default), and whether any was given. An
/// open run ends now.
pub(crate) fn asked_range(
    params: &Params<'_>,
    state: &CollectorState,
    now: Timestamp,
) -> Result<(TimeRange, bool), QueryError> {
    let (text, given) = RangeText::parse(params)?;
    match params.one("run")? {
        Some(_) if given => Err(QueryError::RunAndRange),
        Some(run) => Ok((find_run(run, state)?.range(now), true)),
        None => Ok((text.resolve(now)?, given)),
    }
}

/// The runs of the parameters, for queries that overlay several runs.
pub(crate) fn asked_runs(
    params: &Params<'_>,
    state: &CollectorState,
) -> Result<Vec<Arc<RunRow>>, QueryError> {
    let runs = params.many("run")?;
    let (_, given) = RangeText::parse(params)?;
    if given && !runs.is_empty() {
        return Err(QueryError::RunAndRange);
    }
    runs.into_iter().map(|run| find_run(run, state)).collect()
}

/// The `step` parameter. `count` returns the number of steps of that length, which is limited.
pub(crate) fn parse_step_ns(text: &str, count: impl Fn(u64) -> u64) -> Result<u64, QueryError> {
    let parsed = parse_span_ns(text).filter(|step_ns| *step_ns > 0);
    let step_ns = parsed.ok_or_else(|| QueryError::Form {
        name: "step",
        value: echo(text),
        allowed: SPAN_ALLOWED.to_vec(),
    })?;
    let steps = count(step_ns);
    if steps > TIMELINE_STEPS_MAX {
        return Err(QueryError::Steps {
            step: echo(text),
            steps,
            limit: TIMELINE_STEPS_MAX,
        });
    }
    Ok(step_ns)
}

fn find_run(text: &str, state: &CollectorState) -> Result<Arc<RunRow>, QueryError> {
    let telemetry = read(&state.telemetry);
    let found = telemetry.runs().find(text).cloned();
    found.ok_or_else(|| {
        // Repeated runs have the same name.
        let known: BTreeSet<&str> = telemetry.runs().all().map(|row| &*row.run.name).collect();
        unknown("run", text, known.into_iter())
    })
}
