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
    emberline serve --data /var/lib/emberline         keep everything over restarts\n  \
    emberline serve --data DIR --retention-size 50GB --retention-tasks 90d\n  \
    emberline serve --listen 127.0.0.1:0              on any free port; it says which\n  \
    EMBERLINE_LOG=debug emberline serve               with more in its log\n\n\
    Agents report to the address that it prints, and Ctrl-C or SIGTERM ends it. With --data, what\n\
    an agent was told is safe is on the disk before; without, all is in memory. It does not ask\n\
    who is there, so it listens on loopback addresses only unless told otherwise; from elsewhere,\n\
    reach it by `ssh -L 4747:127.0.0.1:4747 HOST`.")]
pub(crate) struct ServeArgs {
    /// Address and port to listen on, a loopback address. Port 0 takes any free one.
    #[arg(long, value_name = "ADDR", default_value = LISTEN_DEFAULT)]
    pub(crate) listen: SocketAddr,

    /// Allow an address that other machines can reach, although there are neither TLS nor tokens:
    /// whoever reaches it can read everything and write anything.
    #[arg(long)]
    pub(crate) insecure_listen: bool,

    /// Folder in which everything is kept; it is made if it is not there. One collector at a time may
    /// use it. Default: nothing is kept, and memory holds the last 256 MiB of tables.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) retention: RetentionArgs,

    /// How often what is in memory becomes tables; for tests. Default: each minute.
    #[arg(long, value_name = "TIME", value_parser = milliseconds, hide = true)]
    pub(crate) seal_every: Option<f64>,
}

/// `emberline demo`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline demo                                    until Ctrl-C; says what to type elsewhere\n  \
    emberline demo --seconds 20                       20 s, then results in the folder out\n  \
    emberline demo --workers 8 --seconds 60 --out /tmp/demo\n  \
    emberline demo --data /tmp/demo-data              with the history of the demos before\n\n\
    The workers are processes of their own that solve least squares with blocks moved over TCP,\n\
    count words in files, and serve documents. Results are profile.svg (open it in a browser),\n\
    profile.collapsed and ledger.json.")]
pub(crate) struct DemoArgs {
    /// Number of worker processes, 4 to 64.
    #[arg(long, value_name = "COUNT", default_value_t = 4,
        value_parser = clap::value_parser!(u64).range(4..=64))]
    pub(crate) workers: u64,

    /// End by itself after so many seconds and write the results, 1 to 86400. Default: run until
    /// Ctrl-C.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,

    /// Address and port of the collector; a loopback address. Default: 127.0.0.1:4747, or any free
    /// port if that is taken.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,

    /// Folder in which the collector keeps everything; it is made if it is not there.
    /// Started again with the same, the demo has its history. Default: nothing is kept.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) retention: RetentionArgs,

    /// Folder for the results; it is made if it is not there. Default: out with --seconds, else
    /// none are written.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// `emberline fleet-worker`, as the demo's fleet starts it.
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
