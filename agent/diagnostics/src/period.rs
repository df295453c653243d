//! The period of a profiler's scope.

use profiler_core::Timestamp;

use emberline_agent::observe;

/// When a profiler's scope started and ended; empty if it had none.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObservedPeriod {
    pub(super) from: Option<Timestamp>,
    pub(super) to: Option<Timestamp>,
}

impl ObservedPeriod {
    pub(super) fn starting_now() -> ObservedPeriod {
        ObservedPeriod {
            from: Some(observe::now()),
            to: None,
        }
    }

    pub(super) fn end_now(&mut self) {
        self.to = Some(observe::now());
    }
}
