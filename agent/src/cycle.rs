//! What one second of sampling gives, on its way from the folder to the shipper.

use profiler_core::limits::{AGENT_NODES_MAX, AGENT_TASK_NAMES_MAX};
use profiler_core::wire::ThreadDump;
use profiler_core::{
    CallTrie, Delta, SymbolTable, TaskRecord, TaskTotals, Telemetry, Ticks, TimeRange,
};

/// The epoch's tables, which only grow. The folder adds to them; the shipper reads what the
/// collector does not hold yet.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) symbols: SymbolTable,
    pub(crate) trie: CallTrie,
}

impl Tables {
    pub(crate) fn new() -> Self {
        Tables { symbols: SymbolTable::new(), trie: CallTrie::new(AGENT_NODES_MAX) }
    }
}

/// One sealed cycle: about a second of the process's time. Names in `tasks` are in
/// [`Tables::symbols`], the nodes of
/// `delta` and `threads` in [`Tables::trie`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SealedCycle {
    /// From when to when, by the agent's clock.
    pub(crate) range: TimeRange,
    /// What was counted; every weight is a multiple of `quantum_ns`.
    pub(crate) delta: Delta,
    /// The same weights once more, at paths of task, phase (if any) and thread.
    pub(crate) threads: Delta,
    /// Unit of the weights, in nanoseconds.
    pub(crate) quantum_ns: u64,
    /// How often the sampler looked over `range`.
    pub(crate) ticks: Ticks,
    /// Tasks that started or ended, each once, in its latest state.
    pub(crate) tasks: Vec<TaskRecord>,
    /// What else the program told, and what was measured.
    pub(crate) records: Telemetry,
    /// Tasks that ended and are in no row, by the order of name, outcome and second.
    pub(crate) totals: Vec<TaskTotals>,
    /// How many those are.
    pub(crate) aggregated_tasks: u64,
    /// Rows of tasks that had no room in a thread's ring, since the last cycle.
    pub(crate) lost_tasks: u64,
    /// Transfers and the like that had no room in a queue, since the last cycle.
    pub(crate) lost_telemetry: u64,
    /// Weight that had no room in the queue to the folder, since the last cycle, in nanoseconds;
    /// it is not in `delta`.
    pub(crate) lost_queue_ns: u64,
}

/// What every thread was doing at one moment; nodes are in [`Tables::trie`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StacksNow {
    /// Of the question, as [`Control`](crate::control::Control) counts them; it answers those
    /// before too.
    pub(crate) number: u64,
    pub(crate) stacks: ThreadDump,
}

const _: () = assert!(AGENT_TASK_NAMES_MAX < AGENT_NODES_MAX);
