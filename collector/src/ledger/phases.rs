//! Time of tasks by phase.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::PhaseInterval;

/// What is left of a task's time when its phases are taken away.
pub(crate) const EXECUTE: &str = "execute";

/// The phase that is over when a task starts.
const QUEUE: &str = "queue";

/// Time in one phase.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct PhaseTotal {
    /// How often tasks were in it.
    pub(crate) count: u64,
    /// For how long in all.
    pub(crate) duration_ns: u64,
}

impl PhaseTotal {
    pub(crate) fn add(&mut self, count: u64, duration_ns: u64) {
        self.count = self.count.saturating_add(count);
        self.duration_ns = self.duration_ns.saturating_add(duration_ns);
    }
}

/// Time of tasks by phase, without what they executed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct PhaseTotals {
    /// By the phase's name, without [`EXECUTE`].
    pub(crate) by_name: BTreeMap<Arc<str>, PhaseTotal>,
    /// How much of the tasks' durations that is: not what was before their starts.
    pub(crate) inside_ns: u64,
}

impl PhaseTotals {
    /// Counts the phases of a task that took `duration_ns`, or as [`inside_ns`] of several.
    pub(crate) fn count(&mut self, phases: &[PhaseInterval], duration_ns: u64) {
        for phase in elsewhere(phases) {
            let total = self.by_name.entry(phase.name.clone()).or_default();
            total.add(phase.count.into(), phase.duration_ns);
        }
        self.inside_ns = self.inside_ns.saturating_add(inside_ns(phases, duration_ns));
    }

    pub(crate) fn absorb(&mut self, other: PhaseTotals) {
        for (name, total) in other.by_name {
            self.by_name.entry(name).or_default().add(total.count, total.duration_ns);
        }
        self.inside_ns = self.inside_ns.saturating_add(other.inside_ns);
    }
}

/// The intervals in which a task did not execute.
pub(super) fn elsewhere(phases: &[PhaseInterval]) -> impl Iterator<Item = &PhaseInterval> {
    phases.iter().filter(|phase| &*phase.name != EXECUTE)
}

/// The duration to give where phases are of several tasks, perhaps of such that are counted elsewhere.
pub(super) const OF_SEVERAL: u64 = u64::MAX;

/// How much of a task's duration it did not execute: never more than all.
pub(super) fn inside_ns(phases: &[PhaseInterval], duration_ns: u64) -> u64 {
    let inside = elsewhere(phases).map(|phase| {
        // A sum over many tasks has no start; waiting in a queue ends before a task starts.
        if phase.start_ns == 0 && &*phase.name == QUEUE {
            return 0;
        }
        let start = i128::from(phase.start_ns).max(0);
        let stop = i128::from(phase.start_ns) + i128::from(phase.duration_ns);
        let length = (stop.min(duration_ns.into()) - start).max(0);
        u64::try_from(length).unwrap_or(u64::MAX)
    });
    inside.fold(0u64, u64::saturating_add).min(duration_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_phases_leave_of_a_task_it_executed() {
        let check = |phases: &[(&str, i64, u64)], duration_ns, expected| {
            let phases: Vec<PhaseInterval> = phases
                .iter()
                .map(|(name, start_ns, duration_ns)| PhaseInterval {
                    name: (*name).into(),
                    start_ns: *start_ns,
                    duration_ns: *duration_ns,
                    count: 1,
                })
                .collect();
            assert_eq!(inside_ns(&phases, duration_ns), expected, "{phases:?}");
        };
        check(&[], 9, 0);
        check(&[("transfer", 0, 3), ("serialize", 5, 2)], 9, 5);
        // What was before the start is none of its duration; what lies over an edge is in part.
        check(&[("queue", -4, 4), ("transfer", -2, 3)], 9, 1);
        check(&[("serialize", 8, 5)], 9, 1);
        check(&[("execute", 0, 9), ("transfer", 1, 2)], 9, 2);
        // Of sums over many tasks.
        check(&[("queue", 0, 100), ("transfer", 0, 40)], OF_SEVERAL, 40);
        // Never more than all, whatever is claimed.
        check(&[("a", 0, u64::MAX), ("b", i64::MIN, u64::MAX)], 9, 9);
        check(&[("a", i64::MAX, u64::MAX)], 9, 0);
    }
}
