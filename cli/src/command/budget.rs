//! `emberline budget`

use super::{range_query, show};
use crate::args::{BudgetArgs, BudgetRow, word};
use crate::view::budget::{ByPhase, ByThread};

pub(crate) fn run(args: &BudgetArgs) -> anyhow::Result<()> {
    let by = if args.by == BudgetRow::Thread { "thread" } else { "worker" };
    let query = range_query(&args.range)
        .with_each("worker", &args.worker)
        .with("threads", word(args.threads))
        .with("by", by);
    let (url, format) = (&args.url.url, args.format);
    match args.by {
        BudgetRow::Phase => show::<ByPhase>(url, "budget", &query, format),
        BudgetRow::Worker | BudgetRow::Thread => show::<ByThread>(url, "budget", &query, format),
    }
}
