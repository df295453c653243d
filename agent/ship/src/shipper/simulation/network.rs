//! The network of a simulated agent: what it does is a list of actions, and what happens to it is up to the
//! simulation.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use profiler_core::wire::v1::{self, agent_message};
use profiler_core::wire::{FlushDeltaCodec, decode_cycle};
use profiler_core::{Delta, Token};

use super::{Action, FlushContent, Outgoing};
use crate::shipper::call::CallError;
use crate::shipper::network::{MessageStream, Network};
use crate::shipper::socket::CONNECT_TIMEOUT;
use crate::shipper::target::Target;

/// See the module.
pub(super) struct SimulatedNetwork {
    shared: Rc<SharedNetwork>,
    /// Host names of the collectors, in the order of their indices.
    hosts: Vec<String>,
    /// The earliest time that the last poll waited for.
    deadline: Cell<Option<Instant>>,
}

/// State that sockets share with their network.
pub(super) struct SharedNetwork {
    now: Box<dyn Fn() -> Instant>,
    sockets: RefCell<BTreeMap<u64, SocketState>>,
    last_number: Cell<u64>,
    actions: RefCell<Vec<Action>>,
}

/// Messages and events that a socket has received.
#[derive(Default)]
struct SocketState {
    /// How the attempt to connect ended.
    connected: Option<bool>,
    received: VecDeque<v1::CollectorMessage>,
    end: Option<SocketEnd>,
    /// When the last bytes came.
    last_received: Option<Instant>,
}

/// How a call ended, after the messages that have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketEnd {
    /// The collector has ended it without an error.
    Finished,
    /// By an error, or because the connection is lost.
    Failed,
}

impl SimulatedNetwork {
    pub(super) fn new(hosts: Vec<String>, now: impl Fn() -> Instant + 'static) -> SimulatedNetwork {
        let shared = SharedNetwork {
            now: Box::new(now),
            sockets: RefCell::default(),
            last_number: Cell::new(0),
            actions: RefCell::default(),
        };
        SimulatedNetwork {
            shared: Rc::new(shared),
            hosts,
            deadline: Cell::new(None),
        }
    }

    pub(super) fn clear_deadline(&self) {
        self.deadline.set(None);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline.get()
    }

    pub(super) fn take_actions(&self) -> Vec<Action> {
        self.shared.actions.take()
    }

    pub(super) fn note_connected(&self, socket: u64, is_connected: bool) {
        self.shared
            .change(socket, |state| state.connected = Some(is_connected));
    }

    pub(super) fn deliver(&self, socket: u64, message: v1::CollectorMessage) {
        self.note_pong(socket);
        self.shared
            .change(socket, |state| state.received.push_back(message));
    }

    pub(super) fn note_pong(&self, socket: u64) {
        let now = self.now();
        self.shared
            .change(socket, |state| state.last_received = Some(now));
    }

    pub(super) fn end(&self, socket: u64, end: SocketEnd) {
        self.shared.change(socket, |state| state.end = Some(end));
    }
}

impl SharedNetwork {
    /// Changes a socket that the agent has not closed.
    fn change(&self, socket: u64, change: impl FnOnce(&mut SocketState)) {
        if let Some(state) = self.sockets.borrow_mut().get_mut(&socket) {
            change(state);
        }
    }

    fn act(&self, action: Action) {
        self.actions.borrow_mut().push(action);
    }
}

/// A socket, which is closed when it is dropped.
pub(super) struct SimulatedSocket {
    number: u64,
    connected_at: Instant,
    shared: Rc<SharedNetwork>,
}

impl Drop for SimulatedSocket {
    fn drop(&mut self) {
        self.shared.sockets.borrow_mut().remove(&self.number);
        self.shared.act(Action::Close {
            socket: self.number,
        });
    }
}

impl Network for SimulatedNetwork {
    type Socket = SimulatedSocket;
    type Call = SimulatedCall;
    type Watched<'n> = ();

    fn now(&self) -> Instant {
        (self.shared.now)()
    }

    fn poll_by(&self, until: Instant) {
        let earliest = self
            .deadline
            .get()
            .map_or(until, |earlier| earlier.min(until));
        self.deadline.set(Some(earliest));
    }

    fn set_answer_due(&self, _is_due: bool) {}

    async fn connect(&self, target: &Target) -> io::Result<Rc<SimulatedSocket>> {
        let host = target.authority().host();
        let collector = self
            .hosts
            .iter()
            .position(|name| name == host)
            .expect("a simulated agent knows simulated collectors only");
        let shared = self.shared.clone();
        let number = shared.last_number.get() + 1;
        shared.last_number.set(number);
        shared
            .sockets
            .borrow_mut()
            .insert(number, SocketState::default());
        shared.act(Action::Connect {
            socket: number,
            collector,
        });
        let socket = Rc::new(SimulatedSocket {
            number,
            connected_at: self.now(),
            shared,
        });
        let connecting = poll_fn(|_| {
            let sockets = self.shared.sockets.borrow();
            sockets[&number]
                .connected
                .map_or(Poll::Pending, Poll::Ready)
        });
        match self.timeout(CONNECT_TIMEOUT, connecting).await {
            Some(true) => Ok(socket),
            Some(false) => Err(io::ErrorKind::ConnectionRefused.into()),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn watch(&self, _socket: Rc<SimulatedSocket>) {}

    fn is_stolen(_socket: &SimulatedSocket) -> bool {
        false
    }

    fn last_received(socket: &SimulatedSocket) -> Instant {
        let sockets = socket.shared.sockets.borrow();
        sockets[&socket.number]
            .last_received
            .unwrap_or(socket.connected_at)
    }

    async fn open(
        &self,
        socket: Rc<SimulatedSocket>,
        _target: &Target,
        _token: Option<&Token>,
        first: &v1::AgentMessage,
    ) -> Result<SimulatedCall, CallError> {
        let mut call = SimulatedCall {
            socket,
            decoder: FlushDeltaCodec::default(),
        };
        call.send(first)?;
        Ok(call)
    }
}

/// A call, whose messages wait for nothing.
pub(super) struct SimulatedCall {
    socket: Rc<SimulatedSocket>,
    /// As the collector has it, to learn the content of flushes.
    decoder: FlushDeltaCodec,
}

impl MessageStream for SimulatedCall {
    fn poll_message(
        &mut self,
        _context: &mut Context<'_>,
    ) -> Poll<Result<Option<v1::CollectorMessage>, CallError>> {
        let SimulatedSocket { number, shared, .. } = &*self.socket;
        let mut sockets = shared.sockets.borrow_mut();
        let state = sockets.get_mut(number).expect("an open call has a socket");
        if let Some(message) = state.received.pop_front() {
            return Poll::Ready(Ok(Some(message)));
        }
        match state.end {
            Some(SocketEnd::Finished) => Poll::Ready(Ok(None)),
            Some(SocketEnd::Failed) => Poll::Ready(Err(CallError::Closed)),
            None => Poll::Pending,
        }
    }

    fn poll_room(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn send(&mut self, message: &v1::AgentMessage) -> Result<(), CallError> {
        let flush = self.content(message);
        let outgoing = Box::new(Outgoing {
            message: message.clone(),
            flush,
        });
        self.socket.shared.act(Action::Send {
            socket: self.socket.number,
            outgoing,
        });
        Ok(())
    }

    async fn close(&mut self) -> Result<(), CallError> {
        Ok(())
    }

    fn ping(&mut self) -> Result<(), CallError> {
        self.socket.shared.act(Action::Ping {
            socket: self.socket.number,
        });
        Ok(())
    }
}

impl SimulatedCall {
    /// The content of a flush.
    fn content(&mut self, message: &v1::AgentMessage) -> Option<FlushContent> {
        let Some(agent_message::Kind::Flush(flush)) = &message.kind else {
            return None;
        };
        let mut flush = flush.clone();
        self.decoder.decode(&mut flush);
        let decoded = flush
            .cycle
            .as_ref()
            .map(|cycle| decode_cycle(cycle, u32::MAX));
        let weights = decoded.map(|decoded| decoded.expect("the agent's own encoding is valid").1);
        let entries = weights.iter().flat_map(Delta::entries);
        let tasks = flush.tasks.iter().map(|task| (task.id, task.stop_ns != 0));
        Some(FlushContent {
            seq: flush.seq,
            nodes: entries.map(|(node, _, _)| *node).collect(),
            tasks: tasks.collect(),
        })
    }
}
