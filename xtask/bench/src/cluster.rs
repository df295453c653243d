//! `cargo xtask cluster`: a bucket, two collectors, a fleet and a Ballista cluster on this machine, until Ctrl-C.
//!
//! ```text
//! fleet ─▶ c1, c2 ─▶ bucket ◀─ executors ◀─ scheduler ◀─ emberline sql
//! ```

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use simulation::ballista::{BallistaCluster, EXECUTORS};
use simulation::proxy::free_port;
use simulation::s3::{BUCKET, Product, Server};
use simulation::service::Service;
use tokio::signal::unix::{SignalKind, signal};

/// Options of the cluster to start.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Stop after this number of seconds. Default: at Ctrl-C.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Processes of the fleet.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(4..=64))]
    workers: u16,
    /// Without SQL and Ballista, whose programs take half an hour to compile once.
    #[arg(long)]
    no_ballista: bool,
    #[command(flatten)]
    programs: ProgramOptions,
}

/// Programs to use instead of those of this tree.
#[derive(clap::Args)]
pub(crate) struct ProgramOptions {
    /// The `emberline` to run instead of this tree's.
    #[arg(long, value_name = "FILE")]
    emberline: Option<PathBuf>,
    /// Folder with `ballista-scheduler` and `ballista-executor`, instead of building them.
    #[arg(long, value_name = "DIR")]
    ballista: Option<PathBuf>,
}

/// The programs of a cluster.
pub(crate) struct Programs {
    pub(crate) emberline: PathBuf,
    /// The folder with the programs of Ballista.
    pub(crate) ballista: Option<PathBuf>,
}

/// Engines that answer queries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engines {
    Collector,
    Sql,
    SqlAndBallista,
}

impl Programs {
    /// # Errors
    /// If a build fails.
    pub(crate) fn build(options: &ProgramOptions, engines: Engines) -> Result<Programs> {
        let emberline = match (&options.emberline, engines) {
            (Some(program), _) => program.clone(),
            (None, Engines::Collector) => xtask::emberline_with_s3()?,
            (None, _) => xtask::ballista::emberline()?,
        };
        let ballista = match (engines, &options.ballista) {
            (Engines::Collector | Engines::Sql, _) => None,
            (Engines::SqlAndBallista, Some(folder)) => Some(folder.clone()),
            (Engines::SqlAndBallista, None) => Some(xtask::ballista::programs()?),
        };
        Ok(Programs {
            emberline,
            ballista,
        })
    }

    fn emberline(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.emberline);
        command.args(arguments).env("NO_COLOR", "1");
        command
    }
}

/// The names of the collectors.
const COLLECTORS: [&str; 2] = ["c1", "c2"];

/// Where the collectors keep their data.
fn place() -> String {
    format!("s3://{BUCKET}/cluster")
}

/// Starts everything, prints the addresses, and ends everything.
///
/// # Errors
/// If a part cannot be started, or ends before it should.
pub(crate) fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // From here on, so that Ctrl-C ends what was started so far.
    let mut stop = {
        let _inside = runtime.enter();
        [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        ]
    };
    let engines = if options.no_ballista {
        Engines::Collector
    } else {
        Engines::SqlAndBallista
    };
    let programs = Programs::build(&options.programs, engines)?;
    let folder = tempfile::Builder::new()
        .prefix("emberline-cluster-")
        .tempdir()?;
    let build = xtask::light()?;
    let server = Server::start(Product::Moto, &build)?.context("no S3 server")?;
    let mut cluster = Cluster {
        parts: Vec::new(),
        folder: folder.path().to_owned(),
        server,
    };
    let started = cluster.start(&programs, options);
    if started.is_ok() {
        let over = async {
            match options.seconds {
                Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
                None => std::future::pending().await,
            }
        };
        let [interrupt, terminate] = &mut stop;
        runtime.block_on(async {
            tokio::select! {
                () = over => {}
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                // A part that ends by itself is reported below.
                () = cluster.ended() => {}
            }
        });
        // The reader of the output may be gone.
        let _ = writeln!(std::io::stdout(), "stopping");
    }
    started.and(cluster.stop())
}

/// Running services, in the order in which they end. The bucket ends last.
struct Cluster {
    parts: Vec<Service>,
    folder: PathBuf,
    server: Server,
}

impl Cluster {
    fn start(&mut self, programs: &Programs, options: &Options) -> Result<()> {
        let mut scheduler = None;
        if let Some(ballista) = &programs.ballista {
            let environment = self.server.environment();
            let ballista = BallistaCluster::start(ballista, &self.folder, &environment)?;
            scheduler = Some(ballista.scheduler);
            self.parts = ballista.services;
        }
        let mut urls = Vec::new();
        for name in COLLECTORS {
            urls.push(self.start_collector(programs, name, scheduler.as_deref())?);
        }
        let all = urls.join(",");
        let workers = options.workers.to_string();
        let arguments = ["demo", "--workers", &workers, "--collector", &all];
        let fleet = Service::start("fleet", programs.emberline(&arguments), &self.folder)?;
        self.parts.insert(0, fleet);
        println!("logs       {}", self.folder.display());
        println!("bucket     {} at {}", place(), self.server.url(""));
        for (name, url) in COLLECTORS.iter().zip(&urls) {
            println!("collector  {name} at {url}");
        }
        println!("fleet      {workers} workers with EMBERLINE_URL={all}");
        if let Some(scheduler) = &scheduler {
            println!("scheduler  {scheduler}, with {EXECUTORS} executors");
        }
        let variables: Vec<String> = self
            .server
            .environment()
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let program = programs.emberline.display();
        println!("\nOpen {} in a browser, or from another shell:", urls[0]);
        println!("  export {}", variables.join(" "));
        println!("  {program} workers --url {}", urls[0]);
        if let Some(scheduler) = &scheduler {
            let query = "SELECT task, sum(weight_ns) / 1e9 AS seconds FROM samples('1s') GROUP BY 1 ORDER BY 2 DESC";
            println!(
                "  {program} sql --store {} --scheduler {scheduler} --distribute-over 0MB \"{query}\"",
                place()
            );
        }
        println!("Tables have the data after a minute. Ctrl-C stops all.");
        Ok(())
    }

    fn start_collector(
        &mut self,
        programs: &Programs,
        name: &'static str,
        scheduler: Option<&str>,
    ) -> Result<String> {
        let port = free_port()?;
        let address = format!("127.0.0.1:{port}");
        let place = place();
        let arguments = [
            "serve", "--listen", &address, "--store", &place, "--name", name,
        ];
        let mut command = programs.emberline(&arguments);
        command
            .args(["--ack", "store"])
            .envs(self.server.environment());
        if let Some(scheduler) = scheduler {
            command.args(["--scheduler", scheduler]);
        }
        self.add(Service::start(name, command, &self.folder)?, |part| {
            part.ready_by_http(port)
        })?;
        Ok(format!("http://{address}"))
    }

    /// Keeps a part, which ends before those that were there, and waits until it is ready.
    fn add(&mut self, part: Service, ready: impl FnOnce(&mut Service) -> Result<()>) -> Result<()> {
        self.parts.insert(0, part);
        ready(&mut self.parts[0])
    }

    /// Waits until a part has ended by itself.
    async fn ended(&mut self) {
        while self.parts.iter_mut().all(Service::is_running) {
            // Paces system calls: there is one signal for the ends of all processes.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Ends all parts, the newest first. Returns the first failure.
    fn stop(mut self) -> Result<()> {
        let ends = self.parts.drain(..).map(Service::stop).collect::<Vec<_>>();
        ends.into_iter()
            .collect::<Result<()>>()
            .context("the logs were deleted with the cluster")
    }
}
