//! Ships batches to the collector, on one thread of its own.
//!
//! Reading order: [`outbox`] (the queue), [`resend`] (state for a collector that lost its memory),
//! [`clock`] and [`backoff`], [`control`] (requests of the collector), [`session`] (the protocol),
//! [`stream`] (the connection). Only the last uses tokio and tonic, and nothing here uses signals.

mod backoff;
#[allow(missing_docs, unreachable_pub, clippy::all)]
#[rustfmt::skip]
mod client;
mod clock;
mod codec;
mod control;
mod outbox;
mod resend;
mod session;
mod stream;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use profiler_core::Timestamp;
use profiler_core::limits::{LABELS_MAX, bounded_name};
use profiler_core::wire::{PROTOCOL, v1};
use tokio::sync::{Notify, watch};
use tonic::transport::{Endpoint, Uri};

use self::backoff::Backoff;
use self::clock::OffsetEstimator;
pub(crate) use self::outbox::Limits;
use self::outbox::{Outbox, OutboxAccount};
#[cfg(test)]
pub(crate) use self::session::encode;
use self::stream::Link;
use crate::batch::Batch;
use crate::control::{Control, ThreadDumpReply};
use crate::sync::lock;
use crate::tables::Tables;
use crate::threads::{self, AgentThread};

/// Name of the thread, and of its helper that resolves host names.
pub(crate) const THREAD_NAME: &str = "emberline-ship";

/// Part of the time to finish that is reserved for the end of the thread.
const JOIN_RESERVE: Duration = Duration::from_millis(100);

/// Longest time to finish.
const FINISH_MAX: Duration = Duration::from_secs(3_600);

/// The collector's address, and the description of this worker.
#[derive(Clone, Debug)]
pub(crate) struct ShipOptions {
    /// `http://host:port`.
    pub(crate) url: String,
    pub(crate) worker: String,
    pub(crate) labels: Vec<(String, String)>,
    /// Random, different for each life of an agent.
    pub(crate) epoch: u64,
    pub(crate) host: String,
    pub(crate) pid: u32,
    /// The connection to the sampler.
    pub(crate) control: Arc<Control>,
    pub(crate) started_at: Timestamp,
    pub(crate) limits: Limits,
}

/// Why shipping cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ShipError {
    /// The collector's URL is invalid.
    #[error("invalid collector URL {url:?}: {reason}; expected http://HOST:PORT")]
    Url {
        /// The invalid URL.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// More labels than a collector accepts.
    #[error("{count} labels for one worker; at most {LABELS_MAX} are allowed")]
    Labels {
        /// Number of labels.
        count: usize,
    },
    /// The thread or its runtime cannot be started.
    #[error("cannot start the thread {THREAD_NAME}")]
    Thread(#[source] io::Error),
}

/// The agent's clock: monotonic, anchored to real time.
pub(crate) trait AgentClock: Send + Sync + 'static {
    /// Returns the present time.
    fn now(&self) -> Timestamp;
}

/// What happened to the samples. Weights are in nanoseconds, and
/// `accepted = acked + unacked + lost_refused + lost_by_collector + lost_queue`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShipReport {
    pub(crate) epoch: u64,
    pub(crate) account: OutboxAccount,
    pub(crate) connected: bool,
    /// Number of opened streams.
    pub(crate) connects: u64,
    /// The operating system's id of the ship thread.
    pub(crate) thread_id: u32,
}

/// State that the ship thread shares with the others.
#[derive(Debug)]
struct Shared {
    outbox: Mutex<Outbox>,
    /// The latest answer to what every thread is doing.
    dump_reply: Mutex<Option<ThreadDumpReply>>,
    /// Notified of a batch, a thread dump or the request to finish.
    wake: Notify,
    connected: AtomicBool,
    connects: AtomicU64,
}

/// Ships batches. If it is dropped without [`Shipper::finish`], it stops without flushing.
#[derive(Debug)]
pub(crate) struct Shipper {
    shared: Arc<Shared>,
    finish: watch::Sender<Option<Instant>>,
    epoch: u64,
    thread_id: u32,
    /// Ends when the thread does; nothing is sent over it.
    ended: mpsc::Receiver<()>,
    thread: JoinHandle<()>,
}

impl Shipper {
    /// Starts the thread, which connects to the collector when it can. The caller has blocked signals on
    /// its own thread, and the new thread inherits that.
    ///
    /// # Errors
    /// If the URL is invalid, there are too many labels, or the system does not start the thread. An
    /// unreachable collector is not an error.
    pub(crate) fn start(
        options: ShipOptions,
        tables: Arc<Mutex<Tables>>,
        clock: Arc<dyn AgentClock>,
    ) -> Result<Shipper, ShipError> {
        let endpoint = stream::configure(parse_url(&options.url)?);
        if options.labels.len() > LABELS_MAX {
            return Err(ShipError::Labels { count: options.labels.len() });
        }
        let shared = Arc::new(Shared {
            outbox: Mutex::new(Outbox::new(options.limits)),
            dump_reply: Mutex::new(None),
            wake: Notify::new(),
            connected: AtomicBool::new(false),
            connects: AtomicU64::new(0),
        });
        let (finish, finish_request) = watch::channel(None);
        let link = Link {
            endpoint,
            hello: hello(&options),
            control: options.control,
            shared: shared.clone(),
            tables,
            clock,
            finish: finish_request,
            backoff: Backoff::new(options.epoch),
            offsets: OffsetEstimator::default(),
            away: false,
            url: options.url,
        };
        let (running, ended) = mpsc::channel();
        let (thread, thread_id) = spawn(link, running).map_err(ShipError::Thread)?;
        let epoch = options.epoch;
        Ok(Shipper { shared, finish, epoch, thread_id, ended, thread })
    }

    /// Queues a batch. Never waits for the network, only for the outbox's lock.
    pub(crate) fn push(&self, batch: Batch) {
        lock(&self.shared.outbox).push(batch);
        self.shared.wake.notify_one();
    }

    /// Queues a thread dump; the tables already hold its nodes.
    pub(crate) fn thread_dump(&self, reply: ThreadDumpReply) {
        *lock(&self.shared.dump_reply) = Some(reply);
        self.shared.wake.notify_one();
    }

    /// Returns what happened to the samples so far.
    pub(crate) fn report(&self) -> ShipReport {
        ShipReport {
            epoch: self.epoch,
            account: lock(&self.shared.outbox).current_account(),
            connected: self.shared.connected.load(Ordering::Relaxed),
            connects: self.shared.connects.load(Ordering::Relaxed),
            thread_id: self.thread_id,
        }
    }

    /// Sends all queued batches, waits for their acknowledgments, sends Goodbye and ends the thread, all
    /// within `deadline`. Weight without acknowledgment is `unacked` in the report, and a thread that
    /// hangs is left running.
    pub(crate) fn finish(self, deadline: Duration) -> ShipReport {
        let deadline = deadline.min(FINISH_MAX);
        let now = Instant::now();
        self.request_finish(now + deadline - JOIN_RESERVE.min(deadline / 4));
        // Only the end of the thread can end the wait early, because nothing is ever sent.
        let ended = self.ended.recv_timeout(deadline) == Err(mpsc::RecvTimeoutError::Disconnected);
        let report = self.report();
        if ended {
            // A panic was caught and logged on the thread.
            let _ = self.thread.join();
        }
        report
    }

    fn request_finish(&self, until: Instant) {
        self.finish.send_replace(Some(until));
        self.shared.wake.notify_one();
    }
}

/// Rejects URLs that need TLS, which this build does not have, or contain credentials, which would end
/// up in the log.
fn parse_url(url: &str) -> Result<Endpoint, ShipError> {
    let refuse = |reason: &str| Err(ShipError::Url { url: url.to_owned(), reason: reason.into() });
    let uri = match url.parse::<Uri>() {
        Ok(uri) => uri,
        Err(error) => return refuse(&error.to_string()),
    };
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return refuse("this agent does not support TLS"),
        _ => return refuse("it does not start with http://"),
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return refuse("it contains credentials");
    }
    Ok(Endpoint::from(uri))
}

fn hello(options: &ShipOptions) -> v1::Hello {
    let bounded = |text: &str| bounded_name(text).into_owned();
    v1::Hello {
        protocol: PROTOCOL,
        worker: bounded(&options.worker),
        epoch: options.epoch,
        labels: options.labels.iter().map(|(key, value)| (bounded(key), bounded(value))).collect(),
        host: bounded(&options.host),
        pid: options.pid,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        // Set when it is sent.
        sampler_mode: String::new(),
        interval_ns: 0,
        started_at_ns: options.started_at.unix_ns(),
        sent_at_ns: 0,
    }
}

/// Starts the thread, and waits until it has its runtime, the last step that can fail.
fn spawn(link: Link, running: mpsc::Sender<()>) -> io::Result<(JoinHandle<()>, u32)> {
    let (started, start) = mpsc::sync_channel(1);
    let body = move || {
        let _running = running;
        let _of_agent = AgentThread::enter();
        // Built and dropped on this thread, so that it never interferes with runtimes of the program.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name(THREAD_NAME)
            .max_blocking_threads(1)
            .on_thread_start(threads::enter)
            .on_thread_stop(threads::leave)
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(Err(error))),
        };
        let _ = started.send(Ok(threads::own_id()));
        let shared = link.shared.clone();
        if catch_unwind(AssertUnwindSafe(|| runtime.block_on(link.run()))).is_err() {
            tracing::error!("shipping panicked, which is a bug in Emberline; sampling continues");
        }
        shared.connected.store(false, Ordering::Relaxed);
        // Dropping the runtime would wait for a host name that is being resolved.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(body)?;
    let thread_id = start.recv().map_err(io::Error::other)??;
    Ok((thread, thread_id))
}

#[cfg(test)]
mod tests;
