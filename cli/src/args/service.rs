//! Commands that run a collector or workers.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use collector::serve::Listen;
use collector::store::{StoreName, StorePlace};

use super::LISTEN_DEFAULT;
use super::cluster::ClusterArgs;
use super::debuginfod::{DebuginfodUrls, debuginfod_urls};
use super::query::milliseconds;
use super::quota::{QuotaArg, quota};
use super::retention::{RetentionArgs, size};
use super::scrape::{ScrapeArg, scrape};

/// `emberline serve`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline serve                                  on this machine, port 4747\n  \
    emberline serve --data /var/lib/emberline        keep data across restarts\n  \
    emberline serve --data DIR --retention-size 50GB --retention-tasks 90d\n  \
    emberline serve --store s3://profiles/prod --name c1\n  \
    emberline serve --listen 127.0.0.1:0             on a free port; prints it\n  \
    emberline serve --listen unix:/run/user/1000/emberline.sock\n  \
    emberline serve --tls-cert cert.pem --tls-key key.pem\n  \
    emberline serve --quota sessions=2000 --quota bytes_per_second=8MiB\n  \
    emberline serve --forward http://pyroscope:4040  fill a Pyroscope server, too\n  \
    emberline serve --config /etc/emberline/serve.toml --print-config\n  \
    EMBERLINE_LOG=debug emberline serve              with a more detailed log\n\n\
    A file of --config has lines such as data = \"/var/lib/emberline\" or public-name = [\"a\", \
    \"b\"]: options without their dashes, in TOML. Variables such as EMBERLINE_SERVE_DATA \
    override the file, and options override both.\n\n\
    Agents report to the address that it prints. Ctrl-C or SIGTERM stops it. With --data, data \
    is on disk before it is acknowledged; without, all data is in memory. Addresses that other \
    machines can reach need TLS and a token (`emberline tls`, `emberline token`); or reach it \
    through `ssh -L 4747:127.0.0.1:4747 HOST`.")]
pub(crate) struct ServeArgs {
    /// Loopback address and port to listen on, or a Unix socket as unix:/PATH, which only this user and
    /// root may use. Port 0 selects a free one.
    #[arg(long, value_name = "ADDR", default_value = LISTEN_DEFAULT)]
    pub(crate) listen: Listen,

    /// Speak TLS with this certificate (PEM), followed by those between it and its authority. Changed
    /// files are loaded within 10 s, or at once on SIGHUP. `emberline tls self-signed` makes one.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Authorities (PEM) of clients' certificates. Clients may then identify themselves by one; those
    /// without are treated as before.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) client_ca: Option<PathBuf>,

    /// User, by name or number, whose processes may use the Unix socket too; may be repeated.
    #[arg(long = "socket-user", value_name = "USER", value_parser = user)]
    pub(crate) socket_users: Vec<u32>,

    /// Allow an address that other machines can reach without TLS and a token: anyone who can reach it
    /// may read what passes, and without a token read and write everything.
    #[arg(long)]
    pub(crate) insecure_listen: bool,

    /// Name under which readers reach the collector, such as that of a proxy; may be repeated. IP
    /// addresses and `localhost` always work, other names are rejected. Agents may use any name.
    #[arg(long = "public-name", value_name = "NAME")]
    pub(crate) public_names: Vec<String>,

    /// Folder of the store, created if it does not exist. One collector at a time can use it. Default:
    /// no store; memory holds the last 256 MiB of tables. With --store: folder for the log of --ack disk,
    /// and for copies of tables.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Store in a bucket of an S3-compatible server, s3://BUCKET/PREFIX, or file:///FOLDER. With --name the
    /// collector owns PREFIX/NAME; with --read-only the stores of all collectors are read. Credentials and
    /// endpoint are in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT and AWS_ALLOW_HTTP.
    #[arg(long, value_name = "URL", requires = "role", help_heading = "Bucket")]
    pub(crate) store: Option<StorePlace>,

    /// Name of this collector in the store. One collector at a time may have it.
    #[arg(
        long,
        value_name = "NAME",
        requires = "store",
        group = "role",
        help_heading = "Bucket"
    )]
    pub(crate) name: Option<StoreName>,

    /// Answer for all collectors of --store, and accept nothing: one page for the fleet, also for
    /// stopped collectors. Answers are a few seconds old.
    #[arg(
        long, requires = "store", group = "role", help_heading = "Bucket",
        conflicts_with_all = ["ack", "scrapes", "forwards", "trace_forwards", "symbols_from_agents"],
    )]
    pub(crate) read_only: bool,

    /// Durability that an acknowledgment guarantees: the data is on the disk of --data, or in the store.
    /// Default: disk with --data, else store.
    #[arg(
        long,
        value_name = "WHERE",
        value_enum,
        requires = "store",
        help_heading = "Bucket"
    )]
    pub(crate) ack: Option<AckArg>,

    /// Adopt the stores of other collectors in the place whose owner has not shown that it lives for so long, such
    /// as 1h: seal what they left, and apply the retention of this collector. At least 30 s. Default: never.
    #[arg(long, value_name = "TIME", requires = "name", value_parser = milliseconds, help_heading = "Bucket")]
    pub(crate) adopt_after: Option<f64>,

    /// Most bytes of copies of the store's tables, in the folder of --data (default 2GiB), or else in memory
    /// (default 256MiB). With --read-only: for each collector.
    #[arg(long, value_name = "SIZE", requires = "store", value_parser = size, help_heading = "Bucket")]
    pub(crate) cache_size: Option<u64>,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// Folder with debug files in GNU layout, `DIR/.build-id/xx/yyyy.debug`: names of functions for
    /// stripped programs. See also `emberline symbols`.
    #[arg(long, value_name = "DIR", requires = "data")]
    pub(crate) symbols: Option<PathBuf>,

    /// debuginfod servers, separated by blanks, that are queried for debug files of build ids without
    /// names. Needs --data.
    #[arg(long, value_name = "URLS", env = "DEBUGINFOD_URLS", value_parser = debuginfod_urls)]
    pub(crate) debuginfod: Option<DebuginfodUrls>,

    /// Ask a worker for the symbols of build ids that no other source has: one worker for each, at most
    /// 1 MiB a second. It then decides which names everybody reads. See also `emberline symbols fetch`.
    #[arg(long)]
    pub(crate) symbols_from_agents: bool,

    /// Token file, see `emberline token`. Every request needs a token. Default: tokens.json in the folder
    /// of --data, as soon as it exists; from then on a start without it fails.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,

    /// Quota of each token, certificate, user or address, such as sessions=100; may be repeated:
    /// sessions (agents), bytes_per_second (of agents' messages), decoded_bytes, nodes, symbol_bytes,
    /// running_bytes, queries. `emberline token new --quota` sets those of one token.
    #[arg(long = "quota", value_name = "NAME=VALUE", value_parser = quota)]
    pub(crate) quotas: Vec<QuotaArg>,

    /// Service with pprof's HTTP endpoint to ask for profiles, as `URL[,name=NAME][,every=TIME]`; may be
    /// repeated. TIME is the length of each profile, 1s to 300s, by default 15s.
    #[arg(long = "scrape", value_name = "URL", value_parser = scrape)]
    pub(crate) scrapes: Vec<ScrapeArg>,

    /// Server that receives what the collector accepts too, as profiles of 10 s; may be repeated. Address of
    /// a Pyroscope server, or of a receiver of OTLP profiles with the path `/v1development/profiles`.
    #[arg(long = "forward", value_name = "URL", value_parser = forward)]
    pub(crate) forwards: Vec<String>,

    /// Receiver of OTLP traces, which gets each task that ends as a span and its phases as spans below it;
    /// may be repeated. `/v1/traces` is added to the path unless it has it.
    #[arg(long = "forward-traces", value_name = "URL", value_parser = forward)]
    pub(crate) trace_forwards: Vec<String>,

    /// Value of `service.name` of forwarded traces.
    #[arg(long, value_name = "NAME", default_value = "emberline")]
    pub(crate) forward_service: String,

    /// Length of forwarded profiles, for tests. Default: 10 s.
    #[arg(long, value_name = "TIME", value_parser = milliseconds, hide = true)]
    pub(crate) forward_every: Option<f64>,

    /// How long the log, the store or the runtime may make no step. Then the collector writes the stacks of all
    /// threads to its log and exits with code 70, to be started again. From 2 to 3600; 0: for ever. A slow disk may
    /// need more.
    #[arg(long, value_name = "SECONDS", value_parser = watchdog, default_value = "30")]
    pub(crate) watchdog: Duration,

    /// Form of the log on stderr. In JSON, each line is an object with `timestamp`, `level`, `target` and
    /// `message`.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,

    /// File with further options, see below. Also EMBERLINE_SERVE_CONFIG.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print all options with their values and where each comes from, in the form of a --config file, and
    /// exit. Passwords in URLs are hidden.
    #[arg(long)]
    pub(crate) print_config: bool,

    /// Label of samples that Pyroscope's clients push whose value is the name of their task.
    #[arg(long, value_name = "LABEL", default_value = "task")]
    pub(crate) task_label: String,

    #[command(flatten)]
    pub(crate) retention: RetentionArgs,

    /// How long the last owner of the store is watched, for tests. Default: 15 s.
    #[arg(long, value_name = "TIME", value_parser = milliseconds, hide = true)]
    pub(crate) owner_watch: Option<f64>,

    /// How often data in memory is written to tables, for tests. Default: each minute.
    #[arg(long, value_name = "TIME", value_parser = milliseconds, hide = true)]
    pub(crate) seal_every: Option<f64>,
}

/// Limits of the watchdog. Each part makes a step a second, so less than two would end one that is well.
const WATCHDOG_SECONDS: RangeInclusive<u64> = 2..=3_600;

const WATCHDOG_EXPECTED: &str = "must be whole seconds from 2 to 3600, or 0 for no watchdog";

/// Where data is when it is acknowledged.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckArg {
    /// On the local disk.
    Disk,
    /// In the store.
    Store,
}

/// Form of the log.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// The limit of the watchdog; zero for none.
fn watchdog(text: &str) -> Result<Duration, String> {
    let seconds: u64 = text.parse().map_err(|_| WATCHDOG_EXPECTED)?;
    let is_valid = seconds == 0 || WATCHDOG_SECONDS.contains(&seconds);
    is_valid
        .then(|| Duration::from_secs(seconds))
        .ok_or_else(|| WATCHDOG_EXPECTED.to_owned())
}

/// The address of a server.
fn forward(text: &str) -> Result<String, String> {
    let is_http = ["http://", "https://"]
        .iter()
        .any(|scheme| text.starts_with(scheme));
    if !is_http {
        return Err("expected http://HOST:PORT or https://HOST:PORT, such as \
                    http://127.0.0.1:4040 or http://127.0.0.1:4318/v1development/profiles"
            .to_owned());
    }
    Ok(text.to_owned())
}

/// The number of a user.
fn user(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    match nix::unistd::User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err("no user of this machine has that name".to_owned()),
        Err(error) => Err(format!("users cannot be looked up: {error}")),
    }
}

/// `emberline demo`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline demo                        until Ctrl-C; prints commands to try\n  \
    emberline demo --seconds 20           20 s, then results in the folder out\n  \
    emberline demo --workers 8 --seconds 60 --out /tmp/demo\n  \
    emberline demo --data /tmp/demo-data  with the history of earlier demos\n\n\
    The workers are separate processes: they compute the QR of a matrix in blocks moved over \
    TCP, count words in files, and serve documents, with about 70% of the machine's processors. \
    Results are profile.svg and report.html (open them in a browser), profile.collapsed, \
    ledger.json and report.json. The collector needs a token: the printed link has one for the \
    browser, and other commands of the same user find it while the demo runs.")]
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

    /// Run only the fleet, which reports to these collectors, separated by commas: the demo starts none.
    #[arg(long, value_name = "URLS", conflicts_with_all = ["listen", "data", "out"])]
    pub(crate) collector: Option<String>,

    /// Folder of the collector's store, created if it does not exist. A demo started again with the same
    /// folder has its history. Default: no store.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Folder for the results, created if it does not exist. Default: out with --seconds, else no
    /// results.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) retention: RetentionArgs,
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
