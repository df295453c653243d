//! The collector: what readers see, what streams change, and what turns memory into tables.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use profiler_core::Timestamp;

use crate::follow::{FollowError, FollowOptions, Follower};
use crate::ingest::Ingest;
use crate::pushed::Pushed;
use crate::query::{FleetView, WorkersQuery};
use crate::sealing::Sealer;
use shares::{Account, Accounts, Quota, QuotaSettings, QuotaUse};
use crate::state::CollectorState;
use base::clock::Clock;
use base::limits::{GRACE, Limits, MEMORY_TABLES_BYTES_MAX, QUOTA_ROWS_MAX};
use naming::Naming;
use store::late_hours::LateHours;
use store::{Objects, Retention, StoreError};

/// Receives, merges, stores, answers. [`Collector::bind`] makes one and opens its port.
#[derive(Debug)]
pub struct Collector {
    pub(crate) state: Arc<CollectorState>,
    pub(crate) ingest: Arc<Ingest>,
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) pushed: Arc<Pushed>,
    /// Keeps `state` in step with the stores of other collectors; then nothing else changes it.
    pub(crate) follower: Option<Follower>,
    /// Of the stores of dead collectors.
    pub(crate) adoptions: AdoptionCounts,
}

/// Adoptions of stores since the start.
#[derive(Debug, Default)]
pub(crate) struct AdoptionCounts {
    pub(crate) done: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// The options of a collector, without those of its server.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    pub(crate) quotas: QuotaSettings,
    pub(crate) retention: Retention,
    pub(crate) grace: Duration,
    pub(crate) naming: Naming,
}

/// A quota that an identity met.
#[derive(Clone, Debug)]
pub(crate) struct QuotaView {
    pub(crate) account: Arc<Account>,
    pub(crate) quota: Quota,
    pub(crate) counted: QuotaUse,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            clock: Clock::default(),
            limits: Limits::default(),
            quotas: QuotaSettings::default(),
            retention: Retention::default(),
            grace: GRACE,
            naming: Naming::default(),
        }
    }
}

impl Collector {
    /// A collector that keeps everything in memory.
    pub(crate) fn new(mut settings: Settings) -> Collector {
        let bytes_max = &mut settings.retention.bytes_max;
        *bytes_max = MEMORY_TABLES_BYTES_MAX.min(*bytes_max);
        Collector::over(settings, Objects::memory()).expect("an empty store in memory opens")
    }

    /// A collector with the tables in `objects` and without a log.
    pub(crate) fn over(settings: Settings, objects: Objects) -> Result<Collector, StoreError> {
        let Settings { clock, limits, quotas, retention, grace, naming } = settings;
        let state = Arc::new(CollectorState::open(clock, limits, objects, naming)?);
        let ingest = Ingest::new(state.clone(), None, LateHours::default(), grace, &retention);
        Ok(Collector::of(state, ingest, retention, &quotas))
    }

    /// Answers for the collectors of a place, and accepts nothing.
    pub(crate) fn follow(
        settings: Settings,
        options: FollowOptions,
    ) -> Result<Collector, FollowError> {
        let Settings { clock, limits, quotas, retention, grace, naming } = settings;
        let (follower, state) = Follower::start(options, clock, limits, naming)?;
        let ingest = Ingest::new(state.clone(), None, LateHours::default(), grace, &retention);
        let collector = Collector::of(state, ingest, retention, &quotas);
        Ok(Collector { follower: Some(follower), ..collector })
    }

    /// A collector of these parts.
    pub(crate) fn of(
        state: Arc<CollectorState>,
        ingest: Ingest,
        retention: Retention,
        quotas: &QuotaSettings,
    ) -> Collector {
        let ingest = Arc::new(ingest);
        let sealer = Arc::new(Sealer::new(state.clone(), ingest.clone(), retention));
        let accounts = Arc::new(Accounts::new(quotas));
        let pushed = Arc::new(Pushed::new(ingest.clone()));
        let adoptions = AdoptionCounts::default();
        Collector { state, ingest, sealer, accounts, pushed, follower: None, adoptions }
    }

    /// The quotas that were met since the start, those with the most refusals first.
    pub(crate) fn quota_uses(&self) -> Vec<QuotaView> {
        let mut views = Vec::new();
        for account in self.accounts.all() {
            let view = |(quota, counted): (Quota, QuotaUse)| QuotaView {
                account: account.clone(),
                quota,
                counted,
            };
            views.extend(account.uses().into_iter().map(view));
        }
        views.sort_by_key(|view| Reverse((view.counted.refused, view.counted.delayed)));
        views.truncate(QUOTA_ROWS_MAX);
        views
    }

    /// Applies changes that depend on time only.
    pub(crate) fn sweep(&self) {
        if self.follower.is_none() {
            let now = self.state.clock.now();
            self.pushed.sweep(now);
            self.ingest.sweep(now);
            self.ingest.blocked();
        }
    }

    /// The sessions of the asked workers, and the totals of the collector.
    pub(crate) fn fleet(&self, query: &WorkersQuery, now: Timestamp) -> FleetView {
        self.state.fleet(query, self.ingest.blocked(), now)
    }
}

#[cfg(any(test, feature = "simulation"))]
impl Collector {
    /// The log; panics without one.
    pub(crate) fn log(&self) -> &crate::commit::Log {
        self.ingest.log.as_ref().expect("the collector has a log")
    }
}

#[cfg(test)]
mod tests;
