//! The queue of one receiver, and the outcomes of its messages.

use std::collections::VecDeque;

use profiler_core::Timestamp;
use tokio::sync::Notify;

use base::limits::FORWARD_QUEUE_BYTES_MAX;
use base::sync::{Mutex, lock, rank};

/// Protocol of a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    Pyroscope,
    /// Profiles of OTLP.
    Otlp,
    /// Tasks as spans.
    OtlpTraces,
}

impl Protocol {
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Pyroscope => "pyroscope",
            Protocol::Otlp => "otlp",
            Protocol::OtlpTraces => "otlp_traces",
        }
    }

    /// Unit of the counts.
    pub const fn unit(self) -> &'static str {
        match self {
            Protocol::Pyroscope | Protocol::Otlp => "ns",
            Protocol::OtlpTraces => "tasks",
        }
    }
}

/// An encoded message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub bytes: Vec<u8>,
    /// Its thread time in nanoseconds, or its number of tasks.
    pub amount: u64,
}

/// Amounts by outcome. Those neither sent nor lost are in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Everything that was to be sent.
    pub accepted: u64,
    pub sent: u64,
    /// Found no room, or was not sent before the collector stopped.
    pub lost_queue: u64,
    /// Refused by the receiver.
    pub lost_rejected: u64,
}

impl Counts {
    pub fn waiting(&self) -> u64 {
        let Counts {
            accepted,
            sent,
            lost_queue,
            lost_rejected,
        } = *self;
        accepted
            .saturating_sub(sent)
            .saturating_sub(lost_queue)
            .saturating_sub(lost_rejected)
    }
}

/// Outcomes of a receiver's messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutletStatus {
    /// Its address, for people.
    pub url: String,
    pub protocol: Protocol,
    pub counts: Counts,
    pub waiting_bytes: usize,
    /// Attempts that failed.
    pub failed: u64,
    /// When the last message was accepted.
    pub sent_at: Option<Timestamp>,
    /// Why the last attempt failed, or why the receiver rejected something.
    pub failure: Option<String>,
}

/// One receiver.
#[derive(Debug)]
pub struct Outlet {
    pub protocol: Protocol,
    state: Mutex<State, rank::Outlet>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    status: OutletStatus,
    queue: VecDeque<Message>,
    is_closed: bool,
}

impl Outlet {
    pub fn new(url: &str, protocol: Protocol) -> Outlet {
        let status = OutletStatus {
            url: url.to_owned(),
            protocol,
            counts: Counts::default(),
            waiting_bytes: 0,
            failed: 0,
            sent_at: None,
            failure: None,
        };
        let state = State {
            status,
            queue: VecDeque::new(),
            is_closed: false,
        };
        Outlet {
            protocol,
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    pub fn status(&self) -> OutletStatus {
        lock(&self.state).status.clone()
    }

    /// Queues messages. Past [`FORWARD_QUEUE_BYTES_MAX`], drops the oldest: those of now are worth more.
    pub fn push(&self, messages: Vec<Message>) {
        let mut state = lock(&self.state);
        for message in messages {
            state.status.counts.accepted += message.amount;
            state.status.waiting_bytes += message.bytes.len();
            state.queue.push_back(message);
        }
        while state.status.waiting_bytes > FORWARD_QUEUE_BYTES_MAX
            && let Some(oldest) = state.queue.pop_front()
        {
            state.status.waiting_bytes -= oldest.bytes.len();
            state.status.counts.lost_queue += oldest.amount;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Counts what never came into the queue.
    pub fn lose(&self, amount: u64) {
        let counts = &mut lock(&self.state).status.counts;
        counts.accepted += amount;
        counts.lost_queue += amount;
    }

    /// The oldest message; `None` once the queue is closed and empty. The message counts as waiting until
    /// its result is noted.
    pub async fn next(&self) -> Option<Message> {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = lock(&self.state);
                if let Some(message) = state.queue.pop_front() {
                    state.status.waiting_bytes -= message.bytes.len();
                    return Some(message);
                }
                if state.is_closed {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Nothing more comes.
    pub fn close(&self) {
        lock(&self.state).is_closed = true;
        self.changed.notify_one();
    }

    /// Counts what waits as lost, because the collector stops. Returns it.
    pub fn lose_waiting(&self) -> u64 {
        let mut state = lock(&self.state);
        state.queue.clear();
        state.status.waiting_bytes = 0;
        let waiting = state.status.counts.waiting();
        state.status.counts.lost_queue += waiting;
        waiting
    }

    /// Notes that the receiver accepted a message, or all of it but a part for a reason. Returns whether
    /// the receiver had failed before.
    pub fn sent(&self, amount: u64, partly: Option<String>, now: Timestamp) -> bool {
        let status = &mut lock(&self.state).status;
        let had_failed = status.failure.is_some();
        status.counts.sent += amount;
        status.sent_at = Some(now);
        status.failure = partly;
        had_failed
    }

    /// Notes that the receiver rejected a message for good.
    pub fn rejected(&self, amount: u64, reason: String) -> bool {
        let status = &mut lock(&self.state).status;
        status.counts.lost_rejected += amount;
        note_failure(status, reason)
    }

    /// Notes a failed attempt. Returns whether it is the first one since a success.
    pub fn failed(&self, reason: String) -> bool {
        note_failure(&mut lock(&self.state).status, reason)
    }
}

fn note_failure(status: &mut OutletStatus, reason: String) -> bool {
    status.failed += 1;
    status.failure.replace(reason).is_none()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(amount: u64, bytes: usize) -> Message {
        Message {
            bytes: vec![0; bytes],
            amount,
        }
    }

    #[tokio::test]
    async fn a_full_queue_drops_the_oldest_and_counts_them() {
        let outlet = Outlet::new("http://h", Protocol::Otlp);
        let half = FORWARD_QUEUE_BYTES_MAX / 2;
        outlet.push(vec![message(1, half), message(2, half), message(4, 1)]);
        let status = outlet.status();
        assert_eq!(
            status.counts,
            Counts {
                accepted: 7,
                lost_queue: 1,
                ..Counts::default()
            }
        );
        assert_eq!(status.waiting_bytes, half + 1);
        let next = outlet.next().await.unwrap();
        assert_eq!((next.amount, outlet.status().counts.waiting()), (2, 6));
    }

    #[tokio::test]
    async fn a_closed_queue_ends_when_it_is_empty() {
        let outlet = Outlet::new("http://h", Protocol::OtlpTraces);
        outlet.push(vec![message(1, 1)]);
        outlet.close();
        assert_eq!(outlet.next().await, Some(message(1, 1)));
        assert_eq!(outlet.next().await, None);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u64, usize),
        Lose(u64),
        Next,
        Sent,
        Rejected,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let size = 0..FORWARD_QUEUE_BYTES_MAX / 3;
        let step = prop_oneof![
            (0..1_000_u64, size).prop_map(|(amount, size)| Step::Push(amount, size)),
            (0..1_000_u64).prop_map(Step::Lose),
            Just(Step::Next),
            Just(Step::Sent),
            Just(Step::Rejected),
        ];
        prop::collection::vec(step, 0..30)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn accepted_is_sent_waiting_or_lost(steps in steps()) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let outlet = Outlet::new("http://h", Protocol::Pyroscope);
            let mut accepted = 0;
            let mut in_flight = None;
            for step in steps {
                match step {
                    Step::Push(amount, size) => {
                        accepted += amount;
                        outlet.push(vec![message(amount, size)]);
                    }
                    Step::Lose(amount) => {
                        accepted += amount;
                        outlet.lose(amount);
                    }
                    Step::Next if in_flight.is_none() && outlet.status().waiting_bytes > 0 => {
                        in_flight = runtime.block_on(outlet.next());
                    }
                    Step::Sent => {
                        let amount = in_flight.take().map_or(0, |message: Message| message.amount);
                        outlet.sent(amount, None, Timestamp::from_unix_ns(1));
                    }
                    Step::Rejected => {
                        let amount = in_flight.take().map_or(0, |message: Message| message.amount);
                        outlet.rejected(amount, "no".to_owned());
                    }
                    Step::Next => {}
                }
                let status = outlet.status();
                prop_assert_eq!(status.counts.accepted, accepted);
                prop_assert!(status.waiting_bytes <= FORWARD_QUEUE_BYTES_MAX);
                let queued: u64 = lock(&outlet.state).queue.iter().map(|message| message.amount).sum();
                let flying = in_flight.as_ref().map_or(0, |message| message.amount);
                prop_assert_eq!(status.counts.waiting(), queued + flying);
            }
            outlet.lose_waiting();
            prop_assert_eq!(outlet.status().counts.waiting(), 0);
        }
    }
}
