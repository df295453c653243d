//! Caches of the program: which values are in them, and since when.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use profiler_core::limits::bounded_name;

use super::cache_event::{CacheEvent, CacheItem};
use super::registry::Calls;
use emberline_agent::{current_task, observe};

/// Describes a cache of values of type `V`, whose events the program reports.
///
/// A cache of [`CachedValue`]s reports by itself when values leave it: they are dropped.
///
/// ```
/// use std::collections::HashMap;
///
/// use emberline_diagnostics::{self as diagnostics, CacheProfiler, CachedValue};
///
/// let profiler = CacheProfiler::bytes();
/// let scope = diagnostics::scope(profiler.clone());
///
/// let blocks = diagnostics::cache("blocks").sized_by(|block: &Vec<u8>| block.capacity() as u64);
/// let mut held: HashMap<&str, CachedValue<Vec<u8>>> = HashMap::new();
/// held.insert("block-1", blocks.hold("block-1", vec![0; 1_000]));
/// match held.get("block-1") {
///     Some(_) => blocks.hit("block-1"),
///     None => blocks.miss("block-1"),
/// }
/// held.clear();
/// drop(scope);
///
/// let row = &profiler.results()[0];
/// assert_eq!((&*row.key, row.metric, row.hits), ("block-1", 1_000.0, 1));
/// assert!(row.exit.is_some());
/// ```
///
/// Other caches report [`Cache::inserted`] and [`Cache::removed`].
pub fn cache<V: 'static>(name: impl AsRef<str>) -> Cache<V> {
    let name = bounded_name(name.as_ref()).into();
    Cache {
        name,
        bytes: |value| size_of_val(value) as u64,
    }
}

/// A cache of the program, as callbacks see it; made by [`cache`](cache()). It contains no values, and
/// costs one load per event while no callback is registered.
pub struct Cache<V: 'static> {
    name: Arc<str>,
    bytes: fn(&V) -> u64,
}

impl<V: 'static> Cache<V> {
    /// Sets how to compute the bytes of a value. The default is the size of the value itself, without
    /// data behind its pointers.
    #[must_use]
    pub fn sized_by(mut self, bytes: fn(&V) -> u64) -> Cache<V> {
        self.bytes = bytes;
        self
    }

    /// Reports that `value` enters the cache now. It leaves the cache when the result is dropped.
    pub fn hold(&self, key: impl AsRef<str>, value: V) -> CachedValue<V> {
        let entry = self.notify_inserted(key.as_ref(), &value);
        CachedValue {
            value,
            _entry: entry,
        }
    }

    /// Reports that `value` is in the cache from now on, until [`Cache::removed`] with the same key. It
    /// replaces a value of the same key.
    pub fn inserted(&self, key: impl AsRef<str>, value: &V) {
        if observe::is_observed() {
            self.notify_removed(key.as_ref());
            // `removed` identifies the value by its key.
            std::mem::forget(self.notify_inserted(key.as_ref(), value));
        }
    }

    /// Reports that the value of `key` has left the cache.
    pub fn removed(&self, key: impl AsRef<str>) {
        if observe::is_observed() {
            self.notify_removed(key.as_ref());
        }
    }

    /// Reports a lookup that found `key`.
    pub fn hit(&self, key: impl AsRef<str>) {
        if observe::is_observed() {
            notify(&CacheEvent::Hit {
                cache: &self.name,
                key: &bounded_name(key.as_ref()),
            });
        }
    }

    /// Reports a lookup that did not find `key`.
    pub fn miss(&self, key: impl AsRef<str>) {
        if observe::is_observed() {
            notify(&CacheEvent::Miss {
                cache: &self.name,
                key: &bounded_name(key.as_ref()),
            });
        }
    }

    fn notify_inserted(&self, key: &str, value: &V) -> Option<CachedEntry> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if !observe::is_observed() {
            return None;
        }
        let entry = CachedEntry {
            cache: self.name.clone(),
            key: Arc::from(&*bounded_name(key)),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        };
        notify(&CacheEvent::Inserted(CacheItem {
            cache: &entry.cache,
            key: &entry.key,
            number: entry.number,
            at: observe::now(),
            task: current_task().name(),
            value,
            bytes: (self.bytes)(value),
        }));
        Some(entry)
    }

    fn notify_removed(&self, key: &str) {
        let key = &*bounded_name(key);
        notify(&CacheEvent::Removed {
            cache: &self.name,
            key,
            number: None,
            at: observe::now(),
        });
    }
}

fn notify(event: &CacheEvent<'_>) {
    if let Some(calls) = Calls::begin() {
        calls.call("cache", |callback| callback.cache(event));
    }
}

impl<V> Clone for Cache<V> {
    fn clone(&self) -> Cache<V> {
        Cache {
            name: self.name.clone(),
            bytes: self.bytes,
        }
    }
}

impl<V> fmt::Debug for Cache<V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Cache")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A value in a cache; made by [`Cache::hold`]. It leaves the cache when this is dropped or the value
/// is taken out.
#[derive(Debug)]
#[must_use = "the value leaves the cache when this is dropped"]
pub struct CachedValue<V> {
    value: V,
    /// `None` if no callback was registered when it entered.
    _entry: Option<CachedEntry>,
}

impl<V> CachedValue<V> {
    /// Takes the value out of the cache.
    #[must_use = "drop this if the value is not needed"]
    pub fn into_value(self) -> V {
        self.value
    }
}

impl<V> Deref for CachedValue<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

impl<V> DerefMut for CachedValue<V> {
    fn deref_mut(&mut self) -> &mut V {
        &mut self.value
    }
}

/// The presence of a value in a cache. Separate from the value, so that the value can be moved out.
#[derive(Debug)]
struct CachedEntry {
    cache: Arc<str>,
    key: Arc<str>,
    number: u64,
}

impl Drop for CachedEntry {
    fn drop(&mut self) {
        if observe::is_observed() {
            let number = Some(self.number);
            let CachedEntry { cache, key, .. } = &*self;
            notify(&CacheEvent::Removed {
                cache,
                key,
                number,
                at: observe::now(),
            });
        }
    }
}
