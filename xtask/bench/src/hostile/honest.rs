//! An honest agent with five flushes a second, and an honest reader with five queries a second, each on a
//! new connection.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use simulation::agent::Agent;
use simulation::fleet::{Fleet, Pace, Plan};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::ingest::{fleet_program, setup};

/// Time between two flushes, and between two queries.
const INTERVAL: Duration = Duration::from_millis(200);

/// A query that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(15);

/// Limit on waiting for the agent to attach; one with another wire never does.
const ATTACH_MAX: Duration = Duration::from_secs(10);

/// Queries of the reader, in turns.
pub(super) const QUERIES: [&str; 3] = [
    "/api/v1/workers",
    "/api/v1/profile?from=-5m",
    "/api/v1/tasks?limit=50",
];

/// Both of them.
pub(super) struct Honest {
    fleet: Fleet,
    reads: Arc<Mutex<Reads>>,
    reader: JoinHandle<()>,
    broken_before: u64,
}

#[derive(Default)]
struct Reads {
    /// Of each of [`QUERIES`].
    milliseconds: [Vec<f64>; QUERIES.len()],
    /// Queries without a good answer in time.
    failed: u64,
    started: u64,
    /// Rises at the start of the measurement: earlier queries do not count.
    round: u32,
}

/// Measurements of the honest clients.
pub(super) struct Measured {
    pub(super) acks: u64,
    pub(super) reads: u64,
    /// Median and p99, since the flush was due.
    pub(super) acks_ms: [f64; 2],
    pub(super) reads_ms: [f64; 2],
    /// The same for each of [`QUERIES`].
    pub(super) queries_ms: [[f64; 2]; QUERIES.len()],
    /// Failed queries, broken streams and rejected flushes.
    pub(super) errors: u64,
    pub(super) memory_peak_bytes: u64,
    /// Report of the attackers.
    pub(super) attackers: String,
    /// Data of honest ones that is no longer found; `None` if nobody looked.
    pub(super) missing: Option<Vec<String>>,
}

impl Honest {
    /// Attaches the agent and starts the reader.
    pub(super) async fn start(address: SocketAddr) -> Result<Honest> {
        let (program, pattern, random) = fleet_program(1, 70);
        let agent = Agent::new(setup(0, &program, &pattern)?, random.fork(0));
        let plan = Plan {
            pace: Pace::Every { interval: INTERVAL },
            agents_per_connection: 1,
            new_life: 0.0,
            flushes_max: u64::MAX,
        };
        let fleet = Fleet::start(vec![agent], plan, &random);
        fleet.set_collector(address);
        if let Err(error) = fleet.attached(1, ATTACH_MAX).await {
            eprintln!("the honest agent is not attached, so no ack is measured: {error}");
        }
        let reads = Arc::new(Mutex::new(Reads::default()));
        let reader = tokio::spawn(read(address, reads.clone()));
        Ok(Honest {
            fleet,
            reads,
            reader,
            broken_before: 0,
        })
    }

    /// Begins the measurement.
    pub(super) fn reset(&mut self) {
        drop(self.fleet.take_latencies());
        self.broken_before = self.broken();
        drop(self.take_reads());
    }

    fn take_reads(&self) -> Reads {
        let mut reads = lock(&self.reads);
        let next = Reads {
            round: reads.round + 1,
            ..Reads::default()
        };
        std::mem::replace(&mut *reads, next)
    }

    fn broken(&self) -> u64 {
        self.fleet
            .counts()
            .broken
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the measurements since [`Honest::reset`]. Queries that are still open count as failed.
    pub(super) fn measured(&self) -> Measured {
        let broken = self.broken() - self.broken_before;
        let violations = u64::from(self.fleet.check().is_err());
        let acks = self.fleet.take_latencies().since_due;
        let mut reads = self.take_reads();
        let mut all = reads.milliseconds.concat();
        let open = reads.started - reads.failed - all.len() as u64;
        // Those of the last moment are open without a reason to blame.
        let late = open.saturating_sub(2);
        let of_acks = |quantile| acks.value_at_quantile(quantile) as f64 / 1e3;
        Measured {
            acks: acks.len(),
            reads: reads.started,
            acks_ms: [of_acks(0.5), of_acks(0.99)],
            reads_ms: median_and_p99(&mut all),
            queries_ms: reads
                .milliseconds
                .each_mut()
                .map(|times| median_and_p99(times)),
            errors: broken + violations + reads.failed + late,
            memory_peak_bytes: 0,
            attackers: "–".to_owned(),
            missing: None,
        }
    }

    pub(super) async fn stop(self) {
        self.reader.abort();
        self.fleet.stop().await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Infinite if there are no times.
fn median_and_p99(times: &mut [f64]) -> [f64; 2] {
    times.sort_by(f64::total_cmp);
    let last = times.len().saturating_sub(1) as f64;
    [0.5, 0.99].map(|quantile| {
        let index = (last * quantile).ceil() as usize;
        times.get(index).copied().unwrap_or(f64::INFINITY)
    })
}

/// Asks at fixed times, whether or not earlier queries are answered.
async fn read(address: SocketAddr, reads: Arc<Mutex<Reads>>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for (number, query) in QUERIES.iter().enumerate().cycle() {
        let due = ticks.tick().await;
        let reads = reads.clone();
        let round = {
            let mut reads = lock(&reads);
            reads.started += 1;
            reads.round
        };
        tokio::spawn(async move {
            let answered = timeout(PATIENCE, ask(address, query)).await;
            let mut reads = lock(&reads);
            match answered {
                _ if reads.round != round => {}
                Ok(Ok(true)) => {
                    let took = Instant::now().saturating_duration_since(due.into_std());
                    reads.milliseconds[number].push(took.as_secs_f64() * 1e3);
                }
                _ => reads.failed += 1,
            }
        });
    }
}

/// Whether the answer is good.
async fn ask(address: SocketAddr, query: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {query} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200 "))
}
