//! Outcomes of scrapes.

use std::collections::BTreeMap;
use std::time::Duration;

use profiler_core::Timestamp;

use base::sync::{Mutex, lock, rank};

/// Outcomes of the scrapes of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScrapeStatus {
    /// Its address, for people.
    pub url: String,
    pub every: Duration,
    /// When the last profile was stored.
    pub stored_at: Option<Timestamp>,
    pub stored: u64,
    pub failed: u64,
    /// Why there is no profile since the last one.
    pub failure: Option<String>,
}

/// All services by name.
#[derive(Debug, Default)]
pub struct Scrapes(Mutex<BTreeMap<String, ScrapeStatus>, rank::Scrapes>);

impl Scrapes {
    pub fn add(&self, name: &str, url: &str, every: Duration) {
        let status = ScrapeStatus {
            url: url.to_owned(),
            every,
            stored_at: None,
            stored: 0,
            failed: 0,
            failure: None,
        };
        lock(&self.0).insert(name.to_owned(), status);
    }

    /// Notes the outcome of a profile. Returns whether the service failed or came back just now.
    pub fn note(&self, name: &str, result: Result<Timestamp, String>) -> bool {
        let mut by_name = lock(&self.0);
        let Some(status) = by_name.get_mut(name) else {
            return false;
        };
        let had_failed = status.failure.is_some();
        match result {
            Ok(now) => {
                status.stored += 1;
                status.stored_at = Some(now);
                status.failure = None;
            }
            Err(failure) => {
                status.failed += 1;
                status.failure = Some(failure);
            }
        }
        had_failed != status.failure.is_some()
    }

    pub fn all(&self) -> BTreeMap<String, ScrapeStatus> {
        lock(&self.0).clone()
    }
}
