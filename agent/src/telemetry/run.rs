//! Named runs: periods by which the fleet's profiles are selected.

use std::sync::atomic::{AtomicU64, Ordering};

use profiler_core::limits::bounded_name;
use profiler_core::{RunId, RunMarker};

use crate::telemetry::{self, TelemetryEvent};
use crate::{clock, fork, wanted};

static NEXT_RUN: AtomicU64 = AtomicU64::new(1);

/// A number that changes with each run that starts.
pub(crate) fn next_id() -> u64 {
    NEXT_RUN.load(Ordering::Relaxed)
}

/// Names the period until the guard is dropped. Every query that takes a time range accepts the name
/// instead, for example `--run nightly`.
///
/// The period selects the data of the whole fleet, not only of this process. While no agent runs
/// this does nothing.
///
/// ```
/// let nightly = emberline_agent::mark_run("nightly");
/// // … the work …
/// drop(nightly);
/// ```
///
/// `emberline_diagnostics::run` is something else: it groups the tasks of this process for its own callbacks
/// and progress bars, without a collector.
pub fn mark_run(name: impl AsRef<str>) -> RunGuard {
    let run = wanted::by_agent().then(|| {
        let id = RunId(NEXT_RUN.fetch_add(1, Ordering::Relaxed));
        let name = bounded_name(name.as_ref()).into();
        Box::new(RunMarker {
            id,
            name,
            start: clock::now(),
            stop: None,
        })
    });
    if let Some(run) = &run {
        telemetry::record(TelemetryEvent::Run(run.clone()));
    }
    RunGuard {
        run,
        generation: fork::generation(),
    }
}

/// A named run, which ends when this is dropped, on any thread.
///
/// If the agent or the process ends first, the collector ends the run when it last heard from this
/// worker, and marks its end as lost.
#[derive(Debug)]
#[must_use = "the run ends when this guard is dropped"]
pub struct RunGuard {
    run: Option<Box<RunMarker>>,
    /// The [`fork::generation`] in which it started: a child does not end its parent's run.
    generation: usize,
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        let Some(mut run) = self.run.take() else {
            return;
        };
        if self.generation == fork::generation() && wanted::by_agent() {
            run.stop = Some(clock::now());
            telemetry::record(TelemetryEvent::Run(run));
        }
    }
}
