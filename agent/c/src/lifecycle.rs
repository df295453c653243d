//! The agent of this process: its start, its flushes and its end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use agent::{Agent, AgentBuilder, ShipReport, StartError};

use crate::call::{Failure, Status};
use crate::objects::{GENERATIONS, generation};

/// By generation, because the lock may be taken by a thread that a forked child does not have.
static AGENTS: [RwLock<Option<Agent>>; GENERATIONS] = [const { RwLock::new(None) }; GENERATIONS];

/// One more than the generation of the process whose agent runs; 0 before the first start and after a stop.
static RUNNING_IN: AtomicUsize = AtomicUsize::new(0);

/// Whether an agent runs that [`start`] has started: one load in each call.
pub(crate) fn is_running() -> bool {
    RUNNING_IN.load(Ordering::Acquire) == generation() + 1
}

/// # Errors
/// If no agent runs.
pub(crate) fn check_running() -> Result<(), Failure> {
    is_running().then_some(()).ok_or_else(Failure::not_running)
}

/// Starts the agent of this process.
///
/// # Errors
/// If another one runs, also one of another library, or if a setting is invalid.
pub(crate) fn start(builder: AgentBuilder) -> Result<(), Failure> {
    let mut running = AGENTS[generation()]
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    let started = builder.start().map_err(|error: StartError| {
        let status = match error {
            StartError::AlreadyRunning => Status::AlreadyRunning,
            StartError::Spawn { .. }
            | StartError::AddressSpace { .. }
            | StartError::Clock { .. }
            | StartError::Panicked => Status::StartFailed,
            _ => Status::InvalidArgument,
        };
        Failure::new(status, error)
    })?;
    *running = Some(started);
    RUNNING_IN.store(generation() + 1, Ordering::Release);
    Ok(())
}

/// Waits until the collector has everything that was recorded before.
///
/// # Errors
/// If no agent runs, or if the collector has not answered in time.
pub(crate) fn flush(limit: Duration) -> Result<(), Failure> {
    let running = AGENTS[generation()]
        .read()
        .unwrap_or_else(PoisonError::into_inner);
    let agent = running.as_ref().ok_or_else(Failure::not_running)?;
    if agent.flush(limit) {
        return Ok(());
    }
    Err(unanswered(limit, agent.report()))
}

/// Ends the agent and waits for its last flush. Does nothing if no agent runs.
///
/// # Errors
/// If the collector has not answered in time.
pub(crate) fn stop() -> Result<(), Failure> {
    let stopped = AGENTS[generation()]
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some(agent) = stopped else {
        return Ok(());
    };
    RUNNING_IN.store(0, Ordering::Release);
    let report = agent.finish();
    if report.unacked_ns == 0 {
        return Ok(());
    }
    let text = format!(
        "the agent has ended, and {} ms of thread time did not reach the collector",
        report.unacked_ns / 1_000_000
    );
    Err(Failure::new(Status::Timeout, text))
}

fn unanswered(limit: Duration, report: ShipReport) -> Failure {
    let collector = if report.connected {
        "the collector has not answered"
    } else {
        "no collector is connected"
    };
    let text = format!("{collector} within {} s", limit.as_secs_f64());
    Failure::new(Status::Timeout, text)
}

/// How much of this process the sampler can see; `stopped` if no agent runs.
pub(crate) fn mode() -> String {
    let running = AGENTS[generation()]
        .read()
        .unwrap_or_else(PoisonError::into_inner);
    let mode = running.as_ref().map(Agent::mode);
    mode.map_or_else(|| "stopped".to_owned(), |mode| mode.to_string())
}
