//! A flush between its arrival and its answer.

use std::sync::Arc;

use profiler_core::Timestamp;
use profiler_core::wire::{Translation, v1};

use shares::Charge;

/// A flush and the time at which it was received.
#[derive(Debug)]
pub struct ReceivedFlush {
    pub flush: v1::Flush,
    pub at: Timestamp,
    /// Its memory, released when it is answered. `None` without a transport.
    pub charge: Option<Charge>,
    /// For nodes of the collector's own tree, as of a pushed profile; `None` if those of the session are meant.
    pub translation: Option<Arc<Translation>>,
}

impl ReceivedFlush {
    /// Memory that it is charged with.
    pub(super) fn bytes(&self) -> usize {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }
}
