//! The attacks of the security review, each until it is stopped.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::iter::repeat_n;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};
use bytes::Bytes;
use clap::ValueEnum as _;
use profiler_core::limits::{MESSAGE_BYTES_MAX, NAME_BYTES_MAX};
use profiler_core::wire::FlushDeltaCodec;
use profiler_core::wire::v1::{self, agent_message, collector_message};
use simulation::collisions::colliding_names;
use simulation::stranger::hello;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::http2::{AgentStream, Connection, STRANGER, framed, half_message};
use super::{names, pushes, sockets};

/// An attack.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Attack {
    /// 1,800 connections: idle, with slow headers, with nothing but HTTP/2's preface, without a body.
    SlowSockets,
    /// 10,000 streams with the first part of a large message.
    HalfMessages,
    /// 64 streams of the largest flushes that the collector accepts.
    LargeFlushes,
    /// 100 readers that ask for long lists and do not read them.
    GreedyReaders,
    /// Dictionaries of names that collide in a table whose hash has no key, one after another.
    CollidingNames,
    /// Unknown names next to 10,000 long ones, for which the collector suggests the nearest.
    Suggestions,
    /// 10,500 task names of one agent with a task each, again and again.
    Names,
    /// 12,000 runs of one agent, again and again; a part of them has the name of the operator's run.
    Runs,
    /// 24 clients that push profiles: of millions of lines, of millions of names, and small ones.
    Pushes,
    /// 60 addresses with two queries each.
    Identities,
}

const SLOW_SOCKETS: usize = 1_800;
const HALF_MESSAGES: usize = 10_000;
const FLUSH_STREAMS: usize = 64;
const GREEDY_READERS: usize = 100;
const COLLIDING_NAMES: usize = 100_000;
const LONG_NAMES: usize = 10_000;
const FLOOD: usize = 40;
const IDENTITIES: u8 = 60;

/// Queries of an identity at once.
const QUERIES_OF_IDENTITY: usize = 2;

/// Streams of one connection.
const STREAMS_A_CONNECTION: usize = 60;

/// Bytes that are sent of a half message.
const HALF_BYTES: usize = 400 << 10;

/// Rows of a flush to begin with, which fill a message; the collector says how many it allows.
const ROWS: usize = 100_000;

/// A refused or closed attacker tries again after it.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// An answer that takes longer is not waited for.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Counts of the attackers.
#[derive(Clone, Default)]
pub(super) struct Counters {
    /// Connections or streams that are open, or were answered.
    count: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
}

impl Attack {
    pub(super) fn all() -> &'static [Attack] {
        Attack::value_variants()
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Attack::SlowSockets => "1,800 slow sockets",
            Attack::HalfMessages => "10,000 half messages",
            Attack::LargeFlushes => "64 streams of the largest flushes",
            Attack::GreedyReaders => "100 greedy readers",
            Attack::CollidingNames => "100,000 colliding names",
            Attack::Suggestions => "suggestions among 10,000 names",
            Attack::Names => "10,500 task names",
            Attack::Runs => "12,000 runs",
            Attack::Pushes => "24 pushers",
            Attack::Identities => "60 identities",
        }
    }

    /// Returns the name of the data stored before the attack or by it, if there is any: queries take longer with
    /// it, attacked or not.
    pub(super) fn data(self) -> Option<&'static str> {
        match self {
            Attack::LargeFlushes => Some("with their tasks, afterwards"),
            Attack::GreedyReaders => Some("with their 200,000 tasks, alone"),
            Attack::Suggestions => Some("with 10,000 names, alone"),
            _ => None,
        }
    }

    /// Whether it sends names, next to which those of honest ones must still be found.
    pub(super) fn sends_names(self) -> bool {
        matches!(self, Attack::Names | Attack::Runs)
    }

    /// Whether the attack itself stores the data, so that the run alone with it is the one afterwards.
    pub(super) fn leaves_data(self) -> bool {
        self == Attack::LargeFlushes
    }

    /// Stores what is stored before the attack.
    pub(super) async fn prepare(self, address: SocketAddr, counters: Counters) {
        match self {
            Attack::GreedyReaders => {
                let loading = large_flushes(address, 1, 4, Arc::default(), counters.refused);
                let _ = timeout(Duration::from_secs(4), loading).await;
            }
            Attack::Suggestions => {
                let naming = long_names(address, counters.refused);
                let _ = timeout(Duration::from_secs(5), naming).await;
            }
            Attack::Pushes => pushes::prepare(),
            _ => {}
        }
    }

    /// Attacks until the future is dropped.
    pub(super) async fn run(self, address: SocketAddr, counters: Counters) {
        let Counters { count, refused } = counters;
        match self {
            Attack::SlowSockets => sockets::slow(address, SLOW_SOCKETS, count).await,
            Attack::HalfMessages => loop {
                half_messages(address, count.clone(), refused.clone()).await;
                sleep(RETRY_AFTER).await;
            },
            Attack::LargeFlushes => {
                large_flushes(address, FLUSH_STREAMS, u64::MAX, count, refused).await;
            }
            Attack::GreedyReaders => {
                let path = "/api/v1/tasks?from=-1h&limit=100000";
                sockets::greedy(address, GREEDY_READERS, path, count).await;
            }
            Attack::CollidingNames => {
                let Err(error) = colliding(address, &count, &refused).await;
                eprintln!("the attack ended: {error}");
            }
            Attack::Suggestions => {
                let path = format!("/api/v1/thread-dump?worker={}", "z".repeat(200));
                sockets::flood(address, repeat_n(STRANGER, FLOOD), &path, count).await;
            }
            Attack::Names => names::task_names(address, &count, &refused).await,
            Attack::Runs => names::runs(address, &count, &refused).await,
            Attack::Pushes => pushes::push(address, count, refused).await,
            Attack::Identities => {
                let sources = (1..=IDENTITIES)
                    .map(|last| Ipv4Addr::new(127, 0, 1, last))
                    .flat_map(|source| repeat_n(source, QUERIES_OF_IDENTITY));
                let path = "/api/v1/profile?group=worker";
                sockets::flood(address, sources, path, count).await;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Result of the attackers, as a cell of the table.
    pub(super) fn report(self, counters: &Counters) -> String {
        let count = counters.count.load(Relaxed);
        let refused = counters.refused.load(Relaxed);
        match self {
            Attack::SlowSockets | Attack::GreedyReaders => format!("{count} open at the end"),
            Attack::HalfMessages => format!("{count} open, {refused} refused"),
            Attack::LargeFlushes => format!("{count} flushes stored, {refused} refused"),
            Attack::CollidingNames => format!("{count} dictionaries stored, {refused} refused"),
            Attack::Suggestions => format!("{count} answers, {refused} names refused"),
            Attack::Names | Attack::Runs => format!("{count} flushes stored, {refused} refused"),
            Attack::Pushes => format!("{count} pushes stored, {refused} refused"),
            Attack::Identities => format!("{count} answers"),
        }
    }
}

/// Runs `work` on so many streams, each with a connection for every [`STREAMS_A_CONNECTION`] of them.
async fn on_streams<F>(
    address: SocketAddr,
    streams: usize,
    refused: &Arc<AtomicU64>,
    work: impl Fn(usize, AgentStream) -> F,
) where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for first in (0..streams).step_by(STREAMS_A_CONNECTION) {
        let connection = Connection::open(STRANGER, address).await;
        for number in first..streams.min(first + STREAMS_A_CONNECTION) {
            let stream = match &connection {
                Ok(connection) => connection.stream().await.ok(),
                Err(_) => None,
            };
            let Some(stream) = stream else {
                refused.fetch_add(1, Relaxed);
                continue;
            };
            let done = work(number, stream);
            let refused = refused.clone();
            tasks.spawn(async move {
                if done.await.is_err() {
                    refused.fetch_add(1, Relaxed);
                }
            });
        }
    }
    while tasks.join_next().await.is_some() {}
}

async fn half_messages(address: SocketAddr, open: Arc<AtomicU64>, refused: Arc<AtomicU64>) {
    // All streams share the bytes: the collector's memory counts, not ours.
    let half = half_message(HALF_BYTES);
    on_streams(address, HALF_MESSAGES, &refused, |_, mut stream| {
        let half = half.clone();
        let open = open.clone();
        async move {
            open.fetch_add(1, Relaxed);
            let sent = async {
                stream.send_bytes(half).await?;
                stream.receive().await.map(drop)
            };
            let ended = sent.await;
            open.fetch_sub(1, Relaxed);
            ended
        }
    })
    .await;
}

pub(super) async fn attach(stream: &mut AgentStream, worker: String) -> Result<()> {
    stream
        .send(agent_message::Kind::Hello(hello(worker)))
        .await?;
    timeout(ANSWER_MAX, stream.receive()).await?.map(drop)
}

/// Sends so many flushes on each stream, each as large as the collector accepts.
async fn large_flushes(
    address: SocketAddr,
    streams: usize,
    rounds: u64,
    stored: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
) {
    let refusals = refused.clone();
    let shared = Arc::new(Flushes::default());
    on_streams(address, streams, &refused, |number, mut stream| {
        let flushes = shared.clone();
        let stored = stored.clone();
        let refused = refusals.clone();
        async move {
            attach(&mut stream, format!("large-{number}")).await?;
            let dictionary = v1::Dictionary {
                string_base: 1,
                strings: vec!["load".into()],
                node_base: 1,
                ..v1::Dictionary::default()
            };
            stream
                .send(agent_message::Kind::Dictionary(dictionary))
                .await?;
            let mut rows = ROWS;
            for round in 0..rounds {
                let flush = flushes.encoded(round, rows)?;
                stream.send_bytes(flush).await?;
                match timeout(ANSWER_MAX, stream.receive()).await??.kind {
                    Some(collector_message::Kind::Refusal(refusal)) => {
                        refused.fetch_add(1, Relaxed);
                        rows = allowed_in(&refusal.reason).unwrap_or(rows / 2).max(1);
                    }
                    _ => {
                        stored.fetch_add(1, Relaxed);
                    }
                }
            }
            // Stays: its rows are those of a worker that lives.
            std::future::pending().await
        }
    })
    .await;
}

/// The limit that a refusal names.
fn allowed_in(reason: &str) -> Option<usize> {
    let (_, rest) = reason.split_once("at most ")?;
    rest.split(' ').next()?.replace(',', "").parse().ok()
}

/// Encoded flushes by round and rows. All streams send the same ones, or encoding them would be most of
/// the work.
#[derive(Default)]
struct Flushes(Mutex<BTreeMap<(u64, usize), Bytes>>);

impl Flushes {
    fn encoded(&self, round: u64, rows: usize) -> Result<Bytes> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known.get(&(round, rows)) {
            return Ok(bytes.clone());
        }
        let mut codec = FlushDeltaCodec::default();
        if let Some(before) = round.checked_sub(1) {
            // The state after it does not depend on its rows.
            codec.encode(&mut flush(before, 0)?);
        }
        let mut next = flush(round, rows)?;
        codec.encode(&mut next);
        let bytes = framed(agent_message::Kind::Flush(next))?;
        known.insert((round, rows), bytes.clone());
        Ok(bytes)
    }
}

/// The flush of that round, from 0, with so many ended tasks: as long as a message may be.
fn flush(round: u64, rows: usize) -> Result<v1::Flush> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let now_ns = i64::try_from(now.as_nanos())?;
    // A row takes up to 40 bytes besides its key.
    let key_bytes = (MESSAGE_BYTES_MAX * 9 / 10 / rows.max(1)).saturating_sub(40);
    let filler = "k".repeat(key_bytes.min(NAME_BYTES_MAX - 20));
    let task = |row: usize| v1::Task {
        id: round * ROWS as u64 + row as u64 + 1,
        name: 1,
        key: if key_bytes == 0 {
            String::new()
        } else {
            format!("{row}{filler}")
        },
        start_ns: now_ns - 2_000_000,
        stop_ns: now_ns - 1_000_000,
        outcome: v1::Outcome::Ok.into(),
        ..v1::Task::default()
    };
    Ok(v1::Flush {
        seq: round + 1,
        sent_at_ns: now_ns,
        clock: Some(v1::Clock {
            offset_ns: 0,
            error_ns: 1_000,
        }),
        account: Some(v1::LossAccount::default()),
        tasks: (0..rows).map(task).collect(),
        ..v1::Flush::default()
    })
}

/// Streams with a dictionary of colliding names each, and a flush, whose answer says that the dictionary was
/// applied. They stay open.
async fn colliding(
    address: SocketAddr,
    stored: &AtomicU64,
    refused: &AtomicU64,
) -> Result<Infallible> {
    let dictionary = framed(agent_message::Kind::Dictionary(v1::Dictionary {
        string_base: 1,
        strings: colliding_names(COLLIDING_NAMES),
        node_base: 1,
        ..v1::Dictionary::default()
    }))?;
    let flush = Flushes::default().encoded(0, 1)?;
    let mut streams = Vec::new();
    loop {
        let worker = format!("colliding-{}", streams.len());
        match send_dictionary(address, worker, &dictionary, &flush).await {
            Ok(stream) => {
                stored.fetch_add(1, Relaxed);
                streams.push(stream);
            }
            Err(_) => {
                refused.fetch_add(1, Relaxed);
            }
        }
        sleep(RETRY_AFTER).await;
    }
}

/// A stream whose dictionary is applied.
async fn send_dictionary(
    address: SocketAddr,
    worker: String,
    dictionary: &Bytes,
    flush: &Bytes,
) -> Result<AgentStream> {
    let connection = Connection::open(STRANGER, address).await?;
    let mut stream = connection.stream().await?;
    attach(&mut stream, worker).await?;
    stream.send_bytes(dictionary.clone()).await?;
    stream.send_bytes(flush.clone()).await?;
    let answer = timeout(ANSWER_MAX, stream.receive()).await??;
    match answer.kind {
        Some(collector_message::Kind::Ack(_)) => Ok(stream),
        kind => bail!("not acknowledged: {kind:?}"),
    }
}

/// Attaches workers with long names, which stay known after they leave.
async fn long_names(address: SocketAddr, refused: Arc<AtomicU64>) {
    on_streams(
        address,
        LONG_NAMES,
        &refused,
        |number, mut stream| async move {
            attach(&mut stream, format!("{number:05}{}", "n".repeat(245))).await?;
            stream
                .send(agent_message::Kind::Goodbye(v1::Goodbye::default()))
                .await?;
            sleep(Duration::from_millis(10)).await;
            Ok(())
        },
    )
    .await;
}
