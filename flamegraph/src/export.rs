//! Metadata of exports: facts about a profile beyond its nodes.

use profiler_core::TimeRange;

/// Time between two ticks where it is unknown: the agent's default.
const INTERVAL_DEFAULT_NS: u64 = 10_000_000;

/// Facts about a profile that its nodes do not have. Exports without room for one omit it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExportOptions {
    /// The title: the shown part of the profile, such as the tasks.
    pub title: String,
    /// The range, the workers and the achieved rate, in words.
    pub subtitle: Option<String>,
    /// The range that was summed.
    pub range: Option<TimeRange>,
    /// Mean time between two samples of a thread; 0 if unknown.
    pub interval_ns: u64,
    /// Kind of the level above the tasks, such as `worker`, in a grouped profile.
    pub group: Option<String>,
    /// The worker, if the profile is of one alone.
    pub worker: Option<String>,
}

impl ExportOptions {
    pub(crate) fn interval_ns(&self) -> u64 {
        if self.interval_ns == 0 {
            INTERVAL_DEFAULT_NS
        } else {
            self.interval_ns
        }
    }
}

/// Counts the ticks of weights, which are stored as time. The remainder of each weight is carried to
/// the next one, so that the counts sum to the ticks of the whole.
#[derive(Debug)]
pub(crate) struct TickCounter {
    interval_ns: u64,
    remainder_ns: u64,
}

impl TickCounter {
    pub(crate) fn new(options: &ExportOptions) -> TickCounter {
        TickCounter {
            interval_ns: options.interval_ns(),
            remainder_ns: 0,
        }
    }

    pub(crate) fn count(&mut self, weight_ns: u64) -> u64 {
        let ticks = weight_ns / self.interval_ns;
        // Two remainders are less than two intervals, but an interval may be as large as any weight.
        let rest = u128::from(self.remainder_ns) + u128::from(weight_ns % self.interval_ns);
        let interval = u128::from(self.interval_ns);
        let carried = u64::from(rest >= interval);
        self.remainder_ns = u64::try_from(rest % interval).expect("less than the interval");
        ticks + carried
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_ticks_sum_to_the_ticks_of_the_whole() {
        let options = ExportOptions {
            interval_ns: 10,
            ..ExportOptions::default()
        };
        let mut ticks = TickCounter::new(&options);
        let counts = [4, 4, 4, 0, 25, 3].map(|weight| ticks.count(weight));
        assert_eq!(counts, [0, 0, 1, 0, 2, 1]);
        let mut ticks = TickCounter::new(&ExportOptions {
            interval_ns: u64::MAX,
            ..options
        });
        assert_eq!(
            [ticks.count(u64::MAX - 1), ticks.count(u64::MAX - 1)],
            [0, 1]
        );
    }
}
