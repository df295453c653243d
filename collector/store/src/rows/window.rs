//! Windows of samples.

use profiler_core::{Epoch, Ticks, TimeRange, Timestamp, WorkerId};

use super::Second;
use crate::packed::PackedWeights;

/// The weights of one cycle of one agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredWindow {
    pub worker: WorkerId,
    pub range: TimeRange,
    pub samples: PackedWeights,
    pub epoch: Epoch,
    /// The start by the agent's clock.
    pub raw_start: Timestamp,
    /// Uncertainty of the offset between the collector's and the agent's clock.
    pub clock_error_ns: u64,
    pub ticks: Ticks,
    /// The same time by thread, at nodes that are paths of task, phase and thread.
    pub threads: PackedWeights,
}

impl StoredWindow {
    /// The second that the whole window counts to.
    pub fn second(&self) -> Second {
        Second::of(self.range.start())
    }

    /// The second in which the window ends, at the earliest the one after [`StoredWindow::second`].
    pub fn end(&self) -> Second {
        let next = Second(self.second().0.saturating_add(1));
        next.max(Second::of(self.range.stop()))
    }

    /// The window as core's merge takes it.
    #[cfg(any(test, feature = "testing"))]
    pub fn window(&self) -> profiler_core::Window {
        profiler_core::Window {
            worker: self.worker.clone(),
            range: self.range,
            delta: self.samples.entries().collect(),
        }
    }

    /// Memory of an unsealed window, in bytes.
    pub fn bytes(&self) -> usize {
        /// A node of the map and the counters of an `Arc`.
        const ENTRY_BYTES: usize = 64;
        let weights = self.samples.bytes().len() + self.threads.bytes().len();
        size_of::<StoredWindow>() + ENTRY_BYTES + weights
    }
}
