//! The doors of the targets `replies` and `http2`: a collector's bytes, without a network.

use std::fs::File;
use std::future::Future;
use std::io::Write as _;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use profiler_core::wire::v1::agent_message;
use profiler_core::{
    Delta, Frame, Settings, State, StateSet, TaskDetail, TaskId, TaskRecord, TimeRange, Weight,
};

use super::call::{self, Call};
use super::control::ControlStream;
use super::network::MessageStream as _;
use super::session::{OutboxRefs, Session, message};
use super::socket::Socket;
use super::target::Target;
use super::*;
use crate::batch::Span;

/// Most polls of a future whose bytes are all there.
const POLLS_MAX: usize = 10_000;

/// How far a conversation got.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Conversation {
    /// Messages of the collector that were decoded.
    pub received: usize,
    /// Messages that the agent would have sent.
    pub sent: usize,
    /// Whether the session ended by an error.
    pub failed: bool,
}

/// An agent with samples that wait.
struct Agent {
    outbox: Mutex<Outbox>,
    tables: Mutex<Tables>,
    offsets: OffsetEstimator,
    control: Control,
    dump_reply: Mutex<Option<ThreadDumpReply>>,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_unix_ns((1_000_000 + second) * 1_000_000_000)
}

impl Agent {
    fn new() -> Agent {
        let mut tables = Tables::default();
        let frames = [
            Frame::task("load"),
            Frame::function("main", "src/main.rs", 3),
        ];
        let path = frames.map(|frame| tables.symbols.intern(&frame));
        let leaf = tables
            .trie
            .insert_path(path)
            .expect("two nodes are within the limit");
        let mut outbox = Outbox::new(Limits::default());
        for second in 0..4 {
            let range = TimeRange::new(at(second), at(second + 1)).expect("it has a length");
            let span = Span {
                range,
                quantum_ns: 10_000_000,
                ticks: Default::default(),
            };
            let delta: Delta = [(leaf, Weight::of(State::Cpu, 10_000_000))]
                .into_iter()
                .collect();
            let task = TaskRecord {
                id: TaskId(1),
                name: "load".into(),
                key: "load-1".into(),
                thread_id: 1,
                thread_name: "main".into(),
                parent: None,
                start: at(0),
                stop: (second == 3).then(|| at(3)),
                outcome: if second == 3 {
                    profiler_core::Outcome::Ok
                } else {
                    profiler_core::Outcome::Running
                },
                cause: "".into(),
                detail: Some(Box::new(TaskDetail::default())),
            };
            outbox.push(Batch {
                tasks: vec![task],
                ..Batch::of_samples(span, delta, Delta::default())
            });
        }
        let settings = Settings {
            interval_ns: 10_000_000,
            enabled: true,
            states: StateSet::ALL,
        };
        Agent {
            outbox: Mutex::new(outbox),
            tables: Mutex::new(tables),
            offsets: OffsetEstimator::default(),
            control: Control::new(settings),
            dump_reply: Mutex::new(None),
        }
    }

    /// Runs one stream with these messages of a collector. After each one the agent sends what it has.
    fn converse(
        &mut self,
        messages: &mut dyn Iterator<Item = v1::CollectorMessage>,
    ) -> Conversation {
        let mut conversation = Conversation::default();
        let Some(first) = messages.next() else {
            return conversation;
        };
        conversation.received = 1;
        let refs = OutboxRefs {
            outbox: &self.outbox,
            tables: &self.tables,
            log: |event| event(),
        };
        let control = ControlStream::new(&self.control, &self.dump_reply);
        let Ok(mut session) = Session::open(refs, &mut self.offsets, control, first, at(5)) else {
            conversation.failed = true;
            return conversation;
        };
        for next in messages {
            conversation.received += 1;
            // As many as the limit on flushes in flight allows, and the dictionary.
            for _ in 0..32 {
                let has_next = session.has_next();
                let next = session.next_message(at(6));
                assert_eq!(
                    has_next,
                    next.is_some(),
                    "an agent sends what it says it has"
                );
                conversation.sent += usize::from(next.is_some());
            }
            if session.receive(next, at(7)).is_err() {
                conversation.failed = true;
                break;
            }
            session.poll_timeout();
        }
        conversation
    }

    fn check(&self) {
        let account = lock(&self.outbox).current_account();
        let places = [
            account.acked_ns,
            account.unacked_ns,
            account.lost_rejected_ns,
            account.lost_by_collector_ns,
            account.lost_queue_ns,
        ];
        assert_eq!(
            account.accepted_ns,
            places.iter().sum::<u64>(),
            "{account:?}"
        );
    }
}

/// Decodes length-prefixed messages of a collector and handles them, on as many streams as there are.
#[must_use]
pub fn replies(streams: &[&[u8]]) -> Conversation {
    let mut agent = Agent::new();
    let mut all = Conversation::default();
    for stream in streams {
        let mut received = BytesMut::from(*stream);
        let mut messages = std::iter::from_fn(|| call::decode(&mut received).ok().flatten());
        let conversation = agent.converse(&mut messages);
        all.received += conversation.received;
        all.sent += conversation.sent;
        all.failed |= conversation.failed;
        agent.check();
    }
    all
}

/// Opens a call over a connection on which a collector has sent `bytes` and then closed it.
#[must_use]
pub fn connection(bytes: &[u8]) -> Conversation {
    let Ok((ours, mut theirs)) = UnixStream::pair() else {
        return Conversation::default();
    };
    let _ = theirs.set_nonblocking(true);
    // Bytes without room in the socket's buffer are lost, as on a connection that breaks.
    let _ = theirs.write(bytes);
    let _ = theirs.shutdown(Shutdown::Write);
    let file = File::from(OwnedFd::from(ours));
    let Some(socket) = Socket::of(file) else {
        return Conversation::default();
    };
    let target = Target::parse("http://127.0.0.1:4747").expect("it is a collector's URL");
    let hello = message(agent_message::Kind::Hello(v1::Hello::default()));
    let Some(Ok(mut call)) = at_once(Call::open(socket, &target, None, &hello)) else {
        return Conversation {
            failed: true,
            ..Conversation::default()
        };
    };
    let mut agent = Agent::new();
    let mut messages = std::iter::from_fn(|| {
        at_once(std::future::poll_fn(|context| call.poll_message(context)))?
            .ok()
            .flatten()
    });
    let conversation = agent.converse(&mut messages);
    agent.check();
    conversation
}

/// The result of a future that waits for nothing that is not there; `None` if it waits all the same.
fn at_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..POLLS_MAX {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
    }
    None
}
