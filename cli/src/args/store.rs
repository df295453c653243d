//! Commands for a store on disk or in a bucket.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use collector::store::{StoreLocation, StoreName, StorePlace};

use super::RowFormat;
use super::query::milliseconds;
use super::retention::RetentionArgs;

/// `emberline store`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline store info --data /var/lib/emberline     files and rows\n  \
    emberline store verify --data /var/lib/emberline   read everything\n  \
    emberline store compact --data /var/lib/emberline  stop the collector first\n  \
    emberline store adopt --store s3://profiles/prod --name c1\n\n\
    A collector compacts its store by itself. `info` and `verify` only read, also while one \
    runs. `adopt` seals the store of a collector that does not come back.")]
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
    /// Seal and maintain the store of a dead collector, as its next start and stop would. Refused while it
    /// lives. It can be started again later.
    #[command(after_help = "Examples:\n  \
        emberline store adopt --store s3://profiles/prod --name c1\n  \
        emberline store adopt --store s3://profiles/prod --name c1 --log DIR\n  \
        emberline store adopt --store file:///srv/emberline --name c1 --format json\n\n\
        Give the retention that the collector has: older data is deleted.")]
    Adopt(AdoptArgs),
}

/// `emberline store adopt`
#[derive(Args, Debug)]
pub(crate) struct AdoptArgs {
    #[command(flatten)]
    pub(crate) place: StorePlaceArgs,

    /// Folder of --data of a collector with --ack disk, whose log is there. An empty folder records that
    /// the disk is lost.
    #[arg(long, value_name = "DIR", requires = "store")]
    pub(crate) log: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) retention: RetentionArgs,

    /// Name of a collector in the same place that was running meanwhile. Its data shows how much time has
    /// passed since the last data of the store; otherwise that counts as a day at most.
    #[arg(long, value_name = "NAME", requires = "store")]
    pub(crate) witness: Option<StoreName>,

    /// How long the last owner of the store is watched, for tests. Default: 15 s.
    #[arg(long, value_name = "TIME", value_parser = milliseconds, hide = true)]
    pub(crate) owner_watch: Option<f64>,

    /// Limit memory and processor time, and give way to other processes: for a collector that adopts.
    #[arg(long, hide = true)]
    pub(crate) limited: bool,
}

impl StorePlaceArgs {
    /// Whether the store is in a bucket.
    pub(crate) fn is_in_bucket(&self) -> bool {
        matches!(self.store, Some(StorePlace::Bucket { .. }))
    }

    /// The store of another collector in the same place.
    pub(crate) fn sibling(&self, name: &StoreName) -> Option<StoreLocation> {
        self.store
            .clone()
            .map(|place| StoreLocation::Named(place, name.clone()))
    }

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
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present = "store",
        conflicts_with = "store"
    )]
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
