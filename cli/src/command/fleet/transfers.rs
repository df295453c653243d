//! `emberline transfers`

use api::{TransferSummaryAnswer, TransfersAnswer};

use crate::args::{FileFormat, TransfersArgs, word};
use crate::client::Client;
use crate::command::{range_query, write_rows};
use crate::exit::BadInput;
use crate::format;

/// Rows of a table without --limit.
const ROWS_DEFAULT: u32 = 50;

pub(crate) fn run(args: &TransfersArgs) -> anyhow::Result<()> {
    let file = args.file.output.file();
    let format = format::choose(args.file.format, file)?;
    let client = Client::new(&args.url.url)?;
    let query = range_query(&args.range)
        .with_each("peer", &args.peer)
        .with_each("direction", args.direction.map(word))
        .with_each("type", &args.type_name);
    if !args.rows {
        if !matches!(format, FileFormat::Table | FileFormat::Json) {
            let text = format!("--format {} has single transfers: --rows", word(format));
            return Err(BadInput(text).into());
        }
        let query = query.with("summary", "true");
        return write_rows::<TransferSummaryAnswer>(&client, "transfers", &query, format, file);
    }
    let rows = (format == FileFormat::Table).then_some(ROWS_DEFAULT);
    let limit = args.limit.or(rows);
    let query = query.with_each("limit", limit.map(|limit| limit.to_string()));
    write_rows::<TransfersAnswer>(&client, "transfers", &query, format, file)
}
