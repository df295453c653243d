//! Limits of stores in buckets.

use std::time::Duration;

/// Bytes of queued flushes at which the log stops waiting for more, where each group is an object of a bucket.
pub const BUCKET_GROUP_BYTES_MAX: usize = 8 << 20;

/// The least time from one group to the next where each is an object of a bucket, unless a group is full: requests
/// cost money. So at most 14,400 an hour, and as many more as there are [`BUCKET_GROUP_BYTES_MAX`].
pub const BUCKET_GROUP_WAIT: Duration = Duration::from_millis(250);

/// Most attempts of a request to a bucket, each with the client's own retries. Of a proxy that broke off one
/// answer in five, three attempts ended one start in twenty.
pub const BUCKET_ATTEMPTS_MAX: u32 = 12;

/// No attempt of a request to a bucket begins later than this after the first one.
pub const BUCKET_ATTEMPTS_TIME: Duration = Duration::from_secs(10);

/// The pause after the first attempt of a request to a bucket; each further one is twice as long.
pub const BUCKET_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two attempts.
pub const BUCKET_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Most retries of one request to a bucket.
pub const BUCKET_RETRIES_MAX: usize = 5;

/// How long one request to a bucket is retried.
pub const BUCKET_RETRY_MAX: Duration = Duration::from_secs(10);

/// How long a bucket may take to answer a request, unless AWS_TIMEOUT says otherwise.
pub const BUCKET_REQUEST_MAX: Duration = Duration::from_secs(10);

/// Files of tables that are written to a bucket at once.
pub const BUCKET_UPLOADS_MAX: usize = 16;

/// Files of the log that a start reads from a bucket at once.
pub const BUCKET_AHEAD_MAX: usize = 16;

/// Most bytes of the log that a start reads from a bucket at once, if more than one file.
pub const BUCKET_AHEAD_BYTES_MAX: u64 = 32 << 20;

/// Bytes of files of tables that a collector keeps near if its store is in a bucket: on the local disk.
pub const TABLE_CACHE_BYTES: u64 = 2 << 30;

/// The same without a local disk, in memory.
pub const TABLE_CACHE_MEMORY_BYTES: u64 = 256 << 20;

/// How long a new collector watches whether the last owner of its store lives. The owner beats three times as often,
/// and looks for a successor as often: 720 writes and 720 reads an hour.
pub const OWNER_WATCH: Duration = Duration::from_secs(15);

/// Most attempts of a start to be faster than other processes that write to its store.
pub const OWNER_CLAIMS_MAX: usize = 10;

/// Largest difference between the clock of a collector and that of a bucket's server at the start.
pub const CLOCK_OFFSET_MAX: Duration = Duration::from_secs(300);
