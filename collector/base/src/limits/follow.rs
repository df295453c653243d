//! Limits of a reader of other collectors' stores.

use std::time::Duration;

/// How often a reader looks for what is new in each store: two lists each, 3,600 an hour and store.
pub const FOLLOW_EVERY: Duration = Duration::from_secs(2);

/// A reader pauses this many times as long as a look took, so that a large fleet takes a fifth of a processor.
pub const FOLLOW_PAUSE_FACTOR: u32 = 4;

/// How often a reader looks for new stores.
pub const STORES_LISTED_EVERY: Duration = Duration::from_secs(15);

/// How often a store is read from the start because its collector publishes versions meanwhile.
pub const FOLLOW_READS_MAX: u32 = 5;

/// The missing part of a store begins this long before its last read, because flushes were in flight.
pub const FOLLOW_MARGIN: Duration = Duration::from_secs(60);

/// A reader takes an agent for away if nothing of it was stored for this long: agents flush each second, and a
/// look at a large fleet takes a while.
pub const AWAY_AFTER: Duration = Duration::from_secs(30);

/// Stacks of a store that are added to the union under one lock.
pub const UNION_NODES_AT_ONCE: usize = 16_384;

/// A difference between the clock of a collector and that of its store's server that readers warn of. Objects have whole
/// seconds, and their requests take time.
pub const CLOCK_OFFSET_SHOWN: Duration = Duration::from_secs(5);
