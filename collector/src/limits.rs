//! Every limit of the collector. What is past one is refused with a reason, or dropped and counted.
//!
//! Limits that both ends of the wire share (sizes of names and messages, depth, nodes of one agent)
//! are in [`profiler_core::limits`].

use std::time::Duration;

/// How much a collector holds. The defaults are the constants of this module.
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
    /// How often what is in memory becomes tables: [`SEAL_EVERY`].
    pub seal_every: Duration,
    /// Bytes in memory at which it becomes tables sooner: [`UNSEALED_BYTES_MAX`].
    pub unsealed_bytes_max: usize,
    /// Free bytes of the disk below which nothing more is taken in: [`DISK_RESERVE_BYTES`].
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

/// Most distinct stack nodes of the fleet. Past it new stacks count as `[overflow]` below their task.
pub const TREE_NODES_MAX: usize = 4 << 20;

/// Most bytes of names and frames of the fleet, give or take a message. Past it new names count as
/// `[overflow]`; past twice as much (for frames take some bytes each even then) dictionaries are
/// refused.
pub const SYMBOL_BYTES_MAX: usize = 1 << 30;

/// Most running tasks. Past it a start is not kept, and counted; its end is told whole.
pub const LEDGER_ROWS_MAX: usize = 1_000_000;

/// Most running tasks of one worker's life, so that no worker takes the room of all others.
pub const WORKER_ROWS_MAX: usize = LEDGER_ROWS_MAX / 10;

/// Most task names with totals of their own; the rest shares the name `[overflow]`.
pub const LEDGER_NAMES_MAX: usize = 10_000;

/// Most phases of tasks with sums of their own, by task and phase; the rest of a task's shares the name
/// `[overflow]`.
pub const PHASES_MAX: usize = 100_000;

/// Most sessions kept, connected or gone. Past it the one that is gone for longest is forgotten;
/// if none is gone, a new agent is refused.
pub const SESSIONS_MAX: usize = 10_000;

/// Most bytes of the labels of all sessions together. An agent whose labels find no room has one
/// label, `[overflow]`, which says how many they were.
pub const LABEL_BYTES_MAX: usize = 64 << 20;

/// Most tasks in one flush: a full message of the smallest plausible rows.
pub const FLUSH_TASKS_MAX: usize = 200_000;

/// Largest record of the log, in bytes: what the largest message may become when its nodes and names
/// are written out in the collector's terms. A flush that would be larger is refused.
pub const WAL_RECORD_BYTES_MAX: usize = 16 << 20;

/// The log begins a new file before one grows past this, in bytes: a file is read whole at the start.
pub const WAL_FILE_BYTES_MAX: u64 = 64 << 20;

/// Most bytes of flushes that wait to be logged; past it, streams wait.
pub const WAL_QUEUE_BYTES_MAX: usize = 64 << 20;

/// The log waits no longer for more flushes to sync together once it has so many bytes of them.
pub const WAL_GROUP_BYTES_MAX: usize = 4 << 20;

/// How long the log waits for more flushes to sync together.
pub const WAL_GROUP_WAIT: Duration = Duration::from_millis(10);

/// About how many bytes of names and nodes the log copies under one lock of the tree.
pub const WAL_GROWTH_BYTES: usize = 256 << 10;

/// Most bytes that are checksummed in search of the next good frame of one damaged file; what comes
/// after counts as damaged too. Half a second's work.
pub const WAL_SEARCH_BYTES_MAX: u64 = 1 << 30;

/// Most places of damage that are told one by one; the rest is counted.
pub const WAL_DAMAGE_LISTED_MAX: usize = 100;

/// Free bytes of the disk below which nothing more is taken in, so that what was taken in can still
/// be brought into tables, which makes room.
pub const DISK_RESERVE_BYTES: u64 = 32 << 20;

/// How often the disk's free space is looked at, and how long a disk that was full is left alone.
pub const DISK_CHECK_EVERY: Duration = Duration::from_secs(1);

/// How far ahead of the collector's clock a cycle may start. One that is further ahead has a wrong
/// clock; it would stay in memory when all true ones are evicted.
pub const AHEAD_MAX: Duration = Duration::from_secs(60 * 60);

/// How long before the collector's now a cycle may start, and a task end: longer than anything is
/// kept. What is older has a wrong clock; its rows would make files only to have them dropped.
pub const BEHIND_MAX: Duration = Duration::from_secs(400 * 86_400);

/// What is older than this is late.
pub const LATE_AFTER: Duration = Duration::from_secs(86_400);

/// Most hours that what is late in memory is spread over: eight days of an agent that was away. Past
/// it what is in memory becomes tables first, and agents wait; one flush that is spread over more by
/// itself is refused.
pub const LATE_HOURS_MAX: usize = 200;

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

/// Most flushes of one stream that are made safe together.
pub const FLUSHES_PER_BATCH_MAX: usize = 64;

/// A stream reads no further flush ahead once those that it holds take so many bytes on the wire.
pub const FLUSH_BYTES_PER_BATCH_MAX: usize = 256 << 10;

/// How often graces and old windows are looked after.
pub const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Most answers that are computed at once. Each may hold the hot window's weights once more.
pub const QUERIES_MAX: usize = 2;

/// Most open pages that are told of what is new; past it a page asks every now and then instead.
pub const PAGES_MAX: usize = 200;

/// How often pages are told of what is new, at most.
pub const PULSE_EVERY: Duration = Duration::from_secs(1);

/// After how long without news something is written to a page all the same: so both ends learn of a
/// connection that is gone.
pub const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// Most bytes that one question's sums take: 4 million stacks in all seven states.
pub const QUERY_BYTES_MAX: usize = 256 << 20;

/// Most nodes of the fleet's tree of which a shape is kept between questions, in about 20 bytes a node
/// and 100 a frame; past it each question sorts what it finds.
pub const SHAPE_NODES_MAX: usize = 256 << 10;

/// Most shapes of the tree that are kept: with and without phases, by function and by line.
pub const SHAPES_MAX: usize = 2;

/// Most sums, by group, stack and state, of one grouped profile.
pub const GROUPED_SUMS_MAX: usize = 4 << 20;

/// Most groups of a grouped profile that are told apart; the lighter ones are summed in one more.
pub const GROUPS_MAX: usize = 100;

/// Most threads of a budget that are told apart; the lighter ones are summed by worker.
pub const THREAD_TIME_THREADS_MAX: usize = 10_000;

/// Most sums, by worker, thread, task and state, of one budget.
pub const THREAD_TIME_SUMS_MAX: usize = 4 << 20;

/// Most questions that wait for their turn; past it they are turned away.
pub const QUERIES_WAITING_MAX: usize = 64;

/// How often what is in memory becomes tables.
pub const SEAL_EVERY: Duration = Duration::from_secs(60);

/// Bytes in memory at which they become tables sooner. A sealing takes about twice as much again.
pub const UNSEALED_BYTES_MAX: usize = 48 << 20;

/// Bytes in memory at which streams wait for a sealing before they take more in: it steps back behind
/// them otherwise.
pub const UNSEALED_BYTES_SLOW: usize = 2 * UNSEALED_BYTES_MAX;

/// How long they wait for it at most, each time.
pub const SEALING_WAIT_MAX: Duration = Duration::from_secs(10);

/// Bytes in memory at which nothing more is taken in: sealing fails, or is too slow.
pub const UNSEALED_BYTES_FULL: usize = 4 * UNSEALED_BYTES_MAX;

/// After how long a sealing that failed is tried again.
pub const SEAL_RETRY_AFTER: Duration = Duration::from_secs(5);

/// How often the tables are looked after.
pub const MAINTAIN_EVERY: Duration = Duration::from_secs(60);

/// Most bytes of the tables of a collector that keeps nothing on disk.
pub const MEMORY_TABLES_BYTES_MAX: u64 = 256 << 20;

/// How long a question waits for its turn.
pub const QUERY_WAIT_MAX: Duration = Duration::from_secs(10);

/// Most questions to running agents (settings, stacks) that are under way at once; past it they are
/// turned away.
pub const CONTROL_REQUESTS_MAX: usize = 8;

/// How long agents may take to answer such a question.
pub const CONTROL_WAIT_MAX: Duration = Duration::from_secs(2);

/// Most questions that one agent has not answered yet.
pub const AGENT_REQUESTS_MAX: usize = 16;

/// Most threads in one answer to what they are doing; the rest is counted.
pub const THREAD_DUMP_THREADS_MAX: usize = 200_000;

/// Largest body of a request, in bytes.
pub const BODY_BYTES_MAX: usize = 4_096;

/// Most values of one repeated parameter of a question.
pub const FILTER_VALUES_MAX: usize = 100;

/// Rows of tasks in an answer, if the question does not say.
pub const TASK_ROWS_DEFAULT: usize = 10_000;

/// Most rows of tasks in an answer.
pub const TASK_ROWS_MAX: usize = 100_000;

/// Most rows of tasks in an answer in columns, where each takes some 25 bytes instead of 500.
pub const TASK_COLUMNS_MAX: usize = 1_000_000;

/// Most steps of a timeline.
pub const TIMELINE_STEPS_MAX: u64 = 4_000;

/// Most series of a timeline; the smaller ones are summed in one more.
pub const TIMELINE_SERIES_MAX: usize = 100;

/// How long requests and streams may take to end once the server is told to.
pub const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// How far before the newest tables what came after them is taken to begin, where the log that told
/// is lost: what was on its way, and what agents kept for longer than that is rare.
pub const LOST_LOG_MARGIN: Duration = Duration::from_secs(60 * 60);

/// Most damaged files of the store that are remembered by name; past it the oldest are forgotten.
pub const LOST_FILES_MAX: usize = 1_000;

/// Most bytes of the footers and filters of the store's files that are kept open; past it all are
/// closed, and opened again as they are asked for.
pub const OPEN_FILES_BYTES_MAX: usize = 64 << 20;

/// Most of the store's files that are kept open; past it all are closed. Systems allow a process
/// 1,024 descriptors where nobody raised it.
pub const OPEN_FILES_MAX: usize = 512;

/// How long counts by the second are kept.
pub const SECONDS_KEPT: Duration = Duration::from_secs(7 * 86_400);

/// How long counts by the minute and coarser are kept.
pub const ROLLUPS_KEPT: Duration = Duration::from_secs(365 * 86_400);

/// How long rows of tasks are kept; how many took how long is kept as long as other counts.
pub const TASKS_KEPT: Duration = Duration::from_secs(30 * 86_400);

/// Most bytes of the store's tables. Past it the oldest detail goes first.
pub const RETENTION_BYTES_MAX: u64 = 10_000_000_000;

/// The shortest that retention may be set to: what is kept by the second goes by files of an hour.
pub const RETENTION_MIN: Duration = Duration::from_secs(3_600);

/// The longest that retention may be set to.
pub const RETENTION_MAX: Duration = Duration::from_secs(3_650 * 86_400);

/// The least that a store's tables may be limited to, in bytes: frames and stacks take some, whatever
/// is dropped.
pub const RETENTION_BYTES_LEAST: u64 = 10_000_000;

/// How long files of the store stay that are in use no more: for questions that began before.
pub const GARBAGE_KEPT: Duration = Duration::from_secs(600);

/// How long a list of the store's files that is damaged stays, and with it the files that only it
/// names: time for a person to see to it.
pub const DAMAGED_LISTS_KEPT: Duration = Duration::from_secs(30 * 86_400);

/// As how much age a time without data counts at most, so that a clock that is wrong by years ages what
/// is kept by a day.
pub const AGE_GAP_MAX: Duration = Duration::from_secs(86_400);

/// Most named runs that are remembered; past it the oldest tenth goes.
pub const RUNS_MAX: usize = 10_000;

/// Most expectations (of a name, in one life of a worker) that are remembered; past it the oldest
/// tenth goes.
pub const EXPECTATIONS_MAX: usize = 100_000;

/// Most pairs of a peer and a type by which transfers are summed; the rest shares `[overflow]`.
pub const LINKS_MAX: usize = 100_000;

/// Most links (worker, peer, direction), and most types, of one answer; the rest is summed as
/// `[overflow]`.
pub const LINKS_IN_ANSWER_MAX: usize = 20_000;

/// Points of one series of resources at most, if the question does not say the step.
pub const RESOURCE_POINTS_DEFAULT: u64 = 1_000;

/// Most points of all series of resources of one answer.
pub const RESOURCE_POINTS_MAX: usize = 1_000_000;

/// Most moments from which an answer on progress counts different names.
pub const PROGRESS_STARTS_MAX: usize = 64;

/// Most events that wait for a subscriber; past it the oldest are counted as missed.
pub const EVENTS_WAITING_MAX: usize = 4_096;

/// Most subscribers to events; past it they are turned away.
pub const EVENT_SUBSCRIBERS_MAX: usize = 32;

/// Most events of workers, runs and damage that are remembered.
pub const EVENTS_RECENT_MAX: usize = 1_000;

/// How often a subscriber without events is told that the stream is there.
pub const EVENTS_KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A duration as nanoseconds of a timestamp.
pub(crate) fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
