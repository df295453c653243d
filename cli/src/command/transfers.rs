//! `emberline transfers`

use api::{TransferSummaryAnswer, TransfersAnswer};

use super::{range_query, show};
use crate::args::{RowFormat, TransfersArgs, word};

/// Rows of a table without --limit.
const ROWS_DEFAULT: u32 = 50;

pub(crate) fn run(args: &TransfersArgs) -> anyhow::Result<()> {
    let query = range_query(&args.range)
        .with_each("peer", &args.peer)
        .with_each("direction", args.direction.map(word))
        .with_each("type", &args.type_name);
    if !args.rows {
        return show::<TransferSummaryAnswer>(
            &args.ask,
            "transfers",
            &query.with("summary", "true"),
        );
    }
    let rows = (args.ask.format == RowFormat::Table).then_some(ROWS_DEFAULT);
    let limit = args.limit.or(rows);
    let query = query.with_each("limit", limit.map(|limit| limit.to_string()));
    show::<TransfersAnswer>(&args.ask, "transfers", &query)
}
