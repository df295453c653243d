//! Every limit of the collector. What is past one is refused with a reason, or dropped and counted.
//!
//! Limits that both ends of the wire share (sizes of names and messages, depth, nodes of one agent)
//! are in [`profiler_core::limits`].

use std::time::Duration;

/// How much a collector holds. The defaults are the constants of this module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// How far back the hot window reaches: [`HOT_LENGTH`].
    pub hot_length: Duration,
    /// Most bytes of the hot window's weights: [`HOT_BYTES_MAX`].
    pub hot_bytes_max: usize,
    /// Most distinct stacks of the fleet: [`TREE_NODES_MAX`].
    pub tree_nodes_max: usize,
    /// Most bytes of the fleet's names and frames: [`SYMBOL_BYTES_MAX`].
    pub symbol_bytes_max: usize,
    /// Most rows of the ledger: [`LEDGER_ROWS_MAX`].
    pub ledger_rows_max: usize,
    /// Most task names with totals of their own: [`LEDGER_NAMES_MAX`].
    pub ledger_names_max: usize,
    /// Most (worker, epoch) pairs, so also most workers: [`SESSIONS_MAX`].
    pub sessions_max: usize,
    /// Most tasks in one flush: [`FLUSH_TASKS_MAX`].
    pub flush_tasks_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            hot_length: HOT_LENGTH,
            hot_bytes_max: HOT_BYTES_MAX,
            tree_nodes_max: TREE_NODES_MAX,
            symbol_bytes_max: SYMBOL_BYTES_MAX,
            ledger_rows_max: LEDGER_ROWS_MAX,
            ledger_names_max: LEDGER_NAMES_MAX,
            sessions_max: SESSIONS_MAX,
            flush_tasks_max: FLUSH_TASKS_MAX,
        }
    }
}

/// How far back the hot window reaches from the collector's now.
pub const HOT_LENGTH: Duration = Duration::from_secs(15 * 60);

/// Most bytes of the hot window: 15 min of 100 workers with 300 nodes a second, 32 bytes each.
/// Past it the oldest windows go, and their weight is counted.
pub const HOT_BYTES_MAX: usize = 1 << 30;

/// Most distinct stack nodes of the fleet. Past it new stacks count as `[overflow]` below their task.
pub const TREE_NODES_MAX: usize = 4 << 20;

/// Most bytes of names and frames of the fleet, give or take a message. Past it new names count as
/// `[overflow]`; past twice as much (for frames take some bytes each even then) dictionaries are
/// refused.
pub const SYMBOL_BYTES_MAX: usize = 1 << 30;

/// Most rows of the ledger, running and finished. Past it the oldest finished rows go; totals by
/// name stay exact.
pub const LEDGER_ROWS_MAX: usize = 1_000_000;

/// Most task names with totals of their own; the rest shares the name `[overflow]`.
pub const LEDGER_NAMES_MAX: usize = 10_000;

/// Most sessions kept, connected or gone. Past it the one that is gone for longest is forgotten;
/// if none is gone, a new agent is refused.
pub const SESSIONS_MAX: usize = 10_000;

/// Most tasks in one flush: a full message of the smallest plausible rows.
pub const FLUSH_TASKS_MAX: usize = 200_000;

/// How far ahead of the collector's clock a cycle may start. One that is further ahead has a wrong
/// clock; it would stay in memory when all true ones are evicted.
pub const AHEAD_MAX: Duration = Duration::from_secs(60 * 60);

/// After how long without its stream a session gives back the memory of its dictionary; an agent
/// that comes back later sends it again.
pub const TRANSLATION_KEPT: Duration = Duration::from_secs(15 * 60);

/// How long an agent without Goodbye may be away before its running tasks end as lost.
pub const GRACE: Duration = Duration::from_secs(10);

/// How long a stream may say nothing. An agent flushes each second, so this one's host is gone or
/// stopped; a live agent comes back by itself.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How long a new stream may take to say Hello.
pub const HELLO_MAX: Duration = Duration::from_secs(10);

/// Most answers that wait for an agent to read them; past it, its messages wait too.
pub const ANSWERS_MAX: usize = 64;

/// How often graces and old windows are looked after.
pub const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Most answers that are computed at once. Each may hold the hot window's weights once more.
pub const QUERIES_MAX: usize = 2;

/// Most questions that wait for their turn; past it they are turned away.
pub const QUERIES_WAITING_MAX: usize = 64;

/// How long a question waits for its turn.
pub const QUERY_WAIT_MAX: Duration = Duration::from_secs(10);

/// Most questions to running agents (settings, stacks) that are under way at once; past it they are
/// turned away.
pub const LIVE_QUESTIONS_MAX: usize = 8;

/// How long agents may take to answer such a question.
pub const LIVE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Most questions that one agent has not answered yet.
pub const AGENT_QUESTIONS_MAX: usize = 16;

/// Most threads in one answer to what they are doing; the rest is counted.
pub const STACKS_THREADS_MAX: usize = 200_000;

/// Largest body of a request, in bytes.
pub const BODY_BYTES_MAX: usize = 4_096;

/// Most values of one repeated parameter of a question.
pub const FILTER_VALUES_MAX: usize = 100;

/// Rows of tasks in an answer, if the question does not say.
pub const TASK_ROWS_DEFAULT: usize = 10_000;

/// Most rows of tasks in an answer.
pub const TASK_ROWS_MAX: usize = 100_000;

/// Most steps of a timeline.
pub const TIMELINE_STEPS_MAX: u64 = 4_000;

/// Most series of a timeline; the smaller ones are summed in one more.
pub const TIMELINE_SERIES_MAX: usize = 100;

/// How long requests and streams may take to end once the server is told to.
pub const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// A duration as nanoseconds of a timestamp.
pub(crate) fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
