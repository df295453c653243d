//! Account of everything that a shipping agent sampled.

use profiler_core::Epoch;

/// Account of everything that was sampled, in nanoseconds of thread time:
/// `accepted = stored + unacked + lost_rejected + lost_by_collector + lost_queue`, exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ShipReport {
    /// Identifies this life of the agent.
    pub epoch: Epoch,
    /// Weight of all samples taken.
    pub accepted_ns: u64,
    /// Acknowledged by the collector.
    pub stored_ns: u64,
    /// Not acknowledged yet.
    pub unacked_ns: u64,
    /// Rejected by the collector.
    pub lost_rejected_ns: u64,
    /// Acknowledged, then lost by a collector that keeps nothing on disk.
    pub lost_by_collector_ns: u64,
    /// Dropped, because a queue of the agent was full, or not counted.
    pub lost_queue_ns: u64,
    /// Thread time in `lost_queue_ns` that the kernel has shown and the sampler has not counted.
    pub lost_unseen_ns: u64,
    /// Rows of tasks that were lost, for any of these reasons.
    pub lost_tasks: u64,
    /// Transfers, resource samples and other telemetry that was lost, for any of these reasons.
    pub lost_telemetry: u64,
    /// Tasks that ended beyond the row limit, `AgentBuilder::task_rows_per_second`. They are
    /// not lost: their counts, durations and phases are in sums by name.
    pub aggregated_tasks: u64,
    /// Whether a collector is connected.
    pub connected: bool,
    /// Number of connections so far.
    pub connects: u64,
}
