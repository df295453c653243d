//! Counts of ended tasks by name, for monitoring. The ledger answers queries about ranges of time; these
//! only rise, from the start of the collector.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::hash::KeyedMap;
use profiler_core::{Outcome, TaskRecord, TaskTotals};

use crate::ledger::OutcomeCounts;
use base::limits::{ADDED_PER_FREE, METRIC_TASK_NAMES_MAX};
use base::sync::{Mutex, lock, rank};
use shares::identity::Identity;

/// The name under which further names are counted.
pub const OTHER_NAMES: &str = "[other]";

/// Ended tasks of one name.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EndedTasks {
    pub outcomes: OutcomeCounts,
    /// Sum of their durations.
    pub duration_ns: u64,
}

/// Ended tasks since the start. At most [`METRIC_TASK_NAMES_MAX`] names have counts of their own. They are
/// counters, so none is ever removed; instead an identity adds at most three times the names that are
/// left for others.
#[derive(Debug, Default)]
pub struct TaskCounters(Mutex<Counted, rank::TaskCounters>);

#[derive(Debug, Default)]
struct Counted {
    by_name: BTreeMap<Arc<str>, EndedTasks>,
    /// Number of names that each identity was the first to send; `None` stands for unknown ones.
    added: KeyedMap<Option<Identity>, usize>,
}

impl TaskCounters {
    /// Counts a task if it has ended.
    pub fn count(&self, task: &TaskRecord, sender: Option<&Identity>) {
        if let Some(stop) = task.stop {
            let duration_ns = stop.unix_ns().saturating_sub(task.start.unix_ns());
            let duration_ns = u64::try_from(duration_ns).unwrap_or(0);
            let ended = EndedTasks::of(task.outcome, 1, duration_ns);
            self.add(&task.name, &ended, sender);
        }
    }

    /// Counts tasks that an agent summed up.
    pub fn count_sum(&self, totals: &TaskTotals, sender: Option<&Identity>) {
        let ended = EndedTasks::of(totals.outcome, totals.count(), totals.duration_ns);
        self.add(&totals.name, &ended, sender);
    }

    fn add(&self, name: &Arc<str>, ended: &EndedTasks, sender: Option<&Identity>) {
        let mut counted = lock(&self.0);
        let Counted { by_name, added } = &mut *counted;
        let is_known = by_name.contains_key(name) || may_add(by_name, added, sender);
        let name = if is_known {
            name.clone()
        } else {
            OTHER_NAMES.into()
        };
        let known = by_name.entry(name).or_default();
        Outcome::ALL
            .into_iter()
            .for_each(|one| known.outcomes.add(one, ended.outcomes.get(one)));
        known.duration_ns = known.duration_ns.saturating_add(ended.duration_ns);
    }

    /// All of them.
    pub fn by_name(&self) -> BTreeMap<Arc<str>, EndedTasks> {
        lock(&self.0).by_name.clone()
    }
}

impl EndedTasks {
    fn of(outcome: Outcome, count: u64, duration_ns: u64) -> EndedTasks {
        let mut outcomes = OutcomeCounts::default();
        outcomes.add(outcome, count);
        EndedTasks {
            outcomes,
            duration_ns,
        }
    }
}

/// Whether an identity may add a name, which is counted then.
fn may_add(
    by_name: &BTreeMap<Arc<str>, EndedTasks>,
    added: &mut KeyedMap<Option<Identity>, usize>,
    sender: Option<&Identity>,
) -> bool {
    let own_names = by_name.len() - usize::from(by_name.contains_key(OTHER_NAMES));
    let free = METRIC_TASK_NAMES_MAX.saturating_sub(own_names);
    let own = added.get(&sender.cloned()).copied().unwrap_or_default();
    let may_add = own < ADDED_PER_FREE * free;
    if may_add {
        added.insert(sender.cloned(), own + 1);
    }
    may_add
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_past_the_limit_are_counted_together_and_leave_room_for_others() {
        let counters = TaskCounters::default();
        let [greedy, honest] = [1, 2].map(Identity::User);
        let sent = METRIC_TASK_NAMES_MAX + 3;
        for index in 0..sent {
            counters.add(&format!("task-{index}").into(), &one(10), Some(&greedy));
        }
        counters.add(
            &"task-0".into(),
            &EndedTasks::of(Outcome::Failed, 2, 5),
            Some(&honest),
        );
        counters.add(&"honest".into(), &one(7), Some(&honest));
        let by_name = counters.by_name();
        let added = METRIC_TASK_NAMES_MAX * ADDED_PER_FREE / (ADDED_PER_FREE + 1);
        assert_eq!(by_name.len(), added + 2);
        assert_eq!(
            by_name[OTHER_NAMES].outcomes.get(Outcome::Ok),
            (sent - added) as u64
        );
        assert_eq!(by_name["task-0"].outcomes.get(Outcome::Failed), 2);
        assert_eq!(by_name["task-0"].duration_ns, 15);
        assert_eq!(by_name["honest"], one(7));
    }

    fn one(duration_ns: u64) -> EndedTasks {
        EndedTasks::of(Outcome::Ok, 1, duration_ns)
    }
}
