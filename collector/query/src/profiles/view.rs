//! The parameters that select a part of a profile.

use flamegraph::{PathId, Selector, Stacks, View};
use profiler_core::StateSet;

use crate::QueryError;
use crate::error::echo;
use crate::parameters::parameter::{FLAG, Parameter, names};
use crate::parameters::params::Params;
use base::limits::VIEW_PATTERNS_MAX;

pub(crate) const VIEW: [Parameter; 8] = [
    Parameter::choice("outside", || names(&OUTSIDE), "hidden", "Time outside of tasks.").default("shown"),
    Parameter::choice("stacks", || names(&STACKS), "simple", "Which functions are folded into their callers.")
        .default("full"),
    Parameter::text(
        "focus",
        "re:parse|read",
        "Only stacks through these functions: a name, `part:TEXT`, `crate:NAME`, `re:PATTERN` or `file:PATTERN`.",
    )
    .repeated(),
    Parameter::text("hide", "crate:serde", "Without these functions and what they call; as `focus`.").repeated(),
    Parameter::text("merge", "crate:serde", "These functions merged into their callers; as `focus`.").repeated(),
    Parameter::flag("recursion", "Recursive calls merged into the outermost one."),
    Parameter::flag("invert", "The tree bottom-up."),
    Parameter::text("zoom", "1zx94b", "Only stacks through the node of this id."),
];

const OUTSIDE: [(&str, bool); 2] = [("shown", false), ("hidden", true)];

const STACKS: [(&str, Stacks); 5] = [
    ("full", Stacks::Full),
    ("simple", Stacks::Simple),
    ("own", Stacks::Own),
    ("python", Stacks::Python),
    ("native", Stacks::Native),
];

/// The view of the parameters, in all states. Without any it is the whole profile.
pub(crate) fn parse_view(params: &Params<'_>) -> Result<View, QueryError> {
    let zoom = params.one("zoom")?.map(|text| {
        let allowed = vec!["the id of a node's path, as in an address of the page"];
        let form = QueryError::Form {
            name: "zoom",
            value: echo(text),
            allowed,
        };
        PathId::parse(text).ok_or(form)
    });
    Ok(View {
        hides_outside: params.choice("outside", &OUTSIDE)?,
        states: StateSet::ALL,
        stacks: params.choice("stacks", &STACKS)?,
        focus: selectors(params, "focus")?,
        hide: selectors(params, "hide")?,
        merge: selectors(params, "merge")?,
        merges_recursion: params.choice("recursion", &FLAG)?,
        is_inverted: params.choice("invert", &FLAG)?,
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
    let count = selectors
        .iter()
        .filter(|selector| selector.is_pattern())
        .count();
    if count > VIEW_PATTERNS_MAX {
        return Err(QueryError::TooManyPatterns {
            name,
            count,
            limit: VIEW_PATTERNS_MAX,
        });
    }
    Ok(selectors)
}
