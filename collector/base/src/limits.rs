//! Every limit of the collector. Past a limit, data is refused with a reason, or dropped and
//! counted.
//!
//! Limits that both ends of the wire share (sizes of names and messages, depth, nodes of one agent)
//! are in [`profiler_core::limits`].

mod adoption;
mod auth;
mod bucket;
mod filters;
mod follow;
mod forward;
mod messages;
mod names;
mod pushed;
mod sql;
mod symbols;

use std::time::Duration;

pub use self::{
    adoption::*, auth::*, bucket::*, filters::*, follow::*, forward::*, messages::*, names::*,
    pushed::*, sql::*, symbols::*,
};

/// The limits of a collector that can be configured. The defaults are the constants of this module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most distinct stacks of the fleet: [`TREE_NODES_MAX`].
    pub tree_nodes_max: usize,
    /// Most bytes of the fleet's names and frames: [`SYMBOL_BYTES_MAX`].
    pub symbol_bytes_max: usize,
    /// Most stacks that stay in memory unused: [`IDLE_NODES_MIN`].
    pub idle_nodes_min: usize,
    /// Most running tasks: [`LEDGER_ROWS_MAX`].
    pub ledger_rows_max: usize,
    /// Most task names with totals of their own: [`LEDGER_NAMES_MAX`].
    pub ledger_names_max: usize,
    /// Most (worker, epoch) pairs of agents, and most of pushed series: [`SESSIONS_MAX`].
    pub sessions_max: usize,
    /// Most bytes of all sessions' labels: [`LABEL_BYTES_MAX`].
    pub label_bytes_max: usize,
    /// Most tasks in one flush: [`FLUSH_TASKS_MAX`].
    pub flush_tasks_max: usize,
    /// How long a start watches whether the last owner of its store in a bucket lives: [`OWNER_WATCH`]. An
    /// owner shows it three times in that time.
    pub owner_watch: Duration,
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
            idle_nodes_min: IDLE_NODES_MIN,
            ledger_rows_max: LEDGER_ROWS_MAX,
            ledger_names_max: LEDGER_NAMES_MAX,
            sessions_max: SESSIONS_MAX,
            label_bytes_max: LABEL_BYTES_MAX,
            flush_tasks_max: FLUSH_TASKS_MAX,
            owner_watch: OWNER_WATCH,
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

/// Entries of a dictionary (strings, frames, nodes) that are applied under one lock of the tree: about
/// a millisecond. A dictionary of more entries is applied on a thread of its own.
pub const DICTIONARY_SLICE_ENTRIES: usize = 4_096;

/// Most large messages, such dictionaries among them, that are decoded, checked or applied at once;
/// further streams wait. One more if it is of an identity that has none. Only one, because the thread
/// that writes the log, for which everyone waits, would else get half a processor where there are two.
pub const LARGE_MESSAGES_AT_ONCE: usize = 1;

/// Most running tasks. Past it, a start is counted but not kept; the end has the whole record.
pub const LEDGER_ROWS_MAX: usize = 1_000_000;

/// Most running tasks of one life of a worker, so that no worker uses up the ledger.
pub const WORKER_ROWS_MAX: usize = LEDGER_ROWS_MAX / 10;

/// Most memory of running and lost tasks. Past half of it, texts of running tasks are cut and details
/// dropped until the task ends; past it, a start is counted but not kept.
pub const OPEN_TASKS_BYTES_MAX: usize = 256 << 20;

/// The same for the running tasks of one life of a worker.
pub const WORKER_OPEN_TASKS_BYTES_MAX: usize = OPEN_TASKS_BYTES_MAX / 4;

/// Most task names with totals of their own; further names share `[overflow]`.
pub const LEDGER_NAMES_MAX: usize = 10_000;

/// Most task names with metrics of their own; further names share `[other]`.
pub const METRIC_TASK_NAMES_MAX: usize = 200;

/// Most scrapes of `/metrics` at once.
pub const SCRAPES_MAX: usize = 2;

/// Most pairs of task and phase with sums of their own; a task's further phases share `[overflow]`.
pub const PHASES_MAX: usize = 100_000;

/// Most sessions of agents, and most of pushed series, connected or gone. Past it, the session that has been gone longest is
/// evicted; if none is gone, the new agent is refused.
pub const SESSIONS_MAX: usize = 10_000;

/// Most sessions that made room and are remembered, at about a kilobyte each, so that no flush of an agent
/// that returns counts twice.
pub const EVICTED_SESSIONS_MAX: usize = SESSIONS_MAX;

/// Most bytes of the labels of all sessions. Past it, the labels of an agent are replaced by the
/// label `[overflow]`, whose value is their number.
pub const LABEL_BYTES_MAX: usize = 64 << 20;

/// Most tasks in one flush: an agent closes a message at a quarter of the largest size, where it has
/// half as many of the smallest plausible rows.
pub const FLUSH_TASKS_MAX: usize = 1 << 16;

/// Most encoded bytes a second of one identity's agents, unless its quota says otherwise: 64,000 busy
/// workers, or three cores of work for the collector.
pub const QUOTA_BYTES_PER_SECOND: u64 = 64 << 20;

/// Least such quota: an idle agent needs about 100 bytes a second.
pub const QUOTA_BYTES_PER_SECOND_MIN: u64 = 1 << 10;

/// Time whose bytes an identity may send at once: a fleet that reconnects sends its dictionaries.
pub const QUOTA_BURST: Duration = Duration::from_secs(10);

/// How long a message may wait for its identity's quota of bytes. Past it, the stream ends.
pub const QUOTA_WAIT_MAX: Duration = Duration::from_secs(5);

/// Most memory of one identity's decoded messages that are not applied yet.
pub const QUOTA_DECODED_BYTES: u64 = DECODED_BYTES_MAX as u64 / 2;

/// Least such quota: it has room for a small message in its part for these.
pub const QUOTA_DECODED_BYTES_MIN: u64 = 4 << 20;

/// Most memory of the unfinished imports of one identity: the largest import takes less than half.
pub const IMPORT_BYTES_MAX: usize = 64 << 20;

/// Most memory of all unfinished imports.
pub const IMPORTS_BYTES_MAX: usize = 2 * IMPORT_BYTES_MAX;

/// Most stack nodes in memory that one identity may have added to the fleet's tree. Past it,
/// its new stacks count as `[overflow]` below their task.
pub const QUOTA_NODES: u64 = TREE_NODES_MAX as u64 / 4 * 3;

/// Most bytes of names and frames that one identity may add, plus one message. Past it, its new names
/// count as `[overflow]`.
pub const QUOTA_SYMBOL_BYTES: u64 = SYMBOL_BYTES_MAX as u64 / 4 * 3;

/// Nodes, and bytes of names, that one identity may have added for each one that is free: the quotas above
/// in an empty tree, less in one that earlier lives of the collector have filled.
pub const ADDED_PER_FREE: usize = 3;

/// Most memory of one identity's running tasks. Past it, its starts are counted but not kept.
pub const QUOTA_RUNNING_BYTES: u64 = OPEN_TASKS_BYTES_MAX as u64 / 4 * 3;

/// How often one identity's refusals by one quota are logged.
pub const QUOTA_LOG_EVERY: Duration = Duration::from_secs(60);

/// Most rows on quotas in one answer; those with the most refusals come first.
pub const QUOTA_ROWS_MAX: usize = 100;

/// Longest text from outside in a line of the audit log, in bytes.
pub const AUDIT_TEXT_BYTES_MAX: usize = 200;

/// Most workers that a line of the audit log names.
pub const AUDIT_NAMES_MAX: usize = 5;

/// Part of [`SESSIONS_MAX`] that any identity gets: while it has less, a new session of it replaces one
/// of the identity with the most.
pub const SESSIONS_SHARE_DIVISOR: usize = 8;

/// Identities that are remembered after they left. Those with connections come on top.
pub const ACCOUNTS_MAX: usize = 1_000;

/// When a peer that was refused for lack of room should come back.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Largest record of the log, in bytes: the size that the largest message can have with nodes and
/// names in the collector's terms. A larger flush is rejected.
pub const WAL_RECORD_BYTES_MAX: usize = 16 << 20;

/// Largest file of the log, in bytes. A file is read whole at the start.
pub const WAL_FILE_BYTES_MAX: u64 = 64 << 20;

/// Most bytes of flushes that wait to be logged; past it, streams wait.
pub const WAL_QUEUE_BYTES_MAX: usize = 64 << 20;

/// Bytes of queued flushes at which the log stops waiting for more to sync together: those of one of the
/// largest flushes, because a small flush that arrives meanwhile waits until the whole group is applied.
pub const WAL_GROUP_BYTES_MAX: usize = 1 << 20;

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

/// Free bytes of the disk that everything but the log and tables leaves, so that ingest is not what stops first.
pub const WRITERS_RESERVE_BYTES: u64 = 2 * DISK_RESERVE_BYTES;

/// How often the disk's free space is checked, and how long a full disk is left alone.
pub const DISK_CHECK_EVERY: Duration = Duration::from_secs(1);

/// How far ahead of the collector's clock any time may be. A later time comes from a wrong
/// clock, and its rows would outlive everything else.
pub const AHEAD_MAX: Duration = Duration::from_secs(60 * 60);

/// How far behind the collector's clock a cycle of a live agent may start or a task end: longer than the
/// default retention. Older rows come from a wrong clock. Pushes and imports may be as old as they are retained.
pub const BEHIND_MAX: Duration = Duration::from_secs(400 * 86_400);

/// Most threads that a process can have spent a cycle's weight in. The default limit on memory
/// mappings allows half as many.
pub const CYCLE_THREADS_MAX: u64 = 1 << 16;

/// Threads that an agent may have without showing them in its time by thread.
pub const THREADS_UNSHOWN_MAX: u64 = 16;

/// Threads without ids for each thread with one, where an agent counts threads together by name. It does so
/// from the 257th young thread on, and from the 4,097th of all.
pub const THREADS_PER_SHOWN_MAX: u64 = 16;

/// Time of a thread from before a cycle that may count in the cycle: an agent attributes a thread's
/// time when it next sees the thread, which may be after the process was stopped for a while.
pub const CYCLE_LATE_MAX: Duration = Duration::from_secs(60);

/// The age at which data counts as late.
pub const LATE_AFTER: Duration = Duration::from_secs(86_400);

/// Most hours other than the last day's that data in memory may be spread over: eight days of an
/// absent agent. Past it, agents wait until memory is sealed. A single flush that spans more is
/// rejected.
pub const LATE_HOURS_MAX: usize = 200;

/// How long after its end a session keeps its dictionary in memory. An agent that reconnects later
/// sends it again.
pub const TRANSLATION_KEPT: Duration = Duration::from_secs(15 * 60);

/// How long an agent may be away without Goodbye before its running tasks end as lost.
pub const GRACE: Duration = Duration::from_secs(10);

/// How long a stream may be silent. An agent flushes each second, so a silent one is cut off or
/// stopped; a live agent reconnects by itself.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Data that ends later than that after the collector's now is of a clock that is ahead. Clients round to seconds.
pub const DATA_AHEAD_MAX: Duration = Duration::from_secs(2);

/// How long before its end a stream's last message is older than that of a process that was killed:
/// several flushes are missing then.
pub const SILENT_AFTER: Duration = Duration::from_secs(5);

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

/// Most short queries computed at once, and one more if it is of an identity that has none. Each may hold a
/// copy of the unsealed windows' weights.
pub const QUERIES_MAX: usize = 2;

/// Most long queries computed at once, besides the short ones, and one more like above.
pub const LONG_QUERIES_MAX: usize = 1;

/// A query that has computed for longer is a long one.
pub const SHORT_QUERY_CPU_MAX: Duration = Duration::from_millis(250);

/// The same by the clock on the wall, for queries that wait for a disk or a bucket.
pub const SHORT_QUERY_TIME_MAX: Duration = Duration::from_secs(3);

/// Most open pages that receive updates; further ones are refused.
pub const PAGES_MAX: usize = 200;

/// Shortest time between two updates of a page.
pub const PULSE_EVERY: Duration = Duration::from_secs(1);

/// How often an idle update stream is written to, so that both ends notice a broken connection.
pub const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// Most bytes of the sums of one query: 4 million stacks in all eight states.
pub const QUERY_BYTES_MAX: usize = 256 << 20;

/// Most nodes of the tree for which a shape is cached between queries, at about 20 bytes a node
/// and 100 a frame. Past it, each query sorts its own nodes.
pub const SHAPE_NODES_MAX: usize = 256 << 10;

/// Most cached shapes of the tree: with and without phases, by function and by line.
pub const SHAPES_MAX: usize = 2;

/// Most sums, by group, stack and state, of one grouped profile.
pub const GROUPED_SUMS_MAX: usize = 4 << 20;

/// Most rows, by second, worker, stack or thread, and state, of a profile of single threads.
pub const THREAD_PROFILE_ROWS_MAX: usize = 4 << 20;

/// Most seconds of a profile by second: ten minutes, which is more columns than a page has room for.
pub const PROFILE_SECONDS_MAX: usize = 600;

/// Separate groups of a profile or a timeline without a limit in the query; the lighter ones are summed in one more.
pub const GROUPS_DEFAULT: usize = 100;

/// Most separate groups of a profile or a timeline.
pub const GROUPS_MAX: usize = 10_000;

/// Most groups whose time is summed to find the heaviest, such as threads of workers: 64 MiB.
pub const GROUPS_SUMMED_MAX: usize = 1 << 20;

/// Most services of pushed profiles of one answer.
pub const SERVICES_SHOWN_MAX: usize = 1_000;

/// Most tasks with samples and without rows of one summary; the lighter ones are left out.
pub const SAMPLED_TASKS_MAX: usize = 1_000;

/// Most series by label of one answer.
pub const SERIES_MAX: usize = 10_000;

/// Most sums, by series and step, of one answer of series by label: 32 MiB.
pub const SERIES_STEPS_MAX: u64 = 4 << 20;

/// Most separate threads of an answer on thread time; the lighter ones are summed by worker.
pub const THREAD_TIME_THREADS_MAX: usize = 10_000;

/// Most sums, by worker, thread, task and state, of one answer on thread time.
pub const THREAD_TIME_SUMS_MAX: usize = 4 << 20;

/// Most queries that wait for a permit; further ones are refused.
pub const QUERIES_WAITING_MAX: usize = 64;

/// How often rows in memory are sealed into tables.
pub const SEAL_EVERY: Duration = Duration::from_secs(60);

/// Unsealed bytes in memory at which a sealing starts early. They stay in memory until they are sealed.
pub const UNSEALED_BYTES_MAX: usize = 48 << 20;

/// Most bytes of unsealed windows that a sealing copies at once, to bring them into the order of tables.
pub const SEAL_BUFFER_BYTES_MAX: usize = 16 << 20;

/// Unsealed bytes in memory at which streams wait for a sealing. It has the lower priority
/// otherwise.
pub const UNSEALED_BYTES_SLOW: usize = 2 * UNSEALED_BYTES_MAX;

/// How long a stream waits for a sealing at most, each time.
pub const SEALING_WAIT_MAX: Duration = Duration::from_secs(10);

/// Unsealed bytes in memory at which ingest is blocked: sealing fails or is too slow.
pub const UNSEALED_BYTES_FULL: usize = 4 * UNSEALED_BYTES_MAX;

/// The same for identities that sent less than half of these bytes.
pub const UNSEALED_BYTES_FULL_FOR_OTHERS: usize = UNSEALED_BYTES_FULL / 8 * 9;

/// How long after a failed sealing it is retried.
pub const SEAL_RETRY_AFTER: Duration = Duration::from_secs(5);

/// How often the tables are maintained.
pub const MAINTAIN_EVERY: Duration = Duration::from_secs(60);

/// Most bytes of the tables of a collector that keeps nothing on disk.
pub const MEMORY_TABLES_BYTES_MAX: u64 = 256 << 20;

/// How long a query waits for a permit.
pub const QUERY_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a long query waits for others like it.
pub const LONG_QUERY_WAIT_MAX: Duration = Duration::from_secs(60);

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

/// Rows of tasks in an answer without a `limit` parameter.
pub const TASK_ROWS_DEFAULT: usize = 10_000;

/// Most rows of tasks in an answer.
pub const TASK_ROWS_MAX: usize = 100_000;

/// Most rows of tasks in a columnar answer, where a row takes about 25 bytes instead of 500.
pub const TASK_COLUMNS_MAX: usize = 1_000_000;

/// Workers in an answer on workers without a `limit` parameter.
pub const WORKERS_DEFAULT: usize = 1_000;

/// Most steps of a timeline.
pub const TIMELINE_STEPS_MAX: u64 = 4_000;

/// Most periods of the tables that the steps of an answer consist of: a step of 90 s consists of seconds.
pub const STEP_PERIODS_MAX: u64 = 500_000;

/// Most steps of the durations of a task name, unless a step is given.
pub const DURATION_STEPS_DEFAULT: u64 = 200;

/// Most buckets of all histograms of an answer, about 40 bytes each.
pub const DURATION_BUCKETS_MAX: usize = 1_000_000;

/// Task names in a comparison without a `limit` parameter.
pub const COMPARED_NAMES_DEFAULT: usize = 1_000;

/// Slices of time on each side of a comparison, which show how much durations fluctuate: more would be
/// too short to differ from their neighbors, fewer would not show how much they differ.
pub const COMPARED_SLICES: usize = 20;

/// Most sums, by series and step, of a timeline: 64 MiB.
pub const TIMELINE_SUMS_MAX: u64 = 1 << 20;

/// How long requests and streams may take to end at a shutdown.
pub const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// Most open connections, fewer if the process may have fewer descriptors.
pub const CONNECTIONS_MAX: usize = 20_000;

/// Open connections of a process that may have hardly any descriptors.
pub const CONNECTIONS_MIN: usize = 32;

/// Descriptors that connections leave to the store: [`OPEN_FILES_MAX`], the log, files that are being
/// written, and those of the runtime.
pub const DESCRIPTORS_RESERVED: usize = OPEN_FILES_MAX + 88;

/// Longest time from a connection to its first request, and for the head of each request.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time for the body of a reader's request.
pub const UPLOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time without a request on a connection.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest time in which a peer takes nothing of an answer.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a peer that speaks HTTP/2 is pinged, and how long it may take to answer.
pub const PING_EVERY: Duration = Duration::from_secs(20);

/// Most streams of one connection.
pub const STREAMS_MAX: u32 = 64;

/// Most bytes that a peer may send ahead on one stream, and on all streams of a connection together.
pub const RECEIVE_WINDOW_BYTES: u32 = 256 << 10;

/// An address with so many connections has its further ones served by threads of lower priority. A browser
/// opens at most six.
pub const CROWD_CONNECTIONS_MIN: usize = 8;

/// Most bytes of one response that wait for the peer in the protocol's own buffers.
pub const SEND_BUFFER_BYTES: usize = 64 << 10;

/// Most bytes of a request's head, and of HTTP/1's buffers for a connection.
pub const HEAD_BYTES_MAX: usize = 128 << 10;

/// How long the last sealing may take at a shutdown. Together with [`SHUTDOWN_MAX`] less than the ten
/// seconds after which container runtimes kill a process.
pub const SEAL_AT_END_MAX: Duration = Duration::from_secs(4);

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

/// Most bytes of the lists of workers of the store's files; past it, all are read again on demand.
pub const FILE_WORKERS_BYTES_MAX: usize = 16 << 20;

/// Most bytes of the sums of a store's files that are kept for queries that are asked again; past it, all are read again.
pub const FILE_SUMS_BYTES_MAX: usize = 16 << 20;

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

/// How long unused files of the store stay, for queries that began before.
pub const GARBAGE_KEPT: Duration = Duration::from_secs(600);

/// How long a damaged manifest stays, with the files that only it names: time for a person to act.
pub const DAMAGED_LISTS_KEPT: Duration = Duration::from_secs(30 * 86_400);

/// The most by which a time without data counts as age, so that a clock that is wrong by years ages
/// the data by a day.
pub const AGE_GAP_MAX: Duration = Duration::from_secs(86_400);

/// Most task names that an identity may add when others have used up [`LEDGER_NAMES_MAX`].
pub const RESERVED_NAMES_MAX: usize = 100;

/// Most phases of tasks that an identity may add when others have used up [`PHASES_MAX`].
pub const RESERVED_PHASES_MAX: usize = 1_000;

/// Most pairs of peer and type that an identity may add when others have used up [`LINKS_MAX`].
pub const RESERVED_LINKS_MAX: usize = 1_000;

/// Most named runs of the API, and most of agents, of which an identity may have a tenth.
pub const RUNS_MAX: usize = 10_000;

/// Most expectations (of one name, in one life of a worker), of which an identity may have a tenth.
pub const EXPECTATIONS_MAX: usize = 100_000;

/// Most workers with rows of their own in tables; further ones share `[overflow]`. With a thousand new
/// ids a day, three years.
pub const WORKERS_MAX: usize = 1 << 20;

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

/// Most subscribers to events of one identity, while no others want them; further ones are refused.
pub const EVENT_SUBSCRIBERS_MAX: usize = 32;

/// Most requests of one identity that wait for a profile of the time to come, while no others want
/// them; further ones are refused.
pub const LIVE_PROFILES_MAX: usize = 16;

/// Longest time to come in a profile.
pub const LIVE_PROFILE_SECONDS_MAX: u32 = 300;

/// Most recent events of workers, and most of damage and ingestion.
pub const EVENTS_RECENT_MAX: usize = 1_000;

/// Most pushed series in one event.
pub const EVENT_WORKERS_MAX: usize = 100;

/// Most recent events of runs.
pub const EVENTS_RUNS_RECENT_MAX: usize = 500;

/// How often an idle event stream is written to.
pub const EVENTS_KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How often a collector warns that others can reach it unprotected.
pub const EXPOSED_WARNING_EVERY: Duration = Duration::from_secs(3_600);

/// Most log lines of one kind that agents and readers can cause at once.
pub const LOG_LINES_AT_ONCE: u32 = 50;

/// How often such a line may be written after that: 17,000 lines a day of each kind.
pub const LOG_LINE_EVERY: Duration = Duration::from_secs(5);

/// A duration in nanoseconds, as timestamps have them.
pub fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
