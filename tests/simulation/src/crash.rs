//! Kills a real collector under load at instants drawn from a seed, restarts it on the same
//! directory, and compares it with the fleet's record.
//!
//! Instants are counted, not timed: after a number of acks, flushes sent or bytes written by the
//! collector, or while it starts and replays.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail};
use tokio::time::{Instant as Deadline, sleep};

use crate::agent::{Agent, Setup, Time, default_labels};
use crate::api::Api;
use crate::audit::Audit;
use crate::fleet::{Count, Fleet, Pace, Plan};
use crate::pattern::{Busyness, Pattern};
use crate::process::{Running, Serve, folder_bytes};
use crate::program::{Program, Shape};
use crate::random::Random;
use crate::record::{Detail, Record};

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `emberline` binary.
    pub program: PathBuf,
    /// Number of kills.
    pub cycles: u32,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// Number of simulated workers.
    pub agents: usize,
    /// Data directory of the collector; `None`: a temporary one, deleted on success.
    pub data: Option<PathBuf>,
    /// A store elsewhere that has all acknowledged data: the data directory is deleted at each kill.
    pub store: Option<StoreTarget>,
    /// All agents sample the last ten minutes, which is all that a collector without tables keeps.
    pub recent: bool,
    /// Falsifies the record, to show that the oracle detects it.
    pub tamper: Option<Tamper>,
    /// Called now and then with the progress.
    pub tell: fn(&str),
}

impl Options {
    /// Number of agents of the short form.
    #[must_use]
    pub fn new(program: &Path, cycles: u32, seed: u64) -> Options {
        Options {
            program: program.into(),
            cycles,
            seed,
            agents: 12,
            data: None,
            store: None,
            recent: false,
            tamper: None,
            tell: |_| {},
        }
    }
}

/// A store in a bucket.
#[derive(Clone, Debug)]
pub struct StoreTarget {
    /// `--store` and its value, and others.
    pub arguments: Vec<String>,
    /// Variables with credentials and the endpoint.
    pub environment: Vec<(String, String)>,
}

/// The arguments of a collector that acknowledges what is in `store`, and that replaces a killed one at once.
#[must_use]
pub fn store_arguments(store: &str, name: &str) -> Vec<String> {
    [
        "--store",
        store,
        "--name",
        name,
        "--ack",
        "store",
        "--owner-watch",
        "300ms",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// A falsification of the record, as if the collector had done the opposite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tamper {
    /// Adds an acknowledged flush to the record, as if the collector had lost it.
    Lost,
    /// Removes a flush from the record, as if the collector had counted it twice.
    Twice,
    /// Moves weight to another stack.
    Moved,
    /// Moves weight a second earlier.
    Earlier,
    /// Removes a task from the record.
    Task,
}

/// Time limit of the whole, far above any single step.
const PATIENCE: Duration = Duration::from_secs(60);
/// Kills between two audits: at least this many, and at least this fraction of all kills so far. An
/// audit reads the whole history, so auditing at a fixed interval would take quadratic time.
const AUDIT_EVERY: u32 = 50;
const AUDIT_PARTS: u32 = 10;
/// Interval between two looks at the bytes that the collector wrote.
const POLL_EVERY: Duration = Duration::from_millis(1);
const SECOND_NS: i64 = 1_000_000_000;
/// Ages of the sampled seconds: a quarter of the fleet samples now, the others late, some by more
/// than a day.
const AGO_S: [i64; 4] = [RECENT_S + 60, 26 * 3_600, 50 * 3_600, 98 * 3_600];
/// Seconds that each agent samples over and over: two hours, or what a collector without tables
/// keeps.
const STEPS: i64 = 7_200;
const RECENT_S: i64 = 600;
/// Acks between the last start and the last audit.
const LAST_ACKS: u64 = 200;

/// When to kill.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Acks(u64),
    Sends(u64),
    /// After this many bytes once it listens.
    Written(u64),
    /// After this many bytes before it listens.
    Starting(u64),
}

impl Moment {
    fn draw(random: &mut Random) -> Moment {
        match random.below(10) {
            0..=3 => Moment::Acks(random.between(1, 120) as u64),
            4..=5 => Moment::Sends(random.between(1, 160) as u64),
            6..=8 => Moment::Written(random.between(1, 128 << 10) as u64),
            _ => Moment::Starting(random.below(16 << 10) as u64),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Moment::Acks(_) => "after acks",
            Moment::Sends(_) => "after sends",
            Moment::Written(_) => "after bytes",
            Moment::Starting(_) => "while it starts",
        }
    }
}

/// Result of a run; prints as a line of the benchmarks.
#[derive(Debug)]
pub struct Report {
    seed: u64,
    agents: usize,
    kills: BTreeMap<&'static str, u32>,
    audits: u32,
    lives: usize,
    acked: u64,
    pairs: u64,
    held_unacked: u64,
    abandoned: u64,
    starts: Vec<Duration>,
    stop: Duration,
    data_bytes: u64,
    took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kills: u32 = self.kills.values().sum();
        write!(f, "{kills} kills (seed {}):", self.seed)?;
        for (moment, count) in &self.kills {
            write!(f, " {count} {moment},")?;
        }
        writeln!(
            f,
            " {:.0} s. {} workers in {} lives; {} cycles acked, {} pairs; 0 acked cycles lost, 0 \
             counted twice, in {} audits of every stack, second and task. {} cycles were held \
             though their ack was lost; {} more went with their worker.",
            self.took.as_secs_f64(),
            self.agents,
            self.lives,
            self.acked,
            self.pairs,
            self.audits,
            self.held_unacked,
            self.abandoned,
        )?;
        let mut starts = self.starts.clone();
        starts.sort_unstable();
        let milliseconds = |at: usize| starts.get(at).map_or(0, Duration::as_millis);
        write!(
            f,
            "From start to listening: median {} ms, most {} ms; clean shutdown {} ms; {:.1} MB of data.",
            milliseconds(starts.len() / 2),
            milliseconds(starts.len().saturating_sub(1)),
            self.stop.as_millis(),
            self.data_bytes as f64 / 1e6,
        )
    }
}

/// Runs it.
///
/// # Errors
/// At the first broken promise, with the path of the data directory.
pub fn run(options: &Options) -> Result<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the fleet's threads")?;
    let folder = tempfile::Builder::new()
        .prefix("emberline-crash-")
        .tempdir()?;
    let data = options
        .data
        .clone()
        .unwrap_or_else(|| folder.path().join("data"));
    let entered = runtime.enter();
    let harness = Harness::new(options, data)?;
    drop(entered);
    runtime.block_on(harness.run()).map_err(|error| {
        if options.tamper.is_some() {
            return error;
        }
        let kept = options.data.clone().unwrap_or_else(|| folder.keep());
        error.context(format!(
            "seed {}; the collector's data is in {}",
            options.seed,
            kept.display()
        ))
    })
}

struct Harness<'a> {
    options: &'a Options,
    serve: Serve,
    data: PathBuf,
    random: Random,
    program: Arc<Program>,
    fleet: Fleet,
    begin: Instant,
    /// All sampled seconds.
    span: Range<i64>,
    /// First sampled seconds of the agents.
    firsts: Vec<i64>,
    kills: BTreeMap<&'static str, u32>,
    audits: u32,
    starts: Vec<Duration>,
}

impl Harness<'_> {
    /// Must be called on a runtime.
    fn new(options: &Options, data: PathBuf) -> Result<Harness<'_>> {
        let mut serve = Serve::new(&options.program);
        let path = data
            .to_str()
            .context("the directory's path is not UTF-8")?
            .to_owned();
        let has_data = serve.takes(&["--data", &path])?;
        if has_data {
            serve.arguments.extend(["--data".to_owned(), path]);
        } else if options.cycles > 0 {
            bail!("this `emberline serve` has no --data: a kill loses everything");
        }
        if let Some(store) = &options.store {
            serve.arguments.extend_from_slice(&store.arguments);
            serve.environment.extend_from_slice(&store.environment);
        }
        // So that sealing and compaction are among the interrupted operations.
        for every in ["100ms", "1s"] {
            if serve.takes(&["--seal-every", every])? {
                serve
                    .arguments
                    .extend(["--seal-every".to_owned(), every.to_owned()]);
                break;
            }
        }
        let mut random = Random(options.seed);
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)?
            .as_secs();
        let now = i64::try_from(now)?;
        let is_recent = options.recent || !has_data;
        let firsts: Vec<i64> = (0..options.agents)
            .map(|index: usize| {
                if is_recent {
                    now - AGO_S[0]
                } else {
                    now - AGO_S[index % AGO_S.len()]
                }
            })
            .collect();
        let (program, agents) = agents(&firsts, now, &mut random);
        let pace = Pace::AsFast { in_flight: 4 };
        let plan = Plan {
            pace,
            agents_per_connection: 4,
            new_life: 0.02,
            flushes_max: u64::MAX,
        };
        let start = firsts
            .iter()
            .min()
            .copied()
            .context("a fleet needs an agent")?;
        Ok(Harness {
            fleet: Fleet::start(agents, plan, &random),
            options,
            serve,
            data,
            random,
            program,
            begin: Instant::now(),
            span: start..now + 60,
            firsts,
            kills: BTreeMap::new(),
            audits: 0,
            starts: Vec::new(),
        })
    }

    async fn run(mut self) -> Result<Report> {
        let mut audit_at = AUDIT_EVERY;
        for cycle in 1..=self.options.cycles {
            let moment = Moment::draw(&mut self.random);
            self.life(moment)
                .await
                .with_context(|| format!("kill {cycle}, {moment:?}"))?;
            *self.kills.entry(moment.name()).or_default() += 1;
            if cycle == audit_at && cycle < self.options.cycles {
                audit_at += AUDIT_EVERY.max(cycle / AUDIT_PARTS);
                let running = self.start()?;
                self.audit(&running)
                    .await
                    .with_context(|| format!("after kill {cycle}"))?;
                self.fleet.unset_collector();
                running.process.kill()?;
                (self.options.tell)(&self.progress(cycle));
            }
        }
        let running = self.start()?;
        self.fleet.resume();
        self.fleet.reach(Count::Acks(LAST_ACKS), PATIENCE).await?;
        self.audit(&running).await.context("the last life")?;
        self.fleet.unset_collector();
        let mut stop = running.process.stop()?;
        // After a clean shutdown, queries read tables only.
        if self.serve.arguments.contains(&"--data".to_owned()) {
            let running = self.start()?;
            self.audit(&running).await.context("after an ordered end")?;
            self.fleet.unset_collector();
            stop = stop.max(running.process.stop()?);
        }
        self.report(stop).await
    }

    /// Progress line; starts with the number of lost or doubly counted cycles.
    fn progress(&self, kills: u32) -> String {
        format!(
            "{kills} kills of {}: {} cycles acked, 0 lost, 0 counted twice in {} audits, {:.0} s",
            self.options.cycles,
            self.fleet.counts().acked.load(Relaxed),
            self.audits,
            self.begin.elapsed().as_secs_f64(),
        )
    }

    /// One life of the collector, until its kill.
    async fn life(&mut self, moment: Moment) -> Result<()> {
        if let Moment::Starting(bytes) = moment {
            let process = self.serve.spawn()?;
            // Once it listens, it is no longer starting.
            wait_until(|| process.written_bytes() >= bytes || process.listens()).await?;
            process.kill()?;
            return self.lose_machine();
        }
        let running = self.start()?;
        let before = running.process.written_bytes();
        self.fleet.resume();
        let reached = match moment {
            Moment::Acks(count) => self.fleet.reach(Count::Acks(count), PATIENCE).await,
            Moment::Sends(count) => self.fleet.reach(Count::Sends(count), PATIENCE).await,
            Moment::Written(bytes) | Moment::Starting(bytes) => {
                wait_until(|| running.process.written_bytes() >= before + bytes).await?;
                self.fleet.check()
            }
        };
        reached.with_context(|| format!("the collector's log ends:\n{}", running.process.log()))?;
        running.process.kill()?;
        self.fleet.unset_collector();
        self.lose_machine()
    }

    /// Deletes what was on the collector's disk, if the store is elsewhere.
    fn lose_machine(&self) -> Result<()> {
        if self.options.store.is_some() && self.data.exists() {
            std::fs::remove_dir_all(&self.data)?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<Running> {
        let running = self.serve.start()?;
        self.starts.push(running.took);
        self.fleet.set_collector(running.address);
        Ok(running)
    }

    /// Brings the fleet to rest and audits everything.
    async fn audit(&mut self, running: &Running) -> Result<()> {
        let log = || format!("the collector's log ends:\n{}", running.process.log());
        self.fleet.drain(PATIENCE).await.with_context(log)?;
        let mut records = self.fleet.records();
        if let Some(tamper) = self.options.tamper {
            tamper.apply(&mut records)?;
        }
        // One hour of each quarter of the fleet, starting at a second that begins no period of a
        // tier.
        let from = self.random.below(300);
        let from = i64::try_from(from)?;
        let quarters = self.firsts.iter().take(AGO_S.len());
        let closer: Vec<_> = quarters
            .map(|first| first + from..first + from + 3_600)
            .collect();
        let api = Api::new(running.address);
        let program = self.program.clone();
        let span = self.span.clone();
        let violations = tokio::task::spawn_blocking(move || {
            Audit::run(&api, &program, &records, span, &closer)
        })
        .await?
        .with_context(log)?;
        self.fleet.check()?;
        self.audits += 1;
        match violations.first() {
            None => Ok(()),
            Some(first) => bail!("{} wrong answers, the first: {first}", violations.len()),
        }
    }

    async fn report(self, stop: Duration) -> Result<Report> {
        let counts = self.fleet.counts();
        let report = Report {
            seed: self.options.seed,
            agents: self.options.agents,
            lives: self
                .fleet
                .records()
                .iter()
                .map(|record| record.lives.len())
                .sum(),
            acked: counts.acked.load(Relaxed),
            pairs: counts.pairs.load(Relaxed),
            held_unacked: counts.held_unacked.load(Relaxed),
            abandoned: counts.abandoned.load(Relaxed),
            kills: self.kills,
            audits: self.audits,
            starts: self.starts,
            stop,
            data_bytes: folder_bytes(&self.data).unwrap_or(0),
            took: self.begin.elapsed(),
        };
        self.fleet.stop().await;
        Ok(report)
    }
}

/// A program, and an agent for each first second. Their clocks are up to half an hour off.
fn agents(firsts: &[i64], now: i64, random: &mut Random) -> (Arc<Program>, Vec<Agent>) {
    let shape = Shape {
        tasks: 12,
        stacks_per_task: 60,
        idle: 8,
        depths: 10..=30,
    };
    let program = Arc::new(Program::generate(shape, random));
    let pattern = Arc::new(Pattern::new(&program, Busyness::default(), random));
    let agent = |(index, first): (usize, &i64)| {
        let mut random = random.fork(index);
        let skew_s = i64::try_from(random.below(3_600)).expect("it is below an hour") - 1_800;
        let time = Time {
            first_ns: first * SECOND_NS + 137_000_000,
            step_s: 1,
            burst: 1,
            steps: STEPS.min(now - first - 60),
            offset_ns: skew_s * SECOND_NS,
        };
        let setup = Setup {
            worker: format!("worker-{index}"),
            labels: default_labels(),
            program: program.clone(),
            pattern: pattern.clone(),
            time,
            detail: Detail::Full,
        };
        Agent::new(setup, random)
    };
    let agents = firsts.iter().enumerate().map(agent).collect();
    (program, agents)
}

/// Polls, because another process's writes send no notification.
async fn wait_until(mut is_so: impl FnMut() -> bool) -> Result<()> {
    let until = Deadline::now() + PATIENCE;
    while !is_so() {
        if Deadline::now() > until {
            bail!("the collector wrote too little within {PATIENCE:?}");
        }
        sleep(POLL_EVERY).await;
    }
    Ok(())
}

impl Tamper {
    fn apply(self, records: &mut [Record]) -> Result<()> {
        let life = records
            .iter_mut()
            .flat_map(|record| &mut record.lives)
            .next();
        let sums = &mut life.context("a fleet has lives")?.settled;
        let (&key, &weight_ns) = sums
            .by_second
            .first_key_value()
            .context("nothing was acked")?;
        let (second, top, state) = key;
        match self {
            // More in the record than is held, or less.
            Tamper::Lost => sums.total_ns += weight_ns,
            Tamper::Twice => sums.total_ns -= weight_ns,
            Tamper::Moved => {
                let node = *sums.by_node.keys().next().context("nothing was acked")?;
                let moved = sums.by_node.remove(&node).unwrap_or(0);
                *sums.by_node.entry(top).or_default() += moved;
            }
            Tamper::Earlier => {
                sums.by_second.remove(&key);
                *sums.by_second.entry((second + 1, top, state)).or_default() += weight_ns;
            }
            Tamper::Task => drop(sums.tasks.pop_first()),
        }
        Ok(())
    }
}
