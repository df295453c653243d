//! One life of an agent without its threads and its socket, for deterministic simulations: the real
//! outbox, protocol, estimator of the clock and backoff, stepped by the caller.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use profiler_core::wire::v1::{self, agent_message};
use profiler_core::wire::{FlushDeltaCodec, decode_cycle};
use profiler_core::{
    Delta, Frame, NodeId, SessionKey, Settings, State, StateSet, TaskRecord, Ticks, TimeRange,
    Timestamp,
};

use super::control::ControlStream;
use super::session::{OutboxRefs, Session, SessionError, message};
use super::stream::{Link, stamp};
use super::{AgentClock, BatchQueue, Limits, Parts, ShipOptions, Shipper, TokenSource, prepare};
use crate::batch::{Batch, Span};
use crate::control::Control;
use crate::mode::SamplerMode;
use crate::report::ShipReport;
use crate::sync::lock;
use crate::tables::Tables;

/// Interval of the simulated sampler.
const INTERVAL_NS: u64 = 10_000_000;

/// How a simulated agent differs from others.
#[derive(Clone, Debug)]
pub struct SimulatedWorker {
    /// The worker's id.
    pub worker: String,
    /// The session's key, from which the epoch comes.
    pub key: [u8; SessionKey::BYTES],
    /// Most waiting batches; further ones are merged.
    pub waiting_max: usize,
    /// Most bytes of all batches.
    pub outbox_bytes_max: usize,
    /// Largest encoded flush, in bytes; larger batches are split.
    pub flush_bytes_max: usize,
}

/// A second of a simulated program.
#[derive(Debug)]
pub struct SimulatedCycle<'a> {
    /// When it was sampled, by the agent's clock.
    pub range: TimeRange,
    /// Frames from the task to the leaf, and nanoseconds of CPU.
    pub stacks: &'a [(Vec<Frame<&'a str>>, u64)],
    /// Tasks that started or ended.
    pub tasks: Vec<TaskRecord>,
}

/// A message, and what it carries if it is a flush.
#[derive(Debug)]
pub struct Outgoing {
    /// The message as it goes to the network.
    pub message: v1::AgentMessage,
    /// The content of a flush.
    pub flush: Option<FlushContent>,
}

/// The content of a flush in the agent's terms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlushContent {
    /// Its sequence number.
    pub seq: u64,
    /// Nodes with weight.
    pub nodes: Vec<NodeId>,
    /// Ids of tasks, with whether each has ended.
    pub tasks: Vec<(u64, bool)>,
}

/// One life of an agent.
pub struct SimulatedAgent {
    /// Borrowed by the stream while one is open.
    link: Rc<RefCell<Link>>,
    shipper: Shipper,
    queue: BatchQueue,
    tables: Arc<Mutex<Tables>>,
    mail: Rc<Mail>,
    stream: Option<Pin<Box<dyn Future<Output = SessionError>>>>,
}

/// What goes in and out of a stream.
#[derive(Debug, Default)]
struct Mail {
    incoming: RefCell<VecDeque<v1::CollectorMessage>>,
    outgoing: RefCell<Option<Outgoing>>,
    /// Whether the network accepts a message.
    has_room: Cell<bool>,
    /// When the Welcome arrived.
    opened_at: Cell<Option<Timestamp>>,
}

enum Event {
    Received(v1::CollectorMessage),
    Room,
}

struct ClockFn<F>(F);

impl<F: Fn() -> Timestamp + Send + Sync + 'static> AgentClock for ClockFn<F> {
    fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for SimulatedAgent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SimulatedAgent").field("shipper", &self.shipper).finish()
    }
}

impl SimulatedAgent {
    /// Starts a life, whose clock is `now`.
    #[must_use]
    pub fn new(
        worker: SimulatedWorker,
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> SimulatedAgent {
        let settings = Settings { interval_ns: INTERVAL_NS, enabled: true, states: StateSet::ALL };
        let control = Arc::new(Control::new(settings));
        control.set_mode(SamplerMode::Full);
        let options = ShipOptions {
            url: "http://simulated:4747".to_owned(),
            token: TokenSource::None,
            worker: worker.worker,
            labels: Vec::new(),
            key: SessionKey::new(worker.key),
            host: "simulated".to_owned(),
            pid: 1,
            control,
            started_at: now(),
            limits: Limits {
                waiting_max: worker.waiting_max,
                outbox_bytes_max: worker.outbox_bytes_max,
                flush_bytes_max: worker.flush_bytes_max,
                ..Limits::default()
            },
            notice: false,
        };
        let tables = Arc::new(Mutex::new(Tables::new()));
        let prepared = prepare(options, tables.clone(), Arc::new(ClockFn(now)));
        let Parts { shipper, queue, thread } = prepared.expect("the options are valid");
        SimulatedAgent {
            link: Rc::new(RefCell::new(thread.link)),
            shipper,
            queue,
            tables,
            mail: Rc::default(),
            stream: None,
        }
    }

    /// Queues a cycle. Returns the node of each stack's leaf.
    pub fn push(&mut self, cycle: SimulatedCycle<'_>) -> Vec<NodeId> {
        let mut tables = lock(&self.tables);
        let Tables { symbols, trie } = &mut *tables;
        let mut nodes = Vec::new();
        for (frames, _) in cycle.stacks {
            let path: Vec<_> = frames.iter().map(|frame| symbols.intern(frame)).collect();
            nodes.push(trie.insert_path(path).expect("the trie has room"));
        }
        drop(tables);
        let weights = nodes.iter().zip(cycle.stacks);
        let delta: Delta = weights.map(|(node, (_, ns))| (*node, State::Cpu, *ns)).collect();
        let ticks = Ticks { made: 100, expected: 100, throttled: 0 };
        let span = Span { range: cycle.range, quantum_ns: 1, ticks };
        let samples = Batch::of_samples(span, delta, Delta::default());
        self.queue.push(Batch { tasks: cycle.tasks, ..samples });
        nodes
    }

    /// Opens a stream. Returns its first message.
    pub fn connect(&mut self) -> v1::AgentMessage {
        self.disconnect();
        self.stream = Some(Box::pin(talk(self.link.clone(), self.mail.clone())));
        let outgoing = self.next_message().expect("a stream starts with Hello");
        outgoing.message
    }

    /// Closes the stream, if one is open.
    pub fn disconnect(&mut self) {
        self.stream = None;
        self.mail.incoming.borrow_mut().clear();
        self.mail.outgoing.borrow_mut().take();
        self.mail.has_room.set(false);
        if let Some(opened_at) = self.mail.opened_at.take() {
            let mut link = self.link.borrow_mut();
            let lasted_ns = link.clock.now().unix_ns() - opened_at.unix_ns();
            link.backoff.note_stream(Duration::from_nanos(u64::try_from(lasted_ns).unwrap_or(0)));
        }
    }

    /// Handles a message of the collector.
    ///
    /// # Errors
    /// If the agent closes the stream because of it.
    pub fn receive(&mut self, message: v1::CollectorMessage) -> Result<(), String> {
        self.mail.incoming.borrow_mut().push_back(message);
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let polled = stream.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(error) = polled else { return Ok(()) };
        self.disconnect();
        self.link.borrow_mut().backoff.raise();
        Err(error.to_string())
    }

    /// Returns the next message for the collector.
    pub fn next_message(&mut self) -> Option<Outgoing> {
        self.mail.has_room.set(true);
        let stream = self.stream.as_mut()?;
        let polled = stream.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        debug_assert!(polled.is_pending(), "sending does not end a stream");
        self.mail.has_room.set(false);
        self.mail.outgoing.borrow_mut().take()
    }

    /// Returns the delay before the next attempt to connect. Only between streams.
    #[must_use]
    pub fn next_delay(&mut self) -> Duration {
        self.link.borrow_mut().backoff.next_delay()
    }

    /// Whether everything is acknowledged.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        lock(&self.shipper.shared.outbox).is_empty()
    }

    /// Returns what happened to the samples so far.
    #[must_use]
    pub fn report(&self) -> ShipReport {
        ShipReport::of(&self.shipper.report())
    }
}

/// One stream, as [`Link`] runs it over a socket.
#[expect(
    clippy::await_holding_refcell_ref,
    reason = "the link is the stream's alone while the stream is open"
)]
async fn talk(link: Rc<RefCell<Link>>, mail: Rc<Mail>) -> SessionError {
    let mut link = link.borrow_mut();
    let mut codec = FlushDeltaCodec::default();
    let hello = message(agent_message::Kind::Hello(link.hello(&link.key, &link.shared.outbox)));
    let hello = stamp(hello, &*link.clock, &mut codec);
    *mail.outgoing.borrow_mut() = Some(Outgoing { message: hello, flush: None });
    let first = loop {
        if let Event::Received(first) = next_event(&mail, || false).await {
            break first;
        }
    };
    let Link { shared, tables, control, clock, offsets, .. } = &mut *link;
    let refs = OutboxRefs { outbox: &shared.outbox, tables };
    let control = ControlStream::new(control, &shared.dump_reply);
    let mut session = match Session::open(refs, offsets, control, first, clock.now()) {
        Ok(session) => session,
        Err(error) => return error,
    };
    mail.opened_at.set(Some(clock.now()));
    loop {
        match next_event(&mail, || session.has_next()).await {
            Event::Received(received) => {
                if let Err(error) = session.receive(received, clock.now()) {
                    return error;
                }
            }
            Event::Room => {
                mail.has_room.set(false);
                if let Some(next) = session.next_message(clock.now()) {
                    let flush = content(&next);
                    let message = stamp(next, &**clock, &mut codec);
                    *mail.outgoing.borrow_mut() = Some(Outgoing { message, flush });
                }
            }
        }
    }
}

/// Waits for a message, or for room for one if there `is_more` to send.
async fn next_event(mail: &Mail, is_more: impl Fn() -> bool) -> Event {
    poll_fn(|_| {
        if let Some(received) = mail.incoming.borrow_mut().pop_front() {
            return Poll::Ready(Event::Received(received));
        }
        if mail.has_room.get() && is_more() { Poll::Ready(Event::Room) } else { Poll::Pending }
    })
    .await
}

/// The content of a flush that is not encoded as a delta yet.
fn content(message: &v1::AgentMessage) -> Option<FlushContent> {
    let Some(agent_message::Kind::Flush(flush)) = &message.kind else { return None };
    let decoded = flush.cycle.as_ref().map(|cycle| decode_cycle(cycle, u32::MAX));
    let weights = decoded.map(|decoded| decoded.expect("the agent's own encoding is valid").1);
    let entries = weights.iter().flat_map(Delta::entries);
    let tasks = flush.tasks.iter().map(|task| (task.id, task.stop_ns != 0));
    Some(FlushContent {
        seq: flush.seq,
        nodes: entries.map(|(node, _, _)| *node).collect(),
        tasks: tasks.collect(),
    })
}
