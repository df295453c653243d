//! Estimates the offset of the collector's clock from the agent's, from exchanges of four times.

use std::collections::VecDeque;

use profiler_core::Timestamp;

/// Most exchanges to remember, about a minute at one per second. Older ones have lost their value to drift.
const EXCHANGES_MAX: usize = 64;

/// Largest assumed drift between the two clocks, in parts per million: crystals are accurate to 100, and
/// there are two. So an exchange is worth as much as one that is 0.4 ms slower and a second newer.
/// Clocks that drift faster are detected like clocks that were set.
const DRIFT_PPM_MAX: u64 = 200;

/// Returns by how much the two clocks may drift apart in `elapsed_ns`.
fn drift_ns(elapsed_ns: u64) -> u64 {
    elapsed_ns.saturating_mul(DRIFT_PPM_MAX).div_ceil(1_000_000)
}

/// A message and its answer.
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

/// Collector's clock - agent's clock: within `error_ns` of `offset_ns`, unless a clock was set since
/// the newest exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offset {
    pub(crate) offset_ns: i64,
    pub(crate) error_ns: u64,
}

impl Offset {
    /// Returns the bounds that one exchange proves: neither way took negative time, so the offset is between
    /// `answered - returned` and `received - sent`. Drift while the collector worked can reverse them by
    /// a little, if both ways were quick; then their middle is within the drift of both. `None` if they
    /// are reversed by more, which happens only when a clock was set during the exchange.
    fn of(exchange: Exchange) -> Option<Offset> {
        let Exchange {
            sent,
            received,
            answered,
            returned,
        } = exchange;
        let nanoseconds = |time: Timestamp| i128::from(time.unix_ns());
        let least = nanoseconds(answered) - nanoseconds(returned);
        let most = nanoseconds(received) - nanoseconds(sent);
        let possible_drift = i128::from(drift_ns(returned.since_ns(sent)));
        if least > most + possible_drift || answered < received {
            return None;
        }
        let middle = (least + most).div_euclid(2);
        Some(Offset {
            offset_ns: i64::try_from(middle).ok()?,
            error_ns: u64::try_from((most - middle).max(0)).ok()?,
        })
    }

    /// Whether both can be true of the same two clocks.
    fn agrees_with(self, other: Offset) -> bool {
        self.offset_ns.abs_diff(other.offset_ns) <= self.error_ns.saturating_add(other.error_ns)
    }
}

/// The bounds from an exchange, and when it started.
#[derive(Clone, Copy, Debug)]
struct Measured {
    offset: Offset,
    at: Timestamp,
}

impl Measured {
    /// Returns the bounds at `now`, widened by the possible drift.
    fn by(self, now: Timestamp) -> Offset {
        let drift_ns = drift_ns(now.since_ns(self.at));
        Offset {
            error_ns: self.offset.error_ns.saturating_add(drift_ns),
            ..self.offset
        }
    }
}

/// Estimates from the last exchanges: the one with the tightest bounds at present wins.
#[derive(Debug, Default)]
pub(crate) struct OffsetEstimator {
    /// Oldest first.
    recent: VecDeque<Measured>,
    corrections: Corrections,
}

impl OffsetEstimator {
    /// Adds an exchange. Contradictory ones are ignored.
    pub(crate) fn add(&mut self, exchange: Exchange) {
        let Some(newest) = Offset::of(exchange) else {
            return;
        };
        let now = exchange.returned;
        // Exchanges that contradict the newest one are from before a clock was set or drifted away, or
        // from another collector. They could win by a short round trip, and would be wrong.
        self.recent
            .retain(|earlier| earlier.by(now).agrees_with(newest));
        if self.recent.len() == EXCHANGES_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Measured {
            offset: newest,
            at: exchange.sent,
        });
    }

    /// Returns the estimate at `now`, the newest of equally good ones; `None` before the first exchange.
    pub(crate) fn best(&self, now: Timestamp) -> Option<Offset> {
        let by_now = self.recent.iter().rev().map(|measured| measured.by(now));
        by_now.min_by_key(|offset| offset.error_ns)
    }

    /// Returns the offset to send at `now`; `None` before the first exchange. It changes only when
    /// the estimate differs by more than half of its error.
    pub(crate) fn current(&mut self, now: Timestamp) -> Option<Offset> {
        let best = self.best(now)?;
        let offset_ns = self.corrections.update(best, now);
        let due_ns = self
            .corrections
            .corrected(now)
            .unix_ns()
            .abs_diff(now.unix_ns());
        let error_ns = best
            .error_ns
            .saturating_add(best.offset_ns.abs_diff(offset_ns));
        Some(Offset {
            offset_ns,
            error_ns: error_ns.saturating_add(due_ns),
        })
    }

    /// Returns the time to send for the time `at` of the agent's clock: with the current offset it
    /// is the time of the collector's clock by the offset that counted at that time.
    pub(crate) fn corrected(&self, at: Timestamp) -> Timestamp {
        self.corrections.corrected(at)
    }
}

/// Every offset that was used, so that times that are sent with different offsets keep their order:
/// maps the agent's clock to the collector's continuously and strictly rising. A
/// correction is spread by [`SLEW_PPM`], so that it changes the length of a task by no more than the
/// clocks may drift.
#[derive(Debug, Default)]
struct Corrections {
    /// Oldest first.
    recent: VecDeque<Correction>,
}

/// Most corrections to remember. A task that began before the oldest one is off by their sum at
/// most.
const CORRECTIONS_MAX: usize = 64;

/// A larger correction means that a clock was set: it applies at once and to all times, so that the
/// length of no task changes by it.
const CORRECTION_NS_MAX: u64 = 1_000_000_000;

/// The part by which the mapped clock runs faster or slower while a correction is due, in parts per
/// million: 7 ms take 35 s.
const SLEW_PPM: i128 = DRIFT_PPM_MAX as i128;

/// The longest time over which a correction is spread. Those of more than 12 ms run faster than
/// [`SLEW_PPM`].
const SLEW_NS_MAX: i128 = 60_000_000_000;

/// Largest part by which the mapped clock runs faster or slower, even if corrections add up.
const SLEW_PART: i64 = 4;

/// An offset, and when its use began.
#[derive(Clone, Copy, Debug)]
struct Correction {
    /// By the agent's clock.
    since: i64,
    /// The same moment by the collector's clock, as mapped.
    mapped: i64,
    offset_ns: i64,
}

impl Correction {
    /// Maps a time of the agent's clock.
    fn map(self, at: i64) -> i64 {
        let since_ns = at.saturating_sub(self.since);
        if since_ns <= 0 {
            return self.mapped.saturating_add(since_ns);
        }
        let due_ns = i128::from(self.since) + i128::from(self.offset_ns) - i128::from(self.mapped);
        let slew_ns = (due_ns.abs() * 1_000_000 / SLEW_PPM).clamp(1, SLEW_NS_MAX);
        let part_ns = due_ns * i128::from(since_ns).min(slew_ns) / slew_ns;
        let limit_ns = i128::from(since_ns / SLEW_PART);
        let slewed_ns = part_ns.clamp(-limit_ns, limit_ns) as i64;
        self.mapped
            .saturating_add(since_ns)
            .saturating_add(slewed_ns)
    }
}

impl Corrections {
    /// Uses the offset of `best` from `now` on, if it differs by more than half of its error.
    /// Returns the offset that is used.
    ///
    /// The first one is zero unless `best` rules that out. Most clocks are synchronized, and the first exchange
    /// is often slow in one direction, because programs start: its middle can be off by half of its length.
    fn update(&mut self, best: Offset, now: Timestamp) -> i64 {
        let now = now.unix_ns();
        let Offset {
            mut offset_ns,
            error_ns,
        } = best;
        if self.recent.is_empty() && offset_ns.unsigned_abs() <= error_ns {
            offset_ns = 0;
        }
        let mut mapped = now.saturating_add(offset_ns);
        if let Some(last) = self.recent.back() {
            let changed_ns = last.offset_ns.abs_diff(offset_ns);
            if changed_ns <= error_ns / 2 {
                return last.offset_ns;
            }
            if changed_ns > CORRECTION_NS_MAX {
                self.recent.clear();
            } else {
                mapped = last.map(now);
            }
        }
        if self.recent.len() == CORRECTIONS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Correction {
            since: now,
            mapped,
            offset_ns,
        });
        offset_ns
    }

    fn corrected(&self, at: Timestamp) -> Timestamp {
        let Some(last) = self.recent.back() else {
            return at;
        };
        let at_ns = at.unix_ns();
        let counts = self
            .recent
            .iter()
            .rev()
            .find(|correction| correction.since <= at_ns);
        let mapped = counts
            .or(self.recent.front())
            .map_or(at_ns, |it| it.map(at_ns));
        Timestamp::from_unix_ns(mapped.saturating_sub(last.offset_ns))
    }
}

#[cfg(test)]
mod tests {
    //! Compares the estimates with the known offset of a simulated pair of clocks.

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

    /// Checks the estimate after the last exchange has returned.
    fn check(exchanges: impl IntoIterator<Item = Exchange>, expected: Option<(i64, u64)>) {
        let mut estimator = OffsetEstimator::default();
        let mut now = Timestamp::MIN;
        for exchange in exchanges {
            estimator.add(exchange);
            now = exchange.returned;
        }
        let best = estimator
            .best(now)
            .map(|best| (best.offset_ns, best.error_ns));
        assert_eq!(best, expected);
    }

    #[test]
    fn symmetric_delays_yield_the_exact_offset() {
        for offset in [0, 6 * HOUR, -6 * HOUR, 1, -1] {
            check(
                [exchange(5, offset, [MS, 40 * MS, MS])],
                Some((offset, 1_008_400)),
            );
        }
        check([exchange(5, 7, [0, 0, 0])], Some((7, 0)));
        check([], None);
    }

    #[test]
    fn asymmetric_delays_shift_the_estimate_by_half_the_difference() {
        check(
            [exchange(5, 6 * HOUR, [3 * MS, 0, MS])],
            Some((6 * HOUR + MS, 2_000_800)),
        );
        check(
            [exchange(5, -6 * HOUR, [0, 0, 3])],
            Some((-6 * HOUR - 2, 3)),
        );
    }

    /// All at one moment, without drift.
    #[test]
    fn the_quickest_of_the_last_64_wins() {
        let quick = exchange(0, 100, [10, 0, 10]);
        let slow = exchange(-80, 100, [90, 0, 10]);
        check([slow, quick, slow], Some((100, 11)));
        let with = |slow_ones| std::iter::once(quick).chain(std::iter::repeat_n(slow, slow_ones));
        check(with(63), Some((100, 11)));
        check(with(64), Some((140, 51)));
    }

    /// 200 millionths: 0.2 ms for each second.
    #[test]
    fn the_value_of_an_exchange_decays() {
        let quick = exchange(0, 100, [MS, 0, 0]);
        let slow = |second: i64| exchange(second * 1_000 * MS, 100, [4 * MS, 0, 0]);
        let mut estimator = OffsetEstimator::default();
        estimator.add(quick);
        for second in 1..9 {
            estimator.add(slow(second));
        }
        let best_at = |second: i64| {
            let now = Timestamp::from_unix_ns(second * 1_000 * MS + 4 * MS);
            estimator
                .best(now)
                .map(|best| (best.offset_ns, best.error_ns))
        };
        let by_quick = |error_ns: u64| Some((MS / 2 + 100, error_ns));
        assert_eq!(best_at(0), by_quick(500_800));
        assert_eq!(best_at(7), by_quick(1_900_800));
        let by_slow = |error_ns: u64| Some((2 * MS + 100, error_ns));
        assert_eq!(best_at(8), by_slow(2_000_800));
        assert_eq!(best_at(18), by_slow(4_000_800));
    }

    #[test]
    fn a_clock_that_was_set_is_followed_immediately() {
        let before = exchange(0, 100, [1, 0, 1]);
        let after = exchange(9, 6 * HOUR, [50, 0, 50]);
        check([before, after], Some((6 * HOUR, 51)));
    }

    #[test]
    fn contradictory_exchanges_are_ignored() {
        let good = exchange(0, 100, [1, 0, 1]);
        let clock_set_back = Exchange {
            returned: Timestamp::from_unix_ns(-50),
            ..good
        };
        let answered_before = Exchange {
            answered: Timestamp::from_unix_ns(-50),
            ..good
        };
        let extremes = Exchange {
            sent: Timestamp::MIN,
            received: Timestamp::MAX,
            answered: Timestamp::MAX,
            returned: Timestamp::MIN,
        };
        for bad in [clock_set_back, answered_before, extremes] {
            check([bad], None);
        }
        check([good, clock_set_back, good], Some((100, 2)));
    }

    /// 60 ms of work and 200 parts per million: the collector's clock counts 12 us more than the agent's.
    #[test]
    fn an_exchange_that_is_quicker_than_the_drift_counts() {
        for drift_ppm in [-200, 200] {
            let mut simulated = Simulated::new(HOUR, drift_ppm);
            simulated.exchange([0, 60 * MS, 0]);
            let (best, truth) = simulated.best_and_truth(0);
            assert!(
                best.offset_ns.abs_diff(truth) <= best.error_ns,
                "{best:?}, not {truth}"
            );
        }
    }

    /// Two clocks and one exchange a second, with nothing lost.
    struct Simulated {
        estimator: OffsetEstimator,
        /// By the agent's clock.
        now: i64,
        offset: i64,
        drift_ppm: i64,
    }

    impl Simulated {
        fn new(offset: i64, drift_ppm: i64) -> Simulated {
            Simulated {
                estimator: OffsetEstimator::default(),
                now: 0,
                offset,
                drift_ppm,
            }
        }

        /// The collector's clock - the agent's.
        fn truth(&self, at: i64) -> i64 {
            self.offset + (at * self.drift_ppm).div_euclid(1_000_000)
        }

        /// The collector's clock is set, which is as if the agent's were.
        fn step(&mut self, by: i64) {
            self.offset += by;
        }

        fn exchange(&mut self, [there, work, back]: [i64; 3]) {
            let at = Timestamp::from_unix_ns;
            let sent = self.now;
            let received = self.now + there;
            let answered = received + work;
            let returned = received + work + back;
            self.estimator.add(Exchange {
                sent: at(sent),
                received: at(received + self.truth(received)),
                answered: at(answered + self.truth(answered)),
                returned: at(returned),
            });
            self.now = returned.max(self.now + 1_000 * MS);
        }

        /// So long after the last exchange.
        fn best_and_truth(&self, later: i64) -> (Offset, i64) {
            let now = self.now + later;
            (
                self.estimator.best(Timestamp::from_unix_ns(now)).unwrap(),
                self.truth(now),
            )
        }
    }

    #[test]
    fn an_offset_stays_while_it_is_as_likely_as_the_estimate() {
        let mut corrections = Corrections::default();
        let mut update = |offset_ns, error_ns, now| {
            corrections.update(
                Offset {
                    offset_ns,
                    error_ns,
                },
                Timestamp::from_unix_ns(now),
            )
        };
        assert_eq!(update(100, 50, 0), 100);
        assert_eq!(update(140, 80, 1_000), 100);
        assert_eq!(update(140, 79, 2_000), 140);
        assert_eq!(update(-HOUR, 5, 3_000), -HOUR);
    }

    #[test]
    fn the_first_offset_is_zero_unless_the_exchange_rules_that_out() {
        let first = |[there, back]: [i64; 2], offset| {
            let mut estimator = OffsetEstimator::default();
            let exchange = exchange(0, offset, [there, 0, back]);
            estimator.add(exchange);
            estimator.current(exchange.returned).unwrap()
        };
        let slow = first([90 * MS, MS], 0);
        assert_eq!(slow.offset_ns, 0);
        assert!(slow.error_ns >= 90 * MS as u64, "{slow:?}");
        assert_eq!(first([MS, 90 * MS], 2 * MS).offset_ns, 0);
        assert_eq!(first([90 * MS, MS], 100 * MS).offset_ns, 144_500_000);
        assert_eq!(first([MS, MS], -2 * MS).offset_ns, -2 * MS);
    }

    #[test]
    fn a_correction_is_gradual_and_a_set_clock_is_followed_at_once() {
        let mut corrections = Corrections::default();
        let at = Timestamp::from_unix_ns;
        let offset = |offset_ns| Offset {
            offset_ns,
            error_ns: 0,
        };
        corrections.update(offset(5 * MS), at(0));
        corrections.update(offset(MS), at(100 * MS));
        let mapped = |time: i64| corrections.corrected(at(time)).unix_ns() + MS;
        assert_eq!(mapped(-MS), 4 * MS, "before the correction");
        assert_eq!(mapped(100 * MS), 105 * MS);
        assert_eq!(mapped(5_100 * MS), 5_104 * MS, "a quarter of the way");
        assert_eq!(mapped(20_100 * MS), 20_101 * MS, "it has caught up");
        assert_eq!(mapped(25_000 * MS), 25_001 * MS);
        corrections.update(offset(HOUR), at(30_000 * MS));
        assert_eq!(corrections.corrected(at(0)), at(0));
        assert_eq!(corrections.corrected(at(30_000 * MS)), at(30_000 * MS));
    }

    /// How far a clock is set: by more than a slow exchange leaves open.
    fn far() -> impl Strategy<Value = i64> {
        prop_oneof![1_000 * MS..10 * HOUR, -10 * HOUR..-1_000 * MS]
    }

    proptest! {
        /// However the clocks drift, as long as they do so no faster than they may.
        #[test]
        fn the_true_offset_is_within_the_error(
            offset in -6 * HOUR..6 * HOUR,
            drift_ppm in -200..=200i64,
            ways in prop::collection::vec([0..50 * MS, 0..50 * MS, 0..50 * MS], 1..200),
            later in 0..3_600i64,
        ) {
            let mut simulated = Simulated::new(offset, drift_ppm);
            for way in ways {
                simulated.exchange(way);
                let (best, truth) = simulated.best_and_truth(later * 1_000 * MS);
                prop_assert!(best.offset_ns.abs_diff(truth) <= best.error_ns);
            }
        }

        /// However the estimates change, by no more than a clock that was not set: a later time is
        /// later, and no length changes by more than a quarter.
        #[test]
        fn corrections_keep_order_and_nearly_keep_lengths(
            start in -HOUR..HOUR,
            flushes in prop::collection::vec(
                (1..2_000 * MS, -400 * MS..400 * MS, 0..MS as u64, prop::collection::vec(0..3_000 * MS, 1..6)),
                1..CORRECTIONS_MAX,
            ),
        ) {
            let mut corrections = Corrections::default();
            let mut sent: Vec<(i64, i64)> = Vec::new();
            let mut now = start;
            for (passed, offset_ns, error_ns, ages) in flushes {
                now += passed;
                let best = Offset { offset_ns, error_ns };
                let current = corrections.update(best, Timestamp::from_unix_ns(now));
                for age in ages {
                    let at = Timestamp::from_unix_ns((now - age).max(start));
                    let mapped = corrections.corrected(at).unix_ns() + current;
                    sent.push((at.unix_ns(), mapped));
                }
            }
            sent.sort_unstable();
            for pair in sent.windows(2) {
                let real_ns = pair[1].0 - pair[0].0;
                let mapped_ns = pair[1].1 - pair[0].1;
                let slack_ns = real_ns / SLEW_PART + 1;
                prop_assert!((mapped_ns - real_ns).abs() <= slack_ns, "{pair:?}");
            }
        }

        /// One correction changes a length by no more than clocks may drift, or by its share of the
        /// longest time over which it is spread. It is complete after that time.
        #[test]
        fn a_correction_is_spread(
            by_ns in -1_000 * MS..1_000 * MS,
            start_ns in 0..120_000 * MS,
            length_ns in 0..60_000 * MS,
        ) {
            let mut corrections = Corrections::default();
            let before = Offset { offset_ns: 0, error_ns: 0 };
            corrections.update(before, Timestamp::from_unix_ns(-HOUR));
            let after = Offset { offset_ns: by_ns, error_ns: 0 };
            corrections.update(after, Timestamp::from_unix_ns(0));
            let map = |at_ns| corrections.corrected(Timestamp::from_unix_ns(at_ns)).unix_ns() + by_ns;
            let change_ns = map(start_ns + length_ns) - map(start_ns) - length_ns;
            let drift_ns = length_ns / 5_000;
            let share_ns = i128::from(by_ns.abs()) * i128::from(length_ns) / SLEW_NS_MAX;
            let most_ns = share_ns.max(i128::from(drift_ns)) + 1;
            prop_assert!(i128::from(change_ns.abs()) <= most_ns, "{change_ns} of {most_ns}");
            prop_assert_eq!(map(60_000 * MS), 60_000 * MS + by_ns);
        }

        /// Whichever clock was set, and however far: after one whole exchange since.
        #[test]
        fn a_set_clock_and_drift_leave_less_than_5_ms(
            offset in prop::sample::select(vec![10_000 * MS, -10_000 * MS, 6 * HOUR, -6 * HOUR]),
            drift_ppm in -200..=200i64,
            steps in prop::collection::vec((0..80usize, far()), 0..4),
            ways in prop::collection::vec([0..60 * MS, 0..60 * MS, 0..60 * MS], 40..90),
        ) {
            let mut simulated = Simulated::new(offset, drift_ppm);
            for (index, way) in ways.into_iter().enumerate() {
                for (_, by) in steps.iter().filter(|(at, _)| *at == index) {
                    simulated.step(*by);
                }
                // One exchange in ten is quick, as on a link that is not always full.
                let quick = [way[0] / 60, way[1], way[2] / 60];
                simulated.exchange(if index % 10 == 0 { quick } else { way });
                let (best, truth) = simulated.best_and_truth(0);
                let residual = best.offset_ns.abs_diff(truth);
                prop_assert!(residual <= best.error_ns);
                let stepped = steps.iter().any(|(at, _)| *at / 10 == index / 10);
                prop_assert!(stepped || residual < 5 * MS as u64, "{residual} ns at {index}");
            }
        }
    }
}
