//! Commands that run a collector or workers.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::LISTEN_DEFAULT;
use super::query::milliseconds;
use super::retention::RetentionArgs;

/// `emberline serve`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline serve                                   on this machine, port 4747\n  \
    emberline serve --data /var/lib/emberline         keep data across restarts\n  \
    emberline serve --data DIR --retention-size 50GB --retention-tasks 90d\n  \
    emberline serve --listen 127.0.0.1:0              on any free port, which it prints\n  \
    EMBERLINE_LOG=debug emberline serve               with a more detailed log\n\n\
    Agents report to the address that it prints. Ctrl-C or SIGTERM stops it. With --data, data is on\n\
    disk before it is acknowledged; without, all data is in memory. There is no authentication, so it\n\
    listens on loopback addresses unless told otherwise; from elsewhere, reach it through\n\
    `ssh -L 4747:127.0.0.1:4747 HOST`.")]
pub(crate) struct ServeArgs {
    /// Loopback address and port to listen on. Port 0 selects a free one.
    #[arg(long, value_name = "ADDR", default_value = LISTEN_DEFAULT)]
    pub(crate) listen: SocketAddr,

    /// Allow an address that other machines can reach. There are neither TLS nor tokens: anyone who can
    /// reach it can read and write everything.
    #[arg(long)]
    pub(crate) insecure_listen: bool,

    /// Folder of the store, created if it does not exist. One collector at a time can use it. Default:
    /// no store; memory holds the last 256 MiB of tables.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) retention: RetentionArgs,

    /// How often data in memory is written to tables, for tests. Default: each minute.
    #[arg(long, value_name = "TIME", value_parser = milliseconds, hide = true)]
    pub(crate) seal_every: Option<f64>,
}

/// `emberline demo`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline demo                                    until Ctrl-C; prints commands to try\n  \
    emberline demo --seconds 20                       20 s, then results in the folder out\n  \
    emberline demo --workers 8 --seconds 60 --out /tmp/demo\n  \
    emberline demo --data /tmp/demo-data              with the history of earlier demos\n\n\
    The workers are separate processes that solve least squares with blocks moved over TCP, count\n\
    words in files, and serve documents. Results are profile.svg (open it in a browser),\n\
    profile.collapsed and ledger.json.")]
pub(crate) struct DemoArgs {
    /// Number of worker processes, 4 to 64.
    #[arg(long, value_name = "COUNT", default_value_t = 4,
        value_parser = clap::value_parser!(u64).range(4..=64))]
    pub(crate) workers: u64,

    /// Stop after this number of seconds and write the results, 1 to 86400. Default: run until Ctrl-C.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,

    /// Loopback address and port of the collector. Default: 127.0.0.1:4747, or a free port if that is
    /// in use.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,

    /// Folder of the collector's store, created if it does not exist. A demo started again with the same
    /// folder has its history. Default: no store.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) retention: RetentionArgs,

    /// Folder for the results, created if it does not exist. Default: out with --seconds, else no
    /// results.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// `emberline fleet-worker`, which the demo's fleet starts.
#[derive(Args, Debug)]
pub(crate) struct FleetWorkerArgs {
    /// Number of this worker, from 0.
    #[arg(long)]
    pub(crate) index: usize,

    /// Number of workers in the fleet.
    #[arg(long)]
    pub(crate) workers: usize,

    /// Address of the collector.
    #[arg(long)]
    pub(crate) collector: String,
}
