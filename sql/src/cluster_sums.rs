//! `emberline-sql cluster-sums`: what a collector starts for a large profile.

use std::fmt::Write as _;
use std::io::Read as _;

use anyhow::Context as _;
use store::ClusterRequest;

use crate::args::ClusterSumsArgs;
use crate::{output, query};

/// Longest request: the paths of a large fleet's files.
const REQUEST_BYTES_MAX: u64 = 16 << 20;

pub(crate) fn run(args: &ClusterSumsArgs) -> anyhow::Result<()> {
    query::limit_this_process()?;
    let mut request = Vec::new();
    let read = std::io::stdin()
        .take(REQUEST_BYTES_MAX)
        .read_to_end(&mut request);
    read.context("the request on standard input cannot be read")?;
    let asked: ClusterRequest =
        serde_json::from_slice(&request).context("the request on standard input is malformed")?;
    let name = args.name.as_ref().map(ToString::to_string);
    let folder = query::folder(args.data.as_deref(), args.store.as_ref(), name.as_deref())?;
    let scheduler = args
        .cluster
        .scheduler
        .as_deref()
        .context("--scheduler is missing")?;
    let mut text = String::new();
    for sum in query::cluster_sums(scheduler, &folder, &asked)? {
        writeln!(text, "{sum}").expect("a text takes all");
    }
    output::print(text.as_bytes())
}
