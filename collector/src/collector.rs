//! The collector: what readers see, what streams change, and what turns memory into tables.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::ingest::Ingest;
use crate::late_hours::LateHours;
use crate::limits::{GRACE, Limits, MEMORY_TABLES_BYTES_MAX};
use crate::query::FleetView;
use crate::sealing::Sealer;
use crate::state::CollectorState;
use crate::store::{Objects, Retention, StoreError};

/// Receives, merges, stores, answers. [`Collector::bind`] makes one and opens its port.
#[derive(Debug)]
pub struct Collector {
    pub(crate) state: Arc<CollectorState>,
    pub(crate) ingest: Arc<Ingest>,
    pub(crate) sealer: Arc<Sealer>,
}

/// The options of a collector, without those of its server.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    pub(crate) retention: Retention,
    pub(crate) grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            clock: Clock::default(),
            limits: Limits::default(),
            retention: Retention::default(),
            grace: GRACE,
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
        let Settings { clock, limits, retention, grace } = settings;
        let state = Arc::new(CollectorState::open(clock, limits, objects)?);
        let ingest = Ingest::new(state.clone(), None, LateHours::default(), grace);
        Ok(Collector::of(state, ingest, retention))
    }

    /// A collector of these parts.
    pub(crate) fn of(
        state: Arc<CollectorState>,
        ingest: Ingest,
        retention: Retention,
    ) -> Collector {
        let ingest = Arc::new(ingest);
        let sealer = Arc::new(Sealer::new(state.clone(), ingest.clone(), retention));
        Collector { state, ingest, sealer }
    }

    /// The sessions of these workers (of all if none is named), and the totals of the collector.
    pub(crate) fn fleet(&self, workers: &[String]) -> FleetView {
        self.state.fleet(workers, self.ingest.blocked())
    }
}

#[cfg(test)]
impl Collector {
    /// The log; panics without one.
    pub(crate) fn log(&self) -> &crate::commit::Log {
        self.ingest.log.as_ref().expect("the collector has a log")
    }
}

#[cfg(test)]
mod tests;
