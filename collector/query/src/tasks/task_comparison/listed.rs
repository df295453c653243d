//! The comparison of two lists of tasks, such as those of two reports, without a collector.

use std::sync::Arc;

use api::{NameComparison, TaskComparisonAnswer};
use profiler_core::{Outcome, TimeRange, Timestamp};

use super::{NameTasks, judged};
use crate::by_name::ByName;
use crate::significance::FALSE_ALARMS;
use crate::tasks::ended_each::EndedGroup;
use base::limits::LEDGER_NAMES_MAX;
use state::ledger::bucket;

/// A task that ended.
#[derive(Clone, Debug)]
pub struct EndedTask {
    /// Its name.
    pub name: Arc<str>,
    /// When it ended.
    pub stop: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub duration_ns: u64,
}

/// The tasks of one side of a comparison.
#[derive(Clone, Debug)]
pub struct EndedTasksOf {
    /// The range; tasks that ended outside of it are ignored.
    pub range: TimeRange,
    /// The tasks, in any order.
    pub tasks: Vec<EndedTask>,
}

impl EndedTasksOf {
    fn each(&self, mut visit: impl FnMut(EndedGroup<'_>)) {
        for task in self
            .tasks
            .iter()
            .filter(|task| self.range.contains(task.stop))
        {
            visit(EndedGroup {
                name: &task.name,
                at: task.stop,
                outcome: task.outcome,
                counts: &[(bucket(task.duration_ns), 1)],
            });
        }
    }
}

/// Compares two lists as `/api/v1/tasks/compare` compares two ranges. The ranges of the answer are empty:
/// the caller knows how they are written.
#[must_use]
pub fn compare_ended_tasks(before: &EndedTasksOf, after: &EndedTasksOf) -> TaskComparisonAnswer {
    let mut names = ByName::<NameTasks>::new(LEDGER_NAMES_MAX);
    loop {
        before.each(|group| names.of(group.name, group.weight_ns()).before.count(&group));
        after.each(|group| names.of(group.name, group.weight_ns()).after.count(&group));
        if !names.choose() {
            break;
        }
    }
    names.names.values_mut().for_each(NameTasks::split);
    before.each(|group| {
        let NameTasks {
            before: side,
            splits,
            ..
        } = names.again(group.name);
        side.count_in_slice(&group, before.range, splits);
    });
    after.each(|group| {
        let NameTasks {
            after: side,
            splits,
            ..
        } = names.again(group.name);
        side.count_in_slice(&group, after.range, splits);
    });
    let (tests, names): (usize, Vec<NameComparison>) = judged(&names);
    TaskComparisonAnswer {
        false_alarms: FALSE_ALARMS,
        tests: tests as u64,
        names,
        ..TaskComparisonAnswer::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second of ten tasks of these names for each of twenty seconds; durations in milliseconds.
    fn side(names: &[(&str, u64)]) -> EndedTasksOf {
        let tasks = names.iter().flat_map(|(name, ms)| {
            let name: Arc<str> = (*name).into();
            (0..200_i64).map(move |at| EndedTask {
                name: name.clone(),
                stop: second(at / 10),
                outcome: if at % 20 == 0 {
                    Outcome::Failed
                } else {
                    Outcome::Ok
                },
                duration_ns: (ms * 1000 + at as u64 % 7) * 1_000,
            })
        });
        EndedTasksOf {
            range: TimeRange::new(second(0), second(20)).unwrap(),
            tasks: tasks.collect(),
        }
    }

    fn second(at: i64) -> Timestamp {
        Timestamp::from_unix_ns(at * 1_000_000_000)
    }

    #[test]
    fn listed_tasks_are_judged_like_those_of_a_collector() {
        let before = side(&[("same", 5), ("slower", 5), ("gone", 1)]);
        let after = side(&[("same", 5), ("slower", 9), ("new", 1)]);
        let answer = compare_ended_tasks(&before, &after);
        let rows = answer.names.iter().map(|row| {
            let ended = [row.before.ended, row.after.ended];
            format!(
                "{} {} {} {ended:?}",
                row.name, row.verdict, row.failures.verdict
            )
        });
        let expected = [
            "slower slower no_change [200, 200]",
            "new only_after too_few [0, 200]",
            "gone only_before too_few [200, 0]",
            "same no_change no_change [200, 200]",
        ];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
        let none = compare_ended_tasks(&side(&[]), &side(&[]));
        assert_eq!((none.tests, none.names.len()), (0, 0));
    }

    #[test]
    fn tasks_that_ended_outside_of_the_range_are_ignored() {
        let mut before = side(&[("load", 5)]);
        before.range = TimeRange::new(before.range.start(), Timestamp::from_unix_ns(1)).unwrap();
        let answer = compare_ended_tasks(&before, &before);
        assert_eq!(answer.names[0].before.ended, 10);
    }
}
