//! A collector without threads and sockets on a simulated disk, for deterministic simulations: the real
//! sessions, log, recovery, sealing and queries, stepped by the caller.
//!
//! `commit` does what the thread `emberline-log` does, `seal` and `maintain` what `emberline-store` does,
//! `sweep` what the server's sweeper does, and `stream` what a connection's task does.

mod disk;
mod faults;
mod log_files;
mod stream;
mod tables;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use profiler_core::wire::v1::AgentMessage;
use profiler_core::{Filter, Outcome, ThreadKind, TimeRange, Timestamp};

pub use self::disk::SimulatedDisk;
pub use self::faults::{DiskCondition, DiskFault, DiskFaultCounts};
use self::stream::Stream;
pub use self::stream::{Answer, StreamEnd};
use base::clock::Clock;
use base::limits::{Limits, TASK_ROWS_MAX};
use query::Queries;
use query::fleet;
use query::{Cancel, Format, ProfileQuery, TaskQuery, WorkersQuery};
use state::adoption;
use state::recovery::{DataError, log_in_store};
use state::tree::PhaseFilter;
use state::{Collector, Settings};
use store::bucket::{Bucket, Owner, Patience, TableCache};
use store::wal::LogDisk;
use store::{Objects, Retention, StoreGuard, Tables};

/// Little, so that files leave the cache.
const CACHE_BYTES: u64 = 64 << 10;

/// Sealed data never gets too old in a simulation.
const KEPT: Duration = Duration::from_secs(1 << 33);

/// A running collector.
#[derive(Debug)]
pub struct SimulatedCollector {
    collector: Arc<Collector>,
    disk: SimulatedDisk,
    streams: BTreeMap<u64, Stream>,
}

/// Everything that a collector answers about its data.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Content {
    /// Nanoseconds by the name of a stack's leaf.
    pub leaves: BTreeMap<String, u64>,
    /// Rows of tasks.
    pub tasks: Vec<TaskContent>,
    /// Lives of agents.
    pub lives: Vec<LifeContent>,
    /// Names of missing files.
    pub damaged: Vec<String>,
}

/// A task as a collector reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskContent {
    /// The task's key.
    pub key: String,
    /// The agent's epoch.
    pub epoch: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// One life of an agent as a collector reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LifeContent {
    /// The agent's epoch.
    pub epoch: u64,
    /// Applied weight.
    pub stored_ns: u64,
    /// Accepted weight that is neither stored nor counted as lost.
    pub unaccounted_ns: i128,
    /// Rejected flushes and dictionaries.
    pub rejected: u64,
}

/// A store that a process has taken.
struct TakenStore {
    objects: Objects,
    log: Box<dyn LogDisk>,
    guard: StoreGuard,
}

impl TakenStore {
    fn of(disk: &SimulatedDisk) -> Result<TakenStore, DataError> {
        if disk.is_bucket {
            return TakenStore::in_bucket(disk);
        }
        let files = Arc::new(disk.clone());
        Ok(TakenStore {
            objects: Objects::synced_by(files.clone(), files),
            log: Box::new(disk.clone()),
            guard: StoreGuard::default(),
        })
    }

    /// Acknowledged is what is in the bucket. No thread shows that the owner lives.
    fn in_bucket(disk: &SimulatedDisk) -> Result<TakenStore, DataError> {
        let place = "s3://simulated/c1".to_owned();
        let bucket = Bucket::new(place, None, Patience::NONE, TableCache::memory(CACHE_BYTES));
        let objects = Objects::in_bucket(Arc::new(disk.clone()), bucket);
        Tables::check_place(&objects)?;
        let owner = Owner::claim(&objects, Duration::ZERO)?;
        let log = Box::new(log_in_store(&objects, &owner)?);
        Ok(TakenStore {
            objects,
            log,
            guard: StoreGuard::new(None, Some(owner)),
        })
    }
}

fn settings(clock: Clock) -> Settings {
    let retention = Retention {
        seconds: KEPT,
        rollups: KEPT,
        tasks: KEPT,
        bytes_max: u64::MAX,
    };
    Settings {
        clock,
        limits: Limits::default(),
        retention,
        ..Settings::default()
    }
}

/// Seals and maintains the store of a dead collector, as `emberline store adopt` does. Returns the number of
/// records of the log that it sealed.
///
/// # Errors
/// If the disk fails, or the process crashes on the way.
pub fn adopt(disk: &SimulatedDisk, clock: Clock) -> Result<u64, DataError> {
    let TakenStore {
        objects,
        log,
        guard,
    } = TakenStore::of(disk)?;
    let done = adoption::seal_and_maintain(objects, log, guard, settings(clock), None)?;
    Ok(done.records)
}

impl SimulatedCollector {
    /// Starts a collector on what the disk holds.
    ///
    /// # Errors
    /// If the disk fails, or the process crashes on the way.
    pub fn open(disk: &SimulatedDisk, clock: Clock) -> Result<SimulatedCollector, DataError> {
        let TakenStore {
            objects,
            log,
            guard,
        } = TakenStore::of(disk)?;
        let collector = Collector::open(settings(clock), objects, log, guard)?;
        let streams = BTreeMap::new();
        Ok(SimulatedCollector {
            collector: Arc::new(collector),
            disk: disk.clone(),
            streams,
        })
    }

    /// Makes the log start new files more often.
    pub fn limit_log_files(&self, bytes_max: u64) {
        self.collector.log().limit_files(bytes_max);
    }

    /// A message of the connection with that number arrives. The first one opens its stream.
    pub fn receive(&mut self, connection: u64, message: AgentMessage) {
        self.streams.entry(connection).or_default().receive(message);
    }

    /// The connection with that number is closed by the other side.
    pub fn hang_up(&mut self, connection: u64) {
        if let Some(stream) = self.streams.get_mut(&connection) {
            stream.hang_up();
        }
    }

    /// Ends the connection's stream, if there is one, because it was silent for too long.
    pub fn time_out(&mut self, connection: u64) -> bool {
        let stream = self.streams.remove(&connection);
        let was_open = stream.is_some();
        stream
            .into_iter()
            .for_each(|stream| stream.end(&self.collector));
        was_open
    }

    /// Runs all streams until each waits. Returns their answers.
    pub fn step(&mut self) -> Vec<(u64, Answer)> {
        let mut answers = Vec::new();
        for (connection, stream) in &mut self.streams {
            let new = stream.advance(&self.collector);
            answers.extend(new.into_iter().map(|answer| (*connection, answer)));
        }
        self.streams.retain(|_, stream| !stream.has_ended());
        answers
    }

    /// Whether a stream waits for the log.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.streams.values().any(Stream::is_waiting)
    }

    /// Writes, syncs and applies what waits for the log.
    pub fn commit(&self) {
        self.collector.log().commit_waiting();
    }

    /// Seals memory into tables. Between writes of files the log commits, as its thread would.
    ///
    /// # Errors
    /// With the reason.
    pub fn seal(&self) -> Result<bool, String> {
        let collector = self.collector.clone();
        self.disk
            .between_writes(Some(Box::new(move || collector.log().commit_waiting())));
        let sealed = self.collector.sealer.seal();
        self.disk.between_writes(None);
        sealed.map_err(|error| error.to_string())
    }

    /// Merges small files and deletes garbage.
    ///
    /// # Errors
    /// With the reason.
    pub fn maintain(&self) -> Result<(), String> {
        let sealer = &self.collector.sealer;
        let clock = &self.collector.state.clock;
        let Settings { retention, .. } = settings(clock.clone());
        sealer
            .maintain(clock.now(), &retention)
            .map_err(|error| error.to_string())
    }

    /// Applies changes that depend on time only.
    pub fn sweep(&self) {
        self.collector
            .ingest
            .sweep(self.collector.state.clock.now());
        self.collector.ingest.blocked();
    }

    /// Asks for everything.
    ///
    /// # Panics
    /// If a query fails.
    #[must_use]
    pub fn held(&self) -> Content {
        self.disk.observe(|| self.ask_all())
    }

    fn ask_all(&self) -> Content {
        let state = &self.collector.state;
        let profile = self.profile(TimeRange::ALL);
        let limit = ("limit".to_owned(), TASK_ROWS_MAX.to_string());
        let query = TaskQuery::parse(&[limit], state, state.clock.now()).expect("it is valid");
        // Also what is in the future of a clock that was set back.
        let range = TimeRange::ALL;
        let query = TaskQuery {
            range,
            given_range: Some(range),
            ..query
        };
        let tasks = Queries(state)
            .tasks(&query, &Cancel::default())
            .expect("the tables are readable");
        let rows = tasks.selection.rows.iter().map(|row| TaskContent {
            key: row.record.key.to_string(),
            epoch: row.epoch.0,
            outcome: row.record.outcome,
        });
        let fleet = fleet(&self.collector, &WorkersQuery::default(), state.clock.now());
        let lives = fleet.epochs.into_iter().map(|life| LifeContent {
            epoch: life.epoch.0,
            stored_ns: life.stored_ns,
            unaccounted_ns: life.unaccounted_ns(),
            rejected: life.rejected,
        });
        Content {
            leaves: profile.leaves,
            tasks: rows.collect(),
            lives: lives.collect(),
            damaged: [profile.damaged, tasks.damaged, self.lost()].concat(),
        }
    }

    /// The weight of a range of time, in nanoseconds.
    #[must_use]
    pub fn weight_ns(&self, range: TimeRange) -> u64 {
        self.disk
            .observe(|| self.profile(range))
            .leaves
            .values()
            .sum()
    }

    /// Lost files and parts of the log, with the reasons.
    fn lost(&self) -> Vec<String> {
        let manifest = self.collector.state.tables.manifest();
        manifest
            .all_lost()
            .map(|(path, reason)| format!("{path}: {reason}"))
            .collect()
    }

    fn profile(&self, range: TimeRange) -> Content {
        let state = &self.collector.state;
        let query = ProfileQuery::parse(&[], state, state.clock.now()).expect("it is valid");
        let filter = Filter {
            threads: ThreadKind::All,
            ..Filter::default()
        };
        let query = ProfileQuery {
            range,
            filter,
            phases: PhaseFilter::All,
            format: Format::Collapsed,
            ..query
        };
        let answer = Queries(state)
            .profile(&query, &Cancel::default())
            .expect("the tables are readable");
        let mut leaves = BTreeMap::new();
        for line in flamegraph::collapsed(&answer.profile).lines() {
            let (stack, weight) = line.rsplit_once(' ').expect("a stack and its weight");
            let leaf = stack.rsplit(';').next().unwrap_or(stack);
            let weight: u64 = weight.parse().expect("a weight is a number");
            *leaves.entry(leaf.to_owned()).or_default() += weight;
        }
        Content {
            leaves,
            damaged: answer.facts.damaged,
            ..Content::default()
        }
    }
}

/// The time of a simulated clock.
#[must_use]
pub fn timestamp(nanoseconds: i64) -> Timestamp {
    Timestamp::from_unix_ns(nanoseconds)
}
