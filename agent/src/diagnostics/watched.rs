//! The time over which a profiler's scope lasted.

use profiler_core::Timestamp;

use crate::clock;

/// From when to when a profiler looked; nothing if it had no scope.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watched {
    pub(super) from: Option<Timestamp>,
    pub(super) to: Option<Timestamp>,
}

impl Watched {
    pub(super) fn begun_now() -> Watched {
        Watched { from: Some(clock::now()), to: None }
    }

    pub(super) fn end_now(&mut self) {
        self.to = Some(clock::now());
    }
}
