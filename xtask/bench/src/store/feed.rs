//! Fills the store as agents do: back-dated cycles of agents that were disconnected.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use simulation::agent::{Agent, Setup, Time};
use simulation::capture::Capture;
use simulation::fleet::{Count, Fleet, Pace, Plan};
use simulation::pattern::{Busyness, Pattern};
use simulation::process::Running;
use simulation::program::{Program, Shape};
use simulation::random::Random;
use simulation::record::{Detail, Record};

/// Limit on waiting until a feed is acknowledged.
const FEED_MAX: Duration = Duration::from_secs(300);
/// Few enough that an agent's own ids stay in order, many enough that syncs are shared.
const IN_FLIGHT: usize = 16;

/// A label of each worker.
pub(crate) const ZONE: &str = "zone";
const ZONES: usize = 10;

/// The value of the label [`ZONE`] of a worker.
pub(crate) fn zone(worker: usize) -> String {
    format!("zone-{}", worker % ZONES)
}

/// A label that few workers share: ten of 100,000.
pub(crate) const TEAM: &str = "team";
const TEAMS: usize = 10_000;

/// The value of the label [`TEAM`] of a worker.
pub(crate) fn team(worker: usize) -> String {
    format!("team-{}", worker % TEAMS)
}

/// The end of the last whole hour, in seconds since the Unix epoch.
pub(crate) fn last_whole_hour() -> i64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    i64::try_from(now / 3_600 * 3_600).unwrap_or(0)
}

/// Some workers over some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feed<'a> {
    /// Prefix of the workers' names.
    pub(crate) name: &'static str,
    /// Number of the first worker.
    pub(crate) first: usize,
    pub(crate) workers: usize,
    /// Workers that share a connection.
    pub(crate) workers_per_connection: usize,
    /// Where the last step ends, in seconds since the Unix epoch.
    pub(crate) to: i64,
    /// Seconds from one burst of cycles to the next, and its number of cycles, a second apart.
    pub(crate) step_s: i64,
    pub(crate) burst: i64,
    pub(crate) steps: i64,
    pub(crate) contents: Contents<'a>,
    /// How much the agents' records keep.
    pub(crate) detail: Detail,
}

/// Contents of the workers' cycles.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Contents<'a> {
    /// Drawn from a seed.
    Synthetic {
        tasks: usize,
        stacks_per_task: usize,
        busyness: Busyness,
    },
    /// Those of a real fleet.
    Captured(&'a Capture),
}

/// The result of a feed.
#[derive(Clone, Debug)]
pub(crate) struct Fed {
    /// Seconds since the Unix epoch: the first, and the first after it.
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) flushes: u64,
    pub(crate) pairs: u64,
    pub(crate) took: Duration,
    /// Strings, frames and nodes of the program.
    pub(crate) nodes: usize,
    /// Records of the data that each agent sent.
    pub(crate) records: Vec<Record>,
}

impl Feed<'_> {
    /// Sends all cycles and waits for the acks.
    pub(crate) async fn run(&self, running: &Running, seed: u64) -> Result<Fed> {
        let mut random = Random(seed);
        let (program, pattern) = self.contents.draw(&mut random);
        let program = Arc::new(program);
        let pattern = Arc::new(pattern);
        let to = self.to;
        let from = to - self.step_s * (self.steps / self.burst);
        let agent = |index: usize| {
            let first_ns = from * 1_000_000_000 + 1_000_000 * i64::try_from(index % 900)?;
            let Feed {
                step_s,
                burst,
                steps,
                ..
            } = *self;
            let time = Time {
                first_ns,
                step_s,
                burst,
                steps,
                offset_ns: 0,
            };
            let setup = Setup {
                worker: format!("{}-{index}", self.name),
                labels: [
                    (ZONE.to_owned(), zone(index)),
                    (TEAM.to_owned(), team(index)),
                ]
                .into(),
                program: program.clone(),
                pattern: pattern.clone(),
                time,
                detail: self.detail,
            };
            anyhow::Ok(Agent::new(setup, random.fork(index)))
        };
        let agents = (self.first..self.first + self.workers)
            .map(agent)
            .collect::<Result<Vec<_>>>()?;
        let begin = Instant::now();
        let flushes_max = self.steps.unsigned_abs();
        let pace = Pace::AsFast {
            in_flight: IN_FLIGHT,
        };
        let plan = Plan {
            pace,
            agents_per_connection: self.workers_per_connection,
            new_life: 0.0,
            flushes_max,
        };
        let fleet = Fleet::start(agents, plan, &random);
        fleet.set_collector(running.address);
        let flushes = flushes_max * self.workers as u64;
        fleet
            .reach(Count::HeldFlushes(flushes), FEED_MAX)
            .await
            .with_context(|| format!("the collector's log ends:\n{}", running.process.log()))?;
        let pairs = fleet.counts().pairs.load(Relaxed);
        let records = fleet.records();
        fleet.stop().await;
        let nodes = program.node_count();
        Ok(Fed {
            from,
            to,
            flushes,
            pairs,
            took: begin.elapsed(),
            nodes,
            records,
        })
    }
}

impl Contents<'_> {
    fn draw(&self, random: &mut Random) -> (Program, Pattern) {
        match *self {
            Contents::Synthetic {
                tasks,
                stacks_per_task,
                busyness,
            } => {
                let shape = Shape {
                    tasks,
                    stacks_per_task,
                    idle: 14,
                    depths: 10..=30,
                };
                let program = Program::generate(shape, random);
                let pattern = Pattern::new(&program, busyness, random);
                (program, pattern)
            }
            Contents::Captured(capture) => (capture.program.clone(), capture.pattern()),
        }
    }
}
