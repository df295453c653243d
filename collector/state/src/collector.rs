//! The collector: what readers see, what streams change, and what turns memory into tables.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::CollectorState;
use crate::follow::{FollowError, FollowOptions, Follower};
use crate::ingest::Ingest;
use crate::pushed::Pushed;
use crate::sealing::Sealer;
use base::clock::Clock;
use base::limits::{GRACE, Limits, MEMORY_TABLES_BYTES_MAX, QUOTA_ROWS_MAX};
use naming::Naming;
use shares::{Account, Accounts, Quota, QuotaSettings, QuotaUse};
use store::late_hours::LateHours;
use store::{Objects, Retention, StoreError};

/// Receives, merges, stores, answers. The server opens a port for it.
#[derive(Debug)]
pub struct Collector {
    pub state: Arc<CollectorState>,
    pub ingest: Arc<Ingest>,
    pub sealer: Arc<Sealer>,
    pub accounts: Arc<Accounts>,
    pub pushed: Arc<Pushed>,
    /// Keeps `state` in step with the stores of other collectors; then nothing else changes it.
    pub follower: Option<Follower>,
    /// Of the stores of dead collectors.
    pub adoptions: AdoptionCounts,
}

/// Adoptions of stores since the start.
#[derive(Debug, Default)]
pub struct AdoptionCounts {
    pub done: AtomicU64,
    pub failed: AtomicU64,
}

/// The options of a collector, without those of its server.
#[derive(Debug)]
pub struct Settings {
    pub clock: Clock,
    pub limits: Limits,
    pub quotas: QuotaSettings,
    pub retention: Retention,
    pub grace: Duration,
    pub naming: Naming,
}

/// A quota that an identity met.
#[derive(Clone, Debug)]
pub struct QuotaView {
    pub account: Arc<Account>,
    pub quota: Quota,
    pub counted: QuotaUse,
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
    pub fn new(mut settings: Settings) -> Collector {
        let bytes_max = &mut settings.retention.bytes_max;
        *bytes_max = MEMORY_TABLES_BYTES_MAX.min(*bytes_max);
        Collector::over(settings, Objects::memory()).expect("an empty store in memory opens")
    }

    /// A collector with the tables in `objects` and without a log.
    pub fn over(settings: Settings, objects: Objects) -> Result<Collector, StoreError> {
        let Settings {
            clock,
            limits,
            quotas,
            retention,
            grace,
            naming,
        } = settings;
        let state = Arc::new(CollectorState::open(clock, limits, objects, naming)?);
        let ingest = Ingest::new(state.clone(), None, LateHours::default(), grace, &retention);
        Ok(Collector::of(state, ingest, retention, &quotas))
    }

    /// Answers for the collectors of a place, and accepts nothing.
    pub fn follow(settings: Settings, options: FollowOptions) -> Result<Collector, FollowError> {
        let Settings {
            clock,
            limits,
            quotas,
            retention,
            grace,
            naming,
        } = settings;
        let (follower, state) = Follower::start(options, clock, limits, naming)?;
        let ingest = Ingest::new(state.clone(), None, LateHours::default(), grace, &retention);
        let collector = Collector::of(state, ingest, retention, &quotas);
        Ok(Collector {
            follower: Some(follower),
            ..collector
        })
    }

    /// A collector of these parts.
    pub fn of(
        state: Arc<CollectorState>,
        ingest: Ingest,
        retention: Retention,
        quotas: &QuotaSettings,
    ) -> Collector {
        let ingest = Arc::new(ingest);
        let accounts = Arc::new(Accounts::new(quotas));
        let sealer = Sealer::new(state.clone(), ingest.clone(), accounts.clone(), retention);
        let sealer = Arc::new(sealer);
        let pushed = Arc::new(Pushed::new(ingest.clone()));
        let adoptions = AdoptionCounts::default();
        Collector {
            state,
            ingest,
            sealer,
            accounts,
            pushed,
            follower: None,
            adoptions,
        }
    }

    /// The quotas that were met since the start, those with the most refusals first.
    pub fn quota_uses(&self) -> Vec<QuotaView> {
        let mut views = Vec::new();
        for account in self.accounts.all() {
            views.extend(
                account
                    .uses()
                    .into_iter()
                    .map(|(quota, counted): (Quota, QuotaUse)| QuotaView {
                        account: account.clone(),
                        quota,
                        counted,
                    }),
            );
        }
        views.sort_by_key(|view| Reverse((view.counted.refused, view.counted.delayed)));
        views.truncate(QUOTA_ROWS_MAX);
        views
    }

    /// Applies changes that depend on time only.
    pub fn sweep(&self) {
        if self.follower.is_none() {
            let now = self.state.clock.now();
            self.pushed.sweep(now);
            self.ingest.sweep(now);
            self.ingest.blocked();
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl Collector {
    /// The log; panics without one.
    pub fn log(&self) -> &crate::commit::Log {
        self.ingest.log.as_ref().expect("the collector has a log")
    }
}
