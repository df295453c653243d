//! An agent's network loop: connects, exchanges messages, and reconnects.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use profiler_core::limits::MESSAGE_BYTES_MAX;
use profiler_core::wire::v1::{self, agent_message, collector_message};
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::agent::{Agent, lock};
use crate::client::ingest_client::IngestClient;
use crate::fleet::{CollectorChannels, Pace, Phase, Shared};
use crate::random::Random;
use crate::record::Violation;

/// Messages between the agent and its socket.
const OUTGOING_MAX: usize = 4;
/// Longest wait for the collector's Welcome.
const WELCOME_MAX: Duration = Duration::from_secs(30);
/// Pause between two attempts at a collector that rejected the first.
const RETRY: Duration = Duration::from_millis(50);
/// Most flushes that an agent keeps when it creates one a second.
const OPEN_FLUSHES_MAX: usize = 60;
const SECOND: Duration = Duration::from_secs(1);

/// Control of the agents.
#[derive(Clone, Debug)]
pub(crate) struct AgentSignals {
    pub(crate) collector: watch::Receiver<Option<CollectorChannels>>,
    pub(crate) phase: watch::Receiver<Phase>,
}

/// Why a stream ended.
#[derive(Debug)]
enum Ended {
    Broken(String),
    Violated(Violation),
}

impl From<Violation> for Ended {
    fn from(violation: Violation) -> Self {
        Ended::Violated(violation)
    }
}

impl From<Status> for Ended {
    fn from(status: Status) -> Self {
        Ended::Broken(status.to_string())
    }
}

/// One agent, for the life of the fleet.
pub(crate) async fn run(
    agent: Agent,
    index: usize,
    mut signals: AgentSignals,
    shared: Arc<Shared>,
    mut random: Random,
) {
    // Spread over the second, like agents that started at arbitrary times.
    let phase = SECOND.mul_f64(random.fraction());
    let mut agent_loop = AgentLoop {
        agent,
        shared,
        next_due: Instant::now() + phase,
    };
    loop {
        let channel = match signals.collector.wait_for(Option::is_some).await {
            Ok(collector) => collector
                .as_ref()
                .expect("it was waited for")
                .channel(index),
            Err(_) => return,
        };
        let ended = agent_loop.run_stream(channel, &mut signals.phase).await;
        match ended {
            Ended::Violated(violation) => {
                agent_loop.shared.violate(violation);
                return;
            }
            Ended::Broken(reason) => agent_loop.shared.broken(&reason),
        }
        if random.chance(agent_loop.shared.plan.new_life) {
            let gone = agent_loop.agent.begin_life() as u64;
            agent_loop.shared.counts.abandoned.fetch_add(gone, Relaxed);
            agent_loop.shared.counts.open.fetch_sub(gone, Relaxed);
        }
        // Then reconnects, whether the collector has ended or rejected the stream.
        let _ = timeout(RETRY, signals.collector.changed()).await;
    }
}

/// An agent, and when it creates its next flush.
struct AgentLoop {
    agent: Agent,
    shared: Arc<Shared>,
    next_due: Instant,
}

/// Counts a stream while it is open.
struct Attached<'a>(&'a Shared);

impl<'a> Attached<'a> {
    fn new(shared: &'a Shared) -> Attached<'a> {
        shared.counts.attached.fetch_add(1, Relaxed);
        shared.changed.notify_one();
        Attached(shared)
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.0.counts.attached.fetch_sub(1, Relaxed);
    }
}

impl AgentLoop {
    /// Runs one stream to its end.
    async fn run_stream(&mut self, channel: Channel, phase: &mut watch::Receiver<Phase>) -> Ended {
        let shared = self.shared.clone();
        let permit = shared
            .attaching
            .acquire()
            .await
            .expect("it is never closed");
        let opened = timeout(WELCOME_MAX, self.open(channel)).await;
        drop(permit);
        let (sender, incoming) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(ended)) => return ended,
            Err(_) => return Ended::Broken(format!("no Welcome within {WELCOME_MAX:?}")),
        };
        let _attached = Attached::new(&shared);
        match self.exchange_messages(&sender, incoming, phase).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn open(
        &mut self,
        channel: Channel,
    ) -> Result<
        (
            mpsc::Sender<v1::AgentMessage>,
            Streaming<v1::CollectorMessage>,
        ),
        Ended,
    > {
        let (sender, receiver) = mpsc::channel(OUTGOING_MAX);
        let _ = sender.try_send(self.agent.hello());
        let mut client = IngestClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let mut incoming = client
            .attach(ReceiverStream::new(receiver))
            .await?
            .into_inner();
        let first = incoming.message().await?.and_then(|message| message.kind);
        let Some(collector_message::Kind::Welcome(welcome)) = first else {
            return Err(match first {
                None => Ended::Broken("it ended the stream before Welcome".into()),
                Some(other) => self.agent.unexpected(name(&other), "Welcome").into(),
            });
        };
        let held = self.agent.welcome(&welcome)? as u64;
        self.shared.counts.held_unacked.fetch_add(held, Relaxed);
        self.shared.counts.open.fetch_sub(held, Relaxed);
        Ok((sender, incoming))
    }

    async fn exchange_messages(
        &mut self,
        sender: &mpsc::Sender<v1::AgentMessage>,
        mut incoming: Streaming<v1::CollectorMessage>,
        phase: &mut watch::Receiver<Phase>,
    ) -> Result<std::convert::Infallible, Ended> {
        loop {
            let running = *phase.borrow_and_update() == Phase::Run
                && self.agent.made() < self.shared.plan.flushes_max;
            self.make(running);
            let may_send = self.agent.has_next();
            let is_paced = running && matches!(self.shared.plan.pace, Pace::Every { .. });
            let due = pin!(sleep_until(self.next_due.into()));
            tokio::select! {
                answer = incoming.message() => {
                    self.handle_answer(answer?.ok_or_else(|| Ended::Broken("it ended the stream".into()))?)?;
                }
                permit = sender.reserve(), if may_send => {
                    // Without a receiver the stream broke, and `incoming` has the reason.
                    let Ok(permit) = permit else {
                        let reason = match incoming.message().await {
                            Err(status) => status.to_string(),
                            Ok(_) => "it no longer reads".into(),
                        };
                        return Err(Ended::Broken(reason));
                    };
                    let next = self.agent.next_message(Instant::now()).expect("it has one");
                    self.shared.counts.bytes.fetch_add(next.encoded_len() as u64, Relaxed);
                    let is_flush = matches!(next.kind, Some(agent_message::Kind::Flush(_)));
                    permit.send(next);
                    if is_flush {
                        self.shared.sends.count(&self.shared.counts.sent);
                    }
                }
                () = due, if is_paced => {}
                _ = phase.changed() => {}
            }
        }
    }

    /// Creates the flushes that are due.
    fn make(&mut self, running: bool) {
        let counts = &self.shared.counts;
        let now = Instant::now();
        match self.shared.plan.pace {
            Pace::AsFast { in_flight } => {
                if running && !self.agent.has_next() && self.agent.in_flight() < in_flight {
                    self.agent.make(now);
                    counts.open.fetch_add(1, Relaxed);
                }
            }
            Pace::Every { interval } => {
                while self.next_due <= now {
                    if running && self.agent.open() < OPEN_FLUSHES_MAX {
                        self.agent.make(self.next_due);
                        counts.open.fetch_add(1, Relaxed);
                    } else if running {
                        counts.skipped.fetch_add(1, Relaxed);
                    }
                    self.next_due += interval;
                }
            }
        }
    }

    fn handle_answer(&mut self, answer: v1::CollectorMessage) -> Result<(), Ended> {
        match answer.kind {
            Some(collector_message::Kind::Ack(ack)) => {
                let settled = self.agent.ack(ack.seq, Instant::now())?;
                let mut latencies = lock(&self.shared.latencies);
                latencies
                    .since_sent
                    .saturating_record(microseconds(settled.since_sent));
                latencies
                    .since_due
                    .saturating_record(microseconds(settled.since_due));
                drop(latencies);
                let counts = &self.shared.counts;
                counts.pairs.fetch_add(settled.pairs, Relaxed);
                self.shared.acks.count(&counts.acked);
                if counts.open.fetch_sub(1, Relaxed) == 1 {
                    self.shared.changed.notify_one();
                }
                Ok(())
            }
            Some(collector_message::Kind::Refusal(refusal)) => Ok(self.agent.refused(refusal)?),
            // Simulated agents have no control requests to answer.
            other => {
                let got = other.as_ref().map_or("a message without a kind", name);
                Err(self.agent.unexpected(got, "an answer").into())
            }
        }
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn name(kind: &collector_message::Kind) -> &'static str {
    match kind {
        collector_message::Kind::Welcome(_) => "Welcome",
        collector_message::Kind::Ack(_) => "Ack",
        collector_message::Kind::Refusal(_) => "Refusal",
        collector_message::Kind::Settings(_) => "Settings",
        collector_message::Kind::ThreadDumpRequest(_) => "ThreadDumpRequest",
        collector_message::Kind::SymbolRequest(_) => "SymbolRequest",
    }
}
