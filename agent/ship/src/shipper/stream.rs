//! The connection to the collector: connect, exchange messages, and after an error wait and reconnect.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use profiler_core::limits::bounded_name;
use profiler_core::wire::FlushDeltaCodec;
use profiler_core::wire::v1::{self, agent_message};
use profiler_core::{SessionKey, Token};

use super::backoff::Backoff;
use super::call::CallError;
use super::clock::OffsetEstimator;
use super::control::ControlStream;
use super::moves::PROBE_INTERVAL;
use super::network::{MessageStream as _, Network};
use super::outbox::Outbox;
use super::session::{OutboxRefs, Session, SessionError, message};
use super::stays::{Destination, UnsettledStay};
use super::token::{TokenReadError, TokenSource};
use super::{AgentClock, Shared};
use crate::control::Control;
use crate::tables::Tables;
use system::sync::lock;

/// Timeout from the start of an attempt to the collector's Welcome: longer than that of the attempt to
/// connect, or that more exact error would never be seen.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a silent peer is pinged, and the timeout of a ping. Without pings a pulled cable would show
/// only when the system's buffers are full.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Timeout for the collector to end the stream after Goodbye, which shows that it has read it.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest delay before the next attempt while an agent decides whether to move.
const DELAY_OF_SEVERAL_MAX: Duration = Duration::from_secs(1);

/// Timeout of a look whether a collector accepts connections.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Shortest time between two lines of the log about a lost collector.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Time without a collector after which a program without a subscriber of `tracing` gets a line on
/// standard error.
const NOTICE_AFTER: Duration = Duration::from_secs(5);

/// Attempts after the request to finish, if the collector was never reached: about 300 ms.
pub(super) const LAST_TRIES: u32 = 3;

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error("no answer within {} s", WELCOME_TIMEOUT.as_secs())]
    Silent,
    #[error("the collector ended the stream")]
    Ended,
    #[error("the program has closed the socket to the collector")]
    Stolen,
    #[error(transparent)]
    Token(#[from] TokenReadError),
    #[error("{}", .0.describe())]
    Call(#[from] CallError),
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// How a stream ended without an error.
pub(super) enum StreamEnd {
    /// Everything is acknowledged, and the agent ends or the stay is settled.
    Finished,
    /// Everything that was sent is acknowledged, and the agent goes to another collector.
    Left {
        /// Its index.
        next: usize,
        /// Whether the one that it leaves knows that.
        is_settled: bool,
    },
}

/// The state that lasts from stream to stream.
pub(super) struct Link {
    /// The best one first.
    pub(super) destinations: Vec<Destination>,
    /// Index of the present one.
    pub(super) at: usize,
    /// Whether the collector of the present stay has answered since its begin.
    pub(super) is_welcomed: bool,
    /// Since when the present collector does not answer, or when its last stream ended.
    pub(super) gone_since: Option<Instant>,
    /// How long to wait before the agent looks for better collectors.
    pub(super) probe_interval: Duration,
    /// When it does so next. It lasts from stream to stream, because these may be shorter than the interval.
    pub(super) probe_at: Option<Instant>,
    /// Of the present stay.
    pub(super) key: SessionKey,
    /// Most bytes of flushes in flight of all unsettled stays.
    pub(super) unsettled_bytes_max: usize,
    pub(super) hello: v1::Hello,
    pub(super) token: TokenSource,
    pub(super) control: Arc<Control>,
    pub(super) shared: Arc<Shared>,
    pub(super) tables: Arc<Mutex<Tables>>,
    pub(super) clock: Arc<dyn AgentClock>,
    pub(super) backoff: Backoff,
    pub(super) offsets: OffsetEstimator,
    /// Whether the loss of the collector was logged, and not its return.
    pub(super) away: bool,
    /// When the loss of the collector was last logged.
    pub(super) away_logged: Option<Instant>,
    /// The URLs to name in a line on standard error if there is no collector; `None` for no such line.
    pub(super) notice: Option<String>,
}

impl Link {
    /// Ships until everything is acknowledged after the request to finish, or until its deadline.
    pub(super) async fn run(mut self, network: &impl Network) {
        let shared = self.shared.clone();
        let mut notice = self
            .notice
            .take()
            .map(|url| Notice::new(url, network.now()));
        let mut shipping = pin!(self.ship(network));
        poll_fn(|context| {
            if let Poll::Ready(()) = shipping.as_mut().poll(context) {
                return Poll::Ready(());
            }
            if notice
                .as_ref()
                .is_some_and(|notice| notice.is_settled(network, &shared))
            {
                notice = None;
            }
            match shared.finish_by() {
                Some(until) if network.now() >= until => Poll::Ready(()),
                Some(until) => {
                    network.poll_by(until);
                    Poll::Pending
                }
                None => Poll::Pending,
            }
        })
        .await;
    }

    async fn ship(&mut self, network: &impl Network) {
        let mut last_tries = 0;
        loop {
            let begin = network.now();
            let error = match self.converse(network).await {
                Ok(StreamEnd::Finished) => return self.settle_all(network).await,
                Ok(StreamEnd::Left { next, is_settled }) => {
                    self.end_stay(next, is_settled);
                    continue;
                }
                Err(error) => error,
            };
            if matches!(error, StreamError::Stolen) {
                // It would do so again, and each socket is another number that it may reuse.
                self.shared.log(|| {
                    tracing::warn!(
                        "the program closes descriptors of others, so shipping has ended; the system \
                         refuses the agent a descriptor table of its own"
                    );
                });
                return;
            }
            if matches!(error, StreamError::Session(_)) {
                self.backoff.raise();
            }
            if let StreamError::Call(CallError::Status(status)) = &error {
                if let Some(delay) = status.retry_after {
                    self.backoff.wait_at_least(delay);
                }
            }
            let error = error.to_string();
            *lock(&self.shared.last_error) = error.clone();
            let logged = self
                .away_logged
                .is_some_and(|at| network.now() - at < LOG_INTERVAL);
            if !self.away && !logged {
                self.away = true;
                self.away_logged = Some(network.now());
                let url = self.destination().url.clone();
                self.shared.log(move || {
                    tracing::warn!(
                        url,
                        error,
                        "collector unreachable; samples are queued and merged"
                    );
                });
            }
            let is_finishing = self.shared.finish_by().is_some();
            if is_finishing {
                last_tries += 1;
                // The end of a program that runs without a collector must not take long.
                let never_there = self.shared.connects.load(Ordering::Relaxed) == 0;
                let tries_max = LAST_TRIES * self.destinations.len() as u32;
                if self.shared.is_complete() || never_there && last_tries >= tries_max {
                    return self.settle_all(network).await;
                }
                if last_tries == 1 {
                    self.backoff.reset();
                }
            }
            self.move_if_gone(begin, network.now());
            let mut delay = self.backoff.next_delay();
            if self.destinations.len() > 1 && self.is_welcomed {
                delay = delay.min(DELAY_OF_SEVERAL_MAX);
            }
            // A request to finish ends the delay early.
            network
                .wait_until(delay, || !is_finishing && self.shared.finish_by().is_some())
                .await;
        }
    }

    fn destination(&self) -> &Destination {
        &self.destinations[self.at]
    }

    /// Settles earlier stays here, then runs one stream until its end.
    async fn converse(&mut self, network: &impl Network) -> Result<StreamEnd, StreamError> {
        self.settle(network).await?;
        self.connect(network, None).await
    }

    /// Runs one stream of the present stay, or of an unsettled one, from the attempt to connect to its end.
    pub(super) async fn connect<N: Network>(
        &mut self,
        network: &N,
        unsettled: Option<&UnsettledStay>,
    ) -> Result<StreamEnd, StreamError> {
        let begin = network.now();
        let token = self.token.read()?;
        let connecting = network.connect(&self.destination().target);
        let connected = network.timeout(WELCOME_TIMEOUT, connecting).await;
        let socket = connected
            .ok_or(StreamError::Silent)?
            .map_err(CallError::Connect)?;
        let _watched = network.watch(socket.clone());
        let left = WELCOME_TIMEOUT.saturating_sub(network.now() - begin);
        let ended = self
            .exchange(network, &socket, token.as_ref(), left, unsettled)
            .await;
        self.shared.connected.store(false, Ordering::Relaxed);
        ended.map_err(|error| {
            if N::is_stolen(&socket) {
                StreamError::Stolen
            } else {
                error
            }
        })
    }

    /// Opens the stream within `limit` and exchanges messages until its end.
    async fn exchange<N: Network>(
        &mut self,
        network: &N,
        socket: &Rc<N::Socket>,
        token: Option<&Token>,
        limit: Duration,
        unsettled: Option<&UnsettledStay>,
    ) -> Result<StreamEnd, StreamError> {
        let mut codec = FlushDeltaCodec::default();
        let shared = self.shared.clone();
        let outbox = unsettled.map_or(&shared.outbox, |stay| &stay.outbox);
        let key = unsettled.map_or(&self.key, |stay| &stay.key);
        let hello = message(agent_message::Kind::Hello(self.hello(key, outbox)));
        let hello = stamp(hello, &*self.clock, &mut codec);
        let target = &self.destination().target;
        let opening = async {
            let mut call = network.open(socket.clone(), target, token, &hello).await?;
            let first = poll_fn(|context| call.poll_message(context)).await?;
            Ok::<_, StreamError>((call, first.ok_or(StreamError::Ended)?))
        };
        let (call, first) = network
            .timeout(limit, opening)
            .await
            .ok_or(StreamError::Silent)??;

        let refs = OutboxRefs {
            outbox,
            tables: &self.tables,
            log: shared.log,
        };
        let control = ControlStream::new(&self.control, &shared.dump_reply);
        let elsewhere = if unsettled.is_none() {
            self.elsewhere()
        } else {
            Vec::new()
        };
        let mut settling_offsets = OffsetEstimator::default();
        let offsets = if unsettled.is_none() {
            &mut self.offsets
        } else {
            &mut settling_offsets
        };
        let session = Session::open(refs, offsets, control, first, self.clock.now())?;
        let opened = network.now();
        let probe_at = self.probe_at.get_or_insert(opened + self.probe_interval);
        if unsettled.is_none() {
            self.is_welcomed = true;
            if elsewhere.is_empty() {
                self.probe_interval = PROBE_INTERVAL;
            }
            if std::mem::take(&mut self.away) {
                let url = self.destinations[self.at].url.clone();
                shared.log(move || tracing::info!(url, "collector connected again"));
            }
            shared.connects.fetch_add(1, Ordering::Relaxed);
            shared.connected.store(true, Ordering::Relaxed);
        }
        let stream = Stream {
            call,
            socket: socket.clone(),
            codec,
            session,
            shared: &shared,
            outbox,
            is_settling: unsettled.is_some(),
            network,
            destinations: &self.destinations,
            elsewhere,
            probe_interval: self.probe_interval,
            probe_at,
        };
        let ended = stream.talk(&*self.clock).await;
        if unsettled.is_none() {
            self.gone_since = Some(network.now());
        }
        self.backoff.note_stream(network.now() - opened);
        ended
    }
}

impl Link {
    /// Returns the first message of a stream, with the present mode and interval.
    pub(super) fn hello(&self, key: &SessionKey, outbox: &Mutex<Outbox>) -> v1::Hello {
        let (wanted, _) = self.control.desired();
        v1::Hello {
            epoch: key.epoch().0,
            session_key: key.as_bytes().to_vec(),
            sampler_mode: bounded_name(&self.control.mode().to_string()).into_owned(),
            interval_ns: wanted.settings.interval_ns,
            answered_seq: lock(outbox).answered_seq(),
            ..self.hello.clone()
        }
    }
}

/// The line about a missing collector for a program whose log nobody sees.
struct Notice {
    due: Instant,
    url: String,
}

impl Notice {
    fn new(url: String, now: Instant) -> Notice {
        Notice {
            due: now + NOTICE_AFTER,
            url,
        }
    }

    /// Whether the line was written, or is not needed.
    fn is_settled(&self, network: &impl Network, shared: &Shared) -> bool {
        if shared.connects.load(Ordering::Relaxed) > 0 {
            return true;
        }
        if network.now() < self.due {
            network.poll_by(self.due);
            return false;
        }
        let url = &self.url;
        let reason = lock(&shared.last_error).clone();
        let reason = if reason.is_empty() {
            "no answer yet".to_owned()
        } else {
            reason
        };
        let line = format!(
            "emberline: no collector at {url} ({reason}); samples wait in memory, and the agent \
             keeps trying. EMBERLINE_LOG=off silences this.\n"
        );
        shared.log(move || {
            if !tracing::dispatcher::has_been_set() {
                // Without the standard library's lock, which the program may hold. There is nobody to
                // tell if it fails.
                let _ = nix::unistd::write(std::io::stderr(), line.as_bytes());
            }
        });
        true
    }
}

/// An open stream.
struct Stream<'a, N: Network> {
    call: N::Call,
    socket: Rc<N::Socket>,
    codec: FlushDeltaCodec,
    session: Session<'a>,
    shared: &'a Shared,
    /// Of the stream's stay.
    outbox: &'a Mutex<Outbox>,
    /// The stay has ended, and only what is in flight matters.
    is_settling: bool,
    network: &'a N,
    destinations: &'a [Destination],
    /// Indices of the collectors to look for, and how often.
    elsewhere: Vec<usize>,
    probe_interval: Duration,
    probe_at: &'a mut Instant,
}

/// An event that a stream waits for.
enum Event {
    Answer(Option<v1::CollectorMessage>),
    /// There is something to send, and room for it.
    Room,
    /// The collector was silent for [`KEEPALIVE_INTERVAL`].
    Silence,
}

impl<N: Network> Stream<'_, N> {
    async fn talk(mut self, clock: &dyn AgentClock) -> Result<StreamEnd, StreamError> {
        let mut is_pinged = false;
        let mut idle_since = self.network.now();
        let mut next_stay = None;
        loop {
            let is_looking = next_stay.is_none() && !self.elsewhere.is_empty();
            if is_looking && self.network.now() >= *self.probe_at {
                next_stay = self.find_reachable().await;
                *self.probe_at = self.network.now() + self.probe_interval;
            }
            if next_stay.is_some() && lock(self.outbox).is_settled() {
                self.say_goodbye(true, clock)?;
                break;
            }
            let idle_until = idle_since + self.session.poll_interval();
            // Not while the agent only waits for answers before it goes: the time of the next look may pass then.
            let is_looking = next_stay.is_none() && !self.elsewhere.is_empty();
            let until = if is_looking {
                idle_until.min(*self.probe_at)
            } else {
                idle_until
            };
            let limit = until.saturating_duration_since(self.network.now());
            let quiet_since = N::last_received(&self.socket);
            let pinged_for = if is_pinged { 2 } else { 1 };
            let silent_at = quiet_since + KEEPALIVE_INTERVAL * pinged_for;
            let network = self.network;
            let next = poll_fn(|context| self.poll_event(context, silent_at));
            match network.timeout(limit, next).await {
                Some(event) => match event? {
                    Event::Answer(answer) => {
                        is_pinged = false;
                        idle_since = self.network.now();
                        self.session
                            .receive(answer.ok_or(StreamError::Ended)?, clock.now())?;
                    }
                    Event::Room => {
                        idle_since = self.network.now();
                        if self.send_next(clock)? {
                            break;
                        }
                    }
                    // The answer to a ping came meanwhile, which is no event.
                    Event::Silence if N::last_received(&self.socket) > quiet_since => {}
                    Event::Silence if is_pinged => return Err(StreamError::Silent),
                    Event::Silence => {
                        is_pinged = true;
                        self.call.ping()?;
                    }
                },
                None if self.network.now() < idle_until => {}
                None => {
                    self.session.poll_timeout();
                    idle_since = self.network.now();
                }
            }
            if N::last_received(&self.socket) > quiet_since {
                is_pinged = false;
            }
        }
        let Stream {
            mut call,
            mut session,
            network,
            is_settling,
            ..
        } = self;
        let ending = async {
            call.close().await?;
            while let Some(answer) = poll_fn(|context| call.poll_message(context)).await? {
                session.receive(answer, clock.now())?;
            }
            Ok::<_, StreamError>(())
        };
        let is_heard = matches!(network.timeout(GOODBYE_TIMEOUT, ending).await, Some(Ok(())));
        match next_stay {
            Some(next) => Ok(StreamEnd::Left {
                next,
                is_settled: is_heard,
            }),
            None if is_settling && !is_heard => Err(StreamError::Ended),
            // Everything is acknowledged or there is no time left, so it does not matter how the stream ends.
            None => Ok(StreamEnd::Finished),
        }
    }

    /// The first of the collectors to look for that accepts a connection.
    async fn find_reachable(&self) -> Option<usize> {
        for &at in &self.elsewhere {
            let connecting = self.network.connect(&self.destinations[at].target);
            if let Some(Ok(_)) = self.network.timeout(PROBE_TIMEOUT, connecting).await {
                return Some(at);
            }
        }
        None
    }

    /// Sends the next message. Returns whether that was Goodbye.
    fn send_next(&mut self, clock: &dyn AgentClock) -> Result<bool, StreamError> {
        let is_late = self.is_late();
        let next = if is_late {
            None
        } else {
            self.session.next_message(clock.now())
        };
        if let Some(next) = next {
            self.call.send(&stamp(next, clock, &mut self.codec))?;
            return Ok(false);
        }
        let is_last = is_late || self.is_over();
        if is_last {
            self.say_goodbye(self.is_settling, clock)?;
        }
        Ok(is_last)
    }

    /// Says that the agent ends, or that it has moved.
    fn say_goodbye(&mut self, moved: bool, clock: &dyn AgentClock) -> Result<(), StreamError> {
        let goodbye = message(agent_message::Kind::Goodbye(v1::Goodbye { moved }));
        Ok(self.call.send(&stamp(goodbye, clock, &mut self.codec))?)
    }

    /// Whether nothing is left to ship here.
    fn is_over(&self) -> bool {
        if self.is_settling {
            lock(self.outbox).is_settled()
        } else {
            self.shared.is_over()
        }
    }

    /// Whether the agent's end is so near that no answer can be awaited.
    fn is_late(&self) -> bool {
        let last = *lock(&self.shared.last_goodbye_at);
        !self.is_settling && last.is_some_and(|at| self.network.now() >= at)
    }

    /// Waits for the first event. Answers go before new messages, because they make room in the outbox.
    fn poll_event(
        &mut self,
        context: &mut Context<'_>,
        silent_at: Instant,
    ) -> Poll<Result<Event, StreamError>> {
        let has_room = self.call.poll_room(context)?.is_ready();
        if let Poll::Ready(answer) = self.call.poll_message(context) {
            return Poll::Ready(Ok(Event::Answer(answer?)));
        }
        if has_room && (self.is_over() || self.is_late() || self.session.has_next()) {
            return Poll::Ready(Ok(Event::Room));
        }
        if self.network.now() >= silent_at {
            return Poll::Ready(Ok(Event::Silence));
        }
        self.network.poll_by(silent_at);
        if let Some(at) = lock(&self.shared.last_goodbye_at).filter(|_| !self.is_settling) {
            self.network.poll_by(at);
        }
        self.network
            .set_answer_due(!has_room || lock(self.outbox).has_in_flight());
        Poll::Pending
    }
}

/// Sets the sending time as late as possible: time in the queue would otherwise count as time on the
/// network, and blur the clock's offset. Then encodes a flush as a delta, because now the order of
/// messages is final.
pub(super) fn stamp(
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
            let account = Some(v1::LossAccount {
                accepted_ns: seq,
                ..Default::default()
            });
            let whole = v1::Flush {
                seq,
                account,
                ..Default::default()
            };
            let whole_message = message(agent_message::Kind::Flush(whole.clone()));
            let sent = stamp(whole_message, &StoppedClock, &mut codec);
            let Some(agent_message::Kind::Flush(mut flush)) = sent.kind else {
                panic!("{sent:?}")
            };
            assert_eq!((flush.seq, flush.account.unwrap().accepted_ns), (0, 1));
            decoder.decode(&mut flush);
            assert_eq!(
                flush,
                v1::Flush {
                    sent_at_ns: 500,
                    ..whole
                }
            );
        }
    }
}
