//! `emberline transfers`

use super::{range_query, show};
use crate::args::{RowFormat, TransfersArgs, word};
use crate::view::transfers::{Sums, Transfers};

/// Rows on a terminal, unless told otherwise.
const ROWS_DEFAULT: u32 = 50;

pub(crate) fn run(args: &TransfersArgs) -> anyhow::Result<()> {
    let query = range_query(&args.range)
        .with_each("peer", &args.peer)
        .with_each("direction", args.direction.map(word))
        .with_each("type", &args.type_name);
    if !args.rows {
        return show::<Sums>(&args.ask, "transfers", &query.with("summary", "true"));
    }
    let shown = (args.ask.format == RowFormat::Table).then_some(ROWS_DEFAULT);
    let limit = args.limit.or(shown);
    let query = query.with_each("limit", limit.map(|limit| limit.to_string()));
    show::<Transfers>(&args.ask, "transfers", &query)
}
