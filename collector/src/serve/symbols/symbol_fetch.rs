//! Fetches the symbols of a build from one of the agents that run it.

use std::sync::Arc;

use profiler_core::limits::bounded;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::audit;
use base::limits::{FIND_SYMBOLS_EVERY, SYMBOL_AGENTS_MAX, SYMBOL_PIECE_WAIT_MAX};
use naming::AgentPiece;
use state::Collector;
use state::session::SessionCell;

/// Longest reason of an agent that is shown, in bytes.
const REASON_BYTES_MAX: usize = 200;

/// Fetches what is queued, one build at a time, until the collector stops.
pub(crate) async fn fetch_symbols(collector: Arc<Collector>, mut stopping: watch::Receiver<bool>) {
    let mut ticks = interval(FIND_SYMBOLS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopping.changed() => return,
        }
        let Some(build) = collector.state.naming.next_fetch() else {
            continue;
        };
        let result = tokio::select! {
            result = fetch(&collector, &build) => result,
            // A partly received file is continued after the next start.
            _ = stopping.changed() => return,
        };
        if let Err(reason) = &result {
            tracing::warn!(build, reason, "symbols were not fetched from an agent");
        }
        collector.state.naming.end_fetch(&build, result);
    }
}

/// Fetches from one agent after the other. The error is for people.
async fn fetch(collector: &Arc<Collector>, build: &str) -> Result<(), String> {
    let mut failure = "no connected worker has functions of it in its stacks".to_owned();
    let agents = collector.ingest.agents_with_build(build);
    for cell in agents.into_iter().take(SYMBOL_AGENTS_MAX) {
        let worker = &cell.worker.0;
        match fetch_from(collector, build, &cell).await {
            Ok(()) => {
                let store = {
                    let collector = collector.clone();
                    let build = build.to_owned();
                    move || collector.state.naming.store_fetched(&build)
                };
                let stored = spawn_blocking(store)
                    .await
                    .map_err(|error| error.to_string())?;
                stored.map_err(|reason| format!("what worker {worker} sent: {reason}"))?;
                audit::symbols_fetched(worker, build);
                return Ok(());
            }
            Err(reason) => failure = format!("worker {worker}: {reason}"),
        }
    }
    Err(failure)
}

/// Fetches the pieces that are missing, each when the one before it is written. The agent decides how
/// fast that is.
async fn fetch_from(
    collector: &Arc<Collector>,
    build: &str,
    cell: &Arc<SessionCell>,
) -> Result<(), String> {
    let naming = &collector.state.naming;
    loop {
        let offset = naming
            .fetched_bytes(build)
            .map_err(|error| error.to_string())?;
        let answer = collector
            .ingest
            .request_symbols(cell, build, offset)
            .ok_or("it is not connected any more")?;
        let piece = timeout(SYMBOL_PIECE_WAIT_MAX, answer)
            .await
            .map_err(|_| format!("no answer within {SYMBOL_PIECE_WAIT_MAX:?}"))?
            .map_err(|_| "it disconnected".to_owned())?;
        if !piece.unavailable.is_empty() {
            return Err(bounded(&piece.unavailable, REASON_BYTES_MAX).into_owned());
        }
        let add = {
            let collector = collector.clone();
            let build = build.to_owned();
            let worker = cell.worker.clone();
            move || {
                collector.state.naming.add_fetched(&AgentPiece {
                    build_id: &build,
                    worker: &worker.0,
                    offset,
                    bytes: piece.bytes,
                    content: &piece.content,
                })
            }
        };
        let added = spawn_blocking(add)
            .await
            .map_err(|error| error.to_string())?;
        if added.map_err(|error| error.to_string())? {
            return Ok(());
        }
    }
}
