//! `emberline demo`: a collector in this process, and a fleet of worker processes.

mod results;

use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use collector::auth::TokenSource;
use collector::serve::PORT_DEFAULT;
use collector::{ServeError, ServeOptions, Server, SymbolSource};
use examples::fleet::{Fleet, FleetOptions, WorkerSummary};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use zeroize::Zeroizing;

use super::server::programs::{data_arguments, sql_program};
use crate::args::{DemoArgs, LISTEN_DEFAULT};
use crate::client::Client;
use crate::demo_tokens::{DemoTokenFiles, DemoTokens};
use crate::output::say;
use crate::signals::StopRequests;

/// Threads of the collector; the fleet needs the CPUs more.
const COLLECTOR_THREADS: usize = 2;
/// Address of the collector, if its port is free.
const ADDRESS_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT_DEFAULT);
/// Default folder for the results of a demo with --seconds.
const OUT_DEFAULT: &str = "out";

pub(crate) fn run(args: DemoArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(COLLECTOR_THREADS)
        .enable_all()
        .build()
        .context("could not start the collector's threads")?;
    let _inside = runtime.enter();
    // Before the fleet starts, so that an early Ctrl-C stops it cleanly too.
    let stop = StopRequests::listen().context("could not listen for Ctrl-C and SIGTERM")?;
    let stop = runtime.spawn(stop.first());
    if let Some(collectors) = &args.collector {
        return fleet_alone(&args, collectors, &runtime, stop);
    }

    let tokens = DemoTokens::create()?;
    let program = std::env::current_exe().context("could not find this program itself")?;
    // For `emberline symbols fetch`.
    let symbols = SymbolSource {
        folder: None,
        debuginfod: Vec::new(),
        agents: false,
        program,
    };
    let options = ServeOptions {
        data: args.data.clone(),
        symbols: Some(symbols),
        sql: sql_program(args.data.as_deref().map(data_arguments)),
        retention: (&args.retention).into(),
        tokens: TokenSource::Fixed(tokens.records.clone()),
        ..ServeOptions::default()
    };
    let server = runtime.block_on(bind(args.listen, options))?;
    let address = server.local_addr().context("a demo has a port")?;
    let demo = RunningDemo {
        url: server.url(),
        files: DemoTokenFiles::write(address, &tokens),
        tokens,
    };
    report_damage(&server);
    let (end, ended) = oneshot::channel::<()>();
    let serving = runtime.spawn(server.serve(async {
        // An error means that the demo is gone, which is an end too.
        let _ = ended.await;
    }));

    let done = with_fleet(&args, &demo, &runtime, stop);
    // Fails only if the collector ended before; its own result reports that.
    let _ = end.send(());
    let served = runtime.block_on(serving).context("the collector panicked");
    done.and(served?.map_err(Into::into))
}

/// Runs a fleet that reports to collectors which somebody else has started.
fn fleet_alone(
    args: &DemoArgs,
    collectors: &str,
    runtime: &Runtime,
    stop: JoinHandle<()>,
) -> anyhow::Result<()> {
    let exe = std::env::current_exe().context("could not find this program itself")?;
    let workers = usize::try_from(args.workers)?;
    let fleet = Fleet::spawn(FleetOptions {
        workers,
        ..FleetOptions::new(exe, collectors)
    })?;
    say(&format!("{workers} workers report to {collectors}"));
    runtime.block_on(wait(args.seconds, stop));
    check(&fleet.stop()?)
}

/// A demo whose collector is served.
struct RunningDemo {
    url: String,
    tokens: DemoTokens,
    /// An error if other commands cannot find the tokens.
    files: io::Result<DemoTokenFiles>,
}

impl RunningDemo {
    /// Where a browser is logged in. Browsers do not send the part after `#`.
    fn link(&self) -> Zeroizing<String> {
        Zeroizing::new(format!(
            "{}/login#token={}",
            self.url,
            self.tokens.operator.expose()
        ))
    }

    /// How other programs identify themselves.
    fn token_hint(&self) -> String {
        match &self.files {
            Ok(files) => {
                let path = files.agent.path.display();
                format!("Your own workers report to it with EMBERLINE_TOKEN_FILE={path}")
            }
            Err(error) => format!(
                "The tokens could not be stored for other commands: {error}. They need EMBERLINE_TOKEN=emb_…, \
                 as in the link"
            ),
        }
    }
}

/// Opens the collector's port: the requested one, else the default one, else any free one.
async fn bind(listen: Option<SocketAddr>, options: ServeOptions) -> Result<Server, ServeError> {
    let first = listen.unwrap_or(ADDRESS_DEFAULT);
    match Server::bind(listening_on(first, &options)).await {
        Err(ServeError::InUse { address, .. }) if listen.is_none() => {
            say(&format!("{address} is in use; using a free port"));
            Server::bind(listening_on(SocketAddr::new(first.ip(), 0), &options)).await
        }
        bound => bound,
    }
}

/// The same options with another address.
fn listening_on(address: SocketAddr, options: &ServeOptions) -> ServeOptions {
    ServeOptions {
        listen: address.into(),
        ..options.clone()
    }
}

/// Runs the fleet until its time is over or a stop is requested, and writes the results.
fn with_fleet(
    args: &DemoArgs,
    demo: &RunningDemo,
    runtime: &Runtime,
    stop: JoinHandle<()>,
) -> anyhow::Result<()> {
    let started = SystemTime::now();
    let exe = std::env::current_exe().context("could not find this program itself")?;
    let url = &demo.url;
    say(&open_line(&demo.link()));
    let fleet = Fleet::spawn(FleetOptions {
        workers: usize::try_from(args.workers)?,
        token: Some(demo.tokens.agent.clone()),
        ..FleetOptions::new(exe, url)
    })?;
    say(&format!(
        "collector on {url}; {} workers with process ids {}",
        args.workers,
        fleet
            .pids()
            .iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    ));
    if let Some(data) = &args.data {
        say(&store_line(data));
    }
    say(&hints(url));
    say(&demo.token_hint());
    let out = match args.seconds {
        Some(seconds) => {
            say(&format!(
                "It stops in {seconds} s; Ctrl-C stops it earlier."
            ));
            Some(args.out.as_deref().unwrap_or(OUT_DEFAULT.as_ref()))
        }
        None => {
            say("Ctrl-C stops it.");
            args.out.as_deref()
        }
    };

    runtime.block_on(wait(args.seconds, stop));
    say("stopping: the workers finish their tasks; a second Ctrl-C stops at once");
    let workers = check(&fleet.stop()?);
    let results = match out {
        Some(out) => {
            let client = Client::with_token(url, Some(demo.tokens.operator.clone()))?;
            results::write(out, &client, started)
        }
        None => Ok(()),
    };
    // The results of a failed fleet are written too, but the failure is reported first.
    workers.and(results)
}

async fn wait(seconds: Option<u64>, stop: JoinHandle<()>) {
    let over = async {
        match seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => pending().await,
        }
    };
    tokio::select! {
        () = over => {}
        _ = stop => {}
    }
}

/// Fails unless every worker succeeded.
fn check(workers: &[WorkerSummary]) -> anyhow::Result<()> {
    let failures: Vec<String> = workers.iter().filter_map(failure).collect();
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

fn failure(worker: &WorkerSummary) -> Option<String> {
    let reason = match (worker.was_killed, worker.status.success(), &worker.record) {
        (true, _, _) => "did not stop in time and was killed".to_owned(),
        (_, false, _) => format!("failed: {}", worker.status),
        (_, _, None) => "wrote no summary".to_owned(),
        _ => return None,
    };
    Some(format!(
        "worker {} (process {}) {reason}",
        worker.index, worker.pid
    ))
}

/// Names the folder of the store.
pub(crate) fn store_line(data: &Path) -> String {
    format!("data is stored in {}", data.display())
}

/// Reports stored data that cannot be read any more.
pub(crate) fn report_damage(server: &Server) {
    let damage = server.damage();
    if damage.is_empty() {
        return;
    }
    say(
        "some data is lost; the rest is served. Copies of the corrupt files are in the folder quarantine:",
    );
    damage.iter().for_each(|line| say(&format!("  {line}")));
}

/// The first line: where to look.
pub(crate) fn open_line(link: &str) -> String {
    format!("Open {link} in a browser")
}

/// How to query the collector at `url`.
pub(crate) fn hints(url: &str) -> String {
    let program = std::env::args().next().unwrap_or_default();
    let option = match url.strip_prefix("http://") {
        Some(LISTEN_DEFAULT) => String::new(),
        _ => format!(" --url {url}"),
    };
    commands(program_name(&program), &option)
}

/// The program as it can be typed again: by its path only if it was typed so, without special
/// characters.
fn program_name(typed: &str) -> &str {
    if typed.contains('/')
        && typed
            .chars()
            .all(|c: char| c.is_ascii_alphanumeric() || "/._-".contains(c))
    {
        typed
    } else {
        "emberline"
    }
}

fn commands(program: &str, option: &str) -> String {
    format!(
        "Query it from another shell:\n  \
         {program} workers{option}\n  \
         {program} tasks --summary{option}\n  \
         {program} profile{option}\n  \
         {program} profile -o profile.svg{option}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_commands_that_work() {
        assert!(hints("http://127.0.0.1:4747").ends_with(" profile -o profile.svg"));
        assert!(hints("http://127.0.0.1:5").ends_with("profile.svg --url http://127.0.0.1:5"));
        for (typed, expected) in [
            ("emberline", "emberline"),
            ("target/release/emberline", "target/release/emberline"),
            ("/opt/my tools/emberline", "emberline"),
            ("", "emberline"),
        ] {
            assert_eq!(program_name(typed), expected);
        }
    }

    #[test]
    fn a_default_port_in_use_is_replaced_but_a_requested_one_is_an_error() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = runtime
            .block_on(bind(Some(address), ServeOptions::default()))
            .unwrap_err();
        assert!(matches!(error, ServeError::InUse { .. }));
        // Whether or not the default port is in use meanwhile, binding succeeds.
        let first = runtime
            .block_on(bind(None, ServeOptions::default()))
            .unwrap();
        let second = runtime
            .block_on(bind(None, ServeOptions::default()))
            .unwrap();
        assert_ne!(first.local_addr(), second.local_addr());
    }
}
