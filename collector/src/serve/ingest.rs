//! Streams of agents: passes each message to the collector and returns answers in order.

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
        let stream = Stream {
            collector,
            messages: request.into_inner(),
            deltas: FlushDeltaCodec::default(),
            next: None,
            answers,
        };
        tokio::spawn(stream.run(self.stopping.clone()));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Why a stream is rejected before it has a session.
enum Rejected {
    /// It is invalid, or there are too many.
    Invalid(Status),
    /// It is valid, but ingestion is stopped.
    NotLogged(NotLogged),
}

impl From<Status> for Rejected {
    fn from(status: Status) -> Rejected {
        Rejected::Invalid(status)
    }
}

/// The next message of a stream, `None` at its end, or why it broke.
type NextMessage = Result<Option<AgentMessage>, Status>;

/// One agent's stream.
struct Stream {
    collector: Arc<Collector>,
    messages: Streaming<AgentMessage>,
    deltas: FlushDeltaCodec,
    /// Read ahead, not yet handled.
    next: Option<Box<NextMessage>>,
    answers: mpsc::Sender<Answer>,
}

impl Stream {
    /// Serves the stream to its end, and then detaches its session, whatever the reason.
    async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let OpenStream { attachment, taken_over, welcome, control } =
            match Box::pin(self.hello()).await {
                Ok(attached) => attached,
                Err(Rejected::Invalid(status)) => {
                    tracing::warn!(reason = status.message(), "rejected stream: invalid Hello");
                    return self.finish(status);
                }
                Err(Rejected::NotLogged(error)) => {
                    // Only debug: every agent retries until ingestion resumes, and its stop is logged
                    // once elsewhere.
                    tracing::debug!(%error, "rejected stream: ingestion is stopped");
                    return self.finish(not_logged_status(&error));
                }
            };
        // Logged as a string, so that the log escapes a name that comes from outside.
        let worker = &*attachment.cell.worker.0;
        let epoch = attachment.cell.epoch;
        tracing::info!(worker, %epoch, "agent attached");
        // A stream that is ended from outside may leave a flush on its way into the log. It is applied
        // nevertheless, and the agent learns of it from its next Welcome.
        let ended = tokio::select! {
            ended = self.converse(&attachment, Kind::Welcome(welcome), control) => ended,
            _ = taken_over => Err(taken_over_status()),
            _ = stopping.wait_for(|stop| *stop) => {
                Err(Status::unavailable("the collector is shutting down"))
            }
        };
        let reason =
            if ended.is_ok() { DisconnectReason::Goodbye } else { DisconnectReason::CutOff };
        self.collector.ingest.detach(&attachment, reason, self.collector.state.clock.now());
        match ended {
            Ok(()) => tracing::info!(worker, %epoch, "agent disconnected"),
            Err(status) => {
                tracing::info!(worker, %epoch, reason = status.message(), "agent's stream broke");
                self.finish(status);
            }
        }
    }

    /// Awaits Hello, which must be the first message.
    async fn hello(&mut self) -> Result<OpenStream, Rejected> {
        let message = timeout(HELLO_MAX, self.messages.message())
            .await
            .map_err(|_| Status::deadline_exceeded(format!("no Hello within {HELLO_MAX:?}")))?;
        let message = message?;
        let received_at = self.collector.state.clock.now();
        match message.and_then(|message| message.kind) {
            Some(agent_message::Kind::Hello(hello)) => {
                let attached = self.collector.ingest.attach(hello, received_at).await;
                attached.map_err(|error| match error {
                    AttachError::Hello(_) => Status::invalid_argument(error.to_string()).into(),
                    AttachError::NoRoom(_) => Status::resource_exhausted(error.to_string()).into(),
                    AttachError::NotLogged(error) => Rejected::NotLogged(error),
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
        // Reset only when reached, because nearly every message comes long before.
        let mut last_message_at = Instant::now();
        let mut silence = pin!(sleep_until(last_message_at + SILENCE_MAX));
        loop {
            // All branches are cancel-safe: the next round continues to wait for the others.
            let message = tokio::select! {
                message = self.next() => message?,
                Some(request) = control.next() => {
                    self.answer(request).await?;
                    continue;
                }
                () = &mut silence => {
                    if last_message_at.elapsed() >= SILENCE_MAX {
                        let text = format!("no message for {SILENCE_MAX:?}");
                        return Err(Status::deadline_exceeded(text));
                    }
                    silence.as_mut().reset(last_message_at + SILENCE_MAX);
                    continue;
                }
            };
            last_message_at = Instant::now();
            let received_at = self.collector.state.clock.now();
            let message = message.ok_or_else(|| Status::cancelled("the agent hung up"))?;
            let answer = match message.kind {
                Some(agent_message::Kind::Flush(flush)) => {
                    let first = self.received(flush, received_at);
                    // Boxed, so that an idle stream does not reserve memory for it.
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
                Some(agent_message::Kind::ThreadDump(dump)) => {
                    let taken =
                        self.collector.ingest.receive_thread_dump(attachment, &dump, received_at);
                    taken.map(|()| None).map_err(|StaleStream| taken_over_status())?
                }
                Some(agent_message::Kind::Goodbye(_)) => return Ok(()),
                Some(agent_message::Kind::Hello(_)) => {
                    return Err(Status::invalid_argument("Hello may come only once in a stream"));
                }
                // A message of a later protocol.
                None => return Err(Status::invalid_argument("unknown kind of message")),
            };
            if let Some(answer) = answer {
                self.answer(answer).await?;
            }
        }
    }

    /// The next message: the one read ahead, if there is one.
    async fn next(&mut self) -> NextMessage {
        match self.next.take() {
            Some(next) => *next,
            None => self.messages.message().await,
        }
    }

    /// Decodes a flush. Must be called once for each, in order.
    fn received(&mut self, mut flush: Flush, at: Timestamp) -> ReceivedFlush {
        self.deltas.decode(&mut flush);
        ReceivedFlush { flush, at }
    }

    /// Logs and applies a flush and those that already arrived behind it, up to
    /// [`FLUSHES_PER_BATCH_MAX`]: an agent that was away sends many, and they share one write to the log
    /// and one to the agent.
    async fn flushes(
        &mut self,
        attachment: &Attachment,
        first: ReceivedFlush,
    ) -> Result<(), Status> {
        let at = first.at;
        let mut bytes = 0;
        let mut waiting = VecDeque::from([first]);
        while waiting.len() < FLUSHES_PER_BATCH_MAX && bytes < FLUSH_BYTES_PER_BATCH_MAX {
            bytes += waiting.back().map_or(0, |last| last.flush.encoded_len());
            // Polled once, because it must not wait.
            let next = poll_fn(|context| {
                let next = pin!(self.messages.message()).poll(context);
                Poll::Ready(match next {
                    Poll::Ready(next) => Some(next),
                    Poll::Pending => None,
                })
            });
            match next.await {
                Some(Ok(Some(AgentMessage { kind: Some(agent_message::Kind::Flush(flush)) }))) => {
                    waiting.push_back(self.received(flush, at));
                }
                next => {
                    self.next = next.map(Box::new);
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

    /// Queues an answer; waits while [`ANSWERS_MAX`] are unread.
    async fn answer(&self, kind: Kind) -> Result<(), Status> {
        let message = CollectorMessage { kind: Some(kind) };
        let sent = self.answers.send(Ok(message)).await;
        sent.map_err(|_| Status::cancelled("the agent does not read answers any more"))
    }

    /// Ends the stream with a reason, which an agent that leaves its answers unread does not get.
    fn finish(self, status: Status) {
        let text = bounded(status.message(), STATUS_BYTES_MAX).into_owned();
        let _ = self.answers.try_send(Err(Status::new(status.code(), text)));
    }
}

/// After any of these, the agent keeps its unacknowledged flushes and reconnects.
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
