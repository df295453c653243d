//! One agent's stream, as `serve::ingest` runs it, without its transport.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use profiler_core::wire::FlushDeltaCodec;
use profiler_core::wire::v1::collector_message::Kind;
use profiler_core::wire::v1::{AgentMessage, CollectorMessage, Flush, agent_message};
use tokio::sync::oneshot;

use base::limits::FLUSHES_PER_BATCH_MAX;
use shares::identity::{CertificateNames, Identity};
use state::Collector;
use state::ingest::{AttachError, Attachment, OpenStream, ReceivedFlush, StaleStream, StreamError};
use state::session::Displaced;
use store::rows::DisconnectReason;

/// Answer of a stream to its agent.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// A message.
    Message(CollectorMessage),
    /// The end of the stream.
    End(StreamEnd),
}

/// Why the collector ends a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamEnd {
    /// After Goodbye.
    Goodbye,
    /// Another stream of the same agent took over.
    TakenOver,
    /// The log does not accept flushes.
    NotLogged(String),
    /// A message is not valid.
    Invalid(String),
}

impl StreamEnd {
    fn reason(&self) -> DisconnectReason {
        match self {
            StreamEnd::Goodbye => DisconnectReason::Clean,
            StreamEnd::NotLogged(_) => DisconnectReason::Unknown,
            StreamEnd::TakenOver | StreamEnd::Invalid(_) => DisconnectReason::Rejected,
        }
    }
}

impl From<AttachError> for StreamEnd {
    fn from(error: AttachError) -> StreamEnd {
        match error {
            AttachError::NotLogged(error) => StreamEnd::NotLogged(error.to_string()),
            error => StreamEnd::Invalid(error.to_string()),
        }
    }
}

impl From<StaleStream> for StreamEnd {
    fn from(_: StaleStream) -> StreamEnd {
        StreamEnd::TakenOver
    }
}

impl From<StreamError> for StreamEnd {
    fn from(error: StreamError) -> StreamEnd {
        match error {
            StreamError::Stale(error) => error.into(),
            StreamError::OutOfOrder(error) => StreamEnd::Invalid(error.to_string()),
            StreamError::NotLogged(error) => StreamEnd::NotLogged(error.to_string()),
            StreamError::NoRoomForImport(error) => StreamEnd::NotLogged(error.to_string()),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Received, not yet handled.
    inbox: VecDeque<AgentMessage>,
    is_hung_up: bool,
    deltas: FlushDeltaCodec,
    attached: Option<Attached>,
    waits_for: Option<Wait>,
    has_ended: bool,
}

#[derive(Debug)]
struct Attached {
    attachment: Attachment,
    taken_over: oneshot::Receiver<Displaced>,
}

type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

/// The flushes that are not answered yet, and the answers to the others.
type Committed = (VecDeque<ReceivedFlush>, Result<Vec<Kind>, StreamError>);

enum Wait {
    Attach(Boxed<Result<OpenStream, AttachError>>),
    Commit(Boxed<Committed>),
    Move(Boxed<Result<(), StreamError>>),
}

impl fmt::Debug for Wait {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Wait::Attach(_) => "Attach",
            Wait::Commit(_) => "Commit",
            Wait::Move(_) => "Move",
        })
    }
}

impl Stream {
    pub(super) fn receive(&mut self, message: AgentMessage) {
        self.inbox.push_back(message);
    }

    pub(super) fn hang_up(&mut self) {
        self.is_hung_up = true;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waits_for.is_some()
    }

    /// Ends the stream from outside. A flush on its way into the log stays there.
    pub(super) fn end(mut self, collector: &Collector) {
        self.detach(collector, DisconnectReason::Silent);
    }

    /// Handles messages until the stream waits or ends.
    pub(super) fn advance(&mut self, collector: &Arc<Collector>) -> Vec<Answer> {
        let mut answers = Vec::new();
        while !self.has_ended {
            let attached = self.attached.as_mut();
            let is_taken_over = attached.is_some_and(|attached| {
                use oneshot::error::TryRecvError::Empty;
                !matches!(attached.taken_over.try_recv(), Err(Empty))
            });
            if is_taken_over {
                self.detach(collector, DisconnectReason::Rejected);
                answers.push(Answer::End(StreamEnd::TakenOver));
            } else if self.waits_for.is_some() {
                if !self.poll(collector, &mut answers) {
                    break;
                }
            } else if let Some(message) = self.inbox.pop_front() {
                self.handle(collector, message, &mut answers);
            } else if self.is_hung_up {
                self.detach(collector, DisconnectReason::Crashed);
            } else {
                break;
            }
        }
        answers
    }

    /// Polls what the stream waits for. Returns whether it is done.
    fn poll(&mut self, collector: &Arc<Collector>, answers: &mut Vec<Answer>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        match self.waits_for.as_mut().expect("the stream waits") {
            Wait::Attach(attach) => {
                let Poll::Ready(attached) = attach.as_mut().poll(&mut context) else {
                    return false;
                };
                self.waits_for = None;
                match attached {
                    Ok(OpenStream {
                        attachment,
                        taken_over,
                        welcome,
                        ..
                    }) => {
                        self.attached = Some(Attached {
                            attachment,
                            taken_over,
                        });
                        answers.push(answer(Kind::Welcome(welcome)));
                    }
                    Err(error) => self.fail(collector, error.into(), answers),
                }
            }
            Wait::Commit(commit) => {
                let Poll::Ready((waiting, committed)) = commit.as_mut().poll(&mut context) else {
                    return false;
                };
                self.waits_for = None;
                match committed {
                    Ok(kinds) => {
                        answers.extend(kinds.into_iter().map(answer));
                        if !waiting.is_empty() {
                            self.commit(collector, waiting);
                        }
                    }
                    Err(error) => self.fail(collector, error.into(), answers),
                }
            }
            Wait::Move(moving) => {
                let Poll::Ready(moved) = moving.as_mut().poll(&mut context) else {
                    return false;
                };
                self.waits_for = None;
                match moved {
                    Ok(()) => self.end_cleanly(collector, answers),
                    Err(error) => self.fail(collector, error.into(), answers),
                }
            }
        }
        true
    }

    fn handle(
        &mut self,
        collector: &Arc<Collector>,
        message: AgentMessage,
        answers: &mut Vec<Answer>,
    ) {
        let received_at = collector.state.clock.now();
        let attachment = self
            .attached
            .as_ref()
            .map(|attached| attached.attachment.clone());
        match (message.kind, attachment) {
            (Some(agent_message::Kind::Hello(hello)), None) => {
                let collector = collector.clone();
                let attach = async move {
                    // As if each worker had a certificate of its own.
                    let names = CertificateNames([hello.worker.clone()].into());
                    let account = collector.accounts.of(&Identity::Certificate(names), None);
                    collector.ingest.attach(&account, hello, received_at).await
                };
                self.waits_for = Some(Wait::Attach(Box::pin(attach)));
            }
            (Some(agent_message::Kind::Flush(flush)), Some(_)) => {
                let mut flushes = VecDeque::from([self.decode(flush)]);
                while flushes.len() < FLUSHES_PER_BATCH_MAX
                    && let Some(flush) = self.next_flush()
                {
                    flushes.push_back(self.decode(flush));
                }
                self.commit(
                    collector,
                    flushes
                        .into_iter()
                        .map(|flush| ReceivedFlush {
                            flush,
                            at: received_at,
                            charge: None,
                            translation: None,
                        })
                        .collect(),
                );
            }
            (Some(agent_message::Kind::Dictionary(dictionary)), Some(attachment)) => {
                let ingest = &collector.ingest;
                match ingest.receive_dictionary(&attachment, &dictionary, received_at) {
                    Ok(refusal) => answers.extend(refusal.map(answer)),
                    Err(error) => self.fail(collector, error.into(), answers),
                }
            }
            (Some(agent_message::Kind::Applied(applied)), Some(attachment)) => {
                let ingest = &collector.ingest;
                if let Err(error) =
                    ingest.receive_applied_settings(&attachment, applied, received_at)
                {
                    self.fail(collector, error.into(), answers);
                }
            }
            (Some(agent_message::Kind::Goodbye(goodbye)), Some(attachment)) if goodbye.moved => {
                let collector = collector.clone();
                let moving = async move {
                    collector
                        .ingest
                        .receive_move(&attachment, received_at)
                        .await
                };
                self.waits_for = Some(Wait::Move(Box::pin(moving)));
            }
            (Some(agent_message::Kind::Goodbye(_)), Some(_)) => {
                self.end_cleanly(collector, answers);
            }
            (kind, _) => {
                let reason = format!("unexpected message {kind:?}");
                self.fail(collector, StreamEnd::Invalid(reason), answers);
            }
        }
    }

    fn decode(&mut self, mut flush: Flush) -> Flush {
        self.deltas.decode(&mut flush);
        flush
    }

    /// A flush that already arrived behind the first.
    fn next_flush(&mut self) -> Option<Flush> {
        match self
            .inbox
            .pop_front_if(|message: &mut AgentMessage| {
                matches!(message.kind, Some(agent_message::Kind::Flush(_)))
            })?
            .kind
        {
            Some(agent_message::Kind::Flush(flush)) => Some(flush),
            _ => None,
        }
    }

    fn commit(&mut self, collector: &Arc<Collector>, mut waiting: VecDeque<ReceivedFlush>) {
        let collector = collector.clone();
        let attached = self
            .attached
            .as_ref()
            .expect("a stream with flushes is attached");
        let attachment = attached.attachment.clone();
        let commit = async move {
            let answers = collector
                .ingest
                .receive_flushes(&attachment, &mut waiting)
                .await;
            (waiting, answers)
        };
        self.waits_for = Some(Wait::Commit(Box::pin(commit)));
    }

    fn end_cleanly(&mut self, collector: &Collector, answers: &mut Vec<Answer>) {
        self.detach(collector, DisconnectReason::Clean);
        answers.push(Answer::End(StreamEnd::Goodbye));
    }

    fn fail(&mut self, collector: &Collector, end: StreamEnd, answers: &mut Vec<Answer>) {
        self.detach(collector, end.reason());
        answers.push(Answer::End(end));
    }

    fn detach(&mut self, collector: &Collector, reason: DisconnectReason) {
        self.waits_for = None;
        self.has_ended = true;
        if let Some(attached) = self.attached.take() {
            let now = collector.state.clock.now();
            collector.ingest.detach(&attached.attachment, reason, now);
        }
    }
}

fn answer(kind: Kind) -> Answer {
    Answer::Message(CollectorMessage { kind: Some(kind) })
}
