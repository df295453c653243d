//! Cost that grows with a fleet although its processes run the same program: memory, time and disk of the same number
//! of pushes by ever more series, the memory of sessions of agents, and nine queries of Grafana.

mod floor;
mod program;
mod queries;
mod sessions;
mod table;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use simulation::process::{Serve, folder_bytes};
use simulation::random::Random;

use self::floor::Floor;
use self::program::CallGraph;
use self::queries::{Answered, QueryLoad};
use self::table::Table;
use super::sampler::machine;

/// Length of the windows in which clients push.
pub(crate) const WINDOW_S: i64 = 10;

/// Distinct profiles. Making one takes longer than storing it.
const PROFILES: usize = 300;

/// Clients that push at once.
const CLIENTS: usize = 4;

/// Name of the service that all series are of, and number of its regions.
pub(crate) const SERVICE: &str = "shop";
const REGIONS: usize = 5;

/// Size of the load.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Pushes of each run, of about 24 kB.
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pushes: u32,
    /// Numbers of series by which they come.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 4_000])]
    series: Vec<u32>,
    /// Numbers of agents, of a program with about 2,000 functions and 5,000 stacks.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000])]
    agents: Vec<u16>,
    /// Flushes of each agent.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=300))]
    flushes: u32,
    /// Seed of all contents.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The `emberline` to measure instead of this tree's, such as one from before a change.
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// Measures and prints.
///
/// # Errors
/// If the collector fails, or refuses a push.
pub(crate) fn run(options: &Options) -> Result<()> {
    let load = machine::load_average();
    let emberline = match &options.binary {
        Some(binary) => binary.clone(),
        None => xtask::emberline()?,
    };
    let mut random = Random(options.seed);
    let graph = CallGraph::new(&mut random);
    let profiles = (0..PROFILES)
        .map(|_| graph.profile(&mut random))
        .collect::<Result<Vec<_>>>()?;
    let bytes: usize = profiles.iter().map(Vec::len).sum();
    let floor = Floor::measure(&profiles)?;
    let mut pushes = Table::new("series");
    for series in &options.series {
        let load = Load {
            emberline: &emberline,
            profiles: &profiles,
            pushes: options.pushes as usize,
            series: *series as usize,
        };
        let measured = load.measure().with_context(|| format!("{series} series"))?;
        measured.fill(&mut pushes, *series, &floor);
    }
    let mut sessions = Table::new("agents");
    for agents in &options.agents {
        let peak = sessions::measure(&emberline, options, usize::from(*agents))
            .with_context(|| format!("{agents} agents"))?;
        sessions.add(
            "peak memory, MB",
            u32::from(*agents),
            peak.memory_peak_bytes as f64 / 1e6,
        );
        sessions.add("CPU, s", u32::from(*agents), peak.cpu.as_secs_f64());
    }
    println!(
        "\n{}\n\n{} pushes of {} bytes of gzip each:\n\n{pushes}\nAgents with {} flushes each:\n\n{sessions}",
        machine::describe(&load),
        options.pushes,
        bytes / PROFILES,
        options.flushes,
    );
    Ok(())
}

/// The arguments of a collector with its data in `folder`.
pub(crate) fn serve(emberline: &Path, folder: &Path) -> Result<Serve> {
    let data = folder.to_str().context("the folder's path is not UTF-8")?;
    let mut serve = Serve::new(emberline);
    serve.arguments = vec!["--data".to_owned(), data.to_owned()];
    Ok(serve)
}

/// Pushes to a fresh collector.
struct Load<'a> {
    emberline: &'a Path,
    profiles: &'a [Vec<u8>],
    pushes: usize,
    series: usize,
}

impl Load<'_> {
    fn measure(&self) -> Result<Measured> {
        let folder = tempfile::Builder::new()
            .prefix("emberline-bench-")
            .tempdir()?;
        let running = serve(self.emberline, folder.path())?.start()?;
        let windows = self.pushes.div_ceil(self.series) as i64;
        let now_s = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)?
            .as_secs()
            .cast_signed();
        let end_s = now_s / WINDOW_S * WINDOW_S;
        let start_s = end_s - windows * WINDOW_S;
        let begin = Instant::now();
        self.push(running.address, start_s)?;
        let took = begin.elapsed();
        let after = running.process.usage()?;
        let queries = QueryLoad {
            address: running.address,
            process: &running.process,
            start_s,
            end_s,
        };
        let answers = queries.ask_all()?;
        let written_bytes = running.process.written_bytes();
        running.process.stop()?;
        Ok(Measured {
            took,
            cpu: after.cpu,
            memory_peak_bytes: after.memory_peak_bytes,
            written_bytes,
            disk_bytes: folder_bytes(folder.path())?,
            pushes: self.pushes,
            answers,
        })
    }

    /// Pushes window after window, from several clients.
    fn push(&self, address: SocketAddr, start_s: i64) -> Result<()> {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    scope.spawn(|| -> Result<()> {
                        let agent: ureq::Agent = ureq::Agent::config_builder()
                            .http_status_as_error(false)
                            .build()
                            .into();
                        loop {
                            let number = next.fetch_add(1, Relaxed);
                            if number >= self.pushes {
                                return Ok(());
                            }
                            self.push_once(&agent, address, start_s, number)?;
                        }
                    })
                })
                .collect();
            clients
                .into_iter()
                .try_for_each(|client| client.join().expect("a client does not panic"))
        })
    }

    fn push_once(
        &self,
        agent: &ureq::Agent,
        address: SocketAddr,
        start_s: i64,
        number: usize,
    ) -> Result<()> {
        let series = number % self.series;
        let window = (number / self.series) as i64;
        let from = start_s + window * WINDOW_S;
        let region = series % REGIONS;
        let name = format!("{SERVICE}%7Binstance%3Di-{series}%2Cregion%3Dr{region}%7D");
        let until = from + WINDOW_S;
        let url =
            format!("http://{address}/ingest?name={name}&from={from}&until={until}&format=pprof");
        // Each series sees all profiles, in another order than its neighbors.
        let profile = &self.profiles[(number * 7 + number / self.series) % self.profiles.len()];
        let mut answer = agent.post(url).send(&profile[..])?;
        let text = answer.body_mut().read_to_string()?;
        anyhow::ensure!(answer.status() == 200, "push {number}: {text}");
        Ok(())
    }
}

/// Cost of a run.
struct Measured {
    took: Duration,
    cpu: Duration,
    memory_peak_bytes: u64,
    written_bytes: u64,
    disk_bytes: u64,
    pushes: usize,
    answers: Vec<Answered>,
}

impl Measured {
    fn fill(&self, table: &mut Table, series: u32, floor: &Floor) {
        let push_ms = self.cpu.as_secs_f64() * 1e3 / self.pushes as f64;
        table.add("pushing, s", series, self.took.as_secs_f64());
        table.add("CPU of a push, ms", series, push_ms);
        let decoded_ms = floor.decoded.as_secs_f64() * 1e3;
        table.add("inflated and decoded alone, ms", series, decoded_ms);
        if let Some(go) = floor.go {
            let go_ms = go.as_secs_f64() * 1e3;
            table.add("Go's `profile.ParseData`, ms", series, go_ms);
            table.add("a push, in times of Go's reader", series, push_ms / go_ms);
        }
        table.add(
            "peak memory, MB",
            series,
            self.memory_peak_bytes as f64 / 1e6,
        );
        table.add("written, MB", series, self.written_bytes as f64 / 1e6);
        table.add("disk, MB", series, self.disk_bytes as f64 / 1e6);
        for Answered { name, cpu, median } in &self.answers {
            table.add(&format!("{name}, CPU ms"), series, cpu.as_secs_f64() * 1e3);
            table.add(
                &format!("{name}, p50 ms"),
                series,
                median.as_secs_f64() * 1e3,
            );
        }
    }
}
