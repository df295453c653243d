//! `emberline transfers`

use super::{range_query, show};
use crate::args::{RowFormat, TransfersArgs, word};
use crate::view::transfers::{Sums, Transfers};

/// Rows on a terminal, unless told otherwise.
const ROWS_DEFAULT: u32 = 50;

pub(crate) fn run(args: &TransfersArgs) -> anyhow::Result<()> {
    let query = range_query(&args.range)
        .with_each("worker", &args.worker)
        .with_each("peer", &args.peer)
        .with_each("direction", args.direction.map(word))
        .with_each("type", &args.type_name);
    let (url, format) = (&args.url.url, args.format);
    if !args.rows {
        return show::<Sums>(url, "transfers", &query.with("summary", "true"), format);
    }
    let shown = (format == RowFormat::Table).then_some(ROWS_DEFAULT);
    let limit = args.limit.or(shown);
    let query = query.with_each("limit", limit.map(|limit| limit.to_string()));
    show::<Transfers>(url, "transfers", &query, format)
}
