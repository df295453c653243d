//! `emberline time`

use super::{range_query, show};
use crate::args::{TimeArgs, TimeRow, word};
use crate::view::thread_time::{ByPhase, ByThread};

pub(crate) fn run(args: &TimeArgs) -> anyhow::Result<()> {
    let by = if args.by == TimeRow::Thread { "thread" } else { "worker" };
    let query = range_query(&args.range).with("threads", word(args.threads)).with("by", by);
    match args.by {
        TimeRow::Phase => show::<ByPhase>(&args.ask, "thread-time", &query),
        TimeRow::Worker | TimeRow::Thread => show::<ByThread>(&args.ask, "thread-time", &query),
    }
}
