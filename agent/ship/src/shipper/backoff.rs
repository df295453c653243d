//! The delay before the next attempt to reach the collector.

use std::time::Duration;

/// Wait after the first failure: shorter than a cycle, so that a restart costs no detail.
const DELAY_MIN: Duration = Duration::from_millis(100);

/// Longest wait: a collector that is up again is reached within it.
const DELAY_MAX: Duration = Duration::from_secs(10);

/// A stream that lasts this long was no failed attempt: the next delay is the shortest one again.
/// Shorter ones would let a collector that ends each stream make the agent reconnect all the time.
const STEADY_MIN: Duration = Duration::from_secs(10);

/// Delays that double from [`DELAY_MIN`] to [`DELAY_MAX`], each shortened by up to half at random,
/// so that a fleet does not reconnect at the same time.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    random: u64,
}

impl Backoff {
    /// Starts at the shortest delay. Agents with different seeds wait for different times.
    pub(crate) fn new(seed: u64) -> Self {
        Backoff {
            next: DELAY_MIN,
            random: seed,
        }
    }

    /// Returns the delay before the next attempt.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let longest = self.next;
        self.next = (longest * 2).min(DELAY_MAX);
        let share = f64::from(self.random() >> 16) / f64::from(u16::MAX);
        longest - longest.mul_f64(share / 2.0)
    }

    /// Starts again at the shortest delay.
    pub(crate) fn reset(&mut self) {
        self.next = DELAY_MIN;
    }

    /// Starts again at the shortest delay if a stream lasted long enough.
    pub(crate) fn note_stream(&mut self, lasted: Duration) {
        if lasted >= STEADY_MIN {
            self.reset();
        }
    }

    /// Makes the next delay the longest, for a failure that an early retry does not heal.
    pub(crate) fn raise(&mut self) {
        self.next = DELAY_MAX;
    }

    /// Makes the next delay at least about `delay`, as the collector requested, but never longer
    /// than the longest one.
    pub(crate) fn wait_at_least(&mut self, delay: Duration) {
        // Half of a delay may be taken off.
        self.next = self.next.max(delay.saturating_mul(2)).min(DELAY_MAX);
    }

    /// The high half of SplitMix64, which is good enough to spread a fleet and needs no dependency.
    fn random(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let half_mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (half_mixed ^ (half_mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_limit_and_are_at_most_halved() {
        let mut backoff = Backoff::new(7);
        for longest_ms in [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000] {
            let longest = Duration::from_millis(longest_ms);
            let delay = backoff.next_delay();
            assert!(
                longest / 2 <= delay && delay <= longest,
                "{delay:?} of {longest:?}"
            );
        }
        backoff.reset();
        assert!(backoff.next_delay() <= DELAY_MIN);
        backoff.raise();
        assert!(backoff.next_delay() >= DELAY_MAX / 2);
    }

    #[test]
    fn the_collector_may_ask_for_a_longer_delay() {
        let mut backoff = Backoff::new(7);
        backoff.wait_at_least(Duration::from_secs(3));
        let delay = backoff.next_delay();
        assert!((3..=6).contains(&delay.as_secs()), "{delay:?}");
        backoff.wait_at_least(Duration::MAX);
        assert!(backoff.next_delay() <= DELAY_MAX);
    }

    #[test]
    fn seeds_have_different_delays() {
        let distinct: std::collections::BTreeSet<_> = (0..100)
            .map(|seed| Backoff::new(seed).next_delay())
            .collect();
        assert!(
            distinct.len() > 90,
            "only {} distinct delays of 100",
            distinct.len()
        );
    }
}
