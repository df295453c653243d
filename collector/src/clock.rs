//! The collector's clock, which is the fleet's: every stored time is by it.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use profiler_core::Timestamp;

/// Where the collector reads the time; cheap to clone. Tests put their own in its place.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Clock {
        Clock::from_fn(|| {
            // A machine set to before 1970 reads as 1970, one past 2262 as 2262.
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let nanoseconds = since.map_or(0, |since| since.as_nanos());
            Timestamp::from_unix_ns(i64::try_from(nanoseconds).unwrap_or(i64::MAX))
        })
    }

    /// A clock that says what `now` says.
    #[must_use]
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    /// The time now.
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
