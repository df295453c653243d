//! Phases of a task.

use profiler_core::PhaseInterval;

/// The phase of a task's time that is in no other phase.
pub const EXECUTE: &str = "execute";

/// The phase that ends when the task starts.
const QUEUE: &str = "queue";

/// The intervals of other phases than [`EXECUTE`].
pub fn outside_execute(phases: &[PhaseInterval]) -> impl Iterator<Item = &PhaseInterval> {
    phases.iter().filter(|phase| &*phase.name != EXECUTE)
}

/// The duration to pass to [`inside_ns`] for sums over several tasks.
pub const OF_SEVERAL: u64 = u64::MAX;

/// Nanoseconds of a task's duration outside of [`EXECUTE`]: at most the duration.
pub fn inside_ns(phases: &[PhaseInterval], duration_ns: u64) -> u64 {
    let inside = outside_execute(phases).map(|phase| {
        // A sum over several tasks has no start, and waiting in the queue ends before the task starts.
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
    fn phases_reduce_the_time_of_execute() {
        check(&[], 9, 0);
        check(&[("transfer", 0, 3), ("serialize", 5, 2)], 9, 5);
        // Time before the start is not part of the duration; an interval across an edge is cut.
        check(&[("queue", -4, 4), ("transfer", -2, 3)], 9, 1);
        check(&[("serialize", 8, 5)], 9, 1);
        check(&[("execute", 0, 9), ("transfer", 1, 2)], 9, 2);
        // Sums over several tasks.
        check(&[("queue", 0, 100), ("transfer", 0, 40)], OF_SEVERAL, 40);
        // At most the duration, whatever the agent reports.
        check(&[("a", 0, u64::MAX), ("b", i64::MIN, u64::MAX)], 9, 9);
        check(&[("a", i64::MAX, u64::MAX)], 9, 0);
    }

    fn check(phases: &[(&str, i64, u64)], duration_ns: u64, expected: u64) {
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
    }
}
