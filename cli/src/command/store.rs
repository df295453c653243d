//! `emberline store`

use anyhow::bail;
use collector::store;
use serde::Serialize;

use crate::args::{RowFormat, StoreArgs, StoreCommand, StorePlaceArgs};
use crate::output::{print, print_json, say};
use crate::view::store as view;

pub(crate) fn run(args: &StoreArgs) -> anyhow::Result<()> {
    match &args.command {
        StoreCommand::Info(args) => info(args),
        StoreCommand::Verify(args) => verify(args),
        StoreCommand::Compact(args) => compact(args),
    }
}

fn info(args: &StorePlaceArgs) -> anyhow::Result<()> {
    let info = store::info(&args.location())?;
    show(args, &info, view::info)
}

fn verify(args: &StorePlaceArgs) -> anyhow::Result<()> {
    let verified = store::verify(&args.location())?;
    show(args, &verified, view::verified)?;
    for problem in &verified.problems {
        say(&view::problem(problem));
    }
    match verified.problems.len() {
        0 => Ok(()),
        1 => bail!("1 problem found; see above"),
        count => bail!("{count} problems found; see above"),
    }
}

fn compact(args: &StorePlaceArgs) -> anyhow::Result<()> {
    let compacted = store::compact(&args.location())?;
    show(args, &compacted, view::compacted)
}

fn show<T: Serialize>(
    args: &StorePlaceArgs,
    value: &T,
    table: impl Fn(&T) -> String,
) -> anyhow::Result<()> {
    match args.format {
        RowFormat::Table => print(table(value).as_bytes()),
        RowFormat::Json => print_json(serde_json::to_vec_pretty(value)?),
    }
}
