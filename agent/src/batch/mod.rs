//! Output of one cycle, about a second of the process's time, on its way from the symbolizer to the
//! shipper or a local recording.

mod merge;
#[cfg(feature = "ship")]
mod sizing;
#[cfg(feature = "ship")]
mod telemetry;

use profiler_core::{Delta, TaskRecord, TaskTotals, Telemetry, Ticks, TimeRange};

pub(crate) use self::merge::{coarsen_totals, merge_telemetry, merge_totals};
#[cfg(feature = "ship")]
pub(crate) use self::sizing::row_bytes;

/// When a batch's weights were counted, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    /// By the agent's clock.
    pub(crate) range: TimeRange,
    /// Every weight is a multiple of it; never 0.
    pub(crate) quantum_ns: u64,
    /// Ticks of the sampler over `range`.
    pub(crate) ticks: Ticks,
}

/// A sealed cycle, several merged into one, or a part of one: the content of a flush. Names in
/// `tasks` and the nodes of `delta` and `threads` are in the [`Tables`](crate::tables::Tables).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Batch {
    /// `None` if there are no samples; then the deltas are empty.
    pub(crate) span: Option<Span>,
    /// Weights by stack.
    pub(crate) delta: Delta,
    /// The same weights by thread, at paths of task, phase (if any) and thread.
    pub(crate) threads: Delta,
    /// Tasks that started or ended, each once, in its latest state; the latest changes are last.
    pub(crate) tasks: Vec<TaskRecord>,
    /// Ended tasks without rows, by name, outcome and second.
    pub(crate) totals: Vec<TaskTotals>,
    /// Transfers, resource samples, expected tasks and run markers.
    pub(crate) telemetry: Telemetry,
    /// Number of tasks in `totals`.
    pub(crate) aggregated_tasks: u64,
    /// Rows of tasks that found a thread's ring full.
    pub(crate) lost_tasks: u64,
    /// Telemetry that found a queue full.
    pub(crate) lost_telemetry: u64,
    /// Weight that found no memory on its way to the symbolizer, or was not counted, in nanoseconds; it is not
    /// in `delta`.
    pub(crate) lost_queue_ns: u64,
    /// Thread time in `lost_queue_ns` that the kernel has shown and the sampler has not counted.
    pub(crate) lost_unseen_ns: u64,
}

impl Batch {
    /// The samples of one cycle.
    pub(crate) fn of_samples(span: Span, delta: Delta, threads: Delta) -> Batch {
        // Encoding a weight that is not a multiple of the quantum would panic. There should be
        // none; if there is, a quantum of one nanosecond keeps it exact and costs only bytes.
        let is_exact =
            is_in_quanta(&delta, span.quantum_ns) && is_in_quanta(&threads, span.quantum_ns);
        let quantum_ns = if is_exact { span.quantum_ns } else { 1 };
        // While sampling is off, rows are collected without a span: nothing was sampled in that
        // time.
        let is_sampled = span.ticks.expected > 0 || !delta.is_empty() || !threads.is_empty();
        let span = is_sampled.then_some(Span { quantum_ns, ..span });
        Batch {
            span,
            delta,
            threads,
            ..Batch::default()
        }
    }
}

fn is_in_quanta(delta: &Delta, quantum_ns: u64) -> bool {
    let mut entries = delta.entries().iter();
    quantum_ns > 0 && entries.all(|(_, _, weight)| weight % quantum_ns == 0)
}
