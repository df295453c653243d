//! What each command does.

pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod profile;
pub(crate) mod serve;
pub(crate) mod stacks;
pub(crate) mod store;
pub(crate) mod tasks;
pub(crate) mod workers;

use crate::args::RangeArgs;
use crate::client::Query;

/// The parameters of a range, as far as it was given: the collector knows the rest.
fn range_query(range: &RangeArgs) -> Query {
    Query::default().with_each("from", &range.from).with_each("to", &range.to)
}

/// A range as it was typed.
fn range_text(range: &RangeArgs) -> String {
    let from = range.from.as_deref().unwrap_or("-5m");
    format!("{from} to {}", range.to.as_deref().unwrap_or("now"))
}
