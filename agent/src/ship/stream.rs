//! The way to the collector: connect, talk, and when it breaks, wait and connect again.

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
use super::live::Live;
use super::session::{Held, Session, SessionError, message};
use super::{AgentClock, Shared};
use crate::control::Control;
use crate::sync::lock;
use crate::tables::Tables;

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest wait from the start of an attempt to the collector's Welcome: more than connecting may
/// take, or the more exact error would never be seen.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);

/// A silent peer is asked for a sign of life this often, and given up when none comes in as long
/// again. Without it a pulled cable would show only when the system's buffers are full.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Longest wait for the collector to end the stream after Goodbye, which says that it was read.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Messages between the conversation and the socket. Few, for they are as good as sent, and a
/// message is stamped only when the socket takes it.
const OUTGOING_MAX: usize = 2;

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("it gave no sign within {} s", WELCOME_TIMEOUT.as_secs())]
    Silent,
    #[error("it ended the stream")]
    Ended,
    #[error(transparent)]
    Status(#[from] Status),
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Sets up the connection that each attempt makes anew.
pub(super) fn configure(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_INTERVAL)
        .keep_alive_while_idle(true)
}

/// Attempts after the request to finish, if the collector was never there: about 300 ms.
const LAST_TRIES: u32 = 3;

/// All that lasts from stream to stream.
pub(super) struct Link {
    pub(super) url: String,
    pub(super) endpoint: Endpoint,
    pub(super) hello: v1::Hello,
    pub(super) control: Arc<Control>,
    pub(super) shared: Arc<Shared>,
    pub(super) tables: Arc<Mutex<Tables>>,
    pub(super) clock: Arc<dyn AgentClock>,
    /// Until when everything must be over, once that is known.
    pub(super) finish: watch::Receiver<Option<Instant>>,
    pub(super) backoff: Backoff,
    pub(super) offsets: OffsetEstimator,
    /// Whether the host was told that the collector is away.
    pub(super) away: bool,
}

impl Link {
    /// Ships until everything is acked after the request to finish, or until its deadline.
    pub(super) async fn run(mut self) {
        let mut finish = self.finish.clone();
        let deadline = async move {
            let asked = finish.wait_for(Option::is_some).await;
            let until = asked.ok().and_then(|until| *until);
            if let Some(until) = until {
                sleep_until(until.into()).await;
            }
        };
        let (mut shipping, mut deadline) = (pin!(self.ship()), pin!(deadline));
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
                let (url, error) = (&self.url, describe(&error));
                tracing::warn!(url, error, "the collector is away; samples are kept and merged");
            }
            if self.finish.borrow().is_some() {
                last_tries += 1;
                // A program that runs without a collector is not held up when it ends.
                let never_there = self.shared.connects.load(Ordering::Relaxed) == 0;
                if lock(&self.shared.outbox).is_empty() || never_there && last_tries >= LAST_TRIES {
                    return;
                }
                if last_tries == 1 {
                    self.backoff.reset();
                }
            }
            let delay = self.backoff.next_delay();
            // Either way it is time for the next attempt: a request to finish does not wait.
            let _ = timeout(delay, self.finish.changed()).await;
        }
    }

    /// One stream, from the attempt to connect to its end: `Ok` after Goodbye.
    async fn converse(&mut self) -> Result<(), StreamError> {
        let (sender, receiver) = mpsc::channel(OUTGOING_MAX);
        let (clock, mut said) = (self.clock.clone(), FlushDeltaCodec::default());
        let outgoing = ReceiverStream::new(receiver);
        let outgoing = outgoing.map(move |message| finish(message, &*clock, &mut said));
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

        let Shared { outbox, stacks, .. } = &*self.shared;
        let held = Held { outbox, tables: &self.tables };
        let live = Live::new(&self.control, stacks);
        let session = Session::open(held, &mut self.offsets, live, first, self.clock.now())?;
        self.backoff.reset();
        if std::mem::take(&mut self.away) {
            tracing::info!(url = self.url, "the collector is back");
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
    /// What this worker says first, as it is now.
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

/// What a stream waits for.
enum Event<'a> {
    Answer(Result<Option<v1::CollectorMessage>, Status>),
    /// The socket takes another message.
    Room(mpsc::Permit<'a, v1::AgentMessage>),
    /// A cycle or an answer came, or the request to finish.
    Woken,
    /// Nothing, for as long as was to be waited.
    Quiet,
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
            match timeout(self.session.next_look(), event).await.unwrap_or(Event::Quiet) {
                Event::Answer(answer) => {
                    let answer = answer?.ok_or(StreamError::Ended)?;
                    self.session.receive(answer, clock.now())?;
                }
                Event::Room(permit) => match self.session.next_message(clock.now()) {
                    Some(next) => permit.send(next),
                    None if over => {
                        permit.send(message(agent_message::Kind::Goodbye(v1::Goodbye {})));
                        break;
                    }
                    None => {}
                },
                Event::Woken => {}
                Event::Quiet => self.session.look(),
            }
        }
        drop(self.sender);
        let incoming = &mut self.incoming;
        let read = async move { while let Ok(Some(_)) = incoming.message().await {} };
        let _ = timeout(GOODBYE_TIMEOUT, read).await;
        Ok(())
    }
}

/// Waits for whatever comes first. Answers go before new messages: they make room in the outbox.
async fn next_event<'a>(
    incoming: &mut Streaming<v1::CollectorMessage>,
    sender: Option<&'a mpsc::Sender<v1::AgentMessage>>,
    wake: &Notify,
) -> Event<'a> {
    // A sender without a receiver is a stream that broke: `incoming` says how.
    let room = async {
        match sender {
            Some(sender) => match sender.reserve().await {
                Ok(permit) => permit,
                Err(_) => pending().await,
            },
            None => pending().await,
        }
    };
    let (mut answer, mut room) = (pin!(incoming.message()), pin!(room));
    let mut woken = pin!(wake.notified());
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(Event::Answer(answer));
        }
        if let Poll::Ready(permit) = room.as_mut().poll(cx) {
            return Poll::Ready(Event::Room(permit));
        }
        woken.as_mut().poll(cx).map(|()| Event::Woken)
    })
    .await
}

/// Writes down when a message leaves, as late as can be: what waits before the socket would
/// otherwise count as time on the way, and blur the clock's offset. Then leaves out what was said
/// before, for now it is known that all before it goes first.
fn finish(
    mut message: v1::AgentMessage,
    clock: &dyn AgentClock,
    said: &mut FlushDeltaCodec,
) -> v1::AgentMessage {
    let now_ns = clock.now().unix_ns();
    match &mut message.kind {
        Some(agent_message::Kind::Hello(hello)) => hello.sent_at_ns = now_ns,
        Some(agent_message::Kind::Flush(flush)) => {
            flush.sent_at_ns = now_ns;
            said.encode(flush);
        }
        _ => {}
    }
    message
}

/// An error with its causes, but for those that repeat it. A status is told by its message: its
/// text holds the causes too, in another form.
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
    fn a_flush_is_stamped_and_then_says_what_is_new_on_its_stream() {
        let (mut said, mut heard) = (FlushDeltaCodec::default(), FlushDeltaCodec::default());
        for seq in 1..=3 {
            let account = Some(v1::LossAccount { accepted_ns: seq, ..Default::default() });
            let whole = v1::Flush { seq, account, ..Default::default() };
            let leaves = message(agent_message::Kind::Flush(whole.clone()));
            let left = finish(leaves, &StoppedClock, &mut said);
            let Some(agent_message::Kind::Flush(mut flush)) = left.kind else { panic!("{left:?}") };
            assert_eq!((flush.seq, flush.account.unwrap().accepted_ns), (0, 1));
            heard.decode(&mut flush);
            assert_eq!(flush, v1::Flush { sent_at_ns: 500, ..whole });
        }
    }
}
