//! Named runs: the list, and marking through the API.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{RunStart, RunStop};
use profiler_core::limits::NAME_BYTES_MAX;
use profiler_core::{Epoch, RunMarker, TimeRange, Timestamp};
use serde::Deserialize;

use crate::QueryError;
use crate::error::echo;
use crate::parameters::parameter::{Parameter, Parameters};
use crate::parameters::params::{Params, RangeText, unknown};
use crate::parameters::range::{RANGE_OR_RUNS, asked_runs};
use base::sync::read;
use state::CollectorState;
use store::rows::RunRow;

/// A run that starts now, from the body of a request.
pub fn parse_run_start(
    body: &[u8],
    state: &CollectorState,
    now: Timestamp,
) -> Result<RunRow, QueryError> {
    let allowed = || vec!["name"];
    let RunStart { name } = parsed(body, allowed())?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let reason = format!(
            "name has {} bytes; 1 to {NAME_BYTES_MAX} are allowed",
            name.len()
        );
        return Err(QueryError::Body {
            reason,
            allowed: allowed(),
        });
    }
    let id = read(&state.telemetry).runs().next_id(now);
    let run = RunMarker {
        id,
        name: name.into(),
        start: now,
        stop: None,
    };
    Ok(RunRow::marked(None, Epoch(0), run))
}

/// The run that the body of a request names, stopped now.
pub fn parse_run_stop(
    body: &[u8],
    state: &CollectorState,
    now: Timestamp,
) -> Result<RunRow, QueryError> {
    let allowed = vec!["name", "id"];
    let RunStop { name, id } = parsed(body, allowed.clone())?;
    let Some(text) = name.as_deref().or(id.as_deref()) else {
        let reason = "neither a name nor an id is given".to_owned();
        return Err(QueryError::Body { reason, allowed });
    };
    let telemetry = read(&state.telemetry);
    let Some(open) = telemetry.runs().find_open(name.as_deref(), id.as_deref()) else {
        let open: BTreeSet<&str> = telemetry
            .runs()
            .all()
            .filter(|row| row.stop().is_none())
            .map(|row| &*row.run.name)
            .collect();
        return Err(unknown("open run", text, open.into_iter()));
    };
    let mut row = RunRow::clone(open);
    row.run.stop = Some(now.max(row.run.start));
    Ok(row)
}

fn parsed<'a, T: Deserialize<'a>>(
    body: &'a [u8],
    allowed: Vec<&'static str>,
) -> Result<T, QueryError> {
    serde_json::from_slice(body).map_err(|error| QueryError::Body {
        reason: echo(&error.to_string()),
        allowed,
    })
}

/// Parameters of [`parse_runs`].
pub const RUNS_PARAMETERS: Parameters = &[
    &RANGE_OR_RUNS,
    &[Parameter::text("name", "nightly", "Names of runs. Default: all.").repeated()],
];

/// The requested runs, the newest first: those that `run` names, all, or those that overlap a range.
pub fn parse_runs(
    pairs: &[(String, String)],
    state: &CollectorState,
    now: Timestamp,
) -> Result<Vec<Arc<RunRow>>, QueryError> {
    let params = Params::of(pairs, RUNS_PARAMETERS)?;
    let meant = asked_runs(&params, state)?;
    let (text, given) = RangeText::parse(&params)?;
    let range = if given {
        text.resolve(now)?
    } else {
        TimeRange::ALL
    };
    let names = params.many("name")?;
    let touches = |row: &RunRow| {
        let run = row.range(now);
        run.start() < range.stop() && range.start() < run.stop()
    };
    let telemetry = read(&state.telemetry);
    let is_meant =
        |row: &Arc<RunRow>| meant.is_empty() || meant.iter().any(|meant| meant.key() == row.key());
    let mut rows: Vec<_> = telemetry
        .runs()
        .all()
        .filter(|row| is_meant(row) && (!given || touches(row)))
        .filter(|row: &&Arc<RunRow>| names.is_empty() || names.contains(&&*row.run.name))
        .cloned()
        .collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.run.start), row.key()));
    Ok(rows)
}
