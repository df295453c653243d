//! Cost of a fleet for the collector: real messages over loopback to a real `emberline serve`, pinned
//! to a processor of its own if the machine has several.

pub(crate) mod bare;
pub(crate) mod pprof;
mod wire;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls::ClientConfig;
use simulation::agent::{Agent, Setup, Time, default_labels};
use simulation::crash::store_arguments;
use simulation::fleet::{Fleet, Latencies, Pace, Plan};
use simulation::pattern::{Busyness, Pattern};
use simulation::process::{Running, Serve, Usage, last_processor};
use simulation::program::{Program, Shape};
use simulation::random::Random;
use simulation::record::Detail;
use simulation::s3::{BUCKET, Product, Server};
use tls::ClientOptions;

use super::sampler::machine;

/// Size and length of the loads.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Agents that send as fast as acks allow.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u16).range(1..=2_000))]
    busy: u16,
    /// Unacknowledged flushes of each of those agents.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    in_flight: u16,
    /// Agents that send once a second.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    agents: u16,
    /// Agents that share one connection.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    agents_per_connection: u16,
    /// Measured seconds of each load, after a warm-up of the same length.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=600))]
    seconds: u16,
    /// Seed of all contents.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Do not pin the collector to a processor.
    #[arg(long)]
    unpinned: bool,
    /// Measure the collector with TLS, too.
    #[arg(long)]
    tls: bool,
    /// Measure the collector with --ack store, too, on an S3 server of this machine.
    #[arg(long)]
    bucket: bool,
    /// Only these loads.
    #[arg(long, value_enum, value_delimiter = ',')]
    loads: Vec<Load>,
    /// The `emberline` to measure instead of this tree's, such as one from before a change.
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// Load to measure.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Load {
    /// Bytes on the wire.
    Wire,
    /// As fast as acks allow, about 50 pairs per flush.
    #[value(name = "50")]
    Small,
    /// As fast as acks allow, about 300 pairs per flush.
    #[value(name = "300")]
    Large,
    /// One flush a second.
    Paced,
}

impl Options {
    fn wants(&self, load: Load) -> bool {
        self.loads.is_empty() || self.loads.contains(&load)
    }
}

/// Limit on waiting for agents to attach.
const ATTACH_MAX: Duration = Duration::from_secs(120);

/// Measures and prints.
///
/// # Errors
/// If the collector breaks a promise or fails under the load.
pub(crate) fn run(options: &Options) -> Result<()> {
    let load = machine::load_average();
    raise_file_limit(u64::from(options.agents) + 1_000)?;
    let emberline = match &options.binary {
        Some(binary) => binary.clone(),
        None if options.bucket => xtask::emberline_with_s3()?,
        None => xtask::emberline()?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let _entered = runtime.enter();
    let mut rows = Vec::new();
    if options.wants(Load::Wire) {
        rows.extend([wire(options, 70)?, wire(options, 700)?]);
    }
    let own = std::env::current_exe()?;
    let collector = Contestant {
        program: &emberline,
        tls: false,
        bucket: false,
        whose: "the collector",
    };
    let with_bucket = Contestant {
        bucket: true,
        whose: "the collector with `--ack store`",
        ..collector
    };
    let with_tls = Contestant {
        tls: true,
        whose: "the collector with TLS",
        ..collector
    };
    let bare = Contestant {
        program: &own,
        whose: "a bare gRPC service, which keeps nothing",
        ..collector
    };
    let mut contestants = vec![collector];
    contestants.extend(options.tls.then_some(with_tls));
    contestants.extend(options.bucket.then_some(with_bucket));
    contestants.push(bare);
    for (load, what, samples) in [(Load::Small, "50", 70), (Load::Large, "300", 700)] {
        if !options.wants(load) {
            continue;
        }
        let pace = Pace::AsFast {
            in_flight: options.in_flight.into(),
        };
        for contestant in &contestants {
            let bench = Bench::new(options, contestant, samples)?;
            let measured = runtime.block_on(bench.run(options.busy.into(), pace, 20))?;
            rows.push(measured.saturated(
                options,
                contestant.whose,
                &format!("about {what} a flush"),
            ));
        }
    }
    if options.wants(Load::Paced) {
        for contestant in &contestants {
            let bench = Bench::new(options, contestant, 70)?;
            let shared = options.agents_per_connection.into();
            let run = bench.run(options.agents.into(), Pace::EVERY_SECOND, shared);
            rows.extend(runtime.block_on(run)?.paced(options, contestant.whose));
        }
    }
    rows.push(sync_alone()?);
    println!(
        "\n{}\n\n| what | target | measured |\n|---|---|---|",
        machine::describe(&load)
    );
    rows.iter().for_each(|row| println!("{row}"));
    Ok(())
}

/// Every connection is a file, here and in the collector, which inherits the limit.
pub(crate) fn raise_file_limit(wanted: u64) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if hard < wanted {
        anyhow::bail!("{wanted} open files are needed and {hard} allowed; see `ulimit -Hn`");
    }
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(wanted), hard)?;
    Ok(())
}

/// A service to measure.
#[derive(Clone, Copy)]
struct Contestant<'a> {
    program: &'a Path,
    tls: bool,
    /// Whether acknowledged means that a bucket has it.
    bucket: bool,
    whose: &'static str,
}

/// The program of a fleet, and how to start the collector.
struct Bench<'a> {
    options: &'a Options,
    serve: Serve,
    /// How agents connect, if by TLS.
    tls: Option<Arc<ClientConfig>>,
    program: Arc<Program>,
    pattern: Arc<Pattern>,
    random: Random,
    /// Killed when dropped.
    bucket: Option<Server>,
    /// Deleted when dropped.
    folder: tempfile::TempDir,
}

pub(crate) fn fleet_program(seed: u64, samples: usize) -> (Arc<Program>, Arc<Pattern>, Random) {
    let mut random = Random(seed);
    let shape = Shape {
        tasks: 10,
        stacks_per_task: 40,
        idle: 8,
        depths: 10..=30,
    };
    let program = Arc::new(Program::generate(shape, &mut random));
    let slots = if samples > 100 { 9 } else { 3 };
    let busyness = Busyness {
        samples,
        slots,
        ..Busyness::default()
    };
    let pattern = Arc::new(Pattern::new(&program, busyness, &mut random));
    (program, pattern, random)
}

pub(crate) fn setup(index: usize, program: &Arc<Program>, pattern: &Arc<Pattern>) -> Result<Setup> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let first_ns = i64::try_from(now.as_nanos())? - 300 * 1_000_000_000;
    let time = Time {
        first_ns,
        step_s: 1,
        burst: 1,
        steps: 300,
        offset_ns: 1_300_000,
    };
    Ok(Setup {
        worker: format!("worker-{index}"),
        labels: default_labels(),
        program: program.clone(),
        pattern: pattern.clone(),
        time,
        detail: Detail::Totals,
    })
}

fn wire(options: &Options, samples: usize) -> Result<String> {
    let (program, pattern, random) = fleet_program(options.seed, samples);
    let agent = Agent::new(setup(0, &program, &pattern)?, random);
    let wire = wire::measure(agent, &program)?;
    Ok(format!(
        "| bytes a pair on the wire, steady ({:.0} pairs a flush) | ≤ 4; pprof ≥ 10 × | {:.2} for \
         pairs alone, {:.2} with the flush's head, + {:.2} for new stacks, + {:.2} for rows of tasks; gzip'ed pprof {:.1}, \
         {:.1} × |",
        wire.pairs,
        wire.column_bytes_per_pair,
        wire.bytes_per_pair,
        wire.dictionary_bytes_per_pair,
        wire.task_bytes_per_pair,
        wire.pprof_bytes_per_pair,
        wire.pprof_bytes_per_pair / wire.bytes_per_pair,
    ))
}

/// The floor of an ack's latency: how long the disk takes for a small group commit of the log, without
/// our other load.
fn sync_alone() -> Result<String> {
    /// About 10 ms of 10,000 flushes per second, as written to the log.
    const GROUP_BYTES: usize = 32 << 10;
    const GROUPS: usize = 300;
    let folder = tempfile::Builder::new()
        .prefix("emberline-bench-")
        .tempdir()?;
    let mut file = std::fs::File::create(folder.path().join("log"))?;
    let mut took = Vec::with_capacity(GROUPS);
    for _ in 0..GROUPS {
        let begin = Instant::now();
        file.write_all(&[7; GROUP_BYTES])?;
        file.sync_data()?;
        took.push(begin.elapsed());
    }
    took.sort_unstable();
    let [median, p99] = [GROUPS / 2, GROUPS * 99 / 100].map(|at| took[at].as_secs_f64() * 1e3);
    Ok(format!(
        "| the same disk alone: a write of {} KiB and `fdatasync` | – | p50 {median:.1} ms, p99 \
         {p99:.1} ms |",
        GROUP_BYTES >> 10
    ))
}

/// Makes a certificate in `folder` for the collector. Returns the settings of clients that trust it.
fn serve_with_tls(serve: &mut Serve, folder: &Path) -> Result<Arc<ClientConfig>> {
    let mut command = Command::new(&serve.program);
    let output = command
        .args(["tls", "self-signed", "-o"])
        .arg(folder)
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let fingerprint = text
        .lines()
        .next()
        .context("`emberline tls self-signed` printed nothing")?;
    let options = ClientOptions {
        pin: Some(fingerprint.parse()?),
        ..ClientOptions::default()
    };
    for (flag, file) in [("--tls-cert", "cert.pem"), ("--tls-key", "key.pem")] {
        let path = folder
            .join(file)
            .to_str()
            .context("the folder's path is not UTF-8")?
            .to_owned();
        serve.arguments.extend([flag.to_owned(), path]);
    }
    Ok(options.config(&[b"h2"])?)
}

impl Bench<'_> {
    fn new<'a>(
        options: &'a Options,
        contestant: &Contestant<'_>,
        samples: usize,
    ) -> Result<Bench<'a>> {
        let (program, pattern, random) = fleet_program(options.seed, samples);
        let mut serve = Serve::new(contestant.program);
        let folder = tempfile::Builder::new()
            .prefix("emberline-bench-")
            .tempdir()?;
        let store = folder.path().join("data");
        let data = store.to_str().context("the folder's path is not UTF-8")?;
        let mut bucket = None;
        if contestant.bucket {
            let build = xtask::light()?;
            let server = Server::start(Product::Moto, &build)?.context("no S3 server")?;
            serve
                .arguments
                .extend(store_arguments(&format!("s3://{BUCKET}/bench"), "c1"));
            serve.environment = server.environment();
            bucket = Some(server);
        } else if serve.takes(&["--data", data])? {
            serve
                .arguments
                .extend(["--data".to_owned(), data.to_owned()]);
        }
        let tls = contestant
            .tls
            .then(|| serve_with_tls(&mut serve, folder.path()))
            .transpose()?;
        serve.processor = last_processor().filter(|_| !options.unpinned);
        Ok(Bench {
            options,
            serve,
            tls,
            program,
            pattern,
            random,
            bucket,
            folder,
        })
    }

    /// Runs one load and counts between two snapshots.
    async fn run(
        self,
        agents: usize,
        pace: Pace,
        agents_per_connection: usize,
    ) -> Result<Measured> {
        let made: Vec<Agent> = (0..agents)
            .map(|index| {
                let setup = setup(index, &self.program, &self.pattern)?;
                Ok(Agent::new(setup, self.random.fork(index)))
            })
            .collect::<Result<_>>()?;
        let plan = Plan {
            pace,
            agents_per_connection,
            new_life: 0.0,
            flushes_max: u64::MAX,
        };
        let fleet = Fleet::start(made, plan, &self.random);
        let running = self.serve.start()?;
        match self.tls {
            Some(tls) => fleet.set_collector_with_tls(running.address, tls),
            None => fleet.set_collector(running.address),
        }
        let log = || format!("the collector's log ends:\n{}", running.process.log());
        fleet.attached(agents, ATTACH_MAX).await.with_context(log)?;
        let seconds = Duration::from_secs(self.options.seconds.into());
        let caught_up_after = match pace {
            Pace::Every { .. } => caught_up(&fleet).await,
            Pace::AsFast { .. } => None,
        };
        tokio::time::sleep(seconds).await;
        // Latencies while agents attached do not count.
        drop(fleet.take_latencies());
        let before = Snapshot::new(&fleet, &running)?;
        tokio::time::sleep(seconds).await;
        let after = Snapshot::new(&fleet, &running)?;
        let latencies = fleet.take_latencies();
        fleet.check().with_context(log)?;
        let skipped = fleet.counts().skipped.load(Relaxed);
        fleet.stop().await;
        running.process.stop()?;
        drop(self.bucket);
        drop(self.folder);
        Ok(Measured {
            agents,
            caught_up_after,
            before,
            after,
            latencies,
            skipped,
        })
    }
}

/// Waits until the flushes that queued while the fleet attached are acknowledged: half of a second's
/// acks come within a second of when their flush was due. Returns how long that took, or `None` after
/// [`ATTACH_MAX`].
async fn caught_up(fleet: &Fleet) -> Option<Duration> {
    const SECOND: Duration = Duration::from_secs(1);
    let begin = Instant::now();
    while begin.elapsed() < ATTACH_MAX {
        drop(fleet.take_latencies());
        tokio::time::sleep(SECOND).await;
        let since_due = fleet.take_latencies().since_due;
        if !since_due.is_empty() && since_due.value_at_quantile(0.5) < 1_000_000 {
            return Some(begin.elapsed());
        }
    }
    None
}

/// Counters at one moment.
struct Snapshot {
    at: Instant,
    acked: u64,
    pairs: u64,
    bytes: u64,
    collector: Usage,
    /// CPU time of the collector's sealing.
    sealing: Duration,
    own: Usage,
}

/// The collector's thread that writes tables.
const SEALING_THREAD: &str = "emberline-store";

impl Snapshot {
    fn new(fleet: &Fleet, running: &Running) -> Result<Snapshot> {
        let counts = fleet.counts();
        Ok(Snapshot {
            at: Instant::now(),
            acked: counts.acked.load(Relaxed),
            pairs: counts.pairs.load(Relaxed),
            bytes: counts.bytes.load(Relaxed),
            collector: running.process.usage()?,
            sealing: running.process.thread_cpu(SEALING_THREAD)?,
            own: Usage::own()?,
        })
    }
}

struct Measured {
    agents: usize,
    /// After the last one attached.
    caught_up_after: Option<Duration>,
    before: Snapshot,
    after: Snapshot,
    latencies: Latencies,
    skipped: u64,
}

impl Measured {
    fn seconds(&self) -> f64 {
        (self.after.at - self.before.at).as_secs_f64()
    }

    fn a_second(&self, of: impl Fn(&Snapshot) -> u64) -> f64 {
        (of(&self.after) - of(&self.before)) as f64 / self.seconds()
    }

    /// Cores that the collector and the generator used.
    fn processors(&self) -> (f64, f64) {
        let used = |of: fn(&Snapshot) -> Usage| {
            (of(&self.after).cpu - of(&self.before).cpu).as_secs_f64() / self.seconds()
        };
        (used(|counts| counts.collector), used(|counts| counts.own))
    }

    /// The bottleneck, so that a busy machine's figure is not read as the collector's limit.
    fn limit(&self) -> &'static str {
        match self.processors() {
            (collector, _) if collector > 0.9 => "the collector's core was the limit",
            (_, generator) if generator > 0.9 => "the generator was the limit",
            _ => "neither's processor was the limit: other work on the machine, or the disk",
        }
    }

    /// Microseconds of the collector's CPU time per flush, and the part that was sealing.
    fn cpu_a_flush_us(&self) -> (f64, f64) {
        let flushes = self.a_second(|counts| counts.acked);
        let sealing = (self.after.sealing - self.before.sealing).as_secs_f64() / self.seconds();
        (self.processors().0 / flushes * 1e6, sealing / flushes * 1e6)
    }

    fn saturated(&self, options: &Options, whose: &str, pairs: &str) -> String {
        let (collector, generator) = self.processors();
        let pairs_a_second = self.a_second(|counts| counts.pairs);
        let per_flush = pairs_a_second / self.a_second(|counts| counts.acked);
        let (cpu_us, sealing_us) = self.cpu_a_flush_us();
        format!(
            "| pairs a second and core of {whose}, {pairs} | ≥ 5 M | {:.2} M \
             ({:.2} M pairs in {:.0} k flushes of {per_flush:.0} a second, {:.1} MB; its {:.2} \
             cores, generator {:.2}; {} agents, {} in flight; ack p50 {}, p99 {}; {:.1} MB/s to disk; \
             memory {:.0} MB; {cpu_us:.1} µs of its time a flush, of which sealing into tables \
             {sealing_us:.1}: without that {:.2} M; {}) |",
            pairs_a_second / collector / 1e6,
            pairs_a_second / 1e6,
            self.a_second(|counts| counts.acked) / 1e3,
            self.a_second(|counts| counts.bytes) / 1e6,
            collector,
            generator,
            self.agents,
            options.in_flight,
            milliseconds(self.latencies.since_sent.value_at_quantile(0.5)),
            milliseconds(self.latencies.since_sent.value_at_quantile(0.99)),
            self.a_second(|counts| counts.collector.written_bytes) / 1e6,
            self.after.collector.memory_peak_bytes as f64 / 1e6,
            per_flush / (cpu_us - sealing_us),
            self.limit(),
        )
    }

    fn paced(&self, options: &Options, whose: &str) -> [String; 2] {
        let (collector, generator) = self.processors();
        let pairs_a_second = self.a_second(|counts| counts.pairs);
        let acked = self.a_second(|counts| counts.acked);
        let quantile =
            |quantile| milliseconds(self.latencies.since_sent.value_at_quantile(quantile));
        let since_due =
            |quantile| milliseconds(self.latencies.since_due.value_at_quantile(quantile));
        let (cpu_us, sealing_us) = self.cpu_a_flush_us();
        let caught_up = match self.caught_up_after {
            Some(after) => {
                format!(
                    "caught up {:.0} s after the last one attached",
                    after.as_secs_f64()
                )
            }
            None => "never caught up with what waited when they attached".to_owned(),
        };
        [
            format!(
                "| {} agents, one flush a second, of {whose}: ack p99 | ≤ 250 ms | p50 {}, p99 {}, most {}; \
                 {caught_up}; from when it was due, with what the generator was late: p50 {}, p99 {}; {acked:.0} \
                 flushes of {:.0} pairs a second, {} left out; {} agents a connection; collector \
                 {collector:.2} cores ({cpu_us:.0} µs a flush, of which sealing {sealing_us:.0}), generator {generator:.2}; {} |",
                self.agents,
                quantile(0.5),
                quantile(0.99),
                quantile(1.0),
                since_due(0.5),
                since_due(0.99),
                pairs_a_second / acked,
                self.skipped,
                options.agents_per_connection,
                self.limit(),
            ),
            format!(
                "| memory of {whose} under that load, at its peak; when measured | ≤ 512 MB | {:.0} MB; {:.0} MB |",
                self.after.collector.memory_peak_bytes as f64 / 1e6,
                self.after.collector.memory_bytes as f64 / 1e6,
            ),
        ]
    }
}

fn milliseconds(microseconds: u64) -> String {
    format!("{:.1} ms", microseconds as f64 / 1e3)
}
