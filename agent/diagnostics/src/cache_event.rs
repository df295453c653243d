//! Events of caches, as callbacks see them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use profiler_core::Timestamp;

/// An event of a cache.
#[derive(Debug)]
#[non_exhaustive]
pub enum CacheEvent<'a> {
    /// A value was inserted.
    Inserted(CacheItem<'a>),
    /// A value was removed.
    Removed {
        /// The cache's name.
        cache: &'a Arc<str>,
        /// The value's key.
        key: &'a str,
        /// Number of the [`CacheItem`]; `None` for the newest value with this key.
        number: Option<u64>,
        /// When it was removed.
        at: Timestamp,
    },
    /// A lookup found the key.
    Hit {
        /// The cache's name.
        cache: &'a Arc<str>,
        /// The key.
        key: &'a str,
    },
    /// A lookup did not find the key.
    Miss {
        /// The cache's name.
        cache: &'a Arc<str>,
        /// The key.
        key: &'a str,
    },
}

/// A value that is inserted into a cache.
pub struct CacheItem<'a> {
    pub(super) cache: &'a Arc<str>,
    pub(super) key: &'a Arc<str>,
    pub(super) number: u64,
    pub(super) at: Timestamp,
    pub(super) task: Option<Arc<str>>,
    pub(super) value: &'a dyn Any,
    pub(super) bytes: u64,
}

impl CacheItem<'_> {
    /// Returns the cache's name.
    #[must_use]
    pub fn cache(&self) -> &str {
        self.cache
    }

    /// Returns the value's key.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key
    }

    /// Returns the value's number, unique among all caches of this process.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns when it was inserted.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns the name of the task that inserted it, if any.
    #[must_use]
    pub fn task(&self) -> Option<&str> {
        self.task.as_deref()
    }

    /// Returns the value, if it is of this type.
    #[must_use]
    pub fn value<V: 'static>(&self) -> Option<&V> {
        self.value.downcast_ref()
    }

    /// Returns the size of the value, as [`Cache::sized_by`](super::Cache::sized_by) computes it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl fmt::Debug for CacheItem<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut item = formatter.debug_struct("CacheItem");
        item.field("cache", &self.cache)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
