//! The parameters that select a part of a profile.

use flamegraph::{PathId, Selector, Stacks, View};
use profiler_core::StateSet;

use crate::QueryError;
use crate::error::echo;
use crate::parameters::params::Params;
use base::limits::VIEW_PATTERNS_MAX;

/// Their names.
pub(crate) const VIEW_NAMES: [&str; 8] =
    ["outside", "stacks", "focus", "hide", "merge", "recursion", "invert", "zoom"];

const STACKS: [(&str, Stacks); 3] =
    [("full", Stacks::Full), ("simple", Stacks::Simple), ("own", Stacks::Own)];

/// The view of the parameters, in all states. Without any it is the whole profile.
pub(crate) fn parse_view(params: &Params<'_>) -> Result<View, QueryError> {
    let zoom = params.one("zoom")?.map(|text| {
        let allowed = vec!["the id of a node's path, as in an address of the page"];
        let form = QueryError::Form { name: "zoom", value: echo(text), allowed };
        PathId::parse(text).ok_or(form)
    });
    Ok(View {
        hides_outside: params.choice("outside", &[("shown", false), ("hidden", true)])?,
        states: StateSet::ALL,
        stacks: params.choice("stacks", &STACKS)?,
        focus: selectors(params, "focus")?,
        hide: selectors(params, "hide")?,
        merge: selectors(params, "merge")?,
        merges_recursion: params.choice("recursion", &[("false", false), ("true", true)])?,
        is_inverted: params.choice("invert", &[("false", false), ("true", true)])?,
        zoom: zoom.transpose()?,
    })
}

/// The functions of a parameter.
fn selectors(params: &Params<'_>, name: &'static str) -> Result<Vec<Selector>, QueryError> {
    let parsed = params
        .many(name)?
        .into_iter()
        .map(|text| Selector::parse(text).map_err(|error| QueryError::Pattern { name, error }));
    let selectors: Vec<Selector> = parsed.collect::<Result<_, _>>()?;
    let count = selectors.iter().filter(|selector| selector.is_pattern()).count();
    if count > VIEW_PATTERNS_MAX {
        return Err(QueryError::TooManyPatterns { name, count, limit: VIEW_PATTERNS_MAX });
    }
    Ok(selectors)
}
