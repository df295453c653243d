//! Streams of agents: passes each message to the collector and returns answers in order.

pub(crate) mod codec;
pub(crate) mod messages;
pub(crate) mod retry;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Router};
use profiler_core::Timestamp;
use profiler_core::limits::bounded;
use profiler_core::wire::FlushDeltaCodec;
use profiler_core::wire::v1::collector_message::Kind;
use profiler_core::wire::v1::{CollectorMessage, Dictionary, agent_message};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{EncodeBody, SingleMessageCompressionOverride};
use tonic::{Code, Status};

use crate::serve::ingest::messages::{MessageMemory, MessageStream, NextMessage, Received};
use crate::serve::ingest::retry::resource_exhausted;
use base::limits::{
    ANSWERS_MAX, BEGUN_BYTES_MAX, DICTIONARY_SLICE_ENTRIES, FLUSH_BYTES_PER_BATCH_MAX,
    FLUSHES_PER_BATCH_MAX, HELLO_MAX, SILENCE_MAX, SILENT_AFTER,
};
use base::log_limit::{Admitted, LineLimit};
use front::gate::Caller;
use shares::identity::Identity;
use shares::{Account, DecodeBudget, MemoryPool, Quota};
use state::Collector;
use state::agent_control::ControlStream;
use state::ingest::{AttachError, Attachment, OpenStream, ReceivedFlush, StaleStream, StreamError};
use state::session::HelloError;
use store::rows::DisconnectReason;
use store::wal::NotLogged;

/// Path of the one method of the service.
const ATTACH_PATH: &str = "/emberline.v1.Ingest/Attach";

/// Longest text of a status, in bytes: it travels as a header.
const STATUS_BYTES_MAX: usize = 1_024;

/// The lines that any stream can cause.
static REJECTED: LineLimit = LineLimit::new();
static ATTACHED: LineLimit = LineLimit::new();
static DISCONNECTED: LineLimit = LineLimit::new();
static BROKEN: LineLimit = LineLimit::new();

/// In a box, because an empty channel has room for 32 of them, and ten thousand agents have one each.
type Answer = Box<Result<CollectorMessage, Status>>;

/// The gRPC service.
#[derive(Clone)]
pub(crate) struct Ingest {
    collector: Arc<Collector>,
    memory: MessageMemory,
    stopping: watch::Receiver<bool>,
}

impl Ingest {
    pub(crate) fn new(collector: Arc<Collector>, stopping: watch::Receiver<bool>) -> Ingest {
        let memory = MessageMemory {
            begun: MemoryPool::new(Quota::BegunBytes, BEGUN_BYTES_MAX),
            decoded: Arc::new(DecodeBudget::default()),
            large_turns: collector.ingest.large_turns.clone(),
        };
        Ingest {
            collector,
            memory,
            stopping,
        }
    }

    /// The routes of the service.
    pub(crate) fn routes(self) -> Router {
        Router::new()
            .route("/emberline.v1.Ingest/{*rest}", post(attach))
            .with_state(self)
    }
}

/// Serves one agent's stream. The answers are read while the messages are still coming.
async fn attach(
    State(Ingest {
        collector,
        memory,
        stopping,
    }): State<Ingest>,
    Extension(identity): Extension<Identity>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    if request.uri().path() != ATTACH_PATH {
        return Status::unimplemented("unknown method").into_http::<Body>();
    }
    let (answers, receiver) = mpsc::channel(ANSWERS_MAX);
    let account = collector.accounts.of(&identity, caller.quotas());
    let messages = MessageStream::new(request.into_body(), account.clone(), memory);
    let deltas = FlushDeltaCodec::default();
    let last_message_at = Instant::now();
    let stream = Stream {
        collector,
        caller,
        account,
        messages,
        deltas,
        next: None,
        answers,
        last_message_at,
    };
    // In a box, because a task keeps its arguments twice.
    tokio::spawn(Box::new(stream).run(stopping));
    let answers = ReceiverStream::new(receiver).map(|answer: Answer| *answer);
    let uncompressed = SingleMessageCompressionOverride::Disable;
    let body = EncodeBody::new_server(codec::encoder(), answers, None, uncompressed, None);
    let application_grpc = HeaderValue::from_static("application/grpc");
    ([(header::CONTENT_TYPE, application_grpc)], Body::new(body)).into_response()
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

/// One agent's stream.
struct Stream {
    collector: Arc<Collector>,
    caller: Caller,
    account: Arc<Account>,
    messages: MessageStream,
    deltas: FlushDeltaCodec,
    /// Read ahead, not yet handled.
    next: Option<Box<NextMessage>>,
    answers: mpsc::Sender<Answer>,
    last_message_at: Instant,
}

impl Stream {
    /// Serves the stream to its end, and then detaches its session, whatever the reason.
    async fn run(mut self: Box<Self>, mut stopping: watch::Receiver<bool>) {
        let OpenStream {
            attachment,
            taken_over,
            welcome,
            mut control,
        } = match Box::pin(self.hello()).await {
            Ok(attached) => attached,
            Err(Rejected::Invalid(status)) => {
                if let Some(Admitted { suppressed }) = REJECTED.admit() {
                    let reason = bounded(status.message(), STATUS_BYTES_MAX);
                    tracing::warn!(
                        reason = &*reason,
                        suppressed,
                        "rejected stream: invalid Hello"
                    );
                }
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
        if let Some(Admitted { suppressed }) = ATTACHED.admit() {
            tracing::info!(worker, %epoch, suppressed, "agent attached");
        }
        let caller = self.caller.clone();
        // A stream that is ended from outside may leave a flush on its way into the log. It is applied
        // nevertheless, and the agent learns of it from its next Welcome.
        let ended = tokio::select! {
            ended = self.converse(&attachment, Kind::Welcome(welcome), &mut control) => ended,
            reason = taken_over => Err(match reason {
                Ok(displaced) => resource_exhausted(displaced.to_string()),
                Err(_) => taken_over_status(),
            }),
            () = caller.revoked() => {
                Err(Status::unauthenticated("the token is no longer valid"))
            }
            _ = stopping.wait_for(|stop| *stop) => {
                Err(Status::unavailable("the collector is shutting down"))
            }
        };
        let reason = disconnect_reason(&ended, self.last_message_at.elapsed());
        self.collector
            .ingest
            .detach(&attachment, reason, self.collector.state.clock.now());
        match ended {
            Ok(()) => {
                if let Some(Admitted { suppressed }) = DISCONNECTED.admit() {
                    tracing::info!(worker, %epoch, suppressed, "agent disconnected");
                }
            }
            Err(status) => {
                if let Some(Admitted { suppressed }) = BROKEN.admit() {
                    let message = bounded(status.message(), STATUS_BYTES_MAX);
                    let reason = &*message;
                    tracing::info!(worker, %epoch, reason, suppressed, "agent's stream broke");
                }
                self.finish(status);
            }
        }
    }

    /// Awaits Hello, which must be the first message.
    async fn hello(&mut self) -> Result<OpenStream, Rejected> {
        let message = timeout(HELLO_MAX, self.messages.next())
            .await
            .map_err(|_| Status::deadline_exceeded(format!("no Hello within {HELLO_MAX:?}")))??;
        let received_at = self.collector.state.clock.now();
        match message.and_then(|received| received.message.kind) {
            Some(agent_message::Kind::Hello(hello)) => {
                if !self.caller.covers(&hello.worker) {
                    return Err(foreign_worker_status().into());
                }
                let attached = self
                    .collector
                    .ingest
                    .attach(&self.account, hello, received_at)
                    .await;
                attached.map_err(|error| match error {
                    AttachError::Hello(HelloError::Key) => {
                        Status::permission_denied(error.to_string()).into()
                    }
                    AttachError::Hello(_) => Status::invalid_argument(error.to_string()).into(),
                    AttachError::NoRoom(_) | AttachError::Quota(_) => {
                        resource_exhausted(error.to_string()).into()
                    }
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
        control: &mut ControlStream,
    ) -> Result<(), Status> {
        self.answer(welcome).await?;
        // Reset only when reached, because nearly every message comes long before.
        self.last_message_at = Instant::now();
        let mut silence = pin!(sleep_until(self.last_message_at + SILENCE_MAX));
        loop {
            // In a box, so that an idle stream reserves memory neither for a message nor for work on it. A block ends
            // before the wait, because what has been moved would be kept until then.
            let handling = {
                let message = self.message(control, silence.as_mut()).await?;
                Box::pin(self.handle(attachment, message))
            };
            if handling.await?.is_break() {
                return Ok(());
            }
        }
    }

    /// Awaits the next message, and sends requests to the agent meanwhile.
    async fn message(
        &mut self,
        control: &mut ControlStream,
        mut silence: Pin<&mut Sleep>,
    ) -> NextMessage {
        loop {
            // All branches are cancel-safe: the next round continues to wait for the others.
            tokio::select! {
                message = self.next() => return message,
                // A message that was read ahead has the room for an answer.
                Some(request) = control.next(), if self.next.is_none() => {
                    Box::pin(self.answer(request)).await?;
                }
                () = &mut silence => {
                    if self.last_message_at.elapsed() >= SILENCE_MAX {
                        let text = format!("no message for {SILENCE_MAX:?}");
                        return Err(Status::deadline_exceeded(text));
                    }
                    silence.as_mut().reset(self.last_message_at + SILENCE_MAX);
                }
            }
        }
    }

    /// Handles a message. Breaks after a Goodbye.
    async fn handle(
        &mut self,
        attachment: &Attachment,
        message: Option<Received>,
    ) -> Result<ControlFlow<()>, Status> {
        self.last_message_at = Instant::now();
        let received_at = self.collector.state.clock.now();
        let received = message.ok_or_else(|| Status::cancelled("the agent hung up"))?;
        let answer = match received.message.kind {
            Some(agent_message::Kind::Flush(_)) => {
                self.flushes(attachment, received, received_at).await?;
                None
            }
            Some(agent_message::Kind::Dictionary(dictionary)) => {
                self.dictionary(attachment, dictionary, received_at).await?
            }
            Some(agent_message::Kind::Applied(applied)) => {
                let taken = self.collector.ingest.receive_applied_settings(
                    attachment,
                    applied,
                    received_at,
                );
                taken
                    .map(|()| None)
                    .map_err(|StaleStream| taken_over_status())?
            }
            Some(agent_message::Kind::ThreadDump(dump)) => {
                let taken =
                    self.collector
                        .ingest
                        .receive_thread_dump(attachment, &dump, received_at);
                taken
                    .map(|()| None)
                    .map_err(|StaleStream| taken_over_status())?
            }
            Some(agent_message::Kind::SymbolPiece(piece)) => {
                let taken =
                    self.collector
                        .ingest
                        .receive_symbol_piece(attachment, piece, received_at);
                taken
                    .map(|()| None)
                    .map_err(|StaleStream| taken_over_status())?
            }
            Some(agent_message::Kind::Goodbye(goodbye)) => {
                let ingest = &self.collector.ingest;
                if goodbye.moved {
                    let moved = ingest.receive_move(attachment, received_at).await;
                    moved.map_err(ended_status)?;
                } else if let Err(error) = ingest.receive_end(attachment, received_at).await {
                    // The agent is gone all the same; only readers of the store learn it later.
                    tracing::debug!(%error, "the end of an agent was not logged");
                }
                return Ok(ControlFlow::Break(()));
            }
            Some(agent_message::Kind::Hello(_)) => {
                return Err(Status::invalid_argument(
                    "Hello may come only once in a stream",
                ));
            }
            // A message of a later protocol.
            None => return Err(Status::invalid_argument("unknown kind of message")),
        };
        if let Some(answer) = answer {
            self.answer(answer).await?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The next message: the one read ahead, if there is one. Waits until there is room for its answer, so
    /// that no decoded message takes memory while its agent reads no answers. The room remains, because
    /// only this task sends answers.
    async fn next(&mut self) -> NextMessage {
        if let Some(next) = self.next.take() {
            return *next;
        }
        drop(self.answers.reserve().await.map_err(|_| answers_unread())?);
        self.messages.next().await
    }

    /// Applies a dictionary; a large one off the runtime's threads.
    async fn dictionary(
        &mut self,
        attachment: &Attachment,
        dictionary: Dictionary,
        received_at: Timestamp,
    ) -> Result<Option<Kind>, Status> {
        let Dictionary {
            strings,
            frames,
            node_frames,
            ..
        } = &dictionary;
        let entries = strings.len() + frames.len() + node_frames.len();
        let collector = self.collector.clone();
        let answer = if entries <= DICTIONARY_SLICE_ENTRIES {
            collector
                .ingest
                .receive_dictionary(attachment, &dictionary, received_at)
        } else {
            let turn = self.collector.ingest.large_turns.take(&self.account).await;
            let attachment = attachment.clone();
            let apply = move || {
                // Held until the work is done, even if the stream ends before.
                let _turn = turn;
                collector
                    .ingest
                    .receive_dictionary(&attachment, &dictionary, received_at)
            };
            let applied = tokio::task::spawn_blocking(apply).await;
            applied.map_err(|error| Status::internal(error.to_string()))?
        };
        answer.map_err(|StaleStream| taken_over_status())
    }

    /// Logs and applies a flush and those that already arrived behind it, up to
    /// [`FLUSHES_PER_BATCH_MAX`] and as many as have room for their answers: an agent that was away sends
    /// many, and they share one write to the log and one to the agent.
    async fn flushes(
        &mut self,
        attachment: &Attachment,
        first: Received,
        at: Timestamp,
    ) -> Result<(), Status> {
        let mut waiting = VecDeque::new();
        let mut bytes = 0;
        let mut next = Some(Ok(Some(first)));
        while let Some(Ok(Some(received))) = next.take_if(|next| is_flush(next)) {
            let Received {
                message,
                encoded_bytes,
                charge,
            } = received;
            if let Some(agent_message::Kind::Flush(mut flush)) = message.kind {
                // Once for each flush, in order.
                self.deltas.decode(&mut flush);
                waiting.push_back(ReceivedFlush {
                    flush,
                    at,
                    charge: Some(charge),
                    translation: None,
                });
            }
            bytes += encoded_bytes;
            let flushes_max = FLUSHES_PER_BATCH_MAX.min(self.answers.capacity());
            if waiting.len() >= flushes_max || bytes >= FLUSH_BYTES_PER_BATCH_MAX {
                break;
            }
            // Polled once, because it must not wait.
            next = poll_fn(|context| {
                let next = pin!(self.messages.next()).poll(context);
                Poll::Ready(match next {
                    Poll::Ready(next) => Some(next),
                    Poll::Pending => None,
                })
            })
            .await;
        }
        self.next = next.map(Box::new);
        while !waiting.is_empty() {
            let answers = self
                .collector
                .ingest
                .receive_flushes(attachment, &mut waiting)
                .await
                .map_err(ended_status)?;
            for answer in answers {
                self.answer(answer).await?;
            }
        }
        Ok(())
    }

    /// Queues an answer; waits while [`ANSWERS_MAX`] are unread.
    async fn answer(&mut self, kind: Kind) -> Result<(), Status> {
        let message = CollectorMessage { kind: Some(kind) };
        let sent = self.answers.send(Box::new(Ok(message))).await;
        sent.map_err(|_| answers_unread())
    }

    /// Ends the stream with a reason, which an agent that leaves its answers unread does not get.
    fn finish(&self, status: Status) {
        let text = bounded(status.message(), STATUS_BYTES_MAX).into_owned();
        let metadata = status.metadata().clone();
        let status = Status::with_metadata(status.code(), text, metadata);
        let _ = self.answers.try_send(Box::new(Err(status)));
    }
}

/// Why a stream ends.
fn ended_status(error: StreamError) -> Status {
    match error {
        StreamError::Stale(StaleStream) => taken_over_status(),
        StreamError::OutOfOrder(error) => Status::out_of_range(error.to_string()),
        StreamError::NotLogged(error) => not_logged_status(&error),
        StreamError::NoRoomForImport(error) => resource_exhausted(error.to_string()),
    }
}

/// The agent has closed its end for answers.
fn answers_unread() -> Status {
    Status::cancelled("the agent does not read answers any more")
}

fn is_flush(next: &NextMessage) -> bool {
    let Ok(Some(received)) = next else {
        return false;
    };
    matches!(received.message.kind, Some(agent_message::Kind::Flush(_)))
}

/// After any of these, the agent keeps its unacknowledged flushes and reconnects.
fn not_logged_status(error: &NotLogged) -> Status {
    match error {
        NotLogged::Full { .. } | NotLogged::Behind { .. } | NotLogged::Late => {
            resource_exhausted(format!("{error}; agents keep and merge their samples"))
        }
        NotLogged::Failed { .. } => {
            let text = format!("{error}; unacknowledged flushes must be sent again");
            Status::unavailable(text)
        }
        NotLogged::Closed => Status::unavailable(error.to_string()),
    }
}

/// The same whether or not the worker exists.
fn foreign_worker_status() -> Status {
    Status::permission_denied(
        "the token may not report as this worker; run: emberline token new --role agent --worker \
         PATTERN",
    )
}

/// Why a stream ended, `quiet` after its last message.
fn disconnect_reason(ended: &Result<(), Status>, quiet: Duration) -> DisconnectReason {
    match ended.as_ref().map_err(Status::code) {
        Ok(()) => DisconnectReason::Clean,
        // A connection whose machine is gone breaks too, by the pings that are not answered.
        Err(Code::Cancelled | Code::DeadlineExceeded) if quiet >= SILENT_AFTER => {
            DisconnectReason::Silent
        }
        Err(Code::Cancelled) => DisconnectReason::Crashed,
        Err(Code::Unavailable) => DisconnectReason::Unknown,
        Err(_) => DisconnectReason::Rejected,
    }
}

fn taken_over_status() -> Status {
    Status::aborted(StaleStream.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the future that a function returns.
    fn future_bytes<A, F: Future>(_: fn(A) -> F) -> usize {
        size_of::<F>()
    }

    struct Running {
        stream: Box<Stream>,
        stopping: watch::Receiver<bool>,
    }

    /// It reserved 3.6 kB, mostly for a message and for work on it.
    #[test]
    fn a_stream_that_waits_reserves_no_memory_for_messages() {
        let task = future_bytes(|running: Running| running.stream.run(running.stopping));
        let bytes = task + size_of::<Stream>();
        assert!(bytes <= 2_500, "{task} and {}", size_of::<Stream>());
    }
}
