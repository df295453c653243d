//! Named runs.

use std::fmt;

use profiler_core::{Epoch, RunId, RunMarker, TimeRange, Timestamp, WorkerId};

/// A run and who marked it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunRow {
    /// `None` for a run marked through the API; `epoch` is 0 then.
    pub worker: Option<WorkerId>,
    pub epoch: Epoch,
    pub run: RunMarker,
    /// When the worker was last seen, if it is gone and did not end the run.
    pub lost_at: Option<Timestamp>,
}

impl RunRow {
    /// A run as it was marked.
    pub fn marked(worker: Option<WorkerId>, epoch: Epoch, run: RunMarker) -> RunRow {
        RunRow {
            worker,
            epoch,
            run,
            lost_at: None,
        }
    }

    /// The end that was marked, or else the time at which its worker was last seen.
    pub fn stop(&self) -> Option<Timestamp> {
        self.run.stop.or(self.lost_at)
    }

    /// The run's identity.
    pub fn key(&self) -> RunKey {
        RunKey {
            worker: self.worker.clone(),
            epoch: self.epoch,
            id: self.run.id,
        }
    }

    /// The run's id in the API.
    pub fn id(&self) -> String {
        self.key().to_string()
    }

    /// From start to stop, or to `now` for an open run. At least one nanosecond.
    pub fn range(&self, now: Timestamp) -> TimeRange {
        let start = self.run.start;
        let range = TimeRange::new(start, self.stop().unwrap_or(now));
        range
            .or(TimeRange::new(start, start.shifted(1)))
            .unwrap_or(TimeRange::ALL)
    }
}

/// Identifies a run in the fleet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RunKey {
    pub worker: Option<WorkerId>,
    pub epoch: Epoch,
    pub id: RunId,
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.worker {
            // Epochs are random, so the epoch alone identifies the worker's life.
            Some(_) => write!(f, "{}-{}", self.epoch, self.id.0),
            None => write!(f, "{:x}", self.id.0),
        }
    }
}
