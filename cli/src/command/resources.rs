//! `emberline resources`

use api::ResourcesAnswer;

use super::{range_query, show};
use crate::args::ResourcesArgs;

pub(crate) fn run(args: &ResourcesArgs) -> anyhow::Result<()> {
    let query = range_query(&args.range)
        .with_each("run", &args.and_run)
        .with_each("measure", &args.measure)
        .with_each("step", &args.step)
        .with_each("align", args.align.then_some("true"));
    show::<ResourcesAnswer>(&args.ask, "resources", &query)
}
