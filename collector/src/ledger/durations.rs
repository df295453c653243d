//! Durations of tasks: how many, how long, how spread.
//!
//! A duration counts in a bucket, as in the tables `durations_*`. Buckets are a nanosecond wide up to
//! 2,048 ns; from there on, each doubling of the duration has 1,024 of equal width, so that none is
//! wider than 1/1024 of what it holds. So sets of durations merge by addition, also those in tables,
//! and a percentile is off by half a bucket at most. Count and sum are kept beside, exactly.

use rustc_hash::FxHashMap;

/// Buckets of each doubling, as a power of 2.
const FINE_BITS: u32 = 10;

/// Number of buckets; no duration has one past it.
pub const BUCKETS: u32 = (u64::BITS - FINE_BITS + 1) << FINE_BITS;

/// Least, median, 90 %, 99 %, most.
const QUANTILES: [f64; 5] = [0.0, 0.5, 0.9, 0.99, 1.0];

/// The bucket of a duration.
#[must_use]
pub const fn bucket(nanoseconds: u64) -> u32 {
    let bits = u64::BITS - nanoseconds.leading_zeros();
    let shift = bits.saturating_sub(FINE_BITS + 1);
    // The top 11 bits begin with a 1 once anything is shifted out, so they follow on what is below.
    (shift << FINE_BITS) + (nanoseconds >> shift) as u32
}

/// The middle of a bucket's durations, rounded down; the largest of all for what is no bucket.
#[must_use]
pub const fn bucket_middle_ns(bucket: u32) -> u64 {
    if bucket >= BUCKETS {
        return u64::MAX;
    }
    let shift = (bucket >> FINE_BITS).saturating_sub(1);
    let first = ((bucket - (shift << FINE_BITS)) as u64) << shift;
    first + ((1 << shift) - 1) / 2
}

/// A set of durations in nanoseconds. Sums stop at the largest value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Durations {
    count: u64,
    total_ns: u64,
    buckets: FxHashMap<u32, u64>,
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
        self.add_to_bucket(bucket(nanoseconds), 1);
        self.add_to_total(nanoseconds);
    }

    /// Adds what a table has counted in a bucket.
    pub(crate) fn add_to_bucket(&mut self, bucket: u32, count: u64) {
        self.count = self.count.saturating_add(count);
        let sum = self.buckets.entry(bucket).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Adds all of another set.
    pub(crate) fn absorb(&mut self, other: Durations) {
        other.buckets.into_iter().for_each(|(bucket, count)| self.add_to_bucket(bucket, count));
        self.add_to_total(other.total_ns);
    }

    /// Adds what a table has summed.
    pub(crate) fn add_to_total(&mut self, nanoseconds: u64) {
        self.total_ns = self.total_ns.saturating_add(nanoseconds);
    }

    /// How they are spread; `None` if there is none.
    #[must_use]
    pub fn spread(&self) -> Option<Spread> {
        if self.count == 0 {
            return None;
        }
        let mut sorted: Vec<(u32, u64)> =
            self.buckets.iter().map(|(b, count)| (*b, *count)).collect();
        sorted.sort_unstable();
        let [min_ns, p50_ns, p90_ns, p99_ns, max_ns] = match self.count {
            // Of a single one, the sum is the exact duration.
            1 => [self.total_ns; QUANTILES.len()],
            count => QUANTILES.map(|quantile| nearest_rank(&sorted, count, quantile)),
        };
        let (count, total_ns) = (self.count, self.total_ns);
        let mean_ns = total_ns / count;
        Some(Spread { count, min_ns, p50_ns, p90_ns, p99_ns, max_ns, mean_ns, total_ns })
    }
}

/// Middle of the first bucket up to which at least this share of the durations lies.
fn nearest_rank(sorted: &[(u32, u64)], count: u64, quantile: f64) -> u64 {
    let rank = ((quantile * count as f64).ceil() as u64).max(1);
    let mut below = 0u64;
    let found = sorted.iter().find(|(_, count)| {
        below = below.saturating_add(*count);
        below >= rank
    });
    found.or(sorted.last()).map_or(0, |(bucket, _)| bucket_middle_ns(*bucket))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Durations of every size, not mostly the largest.
    fn durations() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..u64::BITS).prop_map(|(bits, shift)| bits >> shift)
    }

    proptest! {
        #[test]
        fn a_bucket_is_in_order_and_at_most_a_1024th_wide(a in durations(), b in durations()) {
            prop_assert!(bucket(a) < BUCKETS);
            prop_assert_eq!(bucket(a).cmp(&bucket(b)), match bucket(a) == bucket(b) {
                true => std::cmp::Ordering::Equal,
                false => a.cmp(&b),
            });
            let middle = bucket_middle_ns(bucket(a));
            prop_assert_eq!(bucket(middle), bucket(a));
            prop_assert!(middle.abs_diff(a) <= a / 2_048, "{} for {}", middle, a);
        }

        #[test]
        fn percentiles_are_those_of_the_sorted_list(
            values in prop::collection::vec(0..10_000_000_000u64, 1..300), cut in 0..300usize,
        ) {
            let mut all = Durations::default();
            let (first, rest) = values.split_at(cut.min(values.len()));
            for value in first {
                all.add(*value);
            }
            // As from a table.
            rest.iter().for_each(|value| all.add_to_bucket(bucket(*value), 1));
            all.add_to_total(rest.iter().sum());
            let spread = all.spread().unwrap();
            let total: u64 = values.iter().sum();
            let count = values.len() as u64;
            prop_assert_eq!((spread.count, spread.total_ns), (count, total));
            prop_assert_eq!(spread.mean_ns, total / count);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let found = [spread.min_ns, spread.p50_ns, spread.p90_ns, spread.p99_ns, spread.max_ns];
            for (found, quantile) in found.into_iter().zip(QUANTILES) {
                let rank = ((quantile * count as f64).ceil() as usize).max(1);
                let exact = sorted[rank - 1];
                prop_assert!(found.abs_diff(exact) <= exact / 2_048, "{}: {}", quantile, found);
            }
        }
    }

    #[test]
    fn buckets_stay_what_they_are_in_tables() {
        let check = |nanoseconds, expected| assert_eq!(bucket(nanoseconds), expected);
        check(0, 0);
        check(2_047, 2_047);
        check(2_048, 2_048);
        check(2_049, 2_048);
        check(2_050, 2_049);
        check(4_095, 3_071);
        check(4_096, 3_072);
        check(1_000_000_000, 21_363);
        check(u64::MAX, BUCKETS - 1);
        assert_eq!(bucket_middle_ns(BUCKETS), u64::MAX);
        assert_eq!(Durations::default().spread(), None);
    }
}
