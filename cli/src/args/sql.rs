//! Queries in SQL.

use std::path::PathBuf;

use clap::Args;
use collector::limits::SQL_ROWS_MAX;
use collector::store::{StoreName, StorePlace};

use super::cluster::ClusterArgs;
use super::query::{FileFormat, OutputArgs, UrlArgs};

/// `emberline sql`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline sql \"SELECT task, sum(weight_ns) / 1e9 AS s FROM samples GROUP BY 1\"\n  \
    emberline sql \"SELECT * FROM tasks WHERE outcome = 'failed'\" -o failed.parquet\n  \
    emberline sql \"SHOW TABLES\"\n  \
    emberline sql --data /var/lib/emberline - < query.sql\n  \
    emberline sql --store s3://profiles/prod \"SELECT collector FROM workers\"\n  \
    emberline sql --store s3://profiles/prod --scheduler ballista:50050 \"SELECT …\"\n\n\
    A statement reads views with names: samples, stacks, tasks, phases, transfers, resources, \
    workers. samples is by the minute; samples('1s') and others select a resolution: 1s, 1m, \
    10m, 1h, 1d. docs/SQL.md lists columns and examples. Times are in UTC. With --data and --store, \
    data since the collector's last sealing is missing, about a minute's.")]
pub(crate) struct SqlArgs {
    /// One statement that reads; - reads it from standard input.
    #[arg(value_name = "QUERY", allow_hyphen_values = true)]
    pub(crate) query: String,

    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// Read a store's folder instead of asking a collector: the one of `emberline serve --data`. This needs
    /// the program emberline-sql, and so does --store.
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    pub(crate) data: Option<PathBuf>,

    /// Read the stores of all collectors in a place, s3://BUCKET/PREFIX or file:///FOLDER: the one of
    /// `emberline serve --store`.
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<StorePlace>,

    /// With --store, read the store of this collector only; may be repeated.
    #[arg(long, value_name = "NAME", requires = "store")]
    pub(crate) name: Vec<StoreName>,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// Maximum number of rows, 1 to 1000000. Default: 10000.
    #[arg(long, value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=SQL_ROWS_MAX as i64))]
    pub(crate) rows: Option<u32>,

    /// Output format. Default: by the extension of -o, else table.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<FileFormat>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
