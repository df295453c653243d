//! The memory of agents' sessions: each agent meets the stacks of one program in its own order.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use simulation::agent::Agent;
use simulation::fleet::{Fleet, Pace, Plan};
use simulation::pattern::{Busyness, Pattern};
use simulation::process::Usage;
use simulation::program::{Program, Shape};
use simulation::random::Random;

use super::{Options, serve};
use crate::ingest::{raise_file_limit, setup};

/// Agents that share a connection, so that memory of connections does not count.
const AGENTS_PER_CONNECTION: usize = 50;

/// Longest wait for all acknowledgments.
const ACKS_MAX: Duration = Duration::from_secs(3_600);

/// Resources of a collector that has taken all flushes of so many agents.
pub(super) fn measure(emberline: &Path, options: &Options, agents: usize) -> Result<Usage> {
    raise_file_limit(agents as u64 + 1_000)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(taken(emberline, options, agents))
}

async fn taken(emberline: &Path, options: &Options, agents: usize) -> Result<Usage> {
    let mut random = Random(options.seed);
    let shape = Shape {
        tasks: 10,
        stacks_per_task: 500,
        idle: 8,
        depths: 10..=30,
    };
    let program = Arc::new(Program::generate(shape, &mut random));
    let busyness = Busyness {
        samples: 700,
        slots: 9,
        ..Busyness::default()
    };
    let pattern = Arc::new(Pattern::new(&program, busyness, &mut random));
    let made = (0..agents)
        .map(|index| {
            let setup = setup(index, &program, &pattern)?;
            Ok(Agent::new(setup, random.fork(index)))
        })
        .collect::<Result<Vec<Agent>>>()?;
    let plan = Plan {
        pace: Pace::AsFast { in_flight: 2 },
        agents_per_connection: AGENTS_PER_CONNECTION,
        new_life: 0.0,
        flushes_max: options.flushes.into(),
    };
    let fleet = Fleet::start(made, plan, &random);
    let folder = tempfile::Builder::new()
        .prefix("emberline-bench-")
        .tempdir()?;
    let running = serve(emberline, folder.path())?.start()?;
    fleet.set_collector(running.address);
    let log = || format!("the collector's log ends:\n{}", running.process.log());
    let flushes = agents as u64 * u64::from(options.flushes);
    let begin = Instant::now();
    while fleet.counts().acked.load(Relaxed) < flushes {
        fleet.check().with_context(log)?;
        ensure!(begin.elapsed() < ACKS_MAX, "no acknowledgments; {}", log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let usage = running.process.usage()?;
    fleet.stop().await;
    running.process.stop()?;
    Ok(usage)
}
