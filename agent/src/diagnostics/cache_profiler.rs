//! What lay in caches, from when to when, and how much of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use profiler_core::Timestamp;
use rustc_hash::FxHashMap;

use super::cache_event::{CacheEvent, CacheItem};
use super::callback::Callback;
use super::{Watched, epoch_seconds};
use crate::sync::lock;

/// Rows that are kept, of values that have left and of those that are there. Later ones are counted.
const ROWS_MAX: usize = 1_000_000;

type Metric = Arc<dyn Fn(&CacheItem<'_>) -> f64 + Send + Sync>;

/// Keeps each value that entered a [`Cache`](super::Cache): key, task, metric, entry, exit. The metric
/// is 1 for each value unless set otherwise, so that their sum counts them.
///
/// A [`scope`](super::scope) begins with no results; one that is registered keeps all until
/// [`CacheProfiler::clear`]. Clones are handles of the same results.
///
/// ```
/// use emberline_agent::diagnostics::{self, CacheProfiler};
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
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Of values that have left.
    results: Vec<CacheData>,
    /// Of values that are there, by their numbers, which rise with time.
    open: BTreeMap<u64, CacheData>,
    /// The newest value under a key of a cache.
    newest: FxHashMap<(Arc<str>, Arc<str>), u64>,
    counts: CacheCounts,
    watched: Watched,
}

/// The time of one value in a cache.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct CacheData {
    /// The cache's name.
    pub cache: Arc<str>,
    /// The value's key.
    pub key: Arc<str>,
    /// The name of the task that put it there; `None` outside tasks.
    pub task: Option<Arc<str>>,
    /// How much it was when it entered, by the profiler's metric.
    pub metric: f64,
    /// When it entered, in seconds since the Unix epoch.
    pub entry: f64,
    /// When it left, in seconds since the Unix epoch; `None` if it is still there.
    pub exit: Option<f64>,
    /// When it entered, to the nanosecond.
    pub entered_at: Timestamp,
    /// When it left, to the nanosecond.
    pub exited_at: Option<Timestamp>,
    /// How often it was found.
    pub hits: u64,
}

/// How often what happened in all caches.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Values that entered.
    pub entered: u64,
    /// Of those, values that left.
    pub left: u64,
    /// Keys that were found.
    pub hits: u64,
    /// Keys that were asked for in vain.
    pub misses: u64,
    /// Values that entered and had no room in the results.
    pub omitted: u64,
}

impl Default for CacheProfiler {
    fn default() -> CacheProfiler {
        CacheProfiler::new()
    }
}

impl CacheProfiler {
    /// Counts values.
    #[must_use]
    pub fn new() -> CacheProfiler {
        CacheProfiler::by("count", |_| 1.0)
    }

    /// Adds up the values' bytes, as their cache [says](super::Cache::sized_by).
    #[must_use]
    pub fn bytes() -> CacheProfiler {
        CacheProfiler::by("bytes", |item| item.bytes() as f64)
    }

    /// Adds up what `metric` gives for each value that enters.
    #[must_use]
    pub fn by(
        name: impl Into<Arc<str>>,
        metric: impl Fn(&CacheItem<'_>) -> f64 + Send + Sync + 'static,
    ) -> CacheProfiler {
        CacheProfiler { metric: Arc::new(metric), metric_name: name.into(), kept: Arc::default() }
    }

    /// Those that have left, in the order in which they left, then those that are still there.
    #[must_use]
    pub fn results(&self) -> Vec<CacheData> {
        self.read(|rows, _, _| rows.cloned().collect())
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> CacheCounts {
        lock(&self.kept).counts
    }

    /// The name of the metric, such as `count`.
    #[must_use]
    pub fn metric_name(&self) -> &str {
        &self.metric_name
    }

    /// Forgets all results, also of values that are still there.
    pub fn clear(&self) {
        *lock(&self.kept) = Kept::default();
    }

    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&mut dyn Iterator<Item = &CacheData>, CacheCounts, Watched) -> T,
    ) -> T {
        let kept = lock(&self.kept);
        let mut rows = kept.results.iter().chain(kept.open.values());
        read(&mut rows, kept.counts, kept.watched)
    }
}

impl Kept {
    fn enters(&mut self, number: u64, data: CacheData) {
        self.counts.entered += 1;
        if self.results.len() + self.open.len() >= ROWS_MAX {
            self.counts.omitted += 1;
            return;
        }
        self.newest.insert((data.cache.clone(), data.key.clone()), number);
        self.open.insert(number, data);
    }

    fn leaves(&mut self, number: u64, at: Timestamp) {
        // One that entered before this profiler was called, or had no room.
        let Some(mut data) = self.open.remove(&number) else { return };
        let key = (data.cache.clone(), data.key.clone());
        if self.newest.get(&key) == Some(&number) {
            self.newest.remove(&key);
        }
        (data.exit, data.exited_at) = (Some(epoch_seconds(at)), Some(at));
        self.results.push(data);
        self.counts.left += 1;
    }

    fn newest(&self, cache: &Arc<str>, key: &str) -> Option<u64> {
        self.newest.get(&(cache.clone(), key.into())).copied()
    }
}

impl Callback for CacheProfiler {
    fn cache(&self, event: &CacheEvent<'_>) {
        match event {
            CacheEvent::Entered(item) => {
                // The user's code runs outside the lock.
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
                lock(&self.kept).enters(item.number(), data);
            }
            CacheEvent::Left { cache, key, number, at } => {
                let mut kept = lock(&self.kept);
                if let Some(number) = number.or_else(|| kept.newest(cache, key)) {
                    kept.leaves(number, *at);
                }
            }
            CacheEvent::Hit { cache, key } => {
                let mut kept = lock(&self.kept);
                kept.counts.hits += 1;
                let number = kept.newest(cache, key);
                if let Some(data) = number.and_then(|number| kept.open.get_mut(&number)) {
                    data.hits += 1;
                }
            }
            CacheEvent::Missed { .. } => lock(&self.kept).counts.misses += 1,
        }
    }

    fn enter(&self) {
        *lock(&self.kept) = Kept { watched: Watched::begun_now(), ..Kept::default() };
    }

    fn exit(&self) {
        lock(&self.kept).watched.end_now();
    }
}

impl fmt::Debug for CacheProfiler {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut profiler = formatter.debug_struct("CacheProfiler");
        profiler.field("metric", &self.metric_name).field("kept", &self.kept).finish()
    }
}
