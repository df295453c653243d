//! Windows in the log.

use profiler_core::wire::WireError;
use profiler_core::{Epoch, NodeId, Ticks, TimeRange, Timestamp, WorkerId};

use crate::packed::{Entry, PackedWeights};
use crate::rows::StoredWindow;

/// A window, with its packed weights.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LoggedWindow {
    #[prost(sint64, tag = "1")]
    pub start_ns: i64,
    #[prost(sint64, tag = "2")]
    pub stop_ns: i64,
    /// The start by the agent's clock.
    #[prost(sint64, tag = "3")]
    pub raw_start_ns: i64,
    #[prost(uint64, tag = "4")]
    pub ticks: u64,
    #[prost(uint64, tag = "5")]
    pub ticks_expected: u64,
    #[prost(uint64, tag = "6")]
    pub ticks_throttled: u64,
    #[prost(uint64, tag = "7")]
    pub quantum_ns: u64,
    /// As [`PackedWeights`] has them.
    #[prost(bytes = "vec", tag = "8")]
    pub samples: Vec<u8>,
    #[prost(bytes = "vec", tag = "9")]
    pub threads: Vec<u8>,
}

impl LoggedWindow {
    pub(super) fn of(stored: &StoredWindow) -> LoggedWindow {
        LoggedWindow {
            start_ns: stored.range.start().unix_ns(),
            stop_ns: stored.range.stop().unix_ns(),
            raw_start_ns: stored.raw_start.unix_ns(),
            ticks: stored.ticks.made,
            ticks_expected: stored.ticks.expected,
            ticks_throttled: stored.ticks.throttled,
            quantum_ns: stored.samples.quantum_ns(),
            samples: stored.samples.bytes().to_vec(),
            threads: stored.threads.bytes().to_vec(),
        }
    }

    /// The entries of samples and threads.
    pub(super) fn entries(&self) -> Result<[Vec<Entry>; 2], WireError> {
        let decoded = |bytes: &[u8]| PackedWeights::decode(self.quantum_ns, bytes);
        Ok([decoded(&self.samples)?, decoded(&self.threads)?])
    }

    /// The window of a worker's life. Packs the weights again, because nodes that a damaged log lost may
    /// now belong to another task.
    pub(super) fn stored(
        self,
        worker: &WorkerId,
        epoch: Epoch,
        clock_error_ns: u64,
        task_of: impl Fn(NodeId) -> NodeId,
    ) -> Result<StoredWindow, WireError> {
        let [start, stop] = [self.start_ns, self.stop_ns].map(Timestamp::from_unix_ns);
        let range = TimeRange::new(start, stop).ok_or(WireError::Invalid {
            what: "the window's stop - start",
            value: i128::from(self.stop_ns) - i128::from(self.start_ns),
            allowed: "above 0",
        })?;
        let [samples, threads] = self
            .entries()?
            .map(|entries| PackedWeights::of(entries, self.quantum_ns, &task_of));
        Ok(StoredWindow {
            worker: worker.clone(),
            range,
            samples,
            epoch,
            raw_start: Timestamp::from_unix_ns(self.raw_start_ns),
            clock_error_ns,
            ticks: Ticks {
                made: self.ticks,
                expected: self.ticks_expected,
                throttled: self.ticks_throttled,
            },
            threads,
        })
    }
}
