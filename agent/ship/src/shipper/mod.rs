//! Ships batches to the collector, on one thread of its own.
//!
//! Reading order: [`outbox`] (the queue), [`sizing`] (room of batches),
//! [`resend`] (state for a collector that lost its memory),
//! [`stays`] and [`moves`] (several collectors), [`clock`] and [`backoff`], [`control`] (requests of the
//! collector), [`session`] (the protocol), [`stream`] (the connection), [`target`] (its address), [`call`]
//! (gRPC), [`allowance`] (how much work a collector may cause), [`network`] (what is needed of the system),
//! [`socket`] and [`reactor`] (the system). No runtime and no signals: the thread waits for one socket or for
//! a futex.

mod allowance;
mod backoff;
mod call;
mod clock;
mod control;
#[cfg(emberline_fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod moves;
mod network;
mod outbox;
mod reactor;
mod resend;
mod session;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod sizing;
mod socket;
mod stays;
mod stream;
mod target;
#[cfg(feature = "tls")]
mod tls;
mod token;

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use profiler_core::limits::{LABELS_MAX, bounded_name};
use profiler_core::wire::{PROTOCOL, v1};
use profiler_core::{Epoch, SessionKey, Timestamp};
use system::sync::lock;

use self::backoff::Backoff;
use self::clock::OffsetEstimator;
pub use self::outbox::Limits;
use self::outbox::Outbox;
use self::reactor::{Reactor, WakeFlag};
use self::stays::EndedStays;
use self::stream::Link;
pub use self::token::TokenSource;
use crate::ShipReport;
use crate::batch::Batch;
use crate::control::{Control, ThreadDumpReply};
use crate::tables::Tables;

/// How long before its deadline an agent says Goodbye although answers are missing.
const GOODBYE_RESERVE: Duration = Duration::from_millis(200);

/// An event for the log of the program: it calls a macro of `tracing`.
pub type LogEvent = Box<dyn FnOnce() + Send>;

/// The collector's address, and the description of this worker.
#[derive(Clone, Debug)]
pub struct ShipOptions {
    /// `http://host:port`, `https://host:port` or `unix:/path`; several of them separated by commas.
    pub url: String,
    /// Where the token for the collector is.
    pub token: TokenSource,
    /// The worker's id.
    pub worker: String,
    /// Keys and values.
    pub labels: Vec<(String, String)>,
    /// Different for each life of an agent.
    pub key: SessionKey,
    /// Name of the host.
    pub host: String,
    /// Id of the process.
    pub pid: u32,
    /// Version of the crate `emberline-agent`.
    pub agent_version: &'static str,
    /// The connection to the sampler.
    pub control: Arc<Control>,
    /// When the agent started.
    pub started_at: Timestamp,
    /// Limits of the outbox.
    pub limits: Limits,
    /// Logs an event. The shipper's thread may have no descriptor to which the program's log goes.
    pub log: fn(LogEvent),
    /// Whether to write to standard error that there is no collector.
    pub notice: bool,
}

/// Why shipping cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ShipError {
    /// The collector's URL is invalid.
    #[error(
        "invalid collector URL {url:?}: {reason}; expected http://HOST:PORT, https://HOST:PORT or unix:/PATH, \
         or several of them separated by commas"
    )]
    Url {
        /// The invalid URL.
        url: String,
        /// The problem found.
        reason: String,
    },
    /// More labels than a collector accepts.
    #[error("{count} labels for one worker; at most {LABELS_MAX} are allowed")]
    Labels {
        /// Number of labels.
        count: usize,
    },
}

/// The agent's clock: monotonic, anchored to real time.
pub trait AgentClock: Send + Sync + 'static {
    /// Returns the present time.
    fn now(&self) -> Timestamp;
}

/// State that the ship thread shares with the others.
#[derive(Debug)]
struct Shared {
    log: fn(LogEvent),
    /// Of the present stay. Locked after `ended`.
    outbox: Mutex<Outbox>,
    ended: Mutex<EndedStays>,
    /// The URL of the present collector.
    present_url: Arc<Mutex<String>>,
    /// The latest answer to what every thread is doing.
    dump_reply: Mutex<Option<ThreadDumpReply>>,
    /// Notified of a batch, a thread dump or the request to finish.
    wake: Arc<WakeFlag>,
    /// The deadline of the agent's end, once it is known.
    finish_by: Mutex<Option<Instant>>,
    /// When to say Goodbye although answers are missing.
    last_goodbye_at: Mutex<Option<Instant>>,
    /// Whether the last batch has been queued.
    is_complete: AtomicBool,
    connected: AtomicBool,
    connects: AtomicU64,
    /// Why the last attempt to reach the collector failed.
    last_error: Mutex<String>,
}

impl Shared {
    fn log(&self, event: impl FnOnce() + Send + 'static) {
        (self.log)(Box::new(event));
    }

    fn finish_by(&self) -> Option<Instant> {
        *lock(&self.finish_by)
    }

    /// Whether every batch that will ever be queued was acknowledged.
    fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire) && lock(&self.outbox).is_empty()
    }

    /// Whether the agent finishes, and nothing is left to ship.
    fn is_over(&self) -> bool {
        self.finish_by().is_some() && self.is_complete()
    }
}

/// The program's side of shipping.
#[derive(Debug)]
pub struct Shipper {
    shared: Arc<Shared>,
    epoch: u64,
}

/// The symbolizer's side of shipping. Dropping it says that no further batch will come.
#[derive(Debug)]
pub struct BatchQueue {
    shared: Arc<Shared>,
}

/// The ship thread's work.
pub struct ShipThread {
    link: Link,
}

/// The three sides of shipping.
pub struct Parts {
    /// The program's.
    pub shipper: Shipper,
    /// The symbolizer's.
    pub queue: BatchQueue,
    /// The thread's.
    pub thread: ShipThread,
}

/// Prepares shipping; nothing is sent until [`ShipThread::run`].
///
/// # Errors
/// If the URL is invalid or there are too many labels. An unreachable collector is not an error.
pub fn prepare(
    options: ShipOptions,
    tables: Arc<Mutex<Tables>>,
    clock: Arc<dyn AgentClock>,
) -> Result<Parts, ShipError> {
    let destinations = stays::parse_list(&options.url, &options.worker)?;
    if options.labels.len() > LABELS_MAX {
        return Err(ShipError::Labels {
            count: options.labels.len(),
        });
    }
    let shared = Arc::new(Shared {
        log: options.log,
        outbox: Mutex::new(Outbox::new(options.limits)),
        ended: Mutex::default(),
        present_url: Arc::new(Mutex::new(destinations[0].url.clone())),
        dump_reply: Mutex::new(None),
        wake: Arc::default(),
        finish_by: Mutex::new(None),
        last_goodbye_at: Mutex::new(None),
        is_complete: AtomicBool::new(false),
        connected: AtomicBool::new(false),
        connects: AtomicU64::new(0),
        last_error: Mutex::default(),
    });
    let epoch = options.key.epoch().0;
    let link = Link {
        destinations,
        at: 0,
        is_welcomed: false,
        gone_since: None,
        probe_interval: moves::PROBE_INTERVAL,
        probe_at: None,
        key: options.key.clone(),
        unsettled_bytes_max: options.limits.outbox_bytes_max / 2,
        hello: hello(&options),
        token: options.token,
        control: options.control,
        shared: shared.clone(),
        tables,
        clock,
        backoff: Backoff::new(epoch),
        offsets: OffsetEstimator::default(),
        away: false,
        away_logged: None,
        notice: options.notice.then_some(options.url),
    };
    Ok(Parts {
        shipper: Shipper {
            shared: shared.clone(),
            epoch,
        },
        queue: BatchQueue { shared },
        thread: ShipThread { link },
    })
}

impl Shipper {
    /// Returns what happened to the samples so far.
    pub fn report(&self) -> ShipReport {
        let ended = lock(&self.shared.ended);
        let mut account = ended.account();
        account += lock(&self.shared.outbox).current_account();
        drop(ended);
        ShipReport {
            epoch: Epoch(self.epoch),
            accepted_ns: account.accepted_ns,
            stored_ns: account.acked_ns,
            unacked_ns: account.unacked_ns,
            lost_rejected_ns: account.lost_rejected_ns,
            lost_by_collector_ns: account.lost_by_collector_ns,
            lost_queue_ns: account.lost_queue_ns,
            lost_unseen_ns: account.lost_unseen_ns,
            lost_tasks: account.lost_tasks,
            lost_telemetry: account.lost_telemetry,
            aggregated_tasks: account.aggregated_tasks,
            connected: self.shared.connected.load(Ordering::Relaxed),
            connects: self.shared.connects.load(Ordering::Relaxed),
        }
    }

    /// Whether every queued batch was answered.
    pub fn is_idle(&self) -> bool {
        lock(&self.shared.outbox).is_empty()
    }

    /// The URL of the collector that the agent ships to, which changes when it moves.
    pub fn present_url(&self) -> Arc<Mutex<String>> {
        self.shared.present_url.clone()
    }

    /// How often the thread looked for something to do.
    pub fn wakeups(&self) -> u64 {
        self.shared.wake.polls()
    }

    /// Asks the thread to send all queued batches, wait for their acknowledgments, send Goodbye and
    /// end, at `until` at the latest, which is `limit` from now. It says Goodbye shortly before in any case, so that the collector does
    /// not take the end for a crash. Weight without acknowledgment is `unacked` in the report.
    pub fn request_finish(&self, until: Instant, limit: Duration) {
        *lock(&self.shared.last_goodbye_at) = Some(until - GOODBYE_RESERVE.min(limit / 4));
        *lock(&self.shared.finish_by) = Some(until);
        self.shared.wake.notify();
    }
}

impl BatchQueue {
    /// Queues a batch. Never waits for the network, only for the outbox's lock.
    pub fn push(&self, batch: Batch) {
        lock(&self.shared.outbox).push(batch);
        self.shared.wake.notify();
    }

    /// Queues a thread dump; the tables already hold its nodes.
    pub fn thread_dump(&self, reply: ThreadDumpReply) {
        *lock(&self.shared.dump_reply) = Some(reply);
        self.shared.wake.notify();
    }

    /// An answer to a request for symbols is in [`Control`].
    pub fn symbols_answered(&self) {
        self.shared.wake.notify();
    }
}

impl Drop for BatchQueue {
    fn drop(&mut self) {
        self.shared.is_complete.store(true, Ordering::Release);
        self.shared.wake.notify();
    }
}

impl ShipThread {
    /// Ships until the request to finish is fulfilled, on the calling thread.
    pub fn run(self) {
        let shared = self.link.shared.clone();
        let reactor = Reactor::new(shared.wake.clone());
        // Not dropped after a panic: what a panic has left behind may panic again when it is dropped,
        // and a second panic would end the program. The system closes the socket with the program.
        let mut running = ManuallyDrop::new(Box::pin(self.link.run(&reactor)));
        match catch_unwind(AssertUnwindSafe(|| reactor.block_on(running.as_mut()))) {
            Ok(()) => drop(ManuallyDrop::into_inner(running)),
            Err(_) => shared.log(|| {
                tracing::error!(
                    "shipping panicked, which is a bug in Emberline; sampling continues"
                );
            }),
        }
        shared.connected.store(false, Ordering::Relaxed);
    }
}

fn hello(options: &ShipOptions) -> v1::Hello {
    let bounded = |text: &str| bounded_name(text).into_owned();
    v1::Hello {
        protocol: PROTOCOL,
        worker: bounded(&options.worker),
        labels: options
            .labels
            .iter()
            .map(|(key, value)| (bounded(key), bounded(value)))
            .collect(),
        host: bounded(&options.host),
        pid: options.pid,
        agent_version: options.agent_version.to_owned(),
        // Set when it is sent, as are the zeros.
        epoch: 0,
        session_key: Vec::new(),
        sampler_mode: String::new(),
        interval_ns: 0,
        started_at_ns: options.started_at.unix_ns(),
        sent_at_ns: 0,
        answered_seq: 0,
    }
}

#[cfg(test)]
mod tests;
