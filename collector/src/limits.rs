//! Every limit of the collector. Past a limit, data is refused with a reason, or dropped and
//! counted.
//!
//! Limits that both ends of the wire share (sizes of names and messages, depth, nodes of one agent)
//! are in [`profiler_core::limits`].

use std::time::Duration;

/// The limits of a collector that can be configured. The defaults are the constants of this module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most distinct stacks of the fleet: [`TREE_NODES_MAX`].
    pub tree_nodes_max: usize,
    /// Most bytes of the fleet's names and frames: [`SYMBOL_BYTES_MAX`].
    pub symbol_bytes_max: usize,
    /// Most running tasks: [`LEDGER_ROWS_MAX`].
    pub ledger_rows_max: usize,
    /// Most task names with totals of their own: [`LEDGER_NAMES_MAX`].
    pub ledger_names_max: usize,
    /// Most (worker, epoch) pairs, so also most workers: [`SESSIONS_MAX`].
    pub sessions_max: usize,
    /// Most bytes of all sessions' labels: [`LABEL_BYTES_MAX`].
    pub label_bytes_max: usize,
    /// Most tasks in one flush: [`FLUSH_TASKS_MAX`].
    pub flush_tasks_max: usize,
    /// How often rows in memory are sealed into tables: [`SEAL_EVERY`].
    pub seal_every: Duration,
    /// Unsealed bytes in memory at which a sealing starts early: [`UNSEALED_BYTES_MAX`].
    pub unsealed_bytes_max: usize,
    /// Ingest is blocked while the disk has fewer free bytes: [`DISK_RESERVE_BYTES`].
    pub disk_reserve_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            tree_nodes_max: TREE_NODES_MAX,
            symbol_bytes_max: SYMBOL_BYTES_MAX,
            ledger_rows_max: LEDGER_ROWS_MAX,
            ledger_names_max: LEDGER_NAMES_MAX,
            sessions_max: SESSIONS_MAX,
            label_bytes_max: LABEL_BYTES_MAX,
            flush_tasks_max: FLUSH_TASKS_MAX,
            seal_every: SEAL_EVERY,
            unsealed_bytes_max: UNSEALED_BYTES_MAX,
            disk_reserve_bytes: DISK_RESERVE_BYTES,
        }
    }
}

/// Most distinct stack nodes of the fleet. Past it, new stacks count as `[overflow]` below their
/// task.
pub const TREE_NODES_MAX: usize = 4 << 20;

/// Most bytes of names and frames of the fleet, plus or minus one message. Past it, new names count
/// as `[overflow]`. Frames still take some bytes each, so past twice the limit dictionaries are
/// refused.
pub const SYMBOL_BYTES_MAX: usize = 1 << 30;

/// Most running tasks. Past it, a start is counted but not kept; the end has the whole record.
pub const LEDGER_ROWS_MAX: usize = 1_000_000;

/// Most running tasks of one life of a worker, so that no worker uses up the ledger.
pub const WORKER_ROWS_MAX: usize = LEDGER_ROWS_MAX / 10;

/// Most task names with totals of their own; further names share `[overflow]`.
pub const LEDGER_NAMES_MAX: usize = 10_000;

/// Most pairs of task and phase with sums of their own; a task's further phases share `[overflow]`.
pub const PHASES_MAX: usize = 100_000;

/// Most sessions, connected or gone. Past it, the session that has been gone longest is evicted; if
/// none is gone, the new agent is refused.
pub const SESSIONS_MAX: usize = 10_000;

/// Most bytes of the labels of all sessions. Past it, the labels of an agent are replaced by the
/// label `[overflow]`, whose value is their number.
pub const LABEL_BYTES_MAX: usize = 64 << 20;

/// Most tasks in one flush: a full message of the smallest plausible rows.
pub const FLUSH_TASKS_MAX: usize = 200_000;

/// Largest record of the log, in bytes: the size that the largest message can have with nodes and
/// names in the collector's terms. A larger flush is rejected.
pub const WAL_RECORD_BYTES_MAX: usize = 16 << 20;

/// Largest file of the log, in bytes. A file is read whole at the start.
pub const WAL_FILE_BYTES_MAX: u64 = 64 << 20;

/// Most bytes of flushes that wait to be logged; past it, streams wait.
pub const WAL_QUEUE_BYTES_MAX: usize = 64 << 20;

/// Bytes of queued flushes at which the log stops waiting for more to sync together.
pub const WAL_GROUP_BYTES_MAX: usize = 4 << 20;

/// How long the log waits for more flushes to sync together.
pub const WAL_GROUP_WAIT: Duration = Duration::from_millis(10);

/// Bytes, roughly, of names and nodes that the log copies under one lock of the tree.
pub const WAL_GROWTH_BYTES: usize = 256 << 10;

/// Most bytes of one damaged file that are searched for the next valid frame: half a second of
/// checksums. The rest of the file counts as damaged.
pub const WAL_SEARCH_BYTES_MAX: u64 = 1 << 30;

/// Most damaged places that are listed one by one; further ones are counted.
pub const WAL_DAMAGE_LISTED_MAX: usize = 100;

/// Free bytes of the disk below which ingest is blocked. They let the sealing of accepted rows
/// finish, which frees space.
pub const DISK_RESERVE_BYTES: u64 = 32 << 20;

/// How often the disk's free space is checked, and how long a full disk is left alone.
pub const DISK_CHECK_EVERY: Duration = Duration::from_secs(1);

/// How far ahead of the collector's clock a cycle may start. A cycle further ahead comes from a
/// wrong clock, and would outlive all others.
pub const AHEAD_MAX: Duration = Duration::from_secs(60 * 60);

/// How far behind the collector's clock a cycle may start or a task end: longer than any retention.
/// Older rows come from a wrong clock, and would make files only to be dropped.
pub const BEHIND_MAX: Duration = Duration::from_secs(400 * 86_400);

/// The age at which data counts as late.
pub const LATE_AFTER: Duration = Duration::from_secs(86_400);

/// Most hours that late data in memory may be spread over: eight days of an absent agent. Past it,
/// agents wait until memory is sealed. A single flush that spans more is rejected.
pub const LATE_HOURS_MAX: usize = 200;

/// How long after its end a session keeps its dictionary in memory. An agent that reconnects later
/// sends it again.
pub const TRANSLATION_KEPT: Duration = Duration::from_secs(15 * 60);

/// How long an agent may be away without Goodbye before its running tasks end as lost.
pub const GRACE: Duration = Duration::from_secs(10);

/// How long a stream may be silent. An agent flushes each second, so a silent one is cut off or
/// stopped; a live agent reconnects by itself.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How long a new stream may take to send its Hello.
pub const HELLO_MAX: Duration = Duration::from_secs(10);

/// Most answers that wait for an agent to read them; past it, the agent's messages wait too.
pub const ANSWERS_MAX: usize = 64;

/// Most flushes of one stream that are committed together.
pub const FLUSHES_PER_BATCH_MAX: usize = 64;

/// Wire bytes of held flushes at which a stream stops reading ahead.
pub const FLUSH_BYTES_PER_BATCH_MAX: usize = 256 << 10;

/// How often grace periods are checked.
pub const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Most questions computed at once. Each may hold a copy of the unsealed windows' weights.
pub const QUERIES_MAX: usize = 2;

/// Most open pages that receive updates; further pages poll instead.
pub const PAGES_MAX: usize = 200;

/// Shortest time between two updates of a page.
pub const PULSE_EVERY: Duration = Duration::from_secs(1);

/// How often an idle update stream is written to, so that both ends notice a broken connection.
pub const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// Most bytes of the sums of one question: 4 million stacks in all seven states.
pub const QUERY_BYTES_MAX: usize = 256 << 20;

/// Most nodes of the tree for which a shape is cached between questions, at about 20 bytes a node
/// and 100 a frame. Past it, each question sorts its own nodes.
pub const SHAPE_NODES_MAX: usize = 256 << 10;

/// Most cached shapes of the tree: with and without phases, by function and by line.
pub const SHAPES_MAX: usize = 2;

/// Most sums, by group, stack and state, of one grouped profile.
pub const GROUPED_SUMS_MAX: usize = 4 << 20;

/// Most separate groups of a grouped profile; the lighter ones are summed in one more.
pub const GROUPS_MAX: usize = 100;

/// Most separate threads of an answer on thread time; the lighter ones are summed by worker.
pub const THREAD_TIME_THREADS_MAX: usize = 10_000;

/// Most sums, by worker, thread, task and state, of one answer on thread time.
pub const THREAD_TIME_SUMS_MAX: usize = 4 << 20;

/// Most questions that wait for a permit; further ones are refused.
pub const QUERIES_WAITING_MAX: usize = 64;

/// How often rows in memory are sealed into tables.
pub const SEAL_EVERY: Duration = Duration::from_secs(60);

/// Unsealed bytes in memory at which a sealing starts early. The sealing takes about twice as much
/// again.
pub const UNSEALED_BYTES_MAX: usize = 48 << 20;

/// Unsealed bytes in memory at which streams wait for a sealing. It has the lower priority
/// otherwise.
pub const UNSEALED_BYTES_SLOW: usize = 2 * UNSEALED_BYTES_MAX;

/// How long a stream waits for a sealing at most, each time.
pub const SEALING_WAIT_MAX: Duration = Duration::from_secs(10);

/// Unsealed bytes in memory at which ingest is blocked: sealing fails or is too slow.
pub const UNSEALED_BYTES_FULL: usize = 4 * UNSEALED_BYTES_MAX;

/// How long after a failed sealing it is retried.
pub const SEAL_RETRY_AFTER: Duration = Duration::from_secs(5);

/// How often the tables are maintained.
pub const MAINTAIN_EVERY: Duration = Duration::from_secs(60);

/// Most bytes of the tables of a collector that keeps nothing on disk.
pub const MEMORY_TABLES_BYTES_MAX: u64 = 256 << 20;

/// How long a question waits for a permit.
pub const QUERY_WAIT_MAX: Duration = Duration::from_secs(10);

/// Most API requests to agents (settings, thread dumps) in progress at once; further ones are
/// refused.
pub const CONTROL_REQUESTS_MAX: usize = 8;

/// How long agents may take to answer such a request.
pub const CONTROL_WAIT_MAX: Duration = Duration::from_secs(2);

/// Most unanswered requests of one agent.
pub const AGENT_REQUESTS_MAX: usize = 16;

/// Most threads in one thread dump; further ones are counted.
pub const THREAD_DUMP_THREADS_MAX: usize = 200_000;

/// Largest body of a request, in bytes.
pub const BODY_BYTES_MAX: usize = 4_096;

/// Most values of one repeated parameter.
pub const FILTER_VALUES_MAX: usize = 100;

/// Rows of tasks in an answer without a `limit` parameter.
pub const TASK_ROWS_DEFAULT: usize = 10_000;

/// Most rows of tasks in an answer.
pub const TASK_ROWS_MAX: usize = 100_000;

/// Most rows of tasks in a columnar answer, where a row takes about 25 bytes instead of 500.
pub const TASK_COLUMNS_MAX: usize = 1_000_000;

/// Most steps of a timeline.
pub const TIMELINE_STEPS_MAX: u64 = 4_000;

/// Most series of a timeline; the smaller ones are summed in one more.
pub const TIMELINE_SERIES_MAX: usize = 100;

/// How long requests and streams may take to end at a shutdown.
pub const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// The data of a lost log is taken to begin this long before the newest tables: flushes may have
/// been in flight, and agents rarely keep data for longer.
pub const LOST_LOG_MARGIN: Duration = Duration::from_secs(60 * 60);

/// Most damaged files of the store that are listed by name; past it, the oldest are dropped from
/// the list.
pub const LOST_FILES_MAX: usize = 1_000;

/// Most bytes of footers and filters of the store's open files; past it, all are closed and
/// reopened on demand.
pub const OPEN_FILES_BYTES_MAX: usize = 64 << 20;

/// Most open files of the store; past it, all are closed. The usual limit of a process is 1,024
/// descriptors.
pub const OPEN_FILES_MAX: usize = 512;

/// How long sums by second are kept.
pub const SECONDS_KEPT: Duration = Duration::from_secs(7 * 86_400);

/// How long sums by minute and coarser are kept.
pub const ROLLUPS_KEPT: Duration = Duration::from_secs(365 * 86_400);

/// How long rows of tasks are kept; histograms of durations are kept as long as other sums.
pub const TASKS_KEPT: Duration = Duration::from_secs(30 * 86_400);

/// Most bytes of the store's tables. Past it, the oldest detail is dropped first.
pub const RETENTION_BYTES_MAX: u64 = 10_000_000_000;

/// Shortest retention that can be configured: files by the second span an hour.
pub const RETENTION_MIN: Duration = Duration::from_secs(3_600);

/// Longest retention that can be configured.
pub const RETENTION_MAX: Duration = Duration::from_secs(3_650 * 86_400);

/// Smallest limit on the tables that can be configured, in bytes: frames and stacks are never
/// dropped.
pub const RETENTION_BYTES_LEAST: u64 = 10_000_000;

/// How long unused files of the store stay, for questions that began before.
pub const GARBAGE_KEPT: Duration = Duration::from_secs(600);

/// How long a damaged manifest stays, with the files that only it names: time for a person to act.
pub const DAMAGED_LISTS_KEPT: Duration = Duration::from_secs(30 * 86_400);

/// The most by which a time without data counts as age, so that a clock that is wrong by years ages
/// the data by a day.
pub const AGE_GAP_MAX: Duration = Duration::from_secs(86_400);

/// Most named runs; past it, the oldest tenth is dropped.
pub const RUNS_MAX: usize = 10_000;

/// Most expectations (of one name, in one life of a worker); past it, the oldest tenth is dropped.
pub const EXPECTATIONS_MAX: usize = 100_000;

/// Most pairs of peer and type with transfer sums of their own; further ones share `[overflow]`.
pub const LINKS_MAX: usize = 100_000;

/// Most links (worker, peer, direction) and most types of one answer; further ones are summed as
/// `[overflow]`.
pub const LINKS_IN_ANSWER_MAX: usize = 20_000;

/// Most points of one resource series in an answer without a `step` parameter.
pub const RESOURCE_POINTS_DEFAULT: u64 = 1_000;

/// Most points of all resource series of one answer.
pub const RESOURCE_POINTS_MAX: usize = 1_000_000;

/// Most distinct start times in one answer on progress.
pub const PROGRESS_STARTS_MAX: usize = 64;

/// Most events that wait for a subscriber; past it, the oldest are counted as missed.
pub const EVENTS_WAITING_MAX: usize = 4_096;

/// Most subscribers to events; further ones are refused.
pub const EVENT_SUBSCRIBERS_MAX: usize = 32;

/// Most recent events of workers, runs and damage.
pub const EVENTS_RECENT_MAX: usize = 1_000;

/// How often an idle event stream is written to.
pub const EVENTS_KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A duration in nanoseconds, as timestamps have them.
pub(crate) fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
