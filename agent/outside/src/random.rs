//! Random moments of ticks and samples. With a fixed distance of both, a program that does its work in the same period would
//! show one phase of it only.

use crate::recording::INTERVAL_NS;

/// Shortest and longest period of samples. A visit is late by half an interval when it changes the period and so starts
/// it again, which is why the mean is less than an interval.
const PERIOD_MIN_NS: u64 = INTERVAL_NS / 10 * 7;
const PERIOD_MAX_NS: u64 = INTERVAL_NS / 10 * 11;

/// Random numbers (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        // Zero would stay zero.
        Random(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number less than `limit`, which is at least 1.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Tosses a fair coin.
    pub(crate) fn toss(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

/// CPU time until the next sample of a running thread.
pub(crate) fn sample_period_ns(random: &mut Random) -> u64 {
    PERIOD_MIN_NS + random.below(PERIOD_MAX_NS - PERIOD_MIN_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_spread_evenly_over_their_interval() {
        const NUMBERS: u64 = 100_000;
        const PARTS: usize = 10;
        let mut random = Random::new(0);
        let mut counts = [0; PARTS];
        for _ in 0..NUMBERS {
            let moment = random.below(INTERVAL_NS);
            counts[(moment * PARTS as u64 / INTERVAL_NS) as usize] += 1;
        }
        let expected = NUMBERS / PARTS as u64;
        assert!(
            counts
                .iter()
                .all(|count| expected.abs_diff(*count) < expected / 20),
            "{counts:?}"
        );
    }

    #[test]
    fn periods_are_random_within_their_bounds() {
        let mut random = Random::new(1);
        let periods: Vec<u64> = (0..1_000).map(|_| sample_period_ns(&mut random)).collect();
        let [shortest, longest] =
            [periods.iter().min(), periods.iter().max()].map(|period| *period.unwrap());
        assert!(shortest >= PERIOD_MIN_NS && longest < PERIOD_MAX_NS);
        assert!(longest - shortest > (PERIOD_MAX_NS - PERIOD_MIN_NS) / 10 * 9);
    }
}
