//! Forwarding to other servers: merged profiles to Pyroscope or by OTLP, and tasks as spans.
//!
//! A task merges and encodes what ingest noted each [`FORWARD_EVERY`]; another one for each receiver sends.
//! Both work next to ingest, which never waits for them.

mod merge;
mod messages;
mod otlp;
mod pyroscope;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use profiler_core::Timestamp;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use self::merge::{Merged, merge};
use self::messages::encode;
use base::limits::{
    FORWARD_AT_END_MAX, FORWARD_EVERY, FORWARD_LAG, FORWARD_PAUSE_MAX, FORWARD_PAUSE_MIN,
    nanoseconds,
};
use query::task_body;
use state::Collector;
use state::CollectorState;
use state::forward::{Message, Outlet, Protocol};

/// Why a receiver has not accepted a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ForwardError {
    /// It is away or busy; the message is sent again.
    Retry {
        /// For people.
        reason: String,
        /// How long the receiver asks to wait.
        after: Option<Duration>,
    },
    /// It will never accept this message.
    Rejected {
        /// For people.
        reason: String,
    },
}

/// Sends a message. It blocks. Returns why the receiver rejected parts of it, if it did.
type SendMessage = dyn Fn(&[u8]) -> Result<Option<String>, ForwardError> + Send + Sync;

/// Encodes tasks, which come in the order in which the collector learned of them.
type EncodeTasks = dyn Fn(Vec<api::Task>) -> Vec<EncodedTasks> + Send + Sync;

/// A message with tasks that ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncodedTasks {
    /// The message.
    pub bytes: Vec<u8>,
    /// The number of its tasks.
    pub tasks: u64,
}

/// Content sent to a receiver.
#[derive(Clone)]
pub enum ForwardContent {
    /// Profiles as `push.v1.PushRequest` of Pyroscope.
    Pyroscope,
    /// Profiles as `ExportProfilesServiceRequest` of OTLP in gzip.
    Otlp,
    /// Tasks, by this function.
    Tasks(Arc<EncodeTasks>),
}

/// A receiver of what the collector has accepted.
#[derive(Clone)]
pub struct ForwardTarget {
    /// Its address, for people; without a password.
    pub url: String,
    /// Content sent to it.
    pub content: ForwardContent,
    /// Sends it a message.
    pub send: Arc<SendMessage>,
}

impl fmt::Debug for ForwardTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardTarget")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// How a collector forwards.
#[derive(Clone, Debug)]
pub struct ForwardOptions {
    /// The receivers.
    pub targets: Vec<ForwardTarget>,
    /// Length of the profiles: [`FORWARD_EVERY`].
    pub every: Duration,
}

impl Default for ForwardOptions {
    fn default() -> ForwardOptions {
        ForwardOptions {
            targets: Vec::new(),
            every: FORWARD_EVERY,
        }
    }
}

/// The tasks that forward.
pub struct Forwarding {
    running: JoinSet<()>,
    outlets: Vec<Arc<Outlet>>,
    ending: watch::Sender<bool>,
}

impl Forwarding {
    /// Starts to note and forward what is applied from now on.
    pub fn start(collector: &Arc<Collector>, options: ForwardOptions) -> Forwarding {
        let (ending, is_ending) = watch::channel(false);
        let mut running = JoinSet::new();
        let mut profiles = Vec::new();
        let mut tasks = Vec::new();
        let mut outlets = Vec::new();
        for ForwardTarget { url, content, send } in options.targets {
            let protocol = match &content {
                ForwardContent::Pyroscope => Protocol::Pyroscope,
                ForwardContent::Otlp => Protocol::Otlp,
                ForwardContent::Tasks(_) => Protocol::OtlpTraces,
            };
            let outlet = Arc::new(Outlet::new(&url, protocol));
            outlets.push(outlet.clone());
            collector.state.forwards.add(outlet.clone());
            match content {
                ForwardContent::Tasks(encode) => tasks.push((outlet.clone(), encode)),
                ForwardContent::Pyroscope | ForwardContent::Otlp => profiles.push(outlet.clone()),
            }
            let delivery = Delivery {
                collector: collector.clone(),
                outlet,
                send,
            };
            running.spawn(delivery.run(is_ending.clone()));
        }
        let periods = Periods {
            every: options.every,
            ending: is_ending,
        };
        if !profiles.is_empty() {
            running.spawn(forward_profiles(
                collector.clone(),
                profiles,
                periods.clone(),
            ));
        }
        if !tasks.is_empty() {
            running.spawn(forward_tasks(collector.clone(), tasks, periods));
        }
        Forwarding {
            running,
            outlets,
            ending,
        }
    }

    /// Forwards the rest, for at most [`FORWARD_AT_END_MAX`]. The receivers lose the rest.
    pub async fn end(mut self) {
        // Fails only if nothing is forwarded.
        let _ = self.ending.send(true);
        let all = async { while self.running.join_next().await.is_some() {} };
        // The result is counted below.
        let _ = timeout(FORWARD_AT_END_MAX, all).await;
        for outlet in self.outlets {
            let lost = outlet.lose_waiting();
            if lost > 0 {
                let status = outlet.status();
                let unit = status.protocol.unit();
                tracing::warn!(
                    url = status.url,
                    lost,
                    unit,
                    "not forwarded before the stop"
                );
            }
        }
    }
}

/// The periods whose samples are forwarded together.
#[derive(Clone)]
struct Periods {
    every: Duration,
    ending: watch::Receiver<bool>,
}

impl Periods {
    /// Waits for the end of a period. Returns it, or `None` if everything is to be forwarded now.
    async fn next(&mut self, now: Timestamp) -> Option<Timestamp> {
        let every_ns = nanoseconds(self.every).max(1);
        let begun_ns = now.unix_ns().rem_euclid(every_ns);
        let end = now.shifted(every_ns - begun_ns);
        let wait_ns = end.since_ns(now);
        let wait = Duration::from_nanos(wait_ns) + FORWARD_LAG.min(self.every / 4);
        tokio::select! {
            () = sleep(wait) => Some(end),
            _ = self.ending.wait_for(|is_ending| *is_ending) => None,
        }
    }
}

async fn forward_profiles(
    collector: Arc<Collector>,
    outlets: Vec<Arc<Outlet>>,
    mut periods: Periods,
) {
    loop {
        let end = periods.next(collector.state.clock.now()).await;
        let work = {
            let collector = collector.clone();
            let outlets = outlets.clone();
            let every = periods.every;
            move || encode_profiles(&collector.state, &outlets, end, every)
        };
        report_panic(spawn_blocking(work).await.is_err());
        if end.is_none() {
            outlets.iter().for_each(|outlet| outlet.close());
            return;
        }
    }
}

/// Queues what was sampled before `end`, or everything.
fn encode_profiles(
    state: &CollectorState,
    outlets: &[Arc<Outlet>],
    end: Option<Timestamp>,
    every: Duration,
) {
    let end = end.unwrap_or(Timestamp::from_unix_ns(i64::MAX));
    let batch = state.forwards.samples.take(end);
    let merged: Vec<Merged> = merge(batch.lives, every);
    for outlet in outlets {
        outlet.lose(batch.lost_ns);
        let push = |message| outlet.push(vec![message]);
        match outlet.protocol {
            Protocol::Otlp => encode::<otlp::Request>(state, &merged, push),
            _ => encode::<pyroscope::Request>(state, &merged, push),
        }
    }
}

async fn forward_tasks(
    collector: Arc<Collector>,
    targets: Vec<(Arc<Outlet>, Arc<EncodeTasks>)>,
    mut periods: Periods,
) {
    loop {
        let end = periods.next(collector.state.clock.now()).await;
        let work = {
            let collector = collector.clone();
            let targets = targets.clone();
            move || encode_tasks(&collector.state, &targets)
        };
        report_panic(spawn_blocking(work).await.is_err());
        if end.is_none() {
            targets.iter().for_each(|(outlet, _)| outlet.close());
            return;
        }
    }
}

fn encode_tasks(state: &CollectorState, targets: &[(Arc<Outlet>, Arc<EncodeTasks>)]) {
    let batch = state.forwards.tasks.take();
    let now = state.clock.now();
    for (outlet, encode) in targets {
        outlet.lose(batch.lost);
        let tasks = batch.rows.iter().map(|row| task_body(row, now)).collect();
        let messages = encode(tasks)
            .into_iter()
            .map(|EncodedTasks { bytes, tasks }| Message {
                bytes,
                amount: tasks,
            });
        outlet.push(messages.collect());
    }
}

fn report_panic(is_panic: bool) {
    if is_panic {
        tracing::error!("encoding what is forwarded panicked: a bug in Emberline");
    }
}

/// Sends the messages of one receiver.
struct Delivery {
    collector: Arc<Collector>,
    outlet: Arc<Outlet>,
    send: Arc<SendMessage>,
}

impl Delivery {
    async fn run(self, mut ending: watch::Receiver<bool>) {
        while let Some(message) = self.outlet.next().await {
            let amount = message.amount;
            let bytes: Arc<[u8]> = message.bytes.into();
            let mut pause = FORWARD_PAUSE_MIN;
            loop {
                let send = self.send.clone();
                let body = bytes.clone();
                let panicked = || ForwardError::Rejected {
                    reason: "sending panicked: a bug in Emberline".to_owned(),
                };
                let sent = spawn_blocking(move || send(&body)).await;
                let asked = match sent.unwrap_or_else(|_| Err(panicked())) {
                    Ok(partly) => {
                        self.sent(amount, partly);
                        break;
                    }
                    Err(ForwardError::Rejected { reason }) => {
                        self.failed(&reason, self.outlet.rejected(amount, reason.clone()));
                        break;
                    }
                    Err(ForwardError::Retry { reason, after }) => {
                        self.failed(&reason, self.outlet.failed(reason.clone()));
                        after
                    }
                };
                if *ending.borrow() {
                    return;
                }
                let wait = asked.unwrap_or(pause).min(FORWARD_PAUSE_MAX);
                pause = (pause * 2).min(FORWARD_PAUSE_MAX);
                tokio::select! {
                    () = sleep(wait) => {}
                    // One last attempt.
                    _ = ending.wait_for(|is_ending| *is_ending) => {}
                }
            }
        }
    }

    fn sent(&self, amount: u64, partly: Option<String>) {
        let now = self.collector.state.clock.now();
        let reason = partly.clone();
        let had_failed = self.outlet.sent(amount, partly, now);
        let url = self.outlet.status().url;
        match reason {
            Some(reason) if !had_failed => {
                tracing::warn!(
                    url,
                    reason,
                    "a receiver rejected a part of what was forwarded"
                );
            }
            None if had_failed => tracing::info!(url, "forwarding works again"),
            _ => {}
        }
    }

    fn failed(&self, reason: &str, is_first: bool) {
        if is_first {
            let url = self.outlet.status().url;
            tracing::warn!(url, reason, "forwarding failed");
        }
    }
}
