//! Ships sealed cycles to the collector, on one thread of its own.
//!
//! Reading order: [`outbox`] (what waits, and in what order), [`running`],
//! [`clock`] and [`backoff`] (three small laws), [`live`] (what is asked of the running agent),
//! [`session`] (what is said), [`stream`] (over which connection).
//! Only the last knows tokio and tonic, and nothing here knows a signal.

mod backoff;
#[allow(missing_docs, unreachable_pub, clippy::all)]
#[rustfmt::skip]
mod client;
mod clock;
mod codec;
mod live;
mod outbox;
mod running;
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
use self::outbox::{Outbox, Tally};
#[cfg(test)]
pub(crate) use self::session::encode;
use self::stream::Link;
use crate::batch::Batch;
use crate::control::Control;
use crate::control::ThreadDumpReply;
use crate::sync::lock;
use crate::tables::Tables;
use crate::threads::{self, AgentThread};

/// Name of the thread, and of the one beside it that resolves a host's name.
pub(crate) const THREAD_NAME: &str = "emberline-ship";

/// Part of the time to finish that is kept for the thread to end in.
const JOIN_RESERVE: Duration = Duration::from_millis(100);

/// Longest time to finish; longer ones are cut.
const FINISH_MAX: Duration = Duration::from_secs(3_600);

/// What the collector is told about this worker, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct ShipOptions {
    /// `http://host:port`.
    pub(crate) url: String,
    pub(crate) worker: String,
    pub(crate) labels: Vec<(String, String)>,
    /// Random; new for each life of an agent.
    pub(crate) epoch: u64,
    pub(crate) host: String,
    pub(crate) pid: u32,
    /// How the sampler is told, and what it says of itself.
    pub(crate) control: Arc<Control>,
    pub(crate) started_at: Timestamp,
    pub(crate) limits: Limits,
}

/// Why shipping cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ShipError {
    /// The collector's address cannot be used.
    #[error("{url:?} is not a collector's address: {reason}; it looks like http://127.0.0.1:4747")]
    Url {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// More labels than a collector takes.
    #[error("{count} labels; a worker may have {LABELS_MAX}")]
    Labels {
        /// How many were given.
        count: usize,
    },
    /// The thread or its runtime could not be started.
    #[error("cannot start the thread {THREAD_NAME}")]
    Thread(#[source] io::Error),
}

/// The agent's clock: monotonic, anchored to real time.
pub(crate) trait AgentClock: Send + Sync + 'static {
    /// The present.
    fn now(&self) -> Timestamp;
}

/// What became of the samples. Weights are in nanoseconds, and
/// `accepted = acked + unacked + lost_refused + lost_by_collector + lost_queue`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShipReport {
    pub(crate) epoch: u64,
    pub(crate) tally: Tally,
    pub(crate) connected: bool,
    /// Streams that were opened, with the first.
    pub(crate) connects: u64,
    /// The operating system's id of the ship thread.
    pub(crate) thread_id: u32,
}

/// What the ship thread shares with the others.
#[derive(Debug)]
struct Shared {
    outbox: Mutex<Outbox>,
    /// The latest answer to what every thread is doing.
    stacks: Mutex<Option<ThreadDumpReply>>,
    /// Something to do: a cycle, or the request to finish.
    wake: Notify,
    connected: AtomicBool,
    connects: AtomicU64,
}

/// Ships what it is given. Dropped without [`Shipper::finish`], it stops where it is.
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
    /// Starts the thread, which tries to reach the collector from then on. The caller has blocked
    /// signals in its own thread, and the new one inherits that.
    ///
    /// # Errors
    /// If the address cannot be used, there are too many labels, or the system gives no thread. A
    /// collector that is away is not an error.
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
            stacks: Mutex::new(None),
            wake: Notify::new(),
            connected: AtomicBool::new(false),
            connects: AtomicU64::new(0),
        });
        let (finish, asked_to_finish) = watch::channel(None);
        let link = Link {
            endpoint,
            hello: hello(&options),
            control: options.control,
            shared: shared.clone(),
            tables,
            clock,
            finish: asked_to_finish,
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

    /// Takes in a cycle. Never waits for the network, only for the outbox's lock.
    pub(crate) fn push(&self, batch: Batch) {
        lock(&self.shared.outbox).push(batch);
        self.shared.wake.notify_one();
    }

    /// Takes in an answer, whose nodes are in the tables by now.
    pub(crate) fn thread_dump(&self, reply: ThreadDumpReply) {
        *lock(&self.shared.stacks) = Some(reply);
        self.shared.wake.notify_one();
    }

    /// What became of the samples until now.
    pub(crate) fn report(&self) -> ShipReport {
        ShipReport {
            epoch: self.epoch,
            tally: lock(&self.shared.outbox).tally(),
            connected: self.shared.connected.load(Ordering::Relaxed),
            connects: self.shared.connects.load(Ordering::Relaxed),
            thread_id: self.thread_id,
        }
    }

    /// Sends what waits, waits for the acks, says Goodbye and ends the thread, all within
    /// `deadline`. What is not acked by then is `unacked` in the report; a thread that hangs is
    /// left behind.
    pub(crate) fn finish(self, deadline: Duration) -> ShipReport {
        let deadline = deadline.min(FINISH_MAX);
        let now = Instant::now();
        self.ask_to_finish(now + deadline - JOIN_RESERVE.min(deadline / 4));
        // Only the end of the thread can end the wait early, for nothing is ever sent.
        let ended = self.ended.recv_timeout(deadline) == Err(mpsc::RecvTimeoutError::Disconnected);
        let report = self.report();
        if ended {
            // It caught its own panic, if there was one, and logged it.
            let _ = self.thread.join();
        }
        report
    }

    fn ask_to_finish(&self, until: Instant) {
        self.finish.send_replace(Some(until));
        self.shared.wake.notify_one();
    }
}

/// Accepts what can be reached: this build speaks no TLS, and a password in an address would end
/// up in the log.
fn parse_url(url: &str) -> Result<Endpoint, ShipError> {
    let refuse = |reason: &str| Err(ShipError::Url { url: url.to_owned(), reason: reason.into() });
    let uri = match url.parse::<Uri>() {
        Ok(uri) => uri,
        Err(error) => return refuse(&error.to_string()),
    };
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return refuse("this agent was built without TLS"),
        _ => return refuse("it does not begin with http://"),
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return refuse("it holds a user's name");
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
        // Filled in when it is said.
        sampler_mode: String::new(),
        interval_ns: 0,
        started_at_ns: options.started_at.unix_ns(),
        sent_at_ns: 0,
    }
}

/// Starts the thread, and waits until it has its runtime: only that can fail.
fn spawn(link: Link, running: mpsc::Sender<()>) -> io::Result<(JoinHandle<()>, u32)> {
    let (started, start) = mpsc::sync_channel(1);
    let body = move || {
        let _running = running;
        let _of_agent = AgentThread::enter();
        // The host may build its own runtimes with whatever it likes; ours is built and dropped on
        // this thread, so it never meets theirs.
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
            tracing::error!("shipping ended by a panic: a bug of Emberline; sampling goes on");
        }
        shared.connected.store(false, Ordering::Relaxed);
        // Not by dropping it: that would wait for a name that is being resolved.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(body)?;
    let thread_id = start.recv().map_err(io::Error::other)??;
    Ok((thread, thread_id))
}

#[cfg(test)]
mod tests;
