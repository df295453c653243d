//! `emberline resources`

use super::{range_query, show};
use crate::args::ResourcesArgs;
use crate::view::resources::Resources;

pub(crate) fn run(args: &ResourcesArgs) -> anyhow::Result<()> {
    let query = range_query(&args.range)
        .with_each("run", &args.and_run)
        .with_each("measure", &args.measure)
        .with_each("step", &args.step)
        .with_each("align", args.align.then_some("true"));
    show::<Resources>(&args.ask, "resources", &query)
}
