//! A reader of the stores of all collectors in a place: it answers for the whole fleet, and stores nothing.
//!
//! Each store is read as at the start of its collector: its tables, then its log. The stores need nothing of each
//! other and nothing of this process. So the answers include dead collectors. `docs/design/scale.md` has the
//! reasons.
//!
//! Reading order: [`store`] (one store), [`union`] (all of them as one), this file (the thread).

mod store;
mod union;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use profiler_core::Timestamp;

use self::store::{Change, FollowedStore};
use self::union::Union;
use crate::CollectorState;
use ::store::wal::WalError;
use ::store::{LostLog, Second, StoreError, StoreName, StorePlace, UNION_STORES_MAX};
use base::clock::Clock;
use base::limits::{
    FOLLOW_EVERY, FOLLOW_MARGIN, FOLLOW_PAUSE_FACTOR, Limits, STORES_LISTED_EVERY, nanoseconds,
};
use base::sync::{Mutex, lock, rank};
use naming::Naming;

/// Name of the thread that reads the stores.
const THREAD_NAME: &str = "emberline-follow";

/// The stores to answer for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FollowOptions {
    /// Where the stores of the fleet's collectors are.
    pub place: StorePlace,
    /// A folder for copies of tables; `None`: in memory.
    pub data: Option<PathBuf>,
    /// Most bytes of copies of tables, for each collector. Default:
    /// [`TABLE_CACHE_BYTES`](base::limits::TABLE_CACHE_BYTES) in a folder, or
    /// [`TABLE_CACHE_MEMORY_BYTES`](base::limits::TABLE_CACHE_MEMORY_BYTES) in memory.
    pub cache_bytes: Option<u64>,
}

/// Why the stores of a place cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// The place has no store.
    #[error(
        "there is no store in {place}: start a collector with `--store {place} --name NAME`, or correct `--store`"
    )]
    NoStores {
        /// The place.
        place: String,
    },
    /// The place has more stores than one process answers for.
    #[error(
        "{place} has {count} stores; one reader answers for at most {}",
        UNION_STORES_MAX
    )]
    TooManyStores {
        /// The place.
        place: String,
        /// The number of stores.
        count: usize,
    },
    /// A collector was started too often for the ids of its files.
    #[error("the collector of {place} was started more than 65,535 times: give it another name")]
    TooManyLives {
        /// The store.
        place: String,
    },
    /// The folder for copies of tables cannot be used.
    #[error("cannot write to {}; choose a writable folder with `--data`", folder.display())]
    Cache {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The thread cannot be started.
    #[error("cannot start the thread that reads the stores")]
    Thread {
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A log cannot be read.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// A store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How a store was read last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreStatus {
    /// Of its collector.
    pub name: String,
    /// When it was last found to be as it is in answers; `None` if it was never read.
    pub read_at: Option<Timestamp>,
    /// Why a part of it is not in answers, for people.
    pub incomplete: Option<String>,
    /// How far its collector's clock is ahead of that of the store's server; `None` if that is not known.
    pub clock_ahead_ns: Option<i64>,
}

/// Reads the stores again and again, on a thread of its own.
#[derive(Debug)]
pub struct Follower {
    pub place: StorePlace,
    statuses: Arc<Mutex<Vec<StoreStatus>, rank::FollowStatus>>,
    /// Ends the thread.
    end: Mutex<Option<Sender<()>>, rank::StopSignal>,
    thread: Mutex<Option<JoinHandle<()>>, rank::ThreadHandle>,
}

impl Follower {
    /// Reads the stores of a place, and then what is new in them. Returns also what to answer from.
    ///
    /// # Errors
    /// If the place cannot be listed, or has no store. A store that cannot be read is named by each answer.
    pub fn start(
        options: FollowOptions,
        clock: Clock,
        limits: Limits,
        naming: Naming,
    ) -> Result<(Follower, Arc<CollectorState>), FollowError> {
        let place = options.place.clone();
        let mut stores = Stores::new(options, clock, limits, naming);
        stores.refresh()?;
        let state = stores.union.state.clone();
        let statuses = Arc::new(Mutex::new(stores.statuses()));
        let shared = statuses.clone();
        let (end, ended) = mpsc::channel();
        let follow = move || {
            let mut pause = FOLLOW_EVERY;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let begin = Instant::now();
                if let Err(error) = stores.refresh() {
                    tracing::warn!(%error, "the stores cannot be listed");
                }
                *lock(&shared) = stores.statuses();
                // A large fleet takes a fraction of one processor, and is a little older.
                pause = FOLLOW_EVERY.max(begin.elapsed() * FOLLOW_PAUSE_FACTOR);
            }
        };
        let thread = thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(follow)
            .map_err(|source| FollowError::Thread { source })?;
        let follower = Follower {
            place,
            statuses,
            end: Mutex::new(Some(end)),
            thread: Mutex::new(Some(thread)),
        };
        Ok((follower, state))
    }

    /// How each store was read last, by name.
    pub fn statuses(&self) -> Vec<StoreStatus> {
        lock(&self.statuses).clone()
    }

    /// Ends the thread after its present step, which may take as long as a request.
    pub fn end(&self) {
        drop(lock(&self.end).take());
        let thread = lock(&self.thread).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("reading the stores panicked: a bug in Emberline");
        }
    }
}

/// All stores of a place.
struct Stores {
    options: FollowOptions,
    clock: Clock,
    limits: Limits,
    /// In the order in which they were found: their numbers in the union.
    stores: Vec<NamedStore>,
    union: Union,
    listed_at: Option<Instant>,
}

struct NamedStore {
    name: StoreName,
    /// `None` if it cannot be used at all.
    store: Option<FollowedStore>,
    /// Why it was not read the last time.
    failure: Option<String>,
}

impl Stores {
    fn new(options: FollowOptions, clock: Clock, limits: Limits, naming: Naming) -> Stores {
        let union = Union::new(clock.clone(), limits.clone(), naming);
        Stores {
            options,
            clock,
            limits,
            stores: Vec::new(),
            union,
            listed_at: None,
        }
    }

    /// Reads what is new.
    fn refresh(&mut self) -> Result<(), FollowError> {
        let listed = match self.listed_at {
            Some(at) if at.elapsed() < STORES_LISTED_EVERY => Ok(()),
            _ => self.list(),
        };
        let mut changes = BTreeMap::new();
        for (place, named) in self.stores.iter_mut().enumerate() {
            let change = named.poll(&self.options, &self.clock, &self.limits);
            match change {
                Ok(change) => {
                    named.failure = None;
                    changes.insert(place, change);
                }
                Err(error) => {
                    let reason = error.to_string();
                    if named.failure.as_ref() != Some(&reason) {
                        tracing::warn!(name = %named.name, reason, "a store cannot be read");
                    }
                    named.failure = Some(reason);
                }
            }
        }
        self.union.update(&self.stores, &changes);
        listed
    }

    /// Finds new stores. Removed ones stay, and count as unreadable.
    fn list(&mut self) -> Result<(), FollowError> {
        let names = self.options.place.names()?;
        let place = || self.options.place.to_string();
        if names.is_empty() && self.stores.is_empty() {
            return Err(FollowError::NoStores { place: place() });
        }
        let is_known = |name: &StoreName| self.stores.iter().any(|known| known.name == *name);
        let new: Vec<StoreName> = names.into_iter().filter(|name| !is_known(name)).collect();
        let count = self.stores.len() + new.len();
        if count > UNION_STORES_MAX {
            return Err(FollowError::TooManyStores {
                place: place(),
                count,
            });
        }
        self.stores.extend(new.into_iter().map(|name| NamedStore {
            name,
            store: None,
            failure: None,
        }));
        self.listed_at = Some(Instant::now());
        Ok(())
    }

    fn statuses(&self) -> Vec<StoreStatus> {
        let mut statuses: Vec<StoreStatus> = self.stores.iter().map(NamedStore::status).collect();
        statuses.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        statuses
    }
}

impl NamedStore {
    fn poll(
        &mut self,
        options: &FollowOptions,
        clock: &Clock,
        limits: &Limits,
    ) -> Result<Change, FollowError> {
        let store = match &mut self.store {
            Some(store) => store,
            none => none.insert(FollowedStore::new(
                options,
                &self.name,
                clock.clone(),
                limits.clone(),
            )?),
        };
        store.poll()
    }

    /// The part of the store that answers cannot have.
    fn missing(&self) -> Option<LostLog> {
        let store = self.store.as_ref();
        match &self.failure {
            Some(reason) => Some(missing_since(
                store.and_then(|store| store.read_at),
                reason.clone(),
            )),
            None => store?.opened()?.unsealed_elsewhere(),
        }
    }

    fn status(&self) -> StoreStatus {
        StoreStatus {
            name: self.name.to_string(),
            read_at: self.store.as_ref().and_then(|store| store.read_at),
            incomplete: self.missing().map(|missing| missing.reason),
            clock_ahead_ns: self.store.as_ref().and_then(FollowedStore::clock_ahead_ns),
        }
    }
}

/// Missing part of a store that was last read at `read_at`, as a part of its log. If it never was: all of it.
fn missing_since(read_at: Option<Timestamp>, reason: String) -> LostLog {
    LostLog {
        path: "wal".to_owned(),
        reason,
        from: read_at.map_or(0, |at: Timestamp| {
            Second::of(at.shifted(-nanoseconds(FOLLOW_MARGIN))).0
        }),
        to: u32::MAX,
    }
}
