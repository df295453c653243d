//! Outcomes of pushes, by source.

use std::collections::BTreeMap;

use base::sync::{Mutex, lock, rank};

/// Outcomes of the pushes of one source, since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PushCounts {
    /// Requests that were stored.
    pub(crate) stored: u64,
    /// Time in them.
    pub(crate) stored_ns: u64,
    /// Requests without samples that have time, or any other value.
    pub(crate) empty: u64,
    /// Requests with profiles whose samples measure no time. These are dropped.
    pub(crate) without_time: u64,
    pub(crate) rejected: u64,
    pub(crate) last_rejection: Option<String>,
}

/// The counts of each source.
#[derive(Debug, Default)]
pub(crate) struct PushCounters {
    by_source: Mutex<BTreeMap<&'static str, PushCounts>, rank::PushCounters>,
}

impl PushCounters {
    pub(crate) fn count(&self, source: &'static str, change: impl FnOnce(&mut PushCounts)) {
        change(lock(&self.by_source).entry(source).or_default());
    }

    pub(crate) fn all(&self) -> BTreeMap<&'static str, PushCounts> {
        lock(&self.by_source).clone()
    }
}
