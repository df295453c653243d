//! Data of pushed profiles.

use profiler_core::wire::Translation;
use profiler_core::{Epoch, WorkerId};

use super::{Ingest, ReceivedFlush};
use crate::session::{FlushBasis, FlushChecker, FlushError, Retained};

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
            kept: self.kept(&worker),
            tasks_max: self.state.limits.flush_tasks_max,
        };
        checker.check(&received.flush).map(|_| ())
    }

    /// How long data of a worker is kept: that of agents has rows of tasks, profiles have only time.
    pub(super) fn kept(&self, worker: &WorkerId) -> Retained {
        let of_agents = worker.has_agent().then_some(Retained {
            option: "--retention-tasks",
            time: self.retention.tasks,
        });
        let others = [
            Some(Retained {
                option: "--retention-seconds",
                time: self.retention.seconds,
            }),
            of_agents,
        ];
        let rollups = Retained {
            option: "--retention-rollups",
            time: self.retention.rollups,
        };
        others
            .into_iter()
            .flatten()
            .fold(rollups, Retained::longest)
    }
}
