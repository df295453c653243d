//! Agents that send names: task names and runs, as a stranger's and as an honest one's.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use anyhow::{Result, bail};
use profiler_core::wire::FlushDeltaCodec;
use profiler_core::wire::v1::{self, agent_message, collector_message};
use tokio::time::{sleep, timeout};

use super::attack::{ANSWER_MAX, RETRY_AFTER, attach};
use super::http2::{AgentStream, Connection, STRANGER};
use super::witness::{OPERATOR_RUN, TASK};

const TASK_NAMES: u32 = 10_500;
const RUN_FLUSHES: u64 = 12;
const RUNS_OF_FLUSH: u64 = 1_000;

/// Duration of a stranger's tasks and runs.
const SHORT_NS: i64 = 1_000_000;

/// Tasks of the honest agent, a second each.
const HONEST_TASKS: u64 = 50;
const SECOND_NS: i64 = 1_000_000_000;

/// One agent's stream.
struct Sender {
    stream: AgentStream,
    codec: FlushDeltaCodec,
    seq: u64,
}

impl Sender {
    /// Attaches a worker whose dictionary has these strings, from number 1.
    async fn attach(
        source: Ipv4Addr,
        address: SocketAddr,
        worker: String,
        strings: Vec<String>,
    ) -> Result<Sender> {
        let connection = Connection::open(source, address).await?;
        let mut stream = connection.stream().await?;
        attach(&mut stream, worker).await?;
        let dictionary = v1::Dictionary {
            string_base: 1,
            strings,
            node_base: 1,
            ..v1::Dictionary::default()
        };
        stream
            .send(agent_message::Kind::Dictionary(dictionary))
            .await?;
        Ok(Sender {
            stream,
            codec: FlushDeltaCodec::default(),
            seq: 0,
        })
    }

    /// Sends a flush, which must be acknowledged.
    async fn send(&mut self, tasks: Vec<v1::Task>, runs: Vec<v1::RunMarker>) -> Result<()> {
        self.seq += 1;
        let mut flush = v1::Flush {
            seq: self.seq,
            sent_at_ns: now_ns()?,
            clock: Some(v1::Clock {
                offset_ns: 0,
                error_ns: 1_000,
            }),
            account: Some(v1::LossAccount::default()),
            tasks,
            runs,
            ..v1::Flush::default()
        };
        self.codec.encode(&mut flush);
        self.stream.send(agent_message::Kind::Flush(flush)).await?;
        match timeout(ANSWER_MAX, self.stream.receive()).await??.kind {
            Some(collector_message::Kind::Ack(_)) => Ok(()),
            kind => bail!("not acknowledged: {kind:?}"),
        }
    }
}

fn now_ns() -> Result<i64> {
    Ok(i64::try_from(
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)?
            .as_nanos(),
    )?)
}

fn ended_task(id: u64, name: u32, start_ns: i64, duration_ns: i64) -> v1::Task {
    v1::Task {
        id,
        name,
        start_ns,
        stop_ns: start_ns + duration_ns,
        outcome: v1::Outcome::Ok.into(),
        ..v1::Task::default()
    }
}

/// Sends a task of each of many names, again and again. Counts flushes. Never returns.
pub(super) async fn task_names(address: SocketAddr, stored: &AtomicU64, refused: &AtomicU64) {
    for life in 0_u64.. {
        let sent = async {
            let names = (0..TASK_NAMES).map(|name| format!("z-{name}")).collect();
            let worker = format!("names-{life}");
            let mut sender = Sender::attach(STRANGER, address, worker, names).await?;
            loop {
                let first_id = sender.seq * u64::from(TASK_NAMES) + 1;
                let start_ns = now_ns()? - 2 * SHORT_NS;
                let tasks = (first_id..)
                    .zip(1..=TASK_NAMES)
                    .map(|(id, name)| ended_task(id, name, start_ns, SHORT_NS));
                sender.send(tasks.collect(), Vec::new()).await?;
                stored.fetch_add(1, Relaxed);
                sleep(RETRY_AFTER).await;
            }
        };
        note_end(sent.await, refused).await;
    }
}

/// Sends many runs, again and again. Counts flushes. Never returns.
pub(super) async fn runs(address: SocketAddr, stored: &AtomicU64, refused: &AtomicU64) {
    for life in 0_u64.. {
        let sent = async {
            let worker = format!("runs-{life}");
            let mut sender = Sender::attach(STRANGER, address, worker, Vec::new()).await?;
            loop {
                for _ in 0..RUN_FLUSHES {
                    let first_id = sender.seq * RUNS_OF_FLUSH + 1;
                    let start_ns = now_ns()? - 2 * SHORT_NS;
                    let runs = (first_id..first_id + RUNS_OF_FLUSH).map(|id: u64| v1::RunMarker {
                        id,
                        name: if id == first_id {
                            OPERATOR_RUN.to_owned()
                        } else {
                            format!("run-{id}")
                        },
                        start_ns,
                        stop_ns: start_ns + SHORT_NS,
                    });
                    sender.send(Vec::new(), runs.collect()).await?;
                    stored.fetch_add(1, Relaxed);
                }
                sleep(RETRY_AFTER).await;
            }
        };
        note_end(sent.await, refused).await;
    }
}

/// Notes why a stream ended, and waits until the next attempt.
async fn note_end(ended: Result<std::convert::Infallible>, refused: &AtomicU64) {
    let Err(error) = ended;
    if refused.fetch_add(1, Relaxed) == 0 {
        eprintln!("a stream of names ended: {error:#}");
    }
    sleep(RETRY_AFTER).await;
}

/// Sends tasks of a name that must be found among a stranger's.
pub(super) async fn honest_tasks(address: SocketAddr) -> Result<()> {
    let worker = "witness".to_owned();
    let names = vec![TASK.to_owned()];
    let mut sender = Sender::attach(Ipv4Addr::LOCALHOST, address, worker, names).await?;
    let start_ns = now_ns()? - 60 * SECOND_NS;
    let tasks = (1..=HONEST_TASKS)
        .zip(0..)
        .map(|(id, at)| ended_task(id, 1, start_ns + at * SECOND_NS, SECOND_NS));
    sender.send(tasks.collect(), Vec::new()).await
}
