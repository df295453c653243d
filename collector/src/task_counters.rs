//! Counts of ended tasks by name, for monitoring. The ledger answers queries about ranges of time; these
//! only rise, from the start of the collector.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use profiler_core::{Outcome, TaskRecord, TaskTotals};

use crate::ledger::OutcomeCounts;
use crate::limits::METRIC_TASK_NAMES_MAX;
use crate::sync::lock;

/// The name under which further names are counted.
pub(crate) const OTHER_NAMES: &str = "[other]";

/// Ended tasks of one name.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct EndedTasks {
    pub(crate) outcomes: OutcomeCounts,
    /// Sum of their durations.
    pub(crate) duration_ns: u64,
}

/// Ended tasks since the start. At most [`METRIC_TASK_NAMES_MAX`] names have counts of their own.
#[derive(Debug, Default)]
pub(crate) struct TaskCounters(Mutex<BTreeMap<Arc<str>, EndedTasks>>);

impl TaskCounters {
    /// Counts a task if it has ended.
    pub(crate) fn count(&self, task: &TaskRecord) {
        if let Some(stop) = task.stop {
            let duration_ns = stop.unix_ns().saturating_sub(task.start.unix_ns());
            let duration_ns = u64::try_from(duration_ns).unwrap_or(0);
            self.add(&task.name, task.outcome, 1, duration_ns);
        }
    }

    /// Counts tasks that an agent summed up.
    pub(crate) fn count_sum(&self, totals: &TaskTotals) {
        self.add(&totals.name, totals.outcome, totals.count(), totals.duration_ns);
    }

    fn add(&self, name: &Arc<str>, outcome: Outcome, count: u64, duration_ns: u64) {
        let mut by_name = lock(&self.0);
        let is_known = by_name.contains_key(name) || by_name.len() < METRIC_TASK_NAMES_MAX;
        let name = if is_known { name.clone() } else { OTHER_NAMES.into() };
        let ended = by_name.entry(name).or_default();
        ended.outcomes.add(outcome, count);
        ended.duration_ns = ended.duration_ns.saturating_add(duration_ns);
    }

    /// All of them.
    pub(crate) fn by_name(&self) -> BTreeMap<Arc<str>, EndedTasks> {
        lock(&self.0).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_past_the_limit_are_counted_together() {
        let counters = TaskCounters::default();
        for index in 0..METRIC_TASK_NAMES_MAX + 3 {
            counters.add(&format!("task-{index}").into(), Outcome::Ok, 1, 10);
        }
        counters.add(&"task-0".into(), Outcome::Failed, 2, 5);
        let by_name = counters.by_name();
        assert_eq!(by_name.len(), METRIC_TASK_NAMES_MAX + 1);
        assert_eq!(by_name[OTHER_NAMES].outcomes.get(Outcome::Ok), 3);
        assert_eq!(by_name["task-0"].outcomes.get(Outcome::Failed), 2);
        assert_eq!(by_name["task-0"].duration_ns, 15);
    }
}
