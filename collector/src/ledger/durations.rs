//! Durations of tasks: how many, how long, how spread.
//!
//! A duration counts in a [`bucket`], as in the tables `durations_*`; count and sum are kept beside,
//! exactly.

use std::borrow::Cow;

pub use profiler_core::bucket::{BUCKETS, bucket, bucket_middle_ns};

/// Least, median, 90 %, 99 %, most.
const QUANTILES: [f64; 5] = [0.0, 0.5, 0.9, 0.99, 1.0];

/// A set of durations in nanoseconds. Sums stop at the largest value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Durations {
    count: u64,
    total_ns: u64,
    buckets: Buckets,
}

/// Counts by bucket. Tables give them in long runs of rising order, so they are listed, and put in order
/// at times: a hash table took most of the time of a question for percentiles.
#[derive(Clone, Debug, Default)]
struct Buckets {
    /// Each bucket once and in rising order, up to `settled`; then as they came.
    counts: Vec<BucketCount>,
    settled: usize,
}

/// A bucket, in the upper bits, and how many are in it: half of the memory of two numbers, which is what
/// millions of them take time for. Past 2^48 in one bucket it stops counting there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BucketCount(u64);

const COUNT_BITS: u32 = 48;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
const _: () = assert!(BUCKETS <= 1 << (u64::BITS - COUNT_BITS));

impl BucketCount {
    fn new(bucket: u32, count: u64) -> BucketCount {
        // No table of ours has a greater one than the last.
        let bucket = u64::from(bucket.min(BUCKETS - 1));
        BucketCount(bucket << COUNT_BITS | count.min(COUNT_MAX))
    }

    fn bucket(self) -> u32 {
        u32::try_from(self.0 >> COUNT_BITS).expect("16 bits are left")
    }

    fn count(self) -> u64 {
        self.0 & COUNT_MAX
    }

    fn add(&mut self, other: BucketCount) {
        self.0 += other.count().min(COUNT_MAX - self.count());
    }
}

/// Most places for each count that is listed, where they are counted by place.
const PLACES_MAX: usize = 4;

/// Fewest that are listed before they are put in order.
const UNSETTLED_MIN: usize = 64;

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
        self.add_to_buckets([(bucket, count)].into_iter());
    }

    /// Adds what a table has counted by bucket; gives how many that are.
    pub(crate) fn add_to_buckets(&mut self, counts: impl Iterator<Item = (u32, u64)>) -> u64 {
        let mut sum = 0u64;
        self.buckets.extend(counts.map(|(bucket, count)| {
            sum = sum.saturating_add(count);
            BucketCount::new(bucket, count)
        }));
        self.count = self.count.saturating_add(sum);
        sum
    }

    /// Adds all of another set.
    pub(crate) fn absorb(&mut self, other: Durations) {
        if self.count == 0 && self.total_ns == 0 {
            *self = other;
            return;
        }
        self.buckets.extend(other.buckets.counts.into_iter());
        self.count = self.count.saturating_add(other.count);
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
        let [min_ns, p50_ns, p90_ns, p99_ns, max_ns] = match self.count {
            // Of a single one, the sum is the exact duration.
            1 => [self.total_ns; QUANTILES.len()],
            count => match self.buckets.by_place() {
                Some((first, counts)) => nearest_ranks((first..).zip(counts), count),
                None => {
                    let counts = self.buckets.in_order();
                    let counts = counts.iter().map(|count| (count.bucket(), count.count()));
                    nearest_ranks(counts, count)
                }
            },
        };
        let (count, total_ns) = (self.count, self.total_ns);
        let mean_ns = total_ns / count;
        Some(Spread { count, min_ns, p50_ns, p90_ns, p99_ns, max_ns, mean_ns, total_ns })
    }
}

impl Buckets {
    fn extend(&mut self, new: impl Iterator<Item = BucketCount>) {
        let before = self.counts.len();
        self.counts.extend(new);
        if self.counts.len() > before && self.settled == before {
            let pairs = self.counts[before.saturating_sub(1)..].windows(2);
            let rising = pairs.take_while(|pair| pair[0].bucket() < pair[1].bucket());
            self.settled = before.max(1) + rising.count();
        }
        if self.counts.len() >= UNSETTLED_MIN.max(2 * self.settled) {
            self.settle();
        }
    }

    fn settle(&mut self) {
        if self.settled == self.counts.len() {
            return;
        }
        // Not the unstable sort: this one finds the runs that tables give, and merges them.
        self.counts.sort_by_key(|count| count.bucket());
        self.counts.dedup_by(|next, kept| {
            let is_same = next.bucket() == kept.bucket();
            if is_same {
                kept.add(*next);
            }
            is_same
        });
        self.settled = self.counts.len();
    }

    /// How many are in each bucket from the first on, where many are not in order and few of these buckets
    /// are empty: that takes less time than to sort them.
    fn by_place(&self) -> Option<(u32, Vec<u64>)> {
        if self.settled == self.counts.len() {
            return None;
        }
        let buckets = || self.counts.iter().map(|count| count.bucket());
        let (first, last) = (buckets().min()?, buckets().max()?);
        let places = (last - first) as usize + 1;
        (places <= PLACES_MAX * self.counts.len()).then(|| {
            let mut counts = vec![0u64; places];
            for count in &self.counts {
                let sum = &mut counts[(count.bucket() - first) as usize];
                *sum = sum.saturating_add(count.count());
            }
            (first, counts)
        })
    }

    /// Each bucket once, in rising order.
    fn in_order(&self) -> Cow<'_, [BucketCount]> {
        if self.settled == self.counts.len() {
            return Cow::Borrowed(&self.counts);
        }
        let mut all = self.clone();
        all.settle();
        Cow::Owned(all.counts)
    }
}

impl PartialEq for Buckets {
    fn eq(&self, other: &Buckets) -> bool {
        self.in_order() == other.in_order()
    }
}

impl Eq for Buckets {}

/// For each of [`QUANTILES`], the middle of the first bucket up to which at least this share of the
/// durations lies.
fn nearest_ranks(
    mut rising: impl Iterator<Item = (u32, u64)>,
    count: u64,
) -> [u64; QUANTILES.len()] {
    let (mut bucket, mut reached) = (0, 0u64);
    QUANTILES.map(|quantile| {
        let rank = ((quantile * count as f64).ceil() as u64).max(1);
        while reached < rank
            && let Some(next) = rising.next()
        {
            (bucket, reached) = (next.0, reached.saturating_add(next.1));
        }
        bucket_middle_ns(bucket)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn percentiles_are_those_of_the_sorted_list(
            values in prop_oneof![
                prop::collection::vec(0..10_000_000_000u64, 1..300),
                // Many in few buckets.
                prop::collection::vec(1_000_000_000..1_100_000_000u64, 1..300),
            ],
            cut in 0..300usize,
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

    proptest! {
        /// However they come, in whatever parts.
        #[test]
        fn buckets_hold_what_a_map_holds(
            counts in prop::collection::vec((0..100u32, 1..9u64), 0..400), cut in 0..400usize,
        ) {
            let mut map = std::collections::BTreeMap::new();
            counts.iter().for_each(|(bucket, count)| *map.entry(*bucket).or_default() += count);
            let (first, rest) = counts.split_at(cut.min(counts.len()));
            let mut parts = [first, rest].map(|part| {
                let mut sum = Durations::default();
                part.iter().for_each(|(bucket, count)| sum.add_to_bucket(*bucket, *count));
                sum
            });
            let [all, rest] = &mut parts;
            all.absorb(std::mem::take(rest));
            prop_assert_eq!(all.count, map.values().sum::<u64>());
            prop_assert!(all.buckets.counts.len() <= UNSETTLED_MIN.max(2 * map.len()));
            let found = all.buckets.in_order();
            let found = found.iter().map(|count| (count.bucket(), count.count()));
            prop_assert_eq!(Vec::from_iter(found), Vec::from_iter(map));
        }
    }

    #[test]
    fn nothing_has_no_spread() {
        assert_eq!(Durations::default().spread(), None);
    }
}
