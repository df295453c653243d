//! Commands about a store on this machine's disk.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::RowFormat;

/// `emberline store`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline store info --data /var/lib/emberline       what is there, by table and tier\n  \
    emberline store verify --data /var/lib/emberline     read and compare everything\n  \
    emberline store compact --data /var/lib/emberline    merge small files; stop the collector first\n\n\
    A collector does by itself what is due. `info` and `verify` only read, also while it runs.")]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    pub(crate) command: StoreCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum StoreCommand {
    /// Files, rows and bytes by table, the span of time, the log, and what is in quarantine.
    #[command(after_help = "Examples:\n  \
        emberline store info --data /var/lib/emberline\n  \
        emberline store info --data demo-data --format json")]
    Info(StorePlaceArgs),
    /// Compare checksums, decode every file, and compare the tiers' sums. Exit code 1 names what is
    /// damaged.
    #[command(after_help = "Examples:\n  \
        emberline store verify --data /var/lib/emberline\n  \
        emberline store verify --data demo-data --format json")]
    Verify(StorePlaceArgs),
    /// Merge all files that can be merged. No collector may be using the store.
    #[command(after_help = "Examples:\n  \
        emberline store compact --data /var/lib/emberline\n  \
        emberline store compact --data demo-data --format json")]
    Compact(StorePlaceArgs),
}

/// Where the store is.
#[derive(Args, Debug)]
pub(crate) struct StorePlaceArgs {
    /// Folder of the store, as `emberline serve --data` was given it.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,

    /// What is printed.
    #[arg(long, value_enum, default_value_t = RowFormat::Table)]
    pub(crate) format: RowFormat,
}
