//! The command line. `emberline` writes it, so it has no short forms or units.

use std::path::PathBuf;

use api::SqlFormat;
use base::limits::SQL_ROWS_MAX;
use clap::{Args, Parser, Subcommand};
use store::{StoreName, StorePlace};

/// Answer queries in SQL from the files of Emberline's stores.
///
/// `emberline sql` and `emberline serve` start this program for each query. It must be next to `emberline`, or in
/// PATH.
#[derive(Parser, Debug)]
#[command(name = "emberline-sql", version, max_term_width = 80)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Answer the query on standard input with rows on standard output.
    Query(QueryArgs),
    /// Have a cluster sum samples: the request is JSON on standard input, the sums are lines.
    ClusterSums(ClusterSumsArgs),
}

#[derive(Args, Debug)]
pub(crate) struct QueryArgs {
    /// Folder of a store.
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "store",
        required_unless_present = "store"
    )]
    pub(crate) data: Option<PathBuf>,

    /// Place of the stores of several collectors.
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<StorePlace>,

    /// Read the store of this collector only; may be repeated.
    #[arg(long, value_name = "NAME", requires = "store")]
    pub(crate) name: Vec<StoreName>,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// Maximum number of rows. Default: 10000.
    #[arg(long, value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=SQL_ROWS_MAX as i64))]
    pub(crate) rows: Option<u32>,

    /// Format of the rows: json, csv or parquet.
    #[arg(long, default_value = "json", value_parser = format)]
    pub(crate) format: SqlFormat,

    /// Limit memory and processor time, and name damaged files a line each: for a collector.
    #[arg(long)]
    pub(crate) limited: bool,

    /// Do not break the lines of messages.
    #[arg(long)]
    pub(crate) wide: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ClusterSumsArgs {
    /// Folder of a store.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Place of the stores of several collectors.
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<StorePlace>,

    /// Name of the collector whose store it is.
    #[arg(long, value_name = "NAME", requires = "store")]
    pub(crate) name: Option<StoreName>,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ClusterArgs {
    /// Scheduler of a Ballista cluster. Needs the build feature `ballista`.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) scheduler: Option<String>,

    /// Bytes of the files that a query sums from which on the cluster takes it.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(crate) distribute_over: u64,
}

fn format(text: &str) -> Result<SqlFormat, String> {
    let known = [SqlFormat::Json, SqlFormat::Csv, SqlFormat::Parquet];
    let format = known.into_iter().find(|format| format.name() == text);
    format.ok_or_else(|| "expected json, csv or parquet".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn formats_have_the_words_of_requests() {
        for known in [SqlFormat::Json, SqlFormat::Csv, SqlFormat::Parquet] {
            assert_eq!(format(known.name()), Ok(known));
        }
        assert!(format("table").is_err());
    }
}
