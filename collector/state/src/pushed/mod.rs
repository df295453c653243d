//! Profiles that foreign profilers push: each series is a worker, and each push a flush of it.
//!
//! `docs/design/ingest.md` says why. The protocols are in `bridge`.

mod counters;
mod parts;
mod scrapes;
mod sender;

use std::sync::Arc;

use profiler_core::Timestamp;
use profiler_core::hash::KeyedMap;

use self::sender::{Inlet, Sender};
use crate::ingest::{AttachError, Ingest, StreamError};
use base::limits::{
    LARGE_PUSHES_MAX, PUSHED_IDLE_MAX, PUSHED_LABEL_SETS_MAX, PUSHED_SERIES_MAX, PUSHES_MAX,
    nanoseconds,
};
use base::sync::{Mutex, lock, rank};
use shares::identity::Identity;
use shares::{Account, DecodeBudget, Turns};

pub use self::counters::{PushCounters, PushCounts};
pub use self::scrapes::{ScrapeStatus, Scrapes};
pub use self::sender::{Description, PushedProfile, PushedSeries};

/// Why a push is not stored.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    #[error(transparent)]
    Attach(#[from] AttachError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// Data that would be refused from an agent too, such as a time far from now.
    #[error("{reason}")]
    Refused { reason: String },
    #[error(
        "{PUSHED_SERIES_MAX} series are pushed at present, which is this collector's limit: use fewer \
         distinct labels"
    )]
    TooManySeries,
    #[error("the system has no random bytes")]
    Random(#[source] getrandom::Error),
    #[error("storing the profile panicked: a bug in Emberline")]
    Panicked,
}

/// A push of a series that is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredPush {
    pub weight_ns: u64,
    /// The worker in which it counts.
    pub worker: String,
    /// Whether it counts without the labels of its samples.
    pub is_merged: bool,
}

/// Owner and worker of a series.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct SeriesKey {
    identity: Identity,
    worker: String,
}

/// A series that was pushed lately.
#[derive(Debug)]
struct Live {
    sender: Arc<tokio::sync::Mutex<Sender>>,
    used_at: Timestamp,
    /// The worker of the profile's samples without labels of their own.
    base: String,
}

/// All series that are pushed.
#[derive(Debug)]
pub struct Pushed {
    ingest: Arc<Ingest>,
    live: Mutex<KeyedMap<SeriesKey, Live>, rank::PushedSeries>,
    memory: DecodeBudget,
    /// Pushes that are parsed and stored at once.
    pub turns: Arc<Turns>,
    /// The same for pushes of more than [`LARGE_PUSH_BYTES`](base::limits::LARGE_PUSH_BYTES).
    pub large_turns: Arc<Turns>,
    pub counters: PushCounters,
    /// Outcomes of scrapes.
    pub scrapes: Scrapes,
}

impl Pushed {
    pub fn new(ingest: Arc<Ingest>) -> Pushed {
        Pushed {
            ingest,
            live: Mutex::default(),
            memory: DecodeBudget::default(),
            turns: Turns::new(PUSHES_MAX),
            large_turns: Turns::new(LARGE_PUSHES_MAX),
            counters: PushCounters::default(),
            scrapes: Scrapes::default(),
        }
    }

    /// Stores the samples of a series. Returns when they are acknowledged. Past the limit on series that differ in
    /// the labels of samples, they count in the series without these. The client of a push
    /// that `is_final` does not send it again: a part that is refused is lost.
    pub async fn store(
        &self,
        account: &Arc<Account>,
        mut pushed: PushedSeries,
        is_final: bool,
    ) -> Result<StoredPush, PushError> {
        let pushed_as = pushed.description.worker.clone();
        let now = self.ingest.state.clock.now();
        let sender = self.sender(&account.identity, &mut pushed, now)?;
        let mut sending = sender.lock().await;
        let inlet = Inlet {
            ingest: &self.ingest,
            account,
            memory: &self.memory,
            now,
            is_final,
        };
        let weight_ns = sending.send(inlet, &pushed).await?;
        let worker = pushed.description.worker;
        Ok(StoredPush {
            weight_ns,
            is_merged: worker != pushed_as,
            worker,
        })
    }

    /// Notes that a push came for a series and is not stored, perhaps for the sake of another of its series.
    pub async fn note_refused(&self, account: &Account, pushed: &PushedSeries, reason: &str) {
        let now = self.ingest.state.clock.now();
        let key = SeriesKey {
            identity: account.identity.clone(),
            worker: pushed.description.worker.clone(),
        };
        let sender = lock(&self.live).get_mut(&key).map(|series: &mut Live| {
            series.used_at = series.used_at.max(now);
            series.sender.clone()
        });
        if let Some(sender) = sender {
            sender.lock().await.note_refused(reason, None, now);
        }
    }

    fn sender(
        &self,
        identity: &Identity,
        pushed: &mut PushedSeries,
        now: Timestamp,
    ) -> Result<Arc<tokio::sync::Mutex<Sender>>, PushError> {
        let key_of = |worker: &str| SeriesKey {
            identity: identity.clone(),
            worker: worker.to_owned(),
        };
        let base = pushed.base.worker.clone();
        let mut key = key_of(&pushed.description.worker);
        let mut live = lock(&self.live);
        if key.worker != base
            && !live.contains_key(&key)
            && live
                .iter()
                .filter(|(other, live): &(&SeriesKey, &Live)| {
                    other.identity == *identity && live.base == base
                })
                .count()
                >= PUSHED_LABEL_SETS_MAX
        {
            pushed.description = pushed.base.clone();
            key = key_of(&base);
        }
        if !live.contains_key(&key) && live.len() >= PUSHED_SERIES_MAX {
            return Err(PushError::TooManySeries);
        }
        let series = live.entry(key).or_insert_with(|| Live {
            sender: Arc::default(),
            used_at: now,
            base,
        });
        series.used_at = series.used_at.max(now);
        Ok(series.sender.clone())
    }

    /// Ends series of which nothing came for a while.
    pub fn sweep(&self, now: Timestamp) {
        let idle_ns = nanoseconds(PUSHED_IDLE_MAX);
        lock(&self.live).retain(|_, series| {
            if series.used_at.shifted(idle_ns) > now {
                return true;
            }
            // A push that is being stored holds it too, and no other begins while the lock is held.
            let Some(sender) = Arc::get_mut(&mut series.sender) else {
                return true;
            };
            let sender = sender.get_mut();
            sender.end(&self.ingest, now);
            false
        });
    }

    /// Series of a source of which something came lately.
    pub fn live_count(&self, source: &str) -> usize {
        lock(&self.live)
            .keys()
            .filter(|key: &&SeriesKey| {
                key.worker
                    .split(':')
                    .next()
                    .is_some_and(|start| start == source)
            })
            .count()
    }
}
