//! Many agents on one runtime, what they count together, and how they are led: where the collector
//! is, whether to make flushes or only to get rid of them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::transport::{Channel, Endpoint};

use crate::agent::{Agent, lock};
use crate::random::Random;
use crate::record::{Record, Violation};
use crate::stream;

/// Streams that are being opened at once: a collector gives each of them ten seconds.
const ATTACHING_MAX: usize = 256;

/// How agents send.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// The next as soon as fewer than this many are not answered.
    AsFast {
        /// At least 1.
        in_flight: usize,
    },
    /// One a second, each agent in a part of the second of its own; one more than a minute of them
    /// is never kept.
    EverySecond,
}

/// How a fleet is led.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How agents send.
    pub pace: Pace,
    /// Agents that share a connection.
    pub agents_per_connection: usize,
    /// How likely an agent ends with its stream and begins a new life.
    pub new_life: f64,
    /// Flushes that an agent makes at most.
    pub flushes_max: u64,
}

/// What to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Make flushes and send them.
    Run,
    /// Send those that there are.
    Drain,
}

/// A collector that is there.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    channels: Arc<Vec<Channel>>,
}

impl Place {
    pub(crate) fn channel(&self, agent: usize) -> Channel {
        self.channels[agent % self.channels.len()].clone()
    }
}

/// Counts of the whole fleet since it began.
#[derive(Default, Debug)]
pub struct Counts {
    /// Flushes that were handed to a stream, those sent again too.
    pub sent: AtomicU64,
    /// Flushes that were acked.
    pub acked: AtomicU64,
    /// Pairs in them.
    pub pairs: AtomicU64,
    /// Bytes of all messages.
    pub bytes: AtomicU64,
    /// Flushes that were held although no ack had come.
    pub held_unacked: AtomicU64,
    /// Flushes that are neither acked nor gone with their life.
    pub(crate) open: AtomicU64,
    /// Flushes that went with their life before an ack: they may be held or not.
    pub abandoned: AtomicU64,
    /// Streams that are open now.
    pub attached: AtomicU64,
    /// Seconds that were left out because the agent could not get rid of earlier ones.
    pub skipped: AtomicU64,
    /// Streams that ended.
    pub broken: AtomicU64,
}

/// How long acks took, in microseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// From handing a flush to its stream.
    pub since_sent: Histogram<u64>,
    /// From when it was due: with what the generator itself was late.
    pub since_due: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        /// Ten minutes: what takes longer counts as that.
        const MOST: u64 = 600_000_000;
        let histogram = || Histogram::new_with_bounds(1, MOST, 3).expect("the bounds are good");
        Latencies { since_sent: histogram(), since_due: histogram() }
    }
}

/// Wakes whoever waits for a count to be reached, at once.
#[derive(Debug)]
pub(crate) struct Trap {
    at: AtomicU64,
    sprung: Notify,
}

impl Default for Trap {
    fn default() -> Self {
        Trap { at: AtomicU64::new(u64::MAX), sprung: Notify::new() }
    }
}

impl Trap {
    /// Adds one; springs if that reaches the trap.
    pub(crate) fn count(&self, counter: &AtomicU64) {
        if counter.fetch_add(1, Relaxed) + 1 >= self.at.load(Relaxed) {
            self.sprung.notify_one();
        }
    }
}

/// What all agents share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    pub(crate) counts: Counts,
    pub(crate) acks: Trap,
    pub(crate) sends: Trap,
    pub(crate) changed: Notify,
    pub(crate) attaching: Semaphore,
    pub(crate) latencies: Mutex<Latencies>,
    violations: Mutex<Vec<Violation>>,
    last_error: Mutex<String>,
}

impl Shared {
    pub(crate) fn violate(&self, violation: Violation) {
        lock(&self.violations).push(violation);
        self.changed.notify_one();
        self.acks.sprung.notify_one();
        self.sends.sprung.notify_one();
    }

    pub(crate) fn broken(&self, reason: &str) {
        self.counts.broken.fetch_add(1, Relaxed);
        reason.clone_into(&mut lock(&self.last_error));
    }
}

/// A count to wait for.
#[derive(Clone, Copy, Debug)]
pub enum Count {
    /// So many acks from now on.
    Acks(u64),
    /// So many flushes handed to streams from now on.
    Sends(u64),
    /// So many flushes held from now on, acked or found held by a stream after the one that sent them:
    /// a collector that turns late data away until it has sealed ends streams whose acks are under way.
    Held(u64),
}

/// How often a count is looked at that nothing springs for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A fleet at work; it ends when it is dropped.
#[derive(Debug)]
pub struct Fleet {
    shared: Arc<Shared>,
    place: watch::Sender<Option<Place>>,
    phase: watch::Sender<Phase>,
    records: Vec<Arc<Mutex<Record>>>,
    agents: JoinSet<()>,
}

/// The fleet did not get where it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// It waited long enough.
    #[error(
        "the fleet waited {waited:?} for {what}: {attached} of {agents} agents are attached, \
         {open} flushes are not acked, {acked} are; the last stream that broke said: {said:?}"
    )]
    Stuck {
        /// For what.
        what: &'static str,
        /// How long.
        waited: Duration,
        /// Open streams.
        attached: u64,
        /// All agents.
        agents: u64,
        /// Flushes that wait.
        open: u64,
        /// Flushes that do not.
        acked: u64,
        /// Why the last stream ended.
        said: String,
    },
    /// The collector broke promises.
    #[error("the collector broke {count} promises, the first: {first}")]
    Violated {
        /// How many.
        count: usize,
        /// The first.
        first: Violation,
    },
}

impl Fleet {
    /// Starts agents, which wait for a collector. To be called on a runtime.
    #[must_use]
    pub fn start(agents: Vec<Agent>, plan: Plan, random: &Random) -> Fleet {
        let shared = Arc::new(Shared {
            plan,
            counts: Counts::default(),
            acks: Trap::default(),
            sends: Trap::default(),
            changed: Notify::new(),
            attaching: Semaphore::new(ATTACHING_MAX),
            latencies: Mutex::default(),
            violations: Mutex::default(),
            last_error: Mutex::default(),
        });
        let (place, phase) = (watch::Sender::new(None), watch::Sender::new(Phase::Run));
        let records = agents.iter().map(Agent::record).collect();
        let mut tasks = JoinSet::new();
        for (index, agent) in agents.into_iter().enumerate() {
            let orders = stream::Orders { place: place.subscribe(), phase: phase.subscribe() };
            let random = random.fork(index);
            tasks.spawn(stream::run(agent, index, orders, shared.clone(), random));
        }
        Fleet { shared, place, phase, records, agents: tasks }
    }

    /// Says where the collector is.
    pub fn point_at(&self, address: SocketAddr) {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .expect("an address makes a URL")
            .tcp_nodelay(true);
        let count = self.records.len().div_ceil(self.shared.plan.agents_per_connection);
        let channels = (0..count).map(|_| endpoint.connect_lazy()).collect();
        self.place.send_replace(Some(Place { channels: Arc::new(channels) }));
    }

    /// The collector is gone.
    pub fn collector_is_gone(&self) {
        self.place.send_replace(None);
    }

    /// Goes on making flushes.
    pub fn go_on(&self) {
        self.phase.send_replace(Phase::Run);
    }

    /// Waits for a count to be reached.
    ///
    /// # Errors
    /// If that takes longer than `patience`, or a promise was broken.
    pub async fn reach(&self, count: Count, patience: Duration) -> Result<(), FleetError> {
        let Shared { counts, acks, sends, .. } = &*self.shared;
        let (trap, counter, more) = match count {
            Count::Acks(more) => (acks, &counts.acked, more),
            Count::Sends(more) => (sends, &counts.sent, more),
            Count::Held(more) => return self.reach_held(more, patience).await,
        };
        let goal = counter.load(Relaxed) + more;
        trap.at.store(goal, Relaxed);
        let until = Instant::now() + patience;
        let result = loop {
            self.check()?;
            if counter.load(Relaxed) >= goal {
                break Ok(());
            }
            // A change that came before this is kept for it.
            if timeout_at(until, trap.sprung.notified()).await.is_err() {
                break Err(self.stuck("acks or sends", patience));
            }
        };
        trap.at.store(u64::MAX, Relaxed);
        result
    }

    async fn reach_held(&self, more: u64, patience: Duration) -> Result<(), FleetError> {
        let counts = &self.shared.counts;
        let held = || counts.acked.load(Relaxed) + counts.held_unacked.load(Relaxed);
        let (goal, until) = (held() + more, Instant::now() + patience);
        while held() < goal {
            self.check()?;
            if Instant::now() >= until {
                return Err(self.stuck("flushes to be held", patience));
            }
            let _ = timeout(LOOK_EVERY, self.shared.changed.notified()).await;
        }
        Ok(())
    }

    /// Lets the agents get rid of what they have, until all are attached and nothing is open.
    ///
    /// # Errors
    /// If that takes longer than `patience`, or a promise was broken.
    pub async fn drain(&self, patience: Duration) -> Result<(), FleetError> {
        self.phase.send_replace(Phase::Drain);
        let all = self.records.len() as u64;
        let until = Instant::now() + patience;
        loop {
            self.check()?;
            let counts = &self.shared.counts;
            if counts.open.load(Relaxed) == 0 && counts.attached.load(Relaxed) == all {
                return Ok(());
            }
            if timeout_at(until, self.shared.changed.notified()).await.is_err() {
                return Err(self.stuck("its flushes to be acked", patience));
            }
        }
    }

    /// Waits until so many agents are attached.
    ///
    /// # Errors
    /// If that takes longer than `patience`, or a promise was broken.
    pub async fn attached(&self, count: usize, patience: Duration) -> Result<(), FleetError> {
        let until = Instant::now() + patience;
        while self.shared.counts.attached.load(Relaxed) < count as u64 {
            self.check()?;
            if timeout_at(until, self.shared.changed.notified()).await.is_err() {
                return Err(self.stuck("its agents to attach", patience));
            }
        }
        Ok(())
    }

    fn stuck(&self, what: &'static str, waited: Duration) -> FleetError {
        let counts = &self.shared.counts;
        FleetError::Stuck {
            what,
            waited,
            attached: counts.attached.load(Relaxed),
            agents: self.records.len() as u64,
            open: counts.open.load(Relaxed),
            acked: counts.acked.load(Relaxed),
            said: lock(&self.shared.last_error).clone(),
        }
    }

    /// # Errors
    /// If a promise was broken.
    pub fn check(&self) -> Result<(), FleetError> {
        let violations = lock(&self.shared.violations);
        match violations.first() {
            None => Ok(()),
            Some(first) => {
                Err(FleetError::Violated { count: violations.len(), first: first.clone() })
            }
        }
    }

    /// What the agents remember; in the order in which they were given.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.records.iter().map(|record| lock(record).clone()).collect()
    }

    /// Its counts.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// How long acks took since this was asked last.
    #[must_use]
    pub fn take_latencies(&self) -> Latencies {
        std::mem::take(&mut *lock(&self.shared.latencies))
    }

    /// Ends the agents.
    pub async fn stop(mut self) {
        self.agents.shutdown().await;
    }
}
