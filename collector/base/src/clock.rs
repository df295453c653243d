//! The collector's clock, which every stored time is by.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use profiler_core::Timestamp;

/// A source of the current time; cheap to clone. Tests use their own.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Clock {
        Clock::from_fn(|| {
            // A clock before 1970 reads as 1970, and one after 2262 as 2262.
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let nanoseconds = since.map_or(0, |since| since.as_nanos());
            Timestamp::from_unix_ns(i64::try_from(nanoseconds).unwrap_or(i64::MAX))
        })
    }

    /// A clock that calls `now`.
    #[must_use]
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}
