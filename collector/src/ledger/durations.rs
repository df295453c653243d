//! Durations of tasks: how many, how long, how spread.

use hdrhistogram::Histogram;

/// Durations of one name that are kept one by one, in 8 KiB. Most names of a program that names its
/// tasks badly have a few each; a histogram from the start would take 100 KiB for each.
const FEW_MAX: usize = 1_024;

/// Digits to which a histogram is exact.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Least, median, 90 %, 99 %, most.
const QUANTILES: [f64; 5] = [0.0, 0.5, 0.9, 0.99, 1.0];

/// A set of durations in nanoseconds: exact up to 1,024 of them, then to three digits. Count and
/// sum are always exact.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    count: u64,
    total_ns: u128,
    values: Values,
}

#[derive(Clone, Debug)]
enum Values {
    Few(Vec<u64>),
    Many(Box<Histogram<u64>>),
}

impl Default for Values {
    fn default() -> Self {
        Values::Few(Vec::new())
    }
}

/// How durations are spread, in nanoseconds. Percentiles are by nearest rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spread {
    /// How many.
    pub count: u64,
    /// The shortest.
    pub min_ns: u64,
    /// Half are at most this.
    pub p50_ns: u64,
    /// Nine of ten are at most this.
    pub p90_ns: u64,
    /// 99 of 100 are at most this.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Sum by count.
    pub mean_ns: u64,
    /// Sum.
    pub total_ns: u64,
}

impl Durations {
    /// Adds one.
    pub fn add(&mut self, nanoseconds: u64) {
        self.count += 1;
        self.total_ns += u128::from(nanoseconds);
        match &mut self.values {
            Values::Few(values) if values.len() < FEW_MAX => values.push(nanoseconds),
            Values::Few(values) => {
                let mut histogram = empty_histogram();
                for value in values.iter().chain([&nanoseconds]) {
                    record(&mut histogram, *value);
                }
                self.values = Values::Many(Box::new(histogram));
            }
            Values::Many(histogram) => record(histogram, nanoseconds),
        }
    }

    /// Takes out one that was added.
    pub fn remove(&mut self, nanoseconds: u64) {
        self.count = self.count.saturating_sub(1);
        self.total_ns = self.total_ns.saturating_sub(u128::from(nanoseconds));
        match &mut self.values {
            Values::Few(values) => {
                if let Some(index) = values.iter().position(|value| *value == nanoseconds) {
                    values.swap_remove(index);
                }
            }
            Values::Many(histogram) => {
                let mut one = empty_histogram();
                record(&mut one, nanoseconds);
                // Fails only for what was never added; then there is nothing to take out.
                let _ = histogram.subtract(&one);
            }
        }
    }

    /// How they are spread; `None` if there is none.
    #[must_use]
    pub fn spread(&self) -> Option<Spread> {
        if self.count == 0 {
            return None;
        }
        let [min_ns, p50_ns, p90_ns, p99_ns, max_ns] = match &self.values {
            Values::Few(values) => {
                let mut sorted = values.clone();
                sorted.sort_unstable();
                QUANTILES.map(|quantile| nearest_rank(&sorted, quantile))
            }
            Values::Many(histogram) => {
                QUANTILES.map(|quantile| histogram.value_at_quantile(quantile))
            }
        };
        let narrow = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
        Some(Spread {
            count: self.count,
            min_ns,
            p50_ns,
            p90_ns,
            p99_ns,
            max_ns,
            mean_ns: narrow(self.total_ns / u128::from(self.count)),
            total_ns: narrow(self.total_ns),
        })
    }
}

fn empty_histogram() -> Histogram<u64> {
    Histogram::new(SIGNIFICANT_DIGITS).expect("three digits are among those allowed")
}

/// Counts a value; the histogram grows to its size.
fn record(histogram: &mut Histogram<u64>, value: u64) {
    let recorded = histogram.record(value);
    recorded.expect("memory that can be addressed has room for the buckets of 64 bits");
}

/// The smallest value that at least this share of the values does not exceed.
fn nearest_rank(sorted: &[u64], quantile: f64) -> u64 {
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(values: &[u64], removed: &[u64]) {
        let mut durations = Durations::default();
        for value in removed.iter().chain(values) {
            durations.add(*value);
        }
        for value in removed {
            durations.remove(*value);
        }
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let Some(spread) = durations.spread() else {
            assert!(values.is_empty());
            return;
        };
        let total: u64 = values.iter().sum();
        assert_eq!((spread.count, spread.total_ns), (values.len() as u64, total));
        assert_eq!(spread.mean_ns, total / values.len() as u64);
        let found = [spread.min_ns, spread.p50_ns, spread.p90_ns, spread.p99_ns, spread.max_ns];
        for (found, quantile) in found.into_iter().zip(QUANTILES) {
            let exact = nearest_rank(&sorted, quantile);
            let allowed = if values.len() + removed.len() <= FEW_MAX { 0 } else { exact / 500 };
            assert!(found.abs_diff(exact) <= allowed, "{quantile}: {found} for {exact}");
        }
    }

    proptest! {
        #[test]
        fn few_are_exact(
            values in prop::collection::vec(0..10_000_000_000u64, 0..40),
            removed in prop::collection::vec(0..10_000_000_000u64, 0..5),
        ) {
            check(&values, &removed);
        }
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let check = |count: u64, expected: [u64; 5]| {
            let sorted: Vec<u64> = (1..=count).collect();
            assert_eq!(QUANTILES.map(|quantile| nearest_rank(&sorted, quantile)), expected);
        };
        check(1, [1, 1, 1, 1, 1]);
        check(2, [1, 1, 2, 2, 2]);
        check(10, [1, 5, 9, 10, 10]);
        check(1_000, [1, 500, 900, 990, 1_000]);
    }

    #[test]
    fn many_are_exact_to_three_digits_and_can_be_taken_out_again() {
        let values: Vec<u64> = (1..3_000u64).map(|n| n * n * 1_000).collect();
        check(&values, &[]);
        check(&values[..FEW_MAX], &[]);
        check(&values[..=FEW_MAX], &[]);
        check(&values, &[7_200_000_000_000, 1]);
    }
}
