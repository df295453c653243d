//! A flush after validation.

use profiler_core::wire::v1;
use profiler_core::{TaskRecord, TaskTotals, Telemetry, Ticks, Timestamp};

use super::StoredWindow;

/// A flush in the collector's terms: its node ids, its strings, its clock.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckedFlush {
    pub seq: u64,
    /// `None` if the flush has no cycle.
    pub window: Option<StoredWindow>,
    pub tasks: Vec<TaskRecord>,
    /// Without `totals`, which are in their own field.
    pub telemetry: Telemetry,
    /// Sums of ended tasks that have no rows.
    pub totals: Vec<TaskTotals>,
    pub account: v1::LossAccount,
    pub clock: v1::Clock,
}

/// Facts that a session knows about a flush.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlushFacts {
    pub seq: u64,
    /// Weight of its samples.
    pub weight_ns: u64,
    pub ticks: Ticks,
    pub account: v1::LossAccount,
    pub clock: v1::Clock,
    /// When its window ends; `None` without one.
    pub window_stop: Option<Timestamp>,
}

impl CheckedFlush {
    /// Weight of its samples.
    pub fn weight_ns(&self) -> u64 {
        self.window
            .as_ref()
            .map_or(0, |window| window.samples.total_ns())
    }

    pub fn facts(&self) -> FlushFacts {
        FlushFacts {
            seq: self.seq,
            weight_ns: self.weight_ns(),
            ticks: self
                .window
                .as_ref()
                .map_or(Ticks::default(), |window| window.ticks),
            account: self.account,
            clock: self.clock,
            window_stop: self.window.as_ref().map(|window| window.range.stop()),
        }
    }
}
