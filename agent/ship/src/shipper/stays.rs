//! The collectors that an agent may ship to, and its stays at them.
//!
//! An agent ships to one collector at a time. If that one is gone, the agent moves to the next one. Collectors
//! know nothing of each other, so what keeps a flush from counting twice is the agent: a flush is sent to one
//! collector only. Each stay has an epoch and an outbox of its own. At a move, batches that were never sent
//! move along. Flushes without an answer stay behind in the outbox of the stay that ended, because the
//! collector may have stored them. When it answers again, it tells which ones, and gets the others.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex};

use profiler_core::SessionKey;

use super::ShipError;
use super::outbox::{Outbox, OutboxAccount};
use super::target::Target;
use system::sync::lock;

/// Most collectors in a list.
pub(super) const DESTINATIONS_MAX: usize = 16;

/// Most stays that wait for their collector's answer.
pub(super) const UNSETTLED_MAX: usize = 8;

/// A collector of the list.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) url: String,
    pub(super) target: Target,
}

/// Parses a list of URLs, separated by commas or spaces. The best one for this worker comes first: each
/// worker has an order of its own (rendezvous hashing), so that a fleet spreads, and spreads again when a
/// collector is gone.
///
/// # Errors
/// [`ShipError::Url`] with the URL that is wrong.
pub(super) fn parse_list(list: &str, worker: &str) -> Result<Vec<Destination>, ShipError> {
    let invalid = |url: &str, reason| ShipError::Url {
        url: url.to_owned(),
        reason,
    };
    let mut destinations = Vec::new();
    for url in list.split([',', ' ']).filter(|url| !url.is_empty()) {
        let target = Target::parse(url).map_err(|reason| invalid(url, reason))?;
        destinations.push(Destination {
            url: url.to_owned(),
            target,
        });
    }
    if destinations.is_empty() {
        return Err(invalid(list, "it is empty".to_owned()));
    }
    let count = destinations.len();
    if count > DESTINATIONS_MAX {
        let reason = format!("it has {count} collectors; at most {DESTINATIONS_MAX} are allowed");
        return Err(invalid(list, reason));
    }
    destinations.sort_by_cached_key(|destination| rank(worker, &destination.url));
    destinations.dedup_by(|a, b| a.url == b.url);
    Ok(destinations)
}

/// The place of a collector in a worker's order.
fn rank(worker: &str, url: &str) -> u64 {
    // Without a random key: a worker that restarts goes to the same collector.
    let mut hasher = DefaultHasher::new();
    (worker, url).hash(&mut hasher);
    hasher.finish()
}

/// A stay that ended, at a collector that may have flushes without an answer, or running tasks.
#[derive(Debug)]
pub(super) struct UnsettledStay {
    /// Index of its collector.
    pub(super) at: usize,
    pub(super) key: SessionKey,
    pub(super) outbox: Mutex<Outbox>,
}

/// The stays that ended.
#[derive(Debug, Default)]
pub(super) struct EndedStays {
    /// Accounts of stays that are settled or given up.
    settled: OutboxAccount,
    unsettled: Vec<Arc<UnsettledStay>>,
}

impl EndedStays {
    /// Adds a stay. If there are too many, or they take more than `bytes_max`, the oldest one is given up: what
    /// it had in flight counts as unacknowledged.
    pub(super) fn add_unsettled(&mut self, stay: UnsettledStay, bytes_max: usize) {
        self.unsettled.push(Arc::new(stay));
        while self.unsettled.len() > UNSETTLED_MAX || self.in_flight_bytes() > bytes_max {
            let oldest = self.unsettled.remove(0);
            self.add_settled(lock(&oldest.outbox).current_account());
        }
    }

    pub(super) fn add_settled(&mut self, account: OutboxAccount) {
        self.settled += account;
    }

    /// A stay's collector has answered all of its flushes.
    pub(super) fn settle(&mut self, stay: &Arc<UnsettledStay>) {
        let before = self.unsettled.len();
        self.unsettled.retain(|other| !Arc::ptr_eq(other, stay));
        if self.unsettled.len() < before {
            self.add_settled(lock(&stay.outbox).current_account());
        }
    }

    pub(super) fn unsettled(&self) -> &[Arc<UnsettledStay>] {
        &self.unsettled
    }

    /// The account of all of them.
    pub(super) fn account(&self) -> OutboxAccount {
        let mut sum = self.settled;
        for stay in &self.unsettled {
            sum += lock(&stay.outbox).current_account();
        }
        sum
    }

    fn in_flight_bytes(&self) -> usize {
        self.unsettled
            .iter()
            .map(|stay| lock(&stay.outbox).in_flight_bytes())
            .sum()
    }
}

#[cfg(test)]
mod tests;
