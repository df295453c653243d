//! The `phase` parameter.

use profiler_core::task::PHASES;

use crate::QueryError;
use crate::parameters::params::{Params, unknown};
use base::sync::read;
use state::CollectorState;
use state::tree::PhaseFilter;

/// The phases that the parameters name, all of them known.
pub(crate) fn parse_phases(
    params: &Params<'_>,
    state: &CollectorState,
) -> Result<PhaseFilter, QueryError> {
    let names = params.many("phase")?;
    if names.is_empty() {
        return Ok(PhaseFilter::All);
    }
    let seen = read(&state.tree).phase_names();
    let is_known = |name: &str| PHASES.contains(&name) || seen.contains(name);
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        let known = PHASES.into_iter().chain(seen.iter().map(|name| &**name));
        return Err(unknown("phase", name, known));
    }
    Ok(PhaseFilter::Named(
        names.into_iter().map(str::to_owned).collect(),
    ))
}
