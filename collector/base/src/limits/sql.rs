//! Limits on queries in SQL.

use std::time::Duration;

/// Longest query, in bytes.
pub const SQL_QUERY_BYTES_MAX: usize = 64 << 10;

/// Queries in SQL that run at once, each in a process of its own.
pub const SQL_QUERIES_MAX: usize = 2;

/// Time for which a collector seals nothing more for queries: each sealing makes small files.
pub const SQL_SEAL_EVERY: Duration = Duration::from_secs(10);

/// Longest time that a query waits for a sealing.
pub const SQL_SEAL_MAX: Duration = Duration::from_secs(5);

/// Sums that a cluster takes for profiles at once.
pub const CLUSTER_SUMS_MAX: usize = 2;

/// Most address space of a process that works for a collector on a debug file, of 3 GB for example, or a store.
pub const PROCESS_ADDRESS_SPACE_MAX: u64 = 8 << 30;

/// Most address space of a query's process. Two of them run at once, so it is less on a small machine.
pub const SQL_ADDRESS_SPACE_MAX: u64 = 2 << 30;

/// Least address space with which a query runs: its threads and its program take a third.
pub const SQL_ADDRESS_SPACE_MIN: u64 = 768 << 20;

/// Most seconds of CPU time of a query, or a debug file.
pub const PROCESS_CPU_SECONDS_MAX: u64 = 240;

/// Longest time of a query. Files of a store's version stay for 10 minutes.
pub const SQL_TIME_MAX: Duration = Duration::from_secs(60);

/// Most memory that the operators of a query take: a quarter of its address space. Beyond it, sorts and sums use files.
pub const SQL_MEMORY_BYTES_MAX: usize = (SQL_ADDRESS_SPACE_MAX / 4) as usize;

/// Most bytes of these files.
pub const SQL_SPILL_BYTES_MAX: u64 = 2 << 30;

/// Most rows of an answer unless the query says otherwise.
pub const SQL_ROWS_DEFAULT: usize = 10_000;

/// Most rows of an answer.
pub const SQL_ROWS_MAX: usize = 1_000_000;

/// Most bytes of an answer.
pub const SQL_ANSWER_BYTES_MAX: usize = 64 << 20;

/// Longest message of a process that answers, in bytes.
pub const SQL_MESSAGE_BYTES_MAX: usize = 8 << 10;
