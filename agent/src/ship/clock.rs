//! How far the collector's clock is from the agent's, from exchanges of four times.

use std::collections::VecDeque;

use profiler_core::Timestamp;

/// Exchanges that are remembered. At one a second that is about a minute: long enough to hold a
/// quick one, short enough that drift stays small.
const EXCHANGES_MAX: usize = 64;

/// One message and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// When the agent sent the message, by the agent's clock.
    pub(crate) sent: Timestamp,
    /// When the collector received it, by the collector's clock.
    pub(crate) received: Timestamp,
    /// When the collector answered, by the collector's clock.
    pub(crate) answered: Timestamp,
    /// When the answer reached the agent, by the agent's clock.
    pub(crate) returned: Timestamp,
}

/// Collector's clock - agent's clock: within `error_ns` of `offset_ns`, as long as no clock was
/// set in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offset {
    pub(crate) offset_ns: i64,
    pub(crate) error_ns: u64,
}

impl Offset {
    /// What one exchange proves: neither way took less than no time, so the offset lies between
    /// `answered - returned` and `received - sent`. `None` if these are reversed, which happens
    /// only when a clock was set during the exchange.
    fn of(exchange: Exchange) -> Option<Offset> {
        let Exchange { sent, received, answered, returned } = exchange;
        let nanoseconds = |time: Timestamp| i128::from(time.unix_ns());
        let least = nanoseconds(answered) - nanoseconds(returned);
        let most = nanoseconds(received) - nanoseconds(sent);
        if least > most || answered < received {
            return None;
        }
        let middle = (least + most).div_euclid(2);
        Some(Offset {
            offset_ns: i64::try_from(middle).ok()?,
            error_ns: u64::try_from(most - middle).ok()?,
        })
    }

    /// Whether both can be true of the same two clocks.
    fn agrees_with(self, other: Offset) -> bool {
        self.offset_ns.abs_diff(other.offset_ns) <= self.error_ns.saturating_add(other.error_ns)
    }
}

/// The estimate over the last exchanges: the quickest of them wins, for a slow one says little.
#[derive(Debug, Default)]
pub(crate) struct OffsetEstimator {
    /// Oldest first.
    recent: VecDeque<Offset>,
}

impl OffsetEstimator {
    /// Takes in an exchange. One that cannot be is left out.
    pub(crate) fn add(&mut self, exchange: Exchange) {
        let Some(newest) = Offset::of(exchange) else {
            return;
        };
        // What contradicts the newest exchange is from before a clock was set or drifted away, or
        // from another collector: it would win for its short round trip, and be wrong.
        self.recent.retain(|offset| offset.agrees_with(newest));
        if self.recent.len() == EXCHANGES_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(newest);
    }

    /// The estimate, or `None` before the first exchange. Of equally good ones the newest.
    pub(crate) fn best(&self) -> Option<Offset> {
        self.recent.iter().rev().min_by_key(|offset| offset.error_ns).copied()
    }
}

#[cfg(test)]
mod tests {
    //! A simulated pair of clocks with known offset; what the estimator says is held against it.

    use proptest::prelude::*;

    use super::*;

    const MS: i64 = 1_000_000;
    const HOUR: i64 = 3_600_000 * MS;

    /// An exchange that starts at `sent` by the agent's clock, with the true `offset`.
    fn exchange(sent: i64, offset: i64, [there, work, back]: [i64; 3]) -> Exchange {
        let at = Timestamp::from_unix_ns;
        Exchange {
            sent: at(sent),
            received: at(sent + there + offset),
            answered: at(sent + there + work + offset),
            returned: at(sent + there + work + back),
        }
    }

    fn check(exchanges: impl IntoIterator<Item = Exchange>, expected: Option<(i64, u64)>) {
        let mut estimator = OffsetEstimator::default();
        exchanges.into_iter().for_each(|exchange| estimator.add(exchange));
        let best = estimator.best().map(|best| (best.offset_ns, best.error_ns));
        assert_eq!(best, expected);
    }

    #[test]
    fn equal_ways_give_the_exact_offset() {
        for offset in [0, 6 * HOUR, -6 * HOUR, 1, -1] {
            check([exchange(5, offset, [MS, 40 * MS, MS])], Some((offset, 1_000_000)));
        }
        check([exchange(5, 7, [0, 0, 0])], Some((7, 0)));
        check([], None);
    }

    #[test]
    fn unequal_ways_shift_the_estimate_by_half_the_difference() {
        check([exchange(5, 6 * HOUR, [3 * MS, 0, MS])], Some((6 * HOUR + MS, 2_000_000)));
        check([exchange(5, -6 * HOUR, [0, 0, 3])], Some((-6 * HOUR - 2, 2)));
    }

    #[test]
    fn the_quickest_of_the_last_64_wins() {
        let quick = || exchange(0, 100, [10, 0, 10]);
        let slow = |sent| exchange(sent, 100, [90, 0, 10]);
        check([slow(1), quick(), slow(2)], Some((100, 10)));
        let up_to_limit = (0..63).map(slow);
        check(std::iter::once(quick()).chain(up_to_limit), Some((100, 10)));
        let past_limit = (0..64).map(slow);
        check(std::iter::once(quick()).chain(past_limit), Some((140, 50)));
    }

    #[test]
    fn a_clock_that_was_set_is_followed_at_once() {
        let before = exchange(0, 100, [1, 0, 1]);
        let after = exchange(9, 6 * HOUR, [50, 0, 50]);
        check([before, after], Some((6 * HOUR, 50)));
    }

    #[test]
    fn exchanges_that_cannot_be_are_left_out() {
        let good = exchange(0, 100, [1, 0, 1]);
        let clock_set_back = Exchange { returned: Timestamp::from_unix_ns(-50), ..good };
        let answered_before = Exchange { answered: Timestamp::from_unix_ns(-50), ..good };
        let extremes = Exchange {
            sent: Timestamp::MIN,
            received: Timestamp::MAX,
            answered: Timestamp::MAX,
            returned: Timestamp::MIN,
        };
        for bad in [clock_set_back, answered_before, extremes] {
            check([bad], None);
        }
        check([good, clock_set_back, good], Some((100, 1)));
    }

    proptest! {
        #[test]
        fn the_true_offset_is_within_the_error(
            offset in -6 * HOUR..6 * HOUR,
            ways in prop::collection::vec([0..50 * MS, 0..50 * MS, 0..50 * MS], 1..200),
        ) {
            let mut estimator = OffsetEstimator::default();
            for (index, way) in (0..).zip(ways) {
                estimator.add(exchange(index * 1_000 * MS, offset, way));
                let best = estimator.best().unwrap();
                prop_assert!(best.offset_ns.abs_diff(offset) <= best.error_ns);
            }
        }

        // With drift an old estimate may be off by more than it claims, but never by more than the
        // newest exchange allows.
        #[test]
        fn drift_is_followed(
            drift_ppm in -200..200i64,
            ways in prop::collection::vec([0..5 * MS, 0..5 * MS, 0..5 * MS], 1..300),
        ) {
            let mut estimator = OffsetEstimator::default();
            for (second, way) in (0..).zip(ways) {
                let offset = 6 * HOUR + second * drift_ppm * 1_000;
                let newest = exchange(second * 1_000 * MS, offset, way);
                estimator.add(newest);
                let best = estimator.best().unwrap();
                let newest_error = Offset::of(newest).unwrap().error_ns;
                let allowed = best.error_ns + 2 * newest_error;
                prop_assert!(best.offset_ns.abs_diff(offset) <= allowed);
            }
        }
    }
}
