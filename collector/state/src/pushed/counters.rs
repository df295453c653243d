//! Outcomes of pushes, by source.

use std::collections::BTreeMap;

use base::sync::{Mutex, lock, rank};

/// Outcomes of the pushes of one source, since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PushCounts {
    /// Requests that were stored.
    pub stored: u64,
    /// Time in them.
    pub stored_ns: u64,
    /// Requests without samples that have time, or any other value.
    pub empty: u64,
    /// Requests with profiles whose samples measure no time. These are dropped.
    pub without_time: u64,
    pub rejected: u64,
    pub last_rejection: Option<String>,
}

/// The counts of each source.
#[derive(Debug, Default)]
pub struct PushCounters {
    by_source: Mutex<BTreeMap<&'static str, PushCounts>, rank::PushCounters>,
}

impl PushCounters {
    pub fn count(&self, source: &'static str, change: impl FnOnce(&mut PushCounts)) {
        change(lock(&self.by_source).entry(source).or_default());
    }

    pub fn all(&self) -> BTreeMap<&'static str, PushCounts> {
        lock(&self.by_source).clone()
    }
}
