//! `emberline budget`

use super::{range_query, show};
use crate::args::{BudgetArgs, BudgetRow, word};
use crate::view::budget::{ByPhase, ByThread};

pub(crate) fn run(args: &BudgetArgs) -> anyhow::Result<()> {
    let by = if args.by == BudgetRow::Thread { "thread" } else { "worker" };
    let query = range_query(&args.range).with("threads", word(args.threads)).with("by", by);
    match args.by {
        BudgetRow::Phase => show::<ByPhase>(&args.ask, "budget", &query),
        BudgetRow::Worker | BudgetRow::Thread => show::<ByThread>(&args.ask, "budget", &query),
    }
}
