//! Caches: what lies in them from when to when, told by the program.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use profiler_core::limits::bounded_name;

use super::cache_event::{CacheEvent, CacheItem};
use super::hooks::Calls;
use crate::{clock, task, wanted};

/// Names a cache of values of type `V`, for the program to tell what happens in it.
///
/// A cache that is made of [`Held`] values tells by itself when they leave: they are dropped.
///
/// ```
/// use std::collections::HashMap;
///
/// use emberline_agent::diagnostics::{self, CacheProfiler, Held};
///
/// let profiler = CacheProfiler::bytes();
/// let scope = diagnostics::scope(profiler.clone());
///
/// let blocks = diagnostics::cache("blocks").sized_by(|block: &Vec<u8>| block.capacity() as u64);
/// let mut held: HashMap<&str, Held<Vec<u8>>> = HashMap::new();
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
/// A cache of another make says so itself: [`Cache::inserted`] and [`Cache::removed`].
pub fn cache<V: 'static>(name: impl AsRef<str>) -> Cache<V> {
    let name = bounded_name(name.as_ref()).into();
    Cache { name, bytes: |value| size_of_val(value) as u64 }
}

/// A cache of the program's, as callbacks see it; made by [`cache`](cache()). It holds no values, and
/// costs one load an event while no callback is registered.
pub struct Cache<V: 'static> {
    name: Arc<str>,
    bytes: fn(&V) -> u64,
}

impl<V: 'static> Cache<V> {
    /// How many bytes a value takes, for those who ask. Unless set, it is the size of the value
    /// itself, without what it points to.
    #[must_use]
    pub fn sized_by(mut self, bytes: fn(&V) -> u64) -> Cache<V> {
        self.bytes = bytes;
        self
    }

    /// `value` enters the cache now and leaves it when what this gives is dropped.
    pub fn hold(&self, key: impl AsRef<str>, value: V) -> Held<V> {
        let stay = self.enters(key.as_ref(), &value);
        Held { value, _stay: stay }
    }

    /// `value` is in the cache from now on, until [`Cache::removed`] with the same key. A key that
    /// is there already is replaced.
    pub fn inserted(&self, key: impl AsRef<str>, value: &V) {
        if wanted::by_callbacks() {
            self.leaves(key.as_ref());
            // Its number is not needed: the key will tell.
            std::mem::forget(self.enters(key.as_ref(), value));
        }
    }

    /// What was there under `key` has left the cache.
    pub fn removed(&self, key: impl AsRef<str>) {
        if wanted::by_callbacks() {
            self.leaves(key.as_ref());
        }
    }

    /// `key` was asked for, and was there.
    pub fn hit(&self, key: impl AsRef<str>) {
        if wanted::by_callbacks() {
            tell(&CacheEvent::Hit { cache: &self.name, key: &bounded_name(key.as_ref()) });
        }
    }

    /// `key` was asked for, and was not there.
    pub fn miss(&self, key: impl AsRef<str>) {
        if wanted::by_callbacks() {
            tell(&CacheEvent::Missed { cache: &self.name, key: &bounded_name(key.as_ref()) });
        }
    }

    fn enters(&self, key: &str, value: &V) -> Option<Stay> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if !wanted::by_callbacks() {
            return None;
        }
        let (cache, key) = (self.name.clone(), Arc::from(&*bounded_name(key)));
        let stay = Stay { cache, key, number: NEXT.fetch_add(1, Ordering::Relaxed) };
        let (Stay { cache, key, number }, at) = (&stay, clock::now());
        let task = task::current_name();
        let bytes = (self.bytes)(value);
        let item = CacheItem { cache, key, number: *number, at, task, value, bytes };
        tell(&CacheEvent::Entered(item));
        Some(stay)
    }

    fn leaves(&self, key: &str) {
        let key = &*bounded_name(key);
        tell(&CacheEvent::Left { cache: &self.name, key, number: None, at: clock::now() });
    }
}

fn tell(event: &CacheEvent<'_>) {
    if let Some(calls) = Calls::begin() {
        calls.call("cache", |callback| callback.cache(event));
    }
}

impl<V> Clone for Cache<V> {
    fn clone(&self) -> Cache<V> {
        Cache { name: self.name.clone(), bytes: self.bytes }
    }
}

impl<V> fmt::Debug for Cache<V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cache").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A value in a cache; made by [`Cache::hold`]. It leaves the cache when this is dropped, or the value
/// is taken out.
#[derive(Debug)]
#[must_use = "the value leaves the cache when this is dropped"]
pub struct Held<V> {
    value: V,
    /// `None` if nobody wanted to know when it entered.
    _stay: Option<Stay>,
}

impl<V> Held<V> {
    /// Takes the value out of the cache.
    #[must_use = "drop what is held if the value is not wanted"]
    pub fn into_value(self) -> V {
        self.value
    }
}

impl<V> Deref for Held<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

impl<V> DerefMut for Held<V> {
    fn deref_mut(&mut self) -> &mut V {
        &mut self.value
    }
}

/// The time of one value in one cache. Apart from the value, so that the value can be moved out.
#[derive(Debug)]
struct Stay {
    cache: Arc<str>,
    key: Arc<str>,
    number: u64,
}

impl Drop for Stay {
    fn drop(&mut self) {
        if wanted::by_callbacks() {
            let number = Some(self.number);
            let Stay { cache, key, .. } = &*self;
            tell(&CacheEvent::Left { cache, key, number, at: clock::now() });
        }
    }
}
