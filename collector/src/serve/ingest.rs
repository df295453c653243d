//! Agents' streams: each message goes to the collector, each answer back in order.

use std::collections::VecDeque;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use profiler_core::Timestamp;
use profiler_core::limits::bounded;
use profiler_core::wire::FlushDeltaCodec;
use profiler_core::wire::v1::collector_message::Kind;
use profiler_core::wire::v1::{AgentMessage, CollectorMessage, Flush, agent_message};
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::server::ingest_server;
use crate::agent_control::ControlStream;
use crate::collector::Collector;
use crate::ingest::{
    AttachError, Attachment, DisconnectReason, OpenStream, ReceivedFlush, StaleStream, StreamError,
};
use crate::limits::{
    ANSWERS_MAX, FLUSH_BYTES_PER_BATCH_MAX, FLUSHES_PER_BATCH_MAX, HELLO_MAX, SILENCE_MAX,
};
use crate::store::wal::NotLogged;

/// Longest text of a status, in bytes: it travels as a header.
const STATUS_BYTES_MAX: usize = 1_024;

type Answer = Result<CollectorMessage, Status>;

/// The gRPC service.
pub(crate) struct Ingest {
    collector: Arc<Collector>,
    stopping: watch::Receiver<bool>,
}

impl Ingest {
    pub(crate) fn new(collector: Arc<Collector>, stopping: watch::Receiver<bool>) -> Ingest {
        Ingest { collector, stopping }
    }
}

#[tonic::async_trait]
impl ingest_server::Ingest for Ingest {
    type AttachStream = ReceiverStream<Answer>;

    async fn attach(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let (answers, receiver) = mpsc::channel(ANSWERS_MAX);
        let collector = self.collector.clone();
        let (messages, said) = (request.into_inner(), FlushDeltaCodec::default());
        let stream = Stream { collector, messages, said, given: None, answers };
        tokio::spawn(stream.run(self.stopping.clone()));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Why a stream ends before it is a session's.
enum TurnedAway {
    /// It is not as it must be, or there are too many.
    Wrong(Status),
    /// It is right, and nothing is taken in at present.
    NotLogged(NotLogged),
}

impl From<Status> for TurnedAway {
    fn from(status: Status) -> TurnedAway {
        TurnedAway::Wrong(status)
    }
}

/// What a stream gave: a message, its end, or why it broke.
type Given = Result<Option<AgentMessage>, Status>;

/// One agent's stream.
struct Stream {
    collector: Arc<Collector>,
    messages: Streaming<AgentMessage>,
    said: FlushDeltaCodec,
    /// What was read and is not handled yet.
    given: Option<Box<Given>>,
    answers: mpsc::Sender<Answer>,
}

impl Stream {
    /// Serves the stream to its end, whatever ends it, and lets its session know.
    async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let OpenStream { attachment, taken_over, welcome, control } =
            match Box::pin(self.hello()).await {
                Ok(attached) => attached,
                Err(TurnedAway::Wrong(status)) => {
                    tracing::warn!(reason = status.message(), "a stream without a good Hello");
                    return self.finish(status);
                }
                Err(TurnedAway::NotLogged(error)) => {
                    // Each agent comes again and again until it ends: that is told once, elsewhere.
                    tracing::debug!(%error, "a stream is turned away");
                    return self.finish(not_logged_status(&error));
                }
            };
        // As a string the name is escaped where it is logged; it is not ours.
        let (worker, epoch) = (&*attachment.cell.worker.0, attachment.cell.epoch);
        tracing::info!(worker, %epoch, "agent attached");
        // What ends a stream from outside may leave a flush on its way into the log: it is applied
        // all the same, and the agent learns of it from its next Welcome.
        let ended = tokio::select! {
            ended = self.converse(&attachment, Kind::Welcome(welcome), control) => ended,
            _ = taken_over => Err(taken_over_status()),
            _ = stopping.wait_for(|stop| *stop) => {
                Err(Status::unavailable("the collector is shutting down"))
            }
        };
        let departure =
            if ended.is_ok() { DisconnectReason::Goodbye } else { DisconnectReason::CutOff };
        self.collector.ingest.detach(&attachment, departure, self.collector.state.clock.now());
        match ended {
            Ok(()) => tracing::info!(worker, %epoch, "agent said goodbye"),
            Err(status) => {
                tracing::info!(worker, %epoch, reason = status.message(), "agent's stream ended");
                self.finish(status);
            }
        }
    }

    /// Awaits Hello, which must come first and soon.
    async fn hello(&mut self) -> Result<OpenStream, TurnedAway> {
        let message = timeout(HELLO_MAX, self.messages.message()).await.map_err(|_| {
            Status::deadline_exceeded(format!("no Hello came within {HELLO_MAX:?}"))
        })?;
        let message = message?;
        let received_at = self.collector.state.clock.now();
        match message.and_then(|message| message.kind) {
            Some(agent_message::Kind::Hello(hello)) => {
                let attached = self.collector.ingest.attach(hello, received_at).await;
                attached.map_err(|error| match error {
                    AttachError::Hello(_) => Status::invalid_argument(error.to_string()).into(),
                    AttachError::NoRoom(_) => Status::resource_exhausted(error.to_string()).into(),
                    AttachError::NotLogged(error) => TurnedAway::NotLogged(error),
                })
            }
            _ => {
                Err(Status::invalid_argument("the first message of a stream must be Hello").into())
            }
        }
    }

    /// Answers messages until the agent says Goodbye (`Ok`) or the stream ends otherwise.
    async fn converse(
        &mut self,
        attachment: &Attachment,
        welcome: Kind,
        mut control: ControlStream,
    ) -> Result<(), Status> {
        self.answer(welcome).await?;
        // Set again only when it is reached, for nearly every message comes long before.
        let mut heard_at = Instant::now();
        let mut silence = pin!(sleep_until(heard_at + SILENCE_MAX));
        loop {
            // Whichever is not there yet is awaited on in the next round, and nothing of it is lost.
            let message = tokio::select! {
                message = self.next() => message?,
                Some(order) = control.next() => {
                    self.answer(order).await?;
                    continue;
                }
                () = &mut silence => {
                    if heard_at.elapsed() >= SILENCE_MAX {
                        let text = format!("nothing came for {SILENCE_MAX:?}");
                        return Err(Status::deadline_exceeded(text));
                    }
                    silence.as_mut().reset(heard_at + SILENCE_MAX);
                    continue;
                }
            };
            heard_at = Instant::now();
            let received_at = self.collector.state.clock.now();
            let message = message.ok_or_else(|| Status::cancelled("the agent hung up"))?;
            let answer = match message.kind {
                Some(agent_message::Kind::Flush(flush)) => {
                    let first = self.received(flush, received_at);
                    // A stream takes its room for this only while it has a flush under way.
                    Box::pin(self.flushes(attachment, first)).await?;
                    None
                }
                Some(agent_message::Kind::Dictionary(dictionary)) => {
                    let answer = self.collector.ingest.receive_dictionary(
                        attachment,
                        &dictionary,
                        received_at,
                    );
                    answer.map_err(|StaleStream| taken_over_status())?
                }
                Some(agent_message::Kind::Applied(applied)) => {
                    let taken = self.collector.ingest.receive_applied_settings(
                        attachment,
                        applied,
                        received_at,
                    );
                    taken.map(|()| None).map_err(|StaleStream| taken_over_status())?
                }
                Some(agent_message::Kind::ThreadDump(stacks)) => {
                    let taken =
                        self.collector.ingest.receive_thread_dump(attachment, &stacks, received_at);
                    taken.map(|()| None).map_err(|StaleStream| taken_over_status())?
                }
                Some(agent_message::Kind::Goodbye(_)) => return Ok(()),
                Some(agent_message::Kind::Hello(_)) => {
                    return Err(Status::invalid_argument("Hello may come only once in a stream"));
                }
                // A kind of message of a later version: this protocol's agents send none.
                None => return Err(Status::invalid_argument("a message of no known kind")),
            };
            if let Some(answer) = answer {
                self.answer(answer).await?;
            }
        }
    }

    /// What the stream gives next.
    async fn next(&mut self) -> Given {
        match self.given.take() {
            Some(given) => *given,
            None => self.messages.message().await,
        }
    }

    /// A flush that came next on the stream, made whole before anything else sees it.
    fn received(&mut self, mut flush: Flush, at: Timestamp) -> ReceivedFlush {
        self.said.decode(&mut flush);
        ReceivedFlush { flush, at }
    }

    /// Takes in a flush and those that came behind it already, up to [`FLUSHES_PER_BATCH_MAX`]: an
    /// agent that was away sends many, and they share a write to the log and one to the agent.
    async fn flushes(
        &mut self,
        attachment: &Attachment,
        first: ReceivedFlush,
    ) -> Result<(), Status> {
        let (at, mut bytes) = (first.at, 0);
        let mut waiting = VecDeque::from([first]);
        while waiting.len() < FLUSHES_PER_BATCH_MAX && bytes < FLUSH_BYTES_PER_BATCH_MAX {
            bytes += waiting.back().map_or(0, |last| last.flush.encoded_len());
            // Polled once, for it is not waited for.
            let given = poll_fn(|context| {
                let given = pin!(self.messages.message()).poll(context);
                Poll::Ready(match given {
                    Poll::Ready(given) => Some(given),
                    Poll::Pending => None,
                })
            });
            match given.await {
                Some(Ok(Some(AgentMessage { kind: Some(agent_message::Kind::Flush(flush)) }))) => {
                    waiting.push_back(self.received(flush, at));
                }
                given => {
                    self.given = given.map(Box::new);
                    break;
                }
            }
        }
        while !waiting.is_empty() {
            let answers = self.collector.ingest.receive_flushes(attachment, &mut waiting).await;
            let answers = answers.map_err(|error| match error {
                StreamError::Stale(StaleStream) => taken_over_status(),
                StreamError::NotLogged(error) => not_logged_status(&error),
            })?;
            for answer in answers {
                self.answer(answer).await?;
            }
        }
        Ok(())
    }

    /// Queues an answer; waits while [`ANSWERS_MAX`] wait to be read.
    async fn answer(&self, kind: Kind) -> Result<(), Status> {
        let message = CollectorMessage { kind: Some(kind) };
        let sent = self.answers.send(Ok(message)).await;
        sent.map_err(|_| Status::cancelled("the agent no longer reads answers"))
    }

    /// Ends the stream with a reason. An agent that leaves its answers unread does not get it.
    fn finish(self, status: Status) {
        let text = bounded(status.message(), STATUS_BYTES_MAX).into_owned();
        let _ = self.answers.try_send(Err(Status::new(status.code(), text)));
    }
}

/// The agent keeps what was not acknowledged, and comes back.
fn not_logged_status(error: &NotLogged) -> Status {
    match error {
        NotLogged::Full { .. } | NotLogged::Behind { .. } | NotLogged::Late => {
            Status::resource_exhausted(error.to_string())
        }
        NotLogged::Failed { .. } | NotLogged::Closed => Status::unavailable(error.to_string()),
    }
}

fn taken_over_status() -> Status {
    Status::aborted(StaleStream.to_string())
}
