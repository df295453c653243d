//! `emberline demo`: a collector in this process and a fleet of real ones.

mod results;

use std::future::pending;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use collector::{Collector, ServeError, ServeOptions, Server};
use examples::fleet::{Fleet, FleetOptions, WorkerSummary};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::args::{DemoArgs, LISTEN_DEFAULT};
use crate::output::say;
use crate::signals::StopRequests;

/// Threads of the collector; the fleet needs the processors more.
const COLLECTOR_THREADS: usize = 2;
/// Folder for the results of a demo that ends by itself.
const OUT_DEFAULT: &str = "out";

pub(crate) fn run(args: DemoArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(COLLECTOR_THREADS)
        .enable_all()
        .build()
        .context("could not start the collector's threads")?;
    let _inside = runtime.enter();
    // Before the fleet starts, so that an early Ctrl-C ends it in good order too.
    let stop = StopRequests::listen().context("could not listen for Ctrl-C and SIGTERM")?;
    let stop = runtime.spawn(stop.first());

    let options = ServeOptions {
        data: args.data.clone(),
        retention: (&args.retention).into(),
        ..ServeOptions::default()
    };
    let server = runtime.block_on(bind(args.listen, options))?;
    let url = format!("http://{}", server.local_addr());
    tell_damage(&server);
    let (end, ended) = oneshot::channel::<()>();
    let serving = runtime.spawn(server.serve(async {
        // An error means that the demo is gone: an end too.
        let _ = ended.await;
    }));

    let done = with_fleet(&args, &url, &runtime, stop);
    // Fails only if the collector ended before, which its own result tells.
    let _ = end.send(());
    let served = runtime.block_on(serving).context("the collector panicked");
    done.and(served?.map_err(Into::into))
}

/// Opens the collector's port: the one asked for, or the default one or else any.
async fn bind(listen: Option<SocketAddr>, options: ServeOptions) -> Result<Server, ServeError> {
    let options = |listen| ServeOptions { listen, ..options.clone() };
    let first = listen.unwrap_or(ServeOptions::default().listen);
    match Collector::bind(options(first)).await {
        Err(ServeError::InUse { address, .. }) if listen.is_none() => {
            say(&format!("{address} is in use; taking a free port"));
            Collector::bind(options(SocketAddr::new(first.ip(), 0))).await
        }
        bound => bound,
    }
}

/// Runs the fleet until its time is over or someone asks to stop, and writes what it left.
fn with_fleet(
    args: &DemoArgs,
    url: &str,
    runtime: &Runtime,
    stop: JoinHandle<()>,
) -> anyhow::Result<()> {
    let started = SystemTime::now();
    let exe = std::env::current_exe().context("could not find this program itself")?;
    let fleet = Fleet::spawn(FleetOptions {
        workers: usize::try_from(args.workers)?,
        ..FleetOptions::new(exe, url)
    })?;
    say(&format!(
        "collector on {url}, {} workers with the process ids {}",
        args.workers,
        fleet.pids().iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
    ));
    if let Some(data) = &args.data {
        say(&kept(data));
    }
    say(&places(url));
    let out = match args.seconds {
        Some(seconds) => {
            say(&format!("It ends in {seconds} s; Ctrl-C ends it before."));
            Some(args.out.as_deref().unwrap_or(OUT_DEFAULT.as_ref()))
        }
        None => {
            say("Ctrl-C ends it.");
            args.out.as_deref()
        }
    };

    runtime.block_on(wait(args.seconds, stop));
    say("ending: the workers finish what they have in hand; a second Ctrl-C ends at once");
    let workers = check(&fleet.stop()?);
    let left = match out {
        Some(out) => results::write(out, url, started),
        None => Ok(()),
    };
    // Results of a fleet that failed are worth having, but the failure comes first.
    workers.and(left)
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

/// Whether every worker ended well.
fn check(workers: &[WorkerSummary]) -> anyhow::Result<()> {
    let failures: Vec<String> = workers.iter().filter_map(failure).collect();
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

fn failure(worker: &WorkerSummary) -> Option<String> {
    let why = match (worker.was_killed, worker.status.success(), &worker.record) {
        (true, _, _) => "did not end in time and was killed".to_owned(),
        (_, false, _) => format!("failed: {}", worker.status),
        (_, _, None) => "did not say what it did".to_owned(),
        _ => return None,
    };
    Some(format!("worker {} (process {}) {why}", worker.index, worker.pid))
}

/// Where everything is kept.
pub(crate) fn kept(data: &Path) -> String {
    format!("everything is kept in {}", data.display())
}

/// Says what of the data that was kept cannot be read any more.
pub(crate) fn tell_damage(server: &Server) {
    let damage = server.damage();
    if damage.is_empty() {
        return;
    }
    say(
        "a part of the data is lost; the rest is served, and what is left of damaged files is in quarantine:",
    );
    damage.iter().for_each(|line| say(&format!("  {line}")));
}

/// What to type elsewhere to look at the collector at `url`.
pub(crate) fn places(url: &str) -> String {
    let program = std::env::args().next().unwrap_or_default();
    let url = match url.strip_prefix("http://") {
        Some(LISTEN_DEFAULT) => String::new(),
        _ => format!(" --url {url}"),
    };
    commands(program_name(&program), &url)
}

/// The program as it can be typed again: by its path only if that was typed, and is plain.
fn program_name(typed: &str) -> &str {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if typed.contains('/') && typed.chars().all(plain) { typed } else { "emberline" }
}

fn commands(program: &str, url: &str) -> String {
    format!(
        "Look at it from another shell:\n  \
         {program} workers{url}\n  \
         {program} tasks --summary{url}\n  \
         {program} profile{url}\n  \
         {program} profile -o profile.svg{url}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_typed_as_they_stand() {
        assert!(places("http://127.0.0.1:4747").ends_with(" profile -o profile.svg"));
        assert!(places("http://127.0.0.1:5").ends_with("profile.svg --url http://127.0.0.1:5"));
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
    fn a_taken_default_port_is_no_hindrance_but_a_chosen_one_is() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = runtime.block_on(bind(Some(address), ServeOptions::default())).unwrap_err();
        assert!(matches!(error, ServeError::InUse { .. }));
        // Whoever holds the default port meanwhile, us or another, a collector is to be had.
        let first = runtime.block_on(bind(None, ServeOptions::default())).unwrap();
        let second = runtime.block_on(bind(None, ServeOptions::default())).unwrap();
        assert_ne!(first.local_addr(), second.local_addr());
    }
}
