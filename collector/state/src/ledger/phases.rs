//! Time of tasks by phase.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::PhaseInterval;

use store::rows::{inside_ns, outside_execute};

/// Time in one phase.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PhaseTotal {
    /// How often tasks were in it.
    pub count: u64,
    /// For how long in all.
    pub duration_ns: u64,
}

impl PhaseTotal {
    pub fn add(&mut self, count: u64, duration_ns: u64) {
        self.count = self.count.saturating_add(count);
        self.duration_ns = self.duration_ns.saturating_add(duration_ns);
    }
}

/// Time of tasks by phase, without what they executed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PhaseTotals {
    /// By the phase's name, without [`EXECUTE`](store::rows::EXECUTE).
    pub by_name: BTreeMap<Arc<str>, PhaseTotal>,
    /// How much of the tasks' durations that is: not what was before their starts.
    pub inside_ns: u64,
}

impl PhaseTotals {
    /// Counts the phases of a task that took `duration_ns`, or as [`inside_ns`] of several.
    pub fn count(&mut self, phases: &[PhaseInterval], duration_ns: u64) {
        for phase in outside_execute(phases) {
            let total = self.by_name.entry(phase.name.clone()).or_default();
            total.add(phase.count.into(), phase.duration_ns);
        }
        self.inside_ns = self
            .inside_ns
            .saturating_add(inside_ns(phases, duration_ns));
    }

    pub fn absorb(&mut self, other: PhaseTotals) {
        for (name, total) in other.by_name {
            self.by_name
                .entry(name)
                .or_default()
                .add(total.count, total.duration_ns);
        }
        self.inside_ns = self.inside_ns.saturating_add(other.inside_ns);
    }
}
