//! Data of pushed and imported profiles.

use std::time::Duration;

use profiler_core::wire::Translation;
use profiler_core::{Epoch, WorkerId};

use super::{Ingest, ReceivedFlush};
use crate::session::{FlushBasis, FlushChecker, FlushError};
use base::limits::BEHIND_MAX;

impl Ingest {
    /// Checks a flush of a worker that has no session yet, so that a push which is refused leaves none behind.
    ///
    /// # Errors
    /// As for a flush of an agent.
    pub(crate) fn check_first(
        &self,
        worker: &str,
        translation: &Translation,
        received: &ReceivedFlush,
    ) -> Result<(), FlushError> {
        let worker = WorkerId(worker.into());
        let checker = FlushChecker {
            worker: &worker,
            epoch: Epoch(0),
            basis: &FlushBasis::default(),
            translation,
            tree: &self.state.tree,
            now: received.at,
            behind_max: self.behind_max(&worker),
            tasks_max: self.state.limits.flush_tasks_max,
        };
        checker.check(&received.flush).map(|_| ())
    }

    /// How old data of a worker may be.
    pub(super) fn behind_max(&self, worker: &WorkerId) -> Duration {
        if worker.is_import() {
            self.imports_behind_max
        } else {
            BEHIND_MAX
        }
    }
}
