//! Commands for a store on disk or in a bucket.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use collector::store::{StoreLocation, StoreName, StorePlace};

use super::RowFormat;

/// `emberline store`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline store info --data /var/lib/emberline       files and rows by table and tier\n  \
    emberline store verify --data /var/lib/emberline     read and check everything\n  \
    emberline store compact --data /var/lib/emberline    merge small files; stop the collector first\n\n\
    A collector compacts its store by itself. `info` and `verify` only read, also while one runs.")]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    pub(crate) command: StoreCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum StoreCommand {
    /// List files, rows, bytes and time span by table, the log, and the quarantine.
    #[command(after_help = "Examples:\n  \
        emberline store info --data /var/lib/emberline\n  \
        emberline store info --store s3://profiles/prod --name c1\n  \
        emberline store info --data demo-data --format json")]
    Info(StorePlaceArgs),
    /// Check checksums, decode every file, and compare the sums of the tiers. Exit code 1: something is
    /// corrupt.
    #[command(after_help = "Examples:\n  \
        emberline store verify --data /var/lib/emberline\n  \
        emberline store verify --data demo-data --format json")]
    Verify(StorePlaceArgs),
    /// Merge all files that can be merged. The store must not be in use.
    #[command(after_help = "Examples:\n  \
        emberline store compact --data /var/lib/emberline\n  \
        emberline store compact --data demo-data --format json")]
    Compact(StorePlaceArgs),
}

impl StorePlaceArgs {
    /// The store that is meant.
    pub(crate) fn location(&self) -> StoreLocation {
        match (&self.data, self.store.clone().zip(self.name.clone())) {
            (_, Some((place, name))) => StoreLocation::Named(place, name),
            (data, None) => StoreLocation::Directory(data.clone().unwrap_or_default()),
        }
    }
}

/// The store.
#[derive(Args, Debug)]
pub(crate) struct StorePlaceArgs {
    /// Folder of the store: the one of `emberline serve --data`.
    #[arg(long, value_name = "DIR", required_unless_present = "store", conflicts_with = "store")]
    data: Option<PathBuf>,

    /// Place of the store, s3://BUCKET/PREFIX: the one of `emberline serve --store`.
    #[arg(long, value_name = "URL", requires = "name")]
    store: Option<StorePlace>,

    /// Name of the collector in the place of --store.
    #[arg(long, value_name = "NAME", requires = "store")]
    name: Option<StoreName>,

    /// Output format.
    #[arg(long, value_enum, default_value_t = RowFormat::Table)]
    pub(crate) format: RowFormat,
}
