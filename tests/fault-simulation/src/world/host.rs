//! The machine of a collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::collector::{SimulatedCollector, SimulatedDisk, timestamp};
use base::clock::Clock;
use profiler_core::wire::v1::AgentMessage;
use simulation::random::Random;

use crate::scenario::Scenario;

/// A collector's machine, with its disk and its clock.
pub(super) struct Host {
    pub(super) disk: SimulatedDisk,
    pub(super) clock: Clock,
    pub(super) collector: Option<SimulatedCollector>,
    /// A collector that was paused and seemed to have crashed.
    pub(super) fenced: Option<SimulatedCollector>,
    pub(super) is_commit_queued: bool,
    /// Whether any collector has started here.
    pub(super) has_started: bool,
    /// When the paused process goes on. Its machine accepts connections and data.
    pub(super) resumes_at: Option<i64>,
    /// Input that has arrived meanwhile.
    pub(super) unread: Vec<Unread>,
    /// Nobody answers, not even that nobody listens.
    pub(super) is_off: bool,
    /// Its clock minus a correct one.
    clock_off_ns: Arc<AtomicI64>,
}

/// Input that a paused process has not read.
pub(super) enum Unread {
    Message {
        connection: u64,
        message: Box<AgentMessage>,
    },
    HangUp {
        connection: u64,
    },
}

impl Host {
    pub(super) fn new(scenario: &Scenario, mut random: Random, now_ns: &Arc<AtomicI64>) -> Host {
        let clock_off_ns = Arc::new(AtomicI64::new(0));
        let now_ns = now_ns.clone();
        let off_ns = clock_off_ns.clone();
        let now = move || now_ns.load(Ordering::Relaxed) + off_ns.load(Ordering::Relaxed);
        let clock = Clock::from_fn(move || timestamp(now()));
        let disk = SimulatedDisk::new(move || random.next(), clock.clone());
        Host {
            disk: if scenario.is_bucket {
                disk.into_bucket()
            } else {
                disk
            },
            clock,
            collector: None,
            fenced: None,
            is_commit_queued: false,
            has_started: false,
            resumes_at: None,
            unread: Vec::new(),
            is_off: false,
            clock_off_ns,
        }
    }

    /// Sets the clock. Returns how far it was off before.
    pub(super) fn set_clock(&self, off_ns: i64) -> i64 {
        self.clock_off_ns.swap(off_ns, Ordering::Relaxed)
    }

    /// The collector, if its process runs and is not paused.
    pub(super) fn running(&mut self) -> Option<&mut SimulatedCollector> {
        if self.resumes_at.is_some() {
            None
        } else {
            self.collector.as_mut()
        }
    }

    /// Whether a process answers.
    pub(super) fn is_running(&self) -> bool {
        self.resumes_at.is_none() && self.collector.is_some()
    }
}
