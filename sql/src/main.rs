//! `emberline-sql`: a query on standard input, rows on standard output.
//!
//! ```text
//! emberline sql --data, --store ─▶ emberline-sql query ─▶ query ─▶ files of stores
//! emberline serve ───────────────▶                          └▶ Ballista cluster
//!                └───────────────▶ emberline-sql cluster-sums ┘
//! ```
//!
//! `emberline` starts it for each query, and is where people ask. Exit codes: 0 success, 2 invalid input, 1 any
//! other error.

mod args;
#[cfg(feature = "ballista")]
mod cluster_sums;
mod exit;
mod output;
mod query;

use std::io::Read as _;
use std::process::ExitCode;

use anyhow::Context as _;
use api::{SqlFormat, SqlRequest};
use base::limited::SQL_CORRUPT_FILE;
use base::limits::SQL_QUERY_BYTES_MAX;
use clap::Parser as _;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::args::{Cli, Command, QueryArgs};
use self::exit::BadInput;
use self::query::{Answer, Cluster, NamedStore};

/// As in `emberline`, whose queries free much memory on other threads than those that allocated it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    start_log();
    #[cfg(feature = "s3")]
    store::use_s3_client();
    exit::code(match Cli::parse().command {
        Command::Query(args) => answer(&args),
        #[cfg(feature = "ballista")]
        Command::ClusterSums(args) => cluster_sums::run(&args),
        #[cfg(not(feature = "ballista"))]
        Command::ClusterSums(_) => Err(no_ballista().into()),
    })
}

/// Logs warnings to standard error, or what `EMBERLINE_LOG` selects. `emberline` rejects an invalid filter.
fn start_log() {
    let wanted = std::env::var("EMBERLINE_LOG")
        .ok()
        .filter(|wanted| !wanted.is_empty());
    let filter = wanted
        .and_then(|wanted| wanted.parse::<Targets>().ok())
        .unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .init();
}

/// Answers the query on standard input.
fn answer(args: &QueryArgs) -> anyhow::Result<()> {
    output::select_width(args.wide);
    if args.limited {
        query::limit_this_process()?;
    }
    let asked = SqlRequest {
        query: read_query()?,
        format: args.format,
        rows: args.rows,
    };
    let stores = query::open(args.data.as_deref(), args.store.as_ref(), &args.name)?;
    let cluster = cluster(args, &stores)?;
    let Answer {
        content,
        corrupt_files,
    } = query::answer(stores, &asked, cluster)?;
    // An answer in another format than JSON cannot name them.
    if asked.format != SqlFormat::Json {
        name_corrupt_files(args, &corrupt_files);
    }
    output::print(&content)
}

fn read_query() -> anyhow::Result<String> {
    let mut text = String::new();
    let longest = SQL_QUERY_BYTES_MAX as u64 + 1;
    let read = std::io::stdin().take(longest).read_to_string(&mut text);
    read.context("the query on standard input cannot be read")?;
    if text.len() > SQL_QUERY_BYTES_MAX {
        let reason =
            format!("the query is too long; at most {SQL_QUERY_BYTES_MAX} bytes are allowed");
        return Err(BadInput(reason).into());
    }
    Ok(text)
}

/// The cluster that takes large sums, if there is one.
#[cfg(feature = "ballista")]
fn cluster(args: &QueryArgs, stores: &[NamedStore]) -> anyhow::Result<Option<Cluster>> {
    let Some(scheduler) = args.cluster.scheduler.clone() else {
        return Ok(None);
    };
    let bytes_min = args.cluster.distribute_over;
    let place = args.store.as_ref();
    Cluster::new(scheduler, bytes_min, args.data.as_deref(), place, stores).map(Some)
}

#[cfg(not(feature = "ballista"))]
fn cluster(args: &QueryArgs, _: &[NamedStore]) -> anyhow::Result<Option<Cluster>> {
    match args.cluster.scheduler {
        None => Ok(None),
        Some(_) => Err(no_ballista().into()),
    }
}

/// The error of a program without a client of a cluster.
#[cfg(not(feature = "ballista"))]
fn no_ballista() -> BadInput {
    let text = "emberline-sql was built without the feature `ballista`, so it cannot use --scheduler; run: \
                cargo install --path sql --features ballista";
    BadInput(text.to_owned())
}

/// A collector counts the lines; people read a sentence.
fn name_corrupt_files(args: &QueryArgs, files: &[String]) {
    if args.limited {
        files
            .iter()
            .for_each(|path| output::say(&format!("{SQL_CORRUPT_FILE}{path}")));
    } else if !files.is_empty() {
        let files = files.join(", ");
        output::say_wrapped(&format!("data is missing: {files} cannot be read"));
    }
}
