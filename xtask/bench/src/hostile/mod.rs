//! An honest agent and an honest reader of a real collector, alone and next to each attack that the
//! security review found.
//!
//! The attackers come from another address (127.0.0.2), as a stranger's would, and their threads yield to
//! all others, because a stranger's would run on another machine.

mod attack;
mod honest;
mod http2;
mod names;
mod pushes;
mod sockets;
mod witness;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use simulation::process::{Running, Serve};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use self::attack::{Attack, Counters};
use self::honest::{Honest, Measured, QUERIES};
use self::witness::Witness;
use super::ingest::raise_file_limit;
use super::sampler::machine;

/// Length of the loads.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Measured seconds of each load.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u16).range(2..=600))]
    seconds: u16,
    /// Only these attacks.
    #[arg(long, value_enum, value_delimiter = ',')]
    attacks: Vec<Attack>,
    /// The `emberline` to measure instead of this tree's, such as one from before a change.
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// Open files of this process: most attacks are sockets. The collector inherits it.
const FILES: u64 = 20_000;

/// Largest p99 next to an attack, as a multiple of the one alone.
const RATIO_MAX: f64 = 3.0;

/// Largest peak of the collector's memory.
const MEMORY_MB_MAX: f64 = 512.0;

/// Time before the measurement, for connections and caches.
const WARM_UP: Duration = Duration::from_secs(2);

/// How much the attackers' threads yield.
const NICENESS: i32 = 19;

/// Measures and prints.
///
/// # Errors
/// If the collector does not start, or ends by itself.
pub(crate) fn run(options: &Options) -> Result<()> {
    let load = machine::load_average();
    raise_file_limit(FILES)?;
    let emberline = match &options.binary {
        Some(binary) => binary.clone(),
        None => xtask::emberline()?,
    };
    let bench = Bench {
        emberline,
        seconds: Duration::from_secs(options.seconds.into()),
        honest: Builder::new_multi_thread().enable_all().build()?,
        attackers: Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .on_thread_start(|| {
                // Without it the attackers only take more from the honest ones.
                let _ = rustix::process::setpriority_process(None, NICENESS);
            })
            .build()?,
    };
    let alone = bench.alone()?;
    let mut rows = vec![row("alone", &alone, None)];
    let mut queries = vec![queries_row("alone", &alone)];
    for &attack in Attack::all() {
        if options.attacks.is_empty() || options.attacks.contains(&attack) {
            let Attacked {
                alone_with_data,
                attacked,
            } = bench.attacked(attack)?;
            if let (Some(name), Some(alone)) = (attack.data(), &alone_with_data) {
                rows.push(row(name, alone, None));
                queries.push(queries_row(name, alone));
            }
            let alone = alone_with_data.as_ref().unwrap_or(&alone);
            queries.push(queries_row(attack.name(), &attacked));
            rows.push(row(attack.name(), &attacked, Some(alone)));
        }
    }
    println!("\n{}\n", machine::describe(&load));
    println!(
        "| next to | acks p50 / p99 ms | reads p50 / p99 ms | errors | peak memory | p99 ≤ {RATIO_MAX} × \
         alone, 0 errors, ≤ {MEMORY_MB_MAX} MB | attackers |\n|---|--:|--:|--:|--:|---|---|"
    );
    rows.iter().for_each(|row| println!("{row}"));
    println!(
        "\nReads by query, p50 / p99 ms:\n\n| next to | {} |\n|---|--:|--:|--:|",
        QUERIES.join(" | ")
    );
    queries.iter().for_each(|row| println!("{row}"));
    Ok(())
}

struct Bench {
    emberline: PathBuf,
    seconds: Duration,
    honest: Runtime,
    attackers: Runtime,
}

/// A collector, and its honest clients.
struct Bed {
    running: Running,
    honest: Honest,
    _folder: TempDir,
}

/// Measurements around an attack.
struct Attacked {
    /// Before it, if it needs data; after it, if it leaves some.
    alone_with_data: Option<Measured>,
    attacked: Measured,
}

impl Bench {
    fn bed(&self) -> Result<Bed> {
        let folder = tempfile::Builder::new()
            .prefix("emberline-hostile-")
            .tempdir()?;
        let mut serve = Serve::new(&self.emberline);
        serve.log = "error";
        let store = folder.path().join("data");
        let data = store.to_str().context("the folder's path is not UTF-8")?;
        serve
            .arguments
            .extend(["--data".to_owned(), data.to_owned()]);
        let running = serve.start()?;
        let honest = self.honest.block_on(Honest::start(running.address))?;
        thread::sleep(WARM_UP);
        Ok(Bed {
            running,
            honest,
            _folder: folder,
        })
    }

    /// Measures the honest clients over the next seconds.
    fn measure(&self, bed: &mut Bed) -> Result<Measured> {
        bed.honest.reset();
        thread::sleep(self.seconds);
        let mut measured = bed.honest.measured();
        measured.memory_peak_bytes = bed.running.process.usage()?.memory_peak_bytes;
        Ok(measured)
    }

    /// Ends the honest clients and the collector.
    fn end(&self, bed: Bed) -> Result<()> {
        self.honest.block_on(bed.honest.stop());
        bed.running.process.kill()
    }

    /// Without an attack.
    fn alone(&self) -> Result<Measured> {
        eprintln!("==> alone");
        let mut bed = self.bed()?;
        let measured = self.measure(&mut bed)?;
        self.end(bed)?;
        Ok(measured)
    }

    fn attacked(&self, attack: Attack) -> Result<Attacked> {
        eprintln!("==> {}", attack.name());
        let mut bed = self.bed()?;
        let address = bed.running.address;
        let counters = Counters::default();
        let witness = attack
            .sends_names()
            .then(|| Witness::start(address))
            .transpose()?;
        self.attackers
            .block_on(attack.prepare(address, counters.clone()));
        let is_measured_before = attack.data().is_some() && !attack.leaves_data();
        let mut alone_with_data = is_measured_before
            .then(|| self.measure(&mut bed))
            .transpose()?;
        let attackers = self.attackers.spawn(attack.run(address, counters.clone()));
        let mut attacked = self.measure(&mut bed)?;
        attacked.attackers = attack.report(&counters);
        attackers.abort();
        if let Some(witness) = witness {
            self.honest.block_on(names::honest_tasks(address))?;
            attacked.missing = Some(witness.missing()?);
        }
        if attack.leaves_data() {
            thread::sleep(WARM_UP);
            alone_with_data = Some(self.measure(&mut bed)?);
        }
        self.end(bed)?;
        Ok(Attacked {
            alone_with_data,
            attacked,
        })
    }
}

fn queries_row(name: &str, measured: &Measured) -> String {
    let pairs = measured
        .queries_ms
        .map(|[p50, p99]| format!("{p50:.1} / {p99:.1}"));
    format!("| {name} | {} |", pairs.join(" | "))
}

fn row(name: &str, measured: &Measured, alone: Option<&Measured>) -> String {
    let memory_mb = measured.memory_peak_bytes as f64 / 1e6;
    let pair = |[p50, p99]: [f64; 2]| format!("{p50:.1} / {p99:.1}");
    let verdict = alone.map_or("–".to_owned(), |alone| {
        let ratios = [
            measured.acks_ms[1] / alone.acks_ms[1],
            measured.reads_ms[1] / alone.reads_ms[1],
        ];
        let is_met = ratios.iter().all(|ratio| *ratio <= RATIO_MAX)
            && measured.errors == 0
            && measured.missing.as_ref().is_none_or(Vec::is_empty)
            && memory_mb <= MEMORY_MB_MAX;
        let [acks, reads] = ratios.map(|ratio| format!("{ratio:.1} ×"));
        format!(
            "{}: acks {acks}, reads {reads}",
            if is_met { "met" } else { "**missed**" }
        )
    });
    let acks = if measured.acks == 0 {
        "no ack".to_owned()
    } else {
        pair(measured.acks_ms)
    };
    let missing = match measured.missing.as_deref() {
        None => String::new(),
        Some([]) => "; the honest task and the operator's run are found".to_owned(),
        Some(missing) => format!("; **missing: {}**", missing.join(", ")),
    };
    format!(
        "| {name} | {acks} | {} | {} of {} | {memory_mb:.0} MB | {verdict} | {}{missing} |",
        pair(measured.reads_ms),
        measured.errors,
        measured.acks + measured.reads,
        measured.attackers,
    )
}
