//! One life of an agent without its thread and its sockets, for deterministic simulations: the real loop of the
//! thread, stepped by the caller, with time and connections of a simulation.

mod network;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use profiler_core::wire::v1;
use profiler_core::{
    Delta, Frame, NodeId, SessionKey, Settings, State, StateSet, TaskRecord, Telemetry, Ticks,
    TimeRange, Timestamp,
};

use self::network::SimulatedNetwork;
pub use self::network::SocketEnd;
use super::network::Network as _;
use super::{AgentClock, BatchQueue, Limits, Parts, ShipOptions, Shipper, TokenSource, prepare};
use crate::SamplerMode;
use crate::ShipReport;
use crate::batch::{Batch, Span};
use crate::control::Control;
use crate::tables::{StackNode, Tables};
use system::sync::lock;

/// Most stays at once that an agent has left and awaits answers of; beyond, it gives up the oldest.
pub const UNSETTLED_MAX: usize = super::stays::UNSETTLED_MAX;

/// Interval of the simulated sampler.
const INTERVAL_NS: u64 = 10_000_000;

/// How a simulated agent differs from others.
#[derive(Clone, Debug)]
pub struct SimulatedWorker {
    /// The worker's id.
    pub worker: String,
    /// Its labels.
    pub labels: Vec<(String, String)>,
    /// Host names of the collectors.
    pub hosts: Vec<String>,
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
    /// Everything else that the program reports.
    pub telemetry: Telemetry,
    /// Whether each stack is also counted as the time of a thread of its own.
    pub is_by_thread: bool,
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

/// Action of an agent.
#[derive(Debug)]
pub enum Action {
    /// It connects to the collector with that index.
    Connect {
        /// Number of the socket, unique within the life.
        socket: u64,
        /// Index of the collector.
        collector: usize,
    },
    /// It sends a message.
    Send {
        /// Number of the socket.
        socket: u64,
        /// The message.
        outgoing: Box<Outgoing>,
    },
    /// It asks whether the collector is there.
    Ping {
        /// Number of the socket.
        socket: u64,
    },
    /// It closes a socket, or gives up the attempt to connect.
    Close {
        /// Number of the socket.
        socket: u64,
    },
}

/// One life of an agent.
pub struct SimulatedAgent {
    shipper: Shipper,
    queue: Option<BatchQueue>,
    tables: Arc<Mutex<Tables>>,
    /// The beginning of the life by the system's clock, which only serves as an origin.
    origin: Instant,
    network: Rc<SimulatedNetwork>,
    running: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

struct ClockFn<F>(F);

impl<F: Fn() -> Timestamp + Send + Sync + 'static> AgentClock for ClockFn<F> {
    fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for SimulatedAgent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SimulatedAgent")
            .field("shipper", &self.shipper)
            .finish()
    }
}

impl SimulatedAgent {
    /// Starts a life, whose clock is `now`, and since whose start `elapsed` has passed.
    #[must_use]
    pub fn new(
        worker: SimulatedWorker,
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        elapsed: impl Fn() -> Duration + 'static,
    ) -> SimulatedAgent {
        let urls = worker
            .hosts
            .iter()
            .map(|host| format!("http://{host}:4747"));
        let settings = Settings {
            interval_ns: INTERVAL_NS,
            enabled: true,
            states: StateSet::ALL,
        };
        let control = Arc::new(Control::new(settings));
        control.set_mode(SamplerMode::Full);
        let options = ShipOptions {
            url: urls.collect::<Vec<_>>().join(","),
            token: TokenSource::None,
            worker: worker.worker,
            labels: worker.labels,
            key: SessionKey::new(worker.key),
            host: "simulated".to_owned(),
            pid: 1,
            agent_version: env!("CARGO_PKG_VERSION"),
            control,
            started_at: now(),
            limits: Limits {
                waiting_max: worker.waiting_max,
                outbox_bytes_max: worker.outbox_bytes_max,
                flush_bytes_max: worker.flush_bytes_max,
                ..Limits::default()
            },
            log: |event| event(),
            notice: false,
        };
        let tables = Arc::new(Mutex::new(Tables::default()));
        let prepared = prepare(options, tables.clone(), Arc::new(ClockFn(now)));
        let Parts {
            shipper,
            queue,
            thread,
        } = prepared.expect("the options are valid");
        let origin = Instant::now();
        let network = SimulatedNetwork::new(worker.hosts, move || origin + elapsed());
        let network = Rc::new(network);
        let of_agent = network.clone();
        let running = async move { thread.link.run(&*of_agent).await };
        SimulatedAgent {
            shipper,
            queue: Some(queue),
            tables,
            origin,
            network,
            running: Some(Box::pin(running)),
        }
    }

    /// Queues a cycle. Returns the node of each stack's leaf.
    pub fn push(&mut self, cycle: SimulatedCycle<'_>) -> Vec<NodeId> {
        let SimulatedCycle {
            range,
            stacks,
            tasks,
            mut telemetry,
            is_by_thread,
        } = cycle;
        let mut tables = lock(&self.tables);
        let mut nodes = Vec::new();
        let mut threads = Vec::new();
        for ((frames, weight_ns), thread_id) in stacks.iter().zip(1..) {
            let mut at = StackNode::ROOT;
            for (depth, frame) in frames.iter().enumerate() {
                let frame = tables.frame_id(frame);
                at = tables.node(at, &[frame]);
                if depth == 0 && is_by_thread {
                    let thread = tables.frame_id(&Frame::thread("pool", thread_id));
                    threads.push((tables.thread_node(at, thread).id, State::Cpu, *weight_ns));
                }
            }
            nodes.push(at.id);
        }
        drop(tables);
        let weights = nodes.iter().zip(stacks);
        let delta: Delta = weights
            .map(|(node, (_, ns))| (*node, State::Cpu, *ns))
            .collect();
        let ticks = Ticks {
            made: 100,
            expected: 100,
            throttled: 0,
        };
        let span = Span {
            range,
            quantum_ns: 1,
            ticks,
        };
        let samples = Batch::of_samples(span, delta, threads.into_iter().collect());
        if let Some(queue) = &self.queue {
            let totals = std::mem::take(&mut telemetry.totals);
            queue.push(Batch {
                tasks,
                telemetry,
                totals,
                ..samples
            });
        }
        nodes
    }

    /// Runs the agent until it waits. Returns what it does meanwhile.
    pub fn step(&mut self) -> Vec<Action> {
        if let Some(running) = &mut self.running {
            self.network.clear_deadline();
            let polled = running
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            if polled.is_ready() {
                self.running = None;
            }
        }
        self.network.take_actions()
    }

    /// When to call [`SimulatedAgent::step`] again at the latest, since its start. `None` if only an event is
    /// waited for.
    #[must_use]
    pub fn next_step_after(&self) -> Option<Duration> {
        let is_running = self.running.is_some();
        let deadline = self.network.deadline().filter(|_| is_running)?;
        Some(deadline.saturating_duration_since(self.origin))
    }

    /// An attempt to connect has ended.
    pub fn note_connected(&self, socket: u64, is_connected: bool) {
        self.network.note_connected(socket, is_connected);
    }

    /// A message of a collector arrives.
    pub fn deliver(&self, socket: u64, message: v1::CollectorMessage) {
        self.network.deliver(socket, message);
    }

    /// The answer to a ping arrives.
    pub fn note_pong(&self, socket: u64) {
        self.network.note_pong(socket);
    }

    /// A call ends, after the messages that have arrived.
    pub fn end_call(&self, socket: u64, end: SocketEnd) {
        self.network.end(socket, end);
    }

    /// Ends the agent, within `limit`: no cycle will come.
    pub fn finish(&mut self, limit: Duration) {
        self.queue = None;
        self.shipper
            .request_finish(self.network.now() + limit, limit);
    }

    /// Whether the agent has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.running.is_none()
    }

    /// Whether everything is acknowledged, also by the collectors that the agent has left.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        lock(&self.shipper.shared.outbox).is_empty() && self.unsettled_epochs().is_empty()
    }

    /// Epochs of the stays that ended without an answer to everything.
    #[must_use]
    pub fn unsettled_epochs(&self) -> Vec<u64> {
        let ended = lock(&self.shipper.shared.ended);
        ended
            .unsettled()
            .iter()
            .map(|stay| stay.key.epoch().0)
            .collect()
    }

    /// Returns what happened to the samples so far.
    #[must_use]
    pub fn report(&self) -> ShipReport {
        self.shipper.report()
    }
}

#[cfg(test)]
mod tests;
