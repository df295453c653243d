//! Records which values were in caches, when, and their sizes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use profiler_core::Timestamp;
use rustc_hash::FxHashMap;

use super::cache_event::{CacheEvent, CacheItem};
use super::callback::Callback;
use super::{ObservedPeriod, epoch_seconds};
use crate::sync::lock;

/// Most rows, of removed and of present values. Later ones are only counted.
const ROWS_MAX: usize = 1_000_000;

type Metric = Arc<dyn Fn(&CacheItem<'_>) -> f64 + Send + Sync>;

/// Records each value that was inserted into a [`Cache`](super::Cache): key, task, metric, entry, exit.
/// The default metric is 1 for each value, so that the sum counts values.
///
/// A [`scope`](super::scope) starts without results; a registered profiler keeps results until
/// [`CacheProfiler::clear`]. Clones share their results.
///
/// ```
/// use emberline_diagnostics::{self as diagnostics, CacheProfiler};
///
/// let rows = CacheProfiler::by("rows", |item| {
///     item.value::<Vec<u64>>().map_or(0.0, |rows| rows.len() as f64)
/// });
/// let scope = diagnostics::scope(rows.clone());
/// let held = diagnostics::cache("tables").hold("table-1", vec![1_u64, 2, 3]);
/// assert_eq!(rows.results()[0].metric, 3.0);
/// assert_eq!(rows.results()[0].exit, None);
/// # drop((held, scope));
/// ```
#[derive(Clone)]
pub struct CacheProfiler {
    metric: Metric,
    metric_name: Arc<str>,
    results: Arc<Mutex<Results>>,
}

#[derive(Debug, Default)]
struct Results {
    /// Removed values.
    rows: Vec<CacheData>,
    /// Present values by their numbers, which rise with time.
    open: BTreeMap<u64, CacheData>,
    /// The newest value of each cache and key.
    newest: FxHashMap<(Arc<str>, Arc<str>), u64>,
    counts: CacheCounts,
    observed: ObservedPeriod,
}

/// The time of one value in a cache.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct CacheData {
    /// The cache's name.
    pub cache: Arc<str>,
    /// The value's key.
    pub key: Arc<str>,
    /// The name of the task that inserted it; `None` outside tasks.
    pub task: Option<Arc<str>>,
    /// The profiler's metric of the value when it was inserted.
    pub metric: f64,
    /// Time of the insertion, in seconds since the Unix epoch.
    pub entry: f64,
    /// Time of the removal, in seconds since the Unix epoch; `None` while it is in the cache.
    pub exit: Option<f64>,
    /// Time of the insertion, to the nanosecond.
    pub entered_at: Timestamp,
    /// Time of the removal, to the nanosecond.
    pub exited_at: Option<Timestamp>,
    /// Lookups that found it.
    pub hits: u64,
}

/// Numbers of events in all caches.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Inserted values.
    pub inserted: u64,
    /// Of those, removed values.
    pub removed: u64,
    /// Lookups that found a value.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Inserted values for which the results had no room.
    pub omitted: u64,
}

impl Default for CacheProfiler {
    fn default() -> CacheProfiler {
        CacheProfiler::new()
    }
}

impl CacheProfiler {
    /// Returns a profiler that counts values.
    #[must_use]
    pub fn new() -> CacheProfiler {
        CacheProfiler::by("count", |_| 1.0)
    }

    /// Returns a profiler that sums the values' [bytes](super::Cache::sized_by).
    #[must_use]
    pub fn bytes() -> CacheProfiler {
        CacheProfiler::by("bytes", |item| item.bytes() as f64)
    }

    /// Returns a profiler that sums `metric` over the values.
    #[must_use]
    pub fn by(
        name: impl Into<Arc<str>>,
        metric: impl Fn(&CacheItem<'_>) -> f64 + Send + Sync + 'static,
    ) -> CacheProfiler {
        CacheProfiler {
            metric: Arc::new(metric),
            metric_name: name.into(),
            results: Arc::default(),
        }
    }

    /// Returns the removed values in the order of their removal, then the present ones.
    #[must_use]
    pub fn results(&self) -> Vec<CacheData> {
        self.read(|rows, _, _| rows.cloned().collect())
    }

    /// Returns the numbers of events so far.
    #[must_use]
    pub fn counts(&self) -> CacheCounts {
        lock(&self.results).counts
    }

    /// Returns the name of the metric, for example `count`.
    #[must_use]
    pub fn metric_name(&self) -> &str {
        &self.metric_name
    }

    /// Drops all results, also of values that are in a cache.
    pub fn clear(&self) {
        *lock(&self.results) = Results::default();
    }

    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&mut dyn Iterator<Item = &CacheData>, CacheCounts, ObservedPeriod) -> T,
    ) -> T {
        let results = lock(&self.results);
        let mut rows = results.rows.iter().chain(results.open.values());
        read(&mut rows, results.counts, results.observed)
    }
}

impl Results {
    fn insert(&mut self, number: u64, data: CacheData) {
        self.counts.inserted += 1;
        if self.rows.len() + self.open.len() >= ROWS_MAX {
            self.counts.omitted += 1;
            return;
        }
        self.newest
            .insert((data.cache.clone(), data.key.clone()), number);
        self.open.insert(number, data);
    }

    fn remove(&mut self, number: u64, at: Timestamp) {
        // `None` for a value that was inserted before this profiler, or for which it had no room.
        let Some(mut data) = self.open.remove(&number) else {
            return;
        };
        let key = (data.cache.clone(), data.key.clone());
        if self.newest.get(&key) == Some(&number) {
            self.newest.remove(&key);
        }
        data.exit = Some(epoch_seconds(at));
        data.exited_at = Some(at);
        self.rows.push(data);
        self.counts.removed += 1;
    }

    fn newest(&self, cache: &Arc<str>, key: &str) -> Option<u64> {
        self.newest.get(&(cache.clone(), key.into())).copied()
    }
}

impl Callback for CacheProfiler {
    fn cache(&self, event: &CacheEvent<'_>) {
        match event {
            CacheEvent::Inserted(item) => {
                // The program's code runs outside the lock.
                let metric = (self.metric)(item);
                let data = CacheData {
                    cache: item.cache.clone(),
                    key: item.key.clone(),
                    task: item.task.clone(),
                    metric,
                    entry: epoch_seconds(item.at),
                    exit: None,
                    entered_at: item.at,
                    exited_at: None,
                    hits: 0,
                };
                lock(&self.results).insert(item.number(), data);
            }
            CacheEvent::Removed {
                cache,
                key,
                number,
                at,
            } => {
                let mut results = lock(&self.results);
                if let Some(number) = number.or_else(|| results.newest(cache, key)) {
                    results.remove(number, *at);
                }
            }
            CacheEvent::Hit { cache, key } => {
                let mut results = lock(&self.results);
                results.counts.hits += 1;
                let number = results.newest(cache, key);
                if let Some(data) = number.and_then(|number| results.open.get_mut(&number)) {
                    data.hits += 1;
                }
            }
            CacheEvent::Miss { .. } => lock(&self.results).counts.misses += 1,
        }
    }

    fn enter(&self) {
        *lock(&self.results) = Results {
            observed: ObservedPeriod::starting_now(),
            ..Results::default()
        };
    }

    fn exit(&self) {
        lock(&self.results).observed.end_now();
    }
}

impl fmt::Debug for CacheProfiler {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut profiler = formatter.debug_struct("CacheProfiler");
        profiler
            .field("metric", &self.metric_name)
            .field("results", &self.results)
            .finish()
    }
}
