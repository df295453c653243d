//! `emberline store`

use anyhow::bail;
use collector::limits::{ADOPT_TIME_MAX, PROCESS_ADDRESS_SPACE_MAX};
use collector::{AdoptionOptions, store};
use serde::Serialize;

use super::serve::short_time;
use crate::args::{AdoptArgs, RowFormat, StoreArgs, StoreCommand, StorePlaceArgs};
use crate::exit::BadInput;
use crate::output::{print, print_json, say};
use crate::view::store as view;

pub(crate) fn run(args: &StoreArgs) -> anyhow::Result<()> {
    match &args.command {
        StoreCommand::Info(args) => info(args),
        StoreCommand::Verify(args) => verify(args),
        StoreCommand::Compact(args) => compact(args),
        StoreCommand::Adopt(args) => adopt(args),
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

fn adopt(args: &AdoptArgs) -> anyhow::Result<()> {
    if args.limited {
        collector::limit_process(PROCESS_ADDRESS_SPACE_MAX, ADOPT_TIME_MAX.as_secs())?;
        collector::end_first();
    }
    if args.log.is_some() && !args.place.is_in_bucket() {
        let text = "--log is for stores in buckets: a store in a folder has its log there";
        return Err(BadInput(text.to_owned()).into());
    }
    let mut options = AdoptionOptions {
        retention: (&args.retention).into(),
        log: args.log.clone(),
        witness: args
            .witness
            .as_ref()
            .and_then(|name| args.place.sibling(name)),
        ..AdoptionOptions::default()
    };
    if let Some(milliseconds) = args.owner_watch {
        options.owner_watch = short_time(milliseconds);
    }
    let adoption = collector::adopt(&args.place.location(), &options)?;
    show(&args.place, &adoption, view::adoption)
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
