//! The connection to the collector: connect, exchange messages, and after an error wait and reconnect.

use std::error::Error;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use profiler_core::limits::{MESSAGE_BYTES_MAX, bounded_name};
use profiler_core::wire::FlushDeltaCodec;
use profiler_core::wire::v1::{self, agent_message};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{sleep_until, timeout};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Status, Streaming};

use super::backoff::Backoff;
use super::client::ingest_client::IngestClient;
use super::clock::OffsetEstimator;
use super::control::ControlStream;
use super::session::{OutboxRefs, Session, SessionError, message};
use super::{AgentClock, Shared};
use crate::control::Control;
use crate::sync::lock;
use crate::tables::Tables;

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout from the start of an attempt to the collector's Welcome: longer than [`CONNECT_TIMEOUT`], or
/// that more exact error would never be seen.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a silent peer is pinged, and the timeout of a ping. Without pings a pulled cable would show
/// only when the system's buffers are full.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Timeout for the collector to end the stream after Goodbye, which shows that it has read it.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Messages between the session and the socket. Few, because they count as sent, and a message gets
/// its time stamp only when the socket accepts it.
const OUTGOING_MAX: usize = 2;

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("no answer within {} s", WELCOME_TIMEOUT.as_secs())]
    Silent,
    #[error("the collector ended the stream")]
    Ended,
    #[error(transparent)]
    Status(#[from] Status),
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Configures the connection, which each attempt opens again.
pub(super) fn configure(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_INTERVAL)
        .keep_alive_while_idle(true)
}

/// Attempts after the request to finish, if the collector was never reached: about 300 ms.
const LAST_TRIES: u32 = 3;

/// The state that lasts from stream to stream.
pub(super) struct Link {
    pub(super) url: String,
    pub(super) endpoint: Endpoint,
    pub(super) hello: v1::Hello,
    pub(super) control: Arc<Control>,
    pub(super) shared: Arc<Shared>,
    pub(super) tables: Arc<Mutex<Tables>>,
    pub(super) clock: Arc<dyn AgentClock>,
    /// The deadline of the agent's end, once it is known.
    pub(super) finish: watch::Receiver<Option<Instant>>,
    pub(super) backoff: Backoff,
    pub(super) offsets: OffsetEstimator,
    /// Whether the loss of the collector was logged.
    pub(super) away: bool,
}

impl Link {
    /// Ships until everything is acknowledged after the request to finish, or until its deadline.
    pub(super) async fn run(mut self) {
        let mut finish = self.finish.clone();
        let deadline = async move {
            let asked = finish.wait_for(Option::is_some).await;
            let until = asked.ok().and_then(|until| *until);
            if let Some(until) = until {
                sleep_until(until.into()).await;
            }
        };
        let mut shipping = pin!(self.ship());
        let mut deadline = pin!(deadline);
        poll_fn(|cx| match shipping.as_mut().poll(cx) {
            Poll::Pending => deadline.as_mut().poll(cx),
            ready => ready,
        })
        .await;
    }

    async fn ship(&mut self) {
        let mut last_tries = 0;
        while let Err(error) = self.converse().await {
            if matches!(error, StreamError::Session(_)) {
                self.backoff.raise();
            }
            if !std::mem::replace(&mut self.away, true) {
                let url = &self.url;
                let error = describe(&error);
                tracing::warn!(url, error, "collector unreachable; samples are queued and merged");
            }
            if self.finish.borrow().is_some() {
                last_tries += 1;
                // The end of a program that runs without a collector must not take long.
                let never_there = self.shared.connects.load(Ordering::Relaxed) == 0;
                if lock(&self.shared.outbox).is_empty() || never_there && last_tries >= LAST_TRIES {
                    return;
                }
                if last_tries == 1 {
                    self.backoff.reset();
                }
            }
            let delay = self.backoff.next_delay();
            // A request to finish ends the delay early.
            let _ = timeout(delay, self.finish.changed()).await;
        }
    }

    /// Runs one stream from the attempt to connect to its end: `Ok` after Goodbye.
    async fn converse(&mut self) -> Result<(), StreamError> {
        let (sender, receiver) = mpsc::channel(OUTGOING_MAX);
        let clock = self.clock.clone();
        let mut codec = FlushDeltaCodec::default();
        let outgoing =
            ReceiverStream::new(receiver).map(move |message| stamp(message, &*clock, &mut codec));
        let _ = sender.try_send(message(agent_message::Kind::Hello(self.hello())));
        let mut client = IngestClient::new(self.endpoint.connect_lazy())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let opening = async {
            let mut incoming = client.attach(outgoing).await?.into_inner();
            let first = incoming.message().await?.ok_or(StreamError::Ended)?;
            Ok::<_, StreamError>((incoming, first))
        };
        let opened = timeout(WELCOME_TIMEOUT, opening).await;
        let (incoming, first) = opened.map_err(|_| StreamError::Silent)??;

        let Shared { outbox, dump_reply, .. } = &*self.shared;
        let refs = OutboxRefs { outbox, tables: &self.tables };
        let control = ControlStream::new(&self.control, dump_reply);
        let session = Session::open(refs, &mut self.offsets, control, first, self.clock.now())?;
        self.backoff.reset();
        if std::mem::take(&mut self.away) {
            tracing::info!(url = self.url, "collector connected again");
        }
        self.shared.connects.fetch_add(1, Ordering::Relaxed);
        self.shared.connected.store(true, Ordering::Relaxed);
        let stream = Stream { incoming, sender, session, shared: &self.shared };
        let ended = stream.talk(&*self.clock, &self.finish).await;
        self.shared.connected.store(false, Ordering::Relaxed);
        ended
    }
}

impl Link {
    /// Returns the first message of a stream, with the present mode and interval.
    fn hello(&self) -> v1::Hello {
        let (wanted, _) = self.control.desired();
        v1::Hello {
            sampler_mode: bounded_name(&self.control.mode().to_string()).into_owned(),
            interval_ns: wanted.settings.interval_ns,
            ..self.hello.clone()
        }
    }
}

/// An open stream.
struct Stream<'a> {
    incoming: Streaming<v1::CollectorMessage>,
    sender: mpsc::Sender<v1::AgentMessage>,
    session: Session<'a>,
    shared: &'a Shared,
}

/// An event that a stream waits for.
enum Event<'a> {
    Answer(Result<Option<v1::CollectorMessage>, Status>),
    /// The socket accepts another message.
    SendPermit(mpsc::Permit<'a, v1::AgentMessage>),
    /// A batch or a thread dump is ready, or the agent finishes.
    Woken,
    /// Nothing happened within the poll interval.
    Timeout,
}

impl Stream<'_> {
    async fn talk(
        mut self,
        clock: &dyn AgentClock,
        finish: &watch::Receiver<Option<Instant>>,
    ) -> Result<(), StreamError> {
        loop {
            let over = finish.borrow().is_some() && lock(&self.shared.outbox).is_empty();
            let sender = (over || self.session.has_next()).then_some(&self.sender);
            let event = next_event(&mut self.incoming, sender, &self.shared.wake);
            match timeout(self.session.poll_interval(), event).await.unwrap_or(Event::Timeout) {
                Event::Answer(answer) => {
                    let answer = answer?.ok_or(StreamError::Ended)?;
                    self.session.receive(answer, clock.now())?;
                }
                Event::SendPermit(permit) => match self.session.next_message(clock.now()) {
                    Some(next) => permit.send(next),
                    None if over => {
                        permit.send(message(agent_message::Kind::Goodbye(v1::Goodbye {})));
                        break;
                    }
                    None => {}
                },
                Event::Woken => {}
                Event::Timeout => self.session.poll_timeout(),
            }
        }
        drop(self.sender);
        let incoming = &mut self.incoming;
        let read = async move { while let Ok(Some(_)) = incoming.message().await {} };
        let _ = timeout(GOODBYE_TIMEOUT, read).await;
        Ok(())
    }
}

/// Waits for the first event. Answers go before new messages, because they make room in the outbox.
async fn next_event<'a>(
    incoming: &mut Streaming<v1::CollectorMessage>,
    sender: Option<&'a mpsc::Sender<v1::AgentMessage>>,
    wake: &Notify,
) -> Event<'a> {
    // If the receiver is gone the stream has broken, and `incoming` has the error.
    let room = async {
        match sender {
            Some(sender) => match sender.reserve().await {
                Ok(permit) => permit,
                Err(_) => pending().await,
            },
            None => pending().await,
        }
    };
    let mut answer = pin!(incoming.message());
    let mut room = pin!(room);
    let mut woken = pin!(wake.notified());
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(Event::Answer(answer));
        }
        if let Poll::Ready(permit) = room.as_mut().poll(cx) {
            return Poll::Ready(Event::SendPermit(permit));
        }
        woken.as_mut().poll(cx).map(|()| Event::Woken)
    })
    .await
}

/// Sets the sending time as late as possible: time in the queue would otherwise count as time on the
/// network, and blur the clock's offset. Then encodes a flush as a delta, because now the order of
/// messages is final.
fn stamp(
    mut message: v1::AgentMessage,
    clock: &dyn AgentClock,
    codec: &mut FlushDeltaCodec,
) -> v1::AgentMessage {
    let now_ns = clock.now().unix_ns();
    match &mut message.kind {
        Some(agent_message::Kind::Hello(hello)) => hello.sent_at_ns = now_ns,
        Some(agent_message::Kind::Flush(flush)) => {
            flush.sent_at_ns = now_ns;
            codec.encode(flush);
        }
        _ => {}
    }
    message
}

/// Formats an error with its causes, except those that repeat it. Of a status only the message, because
/// its text contains the causes too, in another form.
fn describe(error: &StreamError) -> String {
    let (text, cause) = match error {
        StreamError::Status(status) => (status.message().to_owned(), status.source()),
        other => (other.to_string(), other.source()),
    };
    let causes = std::iter::successors(cause, |cause| (*cause).source()).map(ToString::to_string);
    causes.fold(
        text,
        |text, cause| {
            if text.contains(&cause) { text } else { format!("{text}: {cause}") }
        },
    )
}

#[cfg(test)]
mod tests {
    use profiler_core::Timestamp;

    use super::*;

    struct StoppedClock;

    impl AgentClock for StoppedClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_unix_ns(500)
        }
    }

    #[test]
    fn a_flush_is_stamped_and_then_encoded_as_a_delta() {
        let mut codec = FlushDeltaCodec::default();
        let mut decoder = FlushDeltaCodec::default();
        for seq in 1..=3 {
            let account = Some(v1::LossAccount { accepted_ns: seq, ..Default::default() });
            let whole = v1::Flush { seq, account, ..Default::default() };
            let whole_message = message(agent_message::Kind::Flush(whole.clone()));
            let sent = stamp(whole_message, &StoppedClock, &mut codec);
            let Some(agent_message::Kind::Flush(mut flush)) = sent.kind else { panic!("{sent:?}") };
            assert_eq!((flush.seq, flush.account.unwrap().accepted_ns), (0, 1));
            decoder.decode(&mut flush);
            assert_eq!(flush, v1::Flush { sent_at_ns: 500, ..whole });
        }
    }
}
