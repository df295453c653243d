//! Limits on the names and stacks in memory.

use std::time::Duration;

use super::TREE_NODES_MAX;

/// How often idle names and stacks are looked for. They leave memory two to three times this after their last use.
pub const IDLE_NAMES_AFTER: Duration = Duration::from_secs(1_800);

/// How often that is checked while more than half of the limits on nodes or names is in use.
pub const IDLE_NAMES_HASTE: Duration = Duration::from_secs(60);

/// Most nodes in memory that are not worth a check: below 10 MB.
pub const IDLE_NODES_MIN: usize = 64 << 10;

/// Most different stack nodes in the life of a store. Past it, new stacks count as `[overflow]`. Queries sum in
/// tables with a number for each node.
pub const NODE_IDS_MAX: usize = 4 * TREE_NODES_MAX;
