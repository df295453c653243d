//! Limits of the adoption of stores of dead collectors.

use std::time::Duration;

/// How often a collector looks at the owner of a store, in the time after which it counts as gone.
pub const ADOPT_LOOKS: u32 = 6;

/// The longest time between two looks.
pub const ADOPT_LOOK_EVERY_MAX: Duration = Duration::from_secs(600);

/// How many times as long as [`Limits::owner_watch`](super::Limits::owner_watch) an owner must be silent at least.
pub const ADOPT_AFTER_FACTOR_MIN: u32 = 2;

/// The longest time after which an owner counts as gone.
pub const ADOPT_AFTER_MAX: Duration = Duration::from_secs(30 * 86_400);

/// How often a store without an owner is maintained, if it needs it. Each time leaves two small objects for ever.
pub const ADOPT_MAINTAIN_EVERY: Duration = Duration::from_secs(6 * 3_600);

/// How long after a failure a store is looked at again.
pub const ADOPT_RETRY_AFTER: Duration = Duration::from_secs(3_600);

/// Most stores that a collector watches, in the order of their names.
pub const ADOPT_STORES_MAX: usize = 256;

/// Longest time of an adoption. Then its process is killed.
pub const ADOPT_TIME_MAX: Duration = Duration::from_secs(3_600);

/// Longest text that the process of an adoption writes, in bytes.
pub const ADOPT_MESSAGE_BYTES_MAX: usize = 8 << 10;
