//! Many agents on one runtime, their common counters, and their control: the collector's address,
//! and whether to create flushes or only to drain them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hdrhistogram::Histogram;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::Service;

use crate::agent::{Agent, lock};
use crate::random::Random;
use crate::record::{Record, Violation};
use crate::stream;

/// Most streams being opened at once: a collector allows each of them ten seconds.
const ATTACHING_MAX: usize = 256;

/// How agents send.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// The next flush as soon as fewer than this many are unanswered.
    AsFast {
        /// At least 1.
        in_flight: usize,
    },
    /// One flush in each interval, each agent at its own offset within it. Beyond
    /// a minute of unsent flushes at one a second, further ones are skipped.
    Every {
        /// A second at most.
        interval: Duration,
    },
}

impl Pace {
    /// As real agents send.
    pub const EVERY_SECOND: Pace = Pace::Every {
        interval: Duration::from_secs(1),
    };
}

/// Options of a fleet.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How agents send.
    pub pace: Pace,
    /// Agents per connection.
    pub agents_per_connection: usize,
    /// Probability that an agent ends with its stream and begins a new life.
    pub new_life: f64,
    /// Most flushes per agent.
    pub flushes_max: u64,
}

/// Current phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Create flushes and send them.
    Run,
    /// Send the existing ones.
    Drain,
}

/// Connections to a running collector, shared by the agents.
#[derive(Clone, Debug)]
pub(crate) struct CollectorChannels {
    channels: Arc<Vec<Channel>>,
}

impl CollectorChannels {
    pub(crate) fn channel(&self, agent: usize) -> Channel {
        self.channels[agent % self.channels.len()].clone()
    }
}

/// Counters of the whole fleet.
#[derive(Default, Debug)]
pub struct Counts {
    /// Flushes handed to a stream, including resent ones.
    pub sent: AtomicU64,
    /// Acknowledged flushes.
    pub acked: AtomicU64,
    /// Pairs of node and state in them.
    pub pairs: AtomicU64,
    /// Bytes of all messages.
    pub bytes: AtomicU64,
    /// Flushes that are held although no ack arrived.
    pub held_unacked: AtomicU64,
    /// Flushes neither acknowledged nor lost with their life.
    pub(crate) open: AtomicU64,
    /// Flushes lost with their life before an ack: they may be held or not.
    pub abandoned: AtomicU64,
    /// Currently open streams.
    pub attached: AtomicU64,
    /// Seconds skipped because earlier flushes were not sent yet.
    pub skipped: AtomicU64,
    /// Ended streams.
    pub broken: AtomicU64,
}

/// Ack latencies, in microseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// From handing a flush to its stream.
    pub since_sent: Histogram<u64>,
    /// From its due time: includes delays of the generator itself.
    pub since_due: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies {
            since_sent: histogram(),
            since_due: histogram(),
        }
    }
}

fn histogram() -> Histogram<u64> {
    /// Ten minutes: larger values count as that.
    const MOST: u64 = 600_000_000;
    Histogram::new_with_bounds(1, MOST, 3).expect("the bounds are valid")
}

/// Wakes the waiter of a counter exactly when the counter reaches a value.
#[derive(Debug)]
pub(crate) struct Threshold {
    value: AtomicU64,
    reached: Notify,
}

impl Default for Threshold {
    fn default() -> Self {
        Threshold {
            value: AtomicU64::new(u64::MAX),
            reached: Notify::new(),
        }
    }
}

impl Threshold {
    /// Increments the counter; wakes the waiter if it has reached the value.
    pub(crate) fn count(&self, counter: &AtomicU64) {
        if counter.fetch_add(1, Relaxed) + 1 >= self.value.load(Relaxed) {
            self.reached.notify_one();
        }
    }
}

/// State shared by all agents.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    pub(crate) counts: Counts,
    pub(crate) acks: Threshold,
    pub(crate) sends: Threshold,
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
        self.acks.reached.notify_one();
        self.sends.reached.notify_one();
    }

    pub(crate) fn broken(&self, reason: &str) {
        self.counts.broken.fetch_add(1, Relaxed);
        reason.clone_into(&mut lock(&self.last_error));
    }
}

/// A counter value to wait for.
#[derive(Clone, Copy, Debug)]
pub enum Count {
    /// This many acks from now on.
    Acks(u64),
    /// This many flushes handed to streams from now on.
    Sends(u64),
    /// This many flushes held from now on, acknowledged or found held by a later stream. A
    /// collector that rejects late data until it has sealed ends streams whose acks are in flight.
    HeldFlushes(u64),
}

/// Polling interval of counters without a threshold.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// A running fleet; it ends when it is dropped.
#[derive(Debug)]
pub struct Fleet {
    shared: Arc<Shared>,
    collector: watch::Sender<Option<CollectorChannels>>,
    phase: watch::Sender<Phase>,
    records: Vec<Arc<Mutex<Record>>>,
    agents: JoinSet<()>,
}

/// Why the fleet did not reach its goal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// The wait timed out.
    #[error(
        "the fleet waited {waited:?} for {what}: {attached} of {agents} agents are attached, \
         {open} flushes are not acked, {acked} are; the last stream broke because of {reason:?}"
    )]
    Stuck {
        /// The awaited condition.
        what: &'static str,
        /// How long it waited.
        waited: Duration,
        /// Open streams.
        attached: u64,
        /// All agents.
        agents: u64,
        /// Unanswered flushes.
        open: u64,
        /// Answered flushes.
        acked: u64,
        /// Why the last stream ended.
        reason: String,
    },
    /// The collector broke promises.
    #[error("the collector broke {count} promises, the first: {first}")]
    Violated {
        /// Number of broken promises.
        count: usize,
        /// The first one.
        first: Violation,
    },
}

impl Fleet {
    /// Starts agents, which wait for a collector. Must be called on a runtime.
    #[must_use]
    pub fn start(agents: Vec<Agent>, plan: Plan, random: &Random) -> Fleet {
        let shared = Arc::new(Shared {
            plan,
            counts: Counts::default(),
            acks: Threshold::default(),
            sends: Threshold::default(),
            changed: Notify::new(),
            attaching: Semaphore::new(ATTACHING_MAX),
            latencies: Mutex::default(),
            violations: Mutex::default(),
            last_error: Mutex::default(),
        });
        let collector = watch::Sender::new(None);
        let phase = watch::Sender::new(Phase::Run);
        let records = agents.iter().map(Agent::record).collect();
        let mut tasks = JoinSet::new();
        for (index, agent) in agents.into_iter().enumerate() {
            let signals = stream::AgentSignals {
                collector: collector.subscribe(),
                phase: phase.subscribe(),
            };
            let random = random.fork(index);
            tasks.spawn(stream::run(agent, index, signals, shared.clone(), random));
        }
        Fleet {
            shared,
            collector,
            phase,
            records,
            agents: tasks,
        }
    }

    /// Sets the collector's address.
    pub fn set_collector(&self, address: SocketAddr) {
        self.set_channels(address, |endpoint| endpoint.connect_lazy());
    }

    /// Sets the collector's address; the agents connect by TLS. The protocol of `tls` is `h2`.
    pub fn set_collector_with_tls(&self, address: SocketAddr, tls: Arc<ClientConfig>) {
        self.set_channels(address, |endpoint| {
            endpoint.connect_with_connector_lazy(tls_connector(address, tls.clone()))
        });
    }

    fn set_channels(&self, address: SocketAddr, connect: impl Fn(&Endpoint) -> Channel) {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .expect("an address makes a URL")
            .tcp_nodelay(true);
        let count = self
            .records
            .len()
            .div_ceil(self.shared.plan.agents_per_connection);
        let channels = (0..count).map(|_| connect(&endpoint)).collect();
        self.collector.send_replace(Some(CollectorChannels {
            channels: Arc::new(channels),
        }));
    }

    /// Makes agents wait until [`Fleet::set_collector`] is called again.
    pub fn unset_collector(&self) {
        self.collector.send_replace(None);
    }

    /// Resumes creating flushes.
    pub fn resume(&self) {
        self.phase.send_replace(Phase::Run);
    }

    /// Waits until a counter reaches a value.
    ///
    /// # Errors
    /// If that takes longer than `patience`, or a promise was broken.
    pub async fn reach(&self, count: Count, patience: Duration) -> Result<(), FleetError> {
        let Shared {
            counts,
            acks,
            sends,
            ..
        } = &*self.shared;
        let (threshold, counter, more) = match count {
            Count::Acks(more) => (acks, &counts.acked, more),
            Count::Sends(more) => (sends, &counts.sent, more),
            Count::HeldFlushes(more) => return self.reach_held(more, patience).await,
        };
        let goal = counter.load(Relaxed) + more;
        threshold.value.store(goal, Relaxed);
        let until = Instant::now() + patience;
        let result = loop {
            self.check()?;
            if counter.load(Relaxed) >= goal {
                break Ok(());
            }
            // A change before this point is not missed.
            if timeout_at(until, threshold.reached.notified())
                .await
                .is_err()
            {
                break Err(self.stuck("acks or sends", patience));
            }
        };
        threshold.value.store(u64::MAX, Relaxed);
        result
    }

    async fn reach_held(&self, more: u64, patience: Duration) -> Result<(), FleetError> {
        let counts = &self.shared.counts;
        let held = || counts.acked.load(Relaxed) + counts.held_unacked.load(Relaxed);
        let goal = held() + more;
        let until = Instant::now() + patience;
        while held() < goal {
            self.check()?;
            if Instant::now() >= until {
                return Err(self.stuck("flushes to be held", patience));
            }
            let _ = timeout(POLL_EVERY, self.shared.changed.notified()).await;
        }
        Ok(())
    }

    /// Drains all agents: returns once all are attached and no flush is open.
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
            if timeout_at(until, self.shared.changed.notified())
                .await
                .is_err()
            {
                return Err(self.stuck("its flushes to be acked", patience));
            }
        }
    }

    /// Waits until this many agents are attached.
    ///
    /// # Errors
    /// If that takes longer than `patience`, or a promise was broken.
    pub async fn attached(&self, count: usize, patience: Duration) -> Result<(), FleetError> {
        let until = Instant::now() + patience;
        while self.shared.counts.attached.load(Relaxed) < count as u64 {
            self.check()?;
            if timeout_at(until, self.shared.changed.notified())
                .await
                .is_err()
            {
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
            reason: lock(&self.shared.last_error).clone(),
        }
    }

    /// Checks that the collector has kept its promises so far.
    ///
    /// # Errors
    /// If it broke one.
    pub fn check(&self) -> Result<(), FleetError> {
        let violations = lock(&self.shared.violations);
        match violations.first() {
            None => Ok(()),
            Some(first) => Err(FleetError::Violated {
                count: violations.len(),
                first: first.clone(),
            }),
        }
    }

    /// The agents' records, in the order of their configurations.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.records
            .iter()
            .map(|record| lock(record).clone())
            .collect()
    }

    /// Its counters.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// Ack latencies since the last call.
    #[must_use]
    pub fn take_latencies(&self) -> Latencies {
        std::mem::take(&mut *lock(&self.shared.latencies))
    }

    /// Ends the agents.
    pub async fn stop(mut self) {
        self.agents.shutdown().await;
    }
}

/// Connects to `address` by TLS.
fn tls_connector(
    address: SocketAddr,
    config: Arc<ClientConfig>,
) -> impl Service<Uri, Response = TokioIo<TlsStream<TcpStream>>, Error = std::io::Error, Future: Send>
+ Send
+ 'static {
    let connector = TlsConnector::from(config);
    let name = ServerName::from(address.ip());
    tower::service_fn(move |_: Uri| {
        let connector = connector.clone();
        let name = name.clone();
        async move {
            let socket = TcpStream::connect(address).await?;
            socket.set_nodelay(true)?;
            Ok(TokioIo::new(connector.connect(name, socket).await?))
        }
    })
}
