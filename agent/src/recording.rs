//! Data recorded by a local agent.

use profiler_core::{Profile, TaskRecord, TaskTotals, Telemetry, Ticks};

/// Everything that a [`LocalAgent`](crate::LocalAgent) recorded. Times are by the agent's clock: the
/// real time at which the process first read it, advanced by the monotonic clock.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Recording {
    /// All samples by task and stack, the agent's own threads below `[agent]`. With
    /// [`AgentBuilder::phases`](crate::AgentBuilder::phases): by task, phase and stack.
    pub profile: Profile,
    /// The same time by thread: below each task its phases, if any, and below those the threads.
    /// Threads that lived for less than a second may be counted together.
    pub threads: Profile,
    /// The tasks, in the order of their starts.
    pub tasks: Vec<TaskRecord>,
    /// Sums of the ended tasks beyond
    /// [the row limit](crate::AgentBuilder::task_rows_per_second).
    pub totals: Vec<TaskTotals>,
    /// Number of tasks in `totals`.
    pub aggregated_tasks: u64,
    /// Ticks of the sampler over the recorded time.
    pub ticks: Ticks,
    /// Thread time that the kernel has shown and the sampler has not counted, in nanoseconds.
    pub lost_unseen_ns: u64,
    /// Tasks without a row, because a queue had no room for their end.
    pub lost_tasks: u64,
    /// Transfers, resource samples, expected tasks and named runs.
    pub telemetry: Telemetry,
    /// Telemetry items for which a queue had no room.
    pub lost_telemetry: u64,
}
