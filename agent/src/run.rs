//! Named runs: periods by which the fleet's profiles are asked for.

use std::sync::atomic::{AtomicU64, Ordering};

use profiler_core::limits::bounded_name;
use profiler_core::{RunId, RunMarker};

use crate::records::{self, Told};
use crate::{clock, fork, wanted};

static NEXT_RUN: AtomicU64 = AtomicU64::new(1);

/// Gives this period a name, under which the collector finds it again: every question that takes a
/// range of time takes `--run nightly` in its place.
///
/// The period is the fleet's, not this process's: it says from when to when, and of other workers
/// too. While no agent runs this does nothing.
///
/// ```
/// let nightly = emberline_agent::mark_run("nightly");
/// // … the work …
/// drop(nightly);
/// ```
///
/// Not to be confused with [`diagnostics::run`](crate::diagnostics::run()), which tells this process's
/// own callbacks and progress bars what belongs together, and no collector.
pub fn mark_run(name: impl AsRef<str>) -> RunGuard {
    let run = wanted::by_agent().then(|| {
        let id = RunId(NEXT_RUN.fetch_add(1, Ordering::Relaxed));
        let name = bounded_name(name.as_ref()).into();
        Box::new(RunMarker { id, name, start: clock::now(), stop: None })
    });
    if let Some(run) = &run {
        records::tell(Told::Run(run.clone()));
    }
    RunGuard { run, generation: fork::generation() }
}

/// A named period that goes on until this is dropped, on whichever thread. If the agent or the process
/// ends first, the collector ends it where it heard of this worker last, and says that its end was
/// lost.
#[derive(Debug)]
#[must_use = "the run ends when this guard is dropped"]
pub struct RunGuard {
    run: Option<Box<RunMarker>>,
    /// How many forks away the process was; a child does not end its parent's run.
    generation: usize,
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        let Some(mut run) = self.run.take() else { return };
        if self.generation == fork::generation() && wanted::by_agent() {
            run.stop = Some(clock::now());
            records::tell(Told::Run(run));
        }
    }
}
