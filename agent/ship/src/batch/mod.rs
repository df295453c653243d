//! Output of one cycle, about a second of the process's time, on its way from the symbolizer to the
//! shipper or a local recording.

mod merge;

use profiler_core::{Delta, TaskRecord, TaskTotals, Telemetry, Ticks, TimeRange};

pub use self::merge::{add_to_totals, coarsen_totals, merge_telemetry, merge_totals};

/// When a batch's weights were counted, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// By the agent's clock.
    pub range: TimeRange,
    /// Every weight is a multiple of it; never 0.
    pub quantum_ns: u64,
    /// Ticks of the sampler over `range`.
    pub ticks: Ticks,
}

/// A sealed cycle, several merged into one, or a part of one: the content of a flush. Names in
/// `tasks` and the nodes of `delta` and `threads` are in the [`Tables`](crate::tables::Tables).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// `None` if there are no samples; then the deltas are empty.
    pub span: Option<Span>,
    /// Weights by stack.
    pub delta: Delta,
    /// The same weights by thread, at paths of task, phase (if any) and thread.
    pub threads: Delta,
    /// Tasks that started or ended, each once, in its latest state; the latest changes are last.
    pub tasks: Vec<TaskRecord>,
    /// Ended tasks without rows, by name, outcome and second.
    pub totals: Vec<TaskTotals>,
    /// Transfers, resource samples, expected tasks and run markers.
    pub telemetry: Telemetry,
    /// Number of tasks in `totals`.
    pub aggregated_tasks: u64,
    /// Rows of tasks that found a thread's ring full.
    pub lost_tasks: u64,
    /// Telemetry that found a queue full.
    pub lost_telemetry: u64,
    /// Weight that found no memory on its way to the symbolizer, or was not counted, in nanoseconds; it is not
    /// in `delta`.
    pub lost_queue_ns: u64,
    /// Thread time in `lost_queue_ns` that the kernel has shown and the sampler has not counted.
    pub lost_unseen_ns: u64,
}

impl Batch {
    /// The samples of one cycle.
    pub fn of_samples(span: Span, delta: Delta, threads: Delta) -> Batch {
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
