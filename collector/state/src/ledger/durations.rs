//! Histograms of task durations.
//!
//! A duration counts in a [`bucket`], as in the tables `durations_*`; count and sum are exact. Buckets
//! and percentiles are those of HdrHistogram: tests compare both with the `hdrhistogram` crate. The
//! crate itself is too slow for a query about many names: merging 60,000 rows of a table took it
//! 19 ms for 100 names, against 0.09 ms with [`Buckets`]; percentiles 2.5 ms, against 0.05 ms.

use std::borrow::Cow;

use api::Durations;
pub(crate) use profiler_core::bucket::BUCKETS;
pub use profiler_core::bucket::{bucket, bucket_middle_ns};

/// Minimum, median, 90 %, 99 %, maximum.
const QUANTILES: [f64; 5] = [0.0, 0.5, 0.9, 0.99, 1.0];

/// A histogram of durations in nanoseconds. Sums saturate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DurationHistogram {
    count: u64,
    total_ns: u64,
    buckets: Buckets,
}

/// Counts by bucket. Tables return long runs of rising buckets, so the range with most of them is a
/// dense array: a hash table took most of the time of a query for percentiles, sorting half of it.
#[derive(Clone, Debug, Default)]
struct Buckets {
    /// Counts of the buckets from `first` on.
    dense: Vec<u64>,
    first: u32,
    /// Counts outside of that range: each bucket once and in rising order up to `sorted`, then as
    /// they were added.
    listed: Vec<BucketCount>,
    sorted: usize,
}

/// A bucket, in the upper bits, and its count: half of the memory of two numbers, because memory is
/// what limits the speed of millions of them. A count saturates at 2^48.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BucketCount(u64);

const COUNT_BITS: u32 = 48;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
const _: () = assert!(BUCKETS <= 1 << (u64::BITS - COUNT_BITS));

impl BucketCount {
    fn new(bucket: u32, count: u64) -> BucketCount {
        BucketCount(u64::from(bucket) << COUNT_BITS | count.min(COUNT_MAX))
    }

    fn bucket(self) -> u32 {
        u32::try_from(self.0 >> COUNT_BITS).expect("16 bits are left")
    }

    fn count(self) -> u64 {
        self.0 & COUNT_MAX
    }

    fn parts(self) -> (u32, u64) {
        (self.bucket(), self.count())
    }

    fn add(&mut self, other: BucketCount) {
        self.0 += other.count().min(COUNT_MAX - self.count());
    }
}

/// Most buckets of the dense range for each count of the longest run that it was made for.
const DENSE_PER_COUNT_MAX: usize = 4;

/// Fewest counts for which a dense range is made.
const DENSE_MIN: usize = 64;

/// Fewest unsorted counts that are sorted.
const UNSORTED_MIN: usize = 64;

impl DurationHistogram {
    /// Adds a duration.
    #[cfg(any(test, feature = "testing"))]
    pub fn add(&mut self, nanoseconds: u64) {
        self.add_to_bucket(bucket(nanoseconds), 1);
        self.add_to_total(nanoseconds);
    }

    /// Adds a table's count of one bucket.
    pub fn add_to_bucket(&mut self, bucket: u32, count: u64) {
        self.add_to_buckets([(bucket, count)].into_iter());
    }

    /// Adds a table's counts by bucket. Returns their sum.
    pub fn add_to_buckets(&mut self, counts: impl Iterator<Item = (u32, u64)> + Clone) -> u64 {
        let sum = self.buckets.extend(counts);
        self.count = self.count.saturating_add(sum);
        sum
    }

    /// Merges another histogram into this one.
    pub fn absorb(&mut self, other: DurationHistogram) {
        if self.count == 0 && self.total_ns == 0 {
            *self = other;
            return;
        }
        self.buckets.extend(other.buckets.unordered());
        self.count = self.count.saturating_add(other.count);
        self.add_to_total(other.total_ns);
    }

    /// Adds a table's sum of durations.
    /// The sum of all durations.
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }

    pub fn add_to_total(&mut self, nanoseconds: u64) {
        self.total_ns = self.total_ns.saturating_add(nanoseconds);
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The middles of the buckets of these rising quantiles, by nearest rank; `None` if there is no
    /// duration.
    pub fn quantiles_ns<const N: usize>(&self, quantiles: [f64; N]) -> Option<[u64; N]> {
        let listed = self.buckets.listed_in_order();
        let rising = self.buckets.in_order(&listed);
        (self.count > 0).then(|| nearest_ranks(rising, quantiles, self.count))
    }

    /// The counts above 0 by bucket, in rising order.
    pub fn counts(&self) -> Vec<(u32, u64)> {
        let listed = self.buckets.listed_in_order();
        self.buckets
            .in_order(&listed)
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// The percentiles by nearest rank; `None` if there is no duration.
    #[must_use]
    pub fn percentiles(&self) -> Option<Durations> {
        if self.count == 0 {
            return None;
        }
        let [min_ns, p50_ns, p90_ns, p99_ns, max_ns] = match self.count {
            // The sum of a single duration is exact.
            1 => [self.total_ns; QUANTILES.len()],
            _ => self.quantiles_ns(QUANTILES)?,
        };
        let count = self.count;
        let total_ns = self.total_ns;
        let mean_ns = total_ns / count;
        Some(Durations {
            count,
            min_ns,
            p50_ns,
            p90_ns,
            p99_ns,
            max_ns,
            mean_ns,
            total_ns,
        })
    }
}

impl Buckets {
    /// Adds counts. Returns their sum.
    fn extend(&mut self, counts: impl Iterator<Item = (u32, u64)> + Clone) -> u64 {
        // An intact table has no greater bucket.
        let counts = counts.map(|(bucket, count)| (bucket.min(BUCKETS - 1), count));
        let buckets = counts.clone().map(|(bucket, _)| bucket);
        let mut length = 0;
        let mut first = u32::MAX;
        let mut last = 0;
        buckets.for_each(|bucket| {
            length += 1;
            first = first.min(bucket);
            last = last.max(bucket);
        });
        self.extend_dense(length, first, last);
        let mut sum = 0u64;
        let mut has_overflowed = false;
        let dense = self.dense.as_mut_slice();
        let first = self.first;
        for (bucket, count) in counts {
            let (next, overflows) = sum.overflowing_add(count);
            sum = next;
            has_overflowed |= overflows;
            match dense.get_mut(dense_index(bucket, first)) {
                Some(sum) => *sum = sum.saturating_add(count),
                None => self.listed.push(BucketCount::new(bucket, count)),
            }
        }
        if self.listed.len() >= UNSORTED_MIN.max(2 * self.sorted) {
            self.sort_listed();
        }
        if has_overflowed { u64::MAX } else { sum }
    }

    /// Extends the dense range to `first..=last`, if `count` is large enough for its length.
    fn extend_dense(&mut self, count: usize, mut first: u32, mut last: u32) {
        if count < DENSE_MIN {
            return;
        }
        if !self.dense.is_empty() {
            first = first.min(self.first);
            last = last.max(self.first + (self.dense.len() - 1) as u32);
        }
        let length = (last - first) as usize + 1;
        if length == self.dense.len() || length > DENSE_PER_COUNT_MAX * count {
            return;
        }
        let mut dense = vec![0; length];
        if !self.dense.is_empty() {
            let before = (self.first - first) as usize;
            dense[before..before + self.dense.len()].copy_from_slice(&self.dense);
        }
        self.dense = dense;
        self.first = first;
        self.move_listed_to_dense();
    }

    /// Moves the listed counts that the dense range now contains.
    fn move_listed_to_dense(&mut self) {
        let mut is_outside = |count: &BucketCount| {
            let sum = self.dense.get_mut(dense_index(count.bucket(), self.first));
            let is_outside = sum.is_none();
            if let Some(sum) = sum {
                *sum = sum.saturating_add(count.count());
            }
            is_outside
        };
        let unsorted = self.listed.split_off(self.sorted);
        self.listed.retain(&mut is_outside);
        self.sorted = self.listed.len();
        self.listed.extend(unsorted.into_iter().filter(is_outside));
    }

    /// Sorts the listed counts, and moves them to the dense range if they are close together.
    fn sort_listed(&mut self) {
        self.listed = self.listed_in_order().into_owned();
        self.sorted = self.listed.len();
        if let [first, .., last] = self.listed[..] {
            self.extend_dense(self.sorted, first.bucket(), last.bucket());
        }
    }

    /// The counts outside of the dense range: each bucket once, in rising order.
    fn listed_in_order(&self) -> Cow<'_, [BucketCount]> {
        if self.sorted == self.listed.len() {
            return Cow::Borrowed(&self.listed);
        }
        let mut listed = self.listed.clone();
        // The stable sort, because it detects the runs that tables return, and merges them.
        listed.sort_by_key(|count| count.bucket());
        listed.dedup_by(|next, kept| {
            let is_same = next.bucket() == kept.bucket();
            if is_same {
                kept.add(*next);
            }
            is_same
        });
        Cow::Owned(listed)
    }

    /// Each bucket once, in rising order; counts may be 0.
    fn in_order<'a>(
        &'a self,
        listed: &'a [BucketCount],
    ) -> impl Iterator<Item = (u32, u64)> + Clone + 'a {
        let before = listed.partition_point(|count| count.bucket() < self.first);
        let (before, after) = listed.split_at(before);
        let parts = |counts: &'a [BucketCount]| counts.iter().map(|count| count.parts());
        parts(before).chain(self.dense_counts()).chain(parts(after))
    }

    fn dense_counts(&self) -> impl Iterator<Item = (u32, u64)> + Clone {
        (self.first..).zip(self.dense.iter().copied())
    }

    /// All counts above 0, in no order; a bucket may come twice.
    fn unordered(&self) -> impl Iterator<Item = (u32, u64)> + Clone {
        let listed = self.listed.iter().map(|count| count.parts());
        self.dense_counts()
            .filter(|(_, count)| *count > 0)
            .chain(listed)
    }
}

impl PartialEq for Buckets {
    fn eq(&self, other: &Buckets) -> bool {
        let [ours, theirs] = [self, other].map(Buckets::listed_in_order);
        let ours = self.in_order(&ours);
        let theirs = other.in_order(&theirs);
        ours.filter(is_filled).eq(theirs.filter(is_filled))
    }
}

fn is_filled(count: &(u32, u64)) -> bool {
    count.1 > 0
}

impl Eq for Buckets {}

/// The index of a bucket in the dense range. It is past the end for a bucket before `first`, because it
/// wraps around.
fn dense_index(bucket: u32, first: u32) -> usize {
    bucket.wrapping_sub(first) as usize
}

/// For each quantile, the middle of the first bucket at or below which at least this share of the
/// durations lies.
fn nearest_ranks<const N: usize>(
    rising: impl Iterator<Item = (u32, u64)>,
    quantiles: [f64; N],
    count: u64,
) -> [u64; N] {
    let rank = |quantile: f64| ((quantile * count as f64).ceil() as u64).clamp(1, count);
    let mut ranks = quantiles.map(rank).into_iter();
    let mut found = Vec::with_capacity(N);
    let mut last = 0;
    let mut reached = 0u64;
    let mut next = ranks.next();
    // `for_each`, because a `for` loop over a chain checks for each item which part it is in.
    rising.for_each(|(bucket, count)| {
        reached = reached.saturating_add(count);
        last = bucket;
        while let Some(rank) = next
            && rank <= reached
        {
            found.push(bucket);
            next = ranks.next();
        }
    });
    std::array::from_fn(|at| bucket_middle_ns(found.get(at).copied().unwrap_or(last)))
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn percentiles_are_those_of_the_sorted_list(
            values in prop_oneof![
                prop::collection::vec(0..10_000_000_000u64, 1..300),
                // Many durations in few buckets.
                prop::collection::vec(1_000_000_000..1_100_000_000u64, 1..300),
            ],
            cut in 0..300usize,
        ) {
            let mut all = DurationHistogram::default();
            let (first, rest) = values.split_at(cut.min(values.len()));
            for value in first {
                all.add(*value);
            }
            // As a table returns them.
            rest.iter().for_each(|value| all.add_to_bucket(bucket(*value), 1));
            all.add_to_total(rest.iter().sum());
            let spread = all.percentiles().unwrap();
            let total: u64 = values.iter().sum();
            let count = values.len() as u64;
            prop_assert_eq!((spread.count, spread.total_ns), (count, total));
            prop_assert_eq!(spread.mean_ns, total / count);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let mut histogram = Histogram::<u64>::new_with_bounds(1, u64::MAX, 3).unwrap();
            values.iter().for_each(|value| histogram.record(*value).unwrap());
            let found = [spread.min_ns, spread.p50_ns, spread.p90_ns, spread.p99_ns, spread.max_ns];
            for (found, quantile) in found.into_iter().zip(QUANTILES) {
                let rank = ((quantile * count as f64).ceil() as usize).max(1);
                let exact = sorted[rank - 1];
                prop_assert!(found.abs_diff(exact) <= exact / 2_048, "{}: {}", quantile, found);
                if count > 1 {
                    let expected = histogram.value_at_quantile(quantile);
                    prop_assert_eq!(bucket(found), bucket(expected), "{}: {}", quantile, expected);
                }
            }
        }
    }

    /// As tables return them: some single counts, and runs of rising buckets, near each other or not.
    fn runs() -> impl Strategy<Value = Vec<Vec<(u32, u64)>>> {
        let first = prop_oneof![0..200u32, 20_000..20_200u32, 0..u32::MAX];
        let run = (first, prop::collection::vec((1..9u32, 1..9u64), 1..300)).prop_map(
            |(first, steps)| {
                let run = steps.into_iter().scan(first, |bucket, (step, count)| {
                    *bucket = bucket.saturating_add(step);
                    Some((*bucket, count))
                });
                run.collect::<Vec<_>>()
            },
        );
        let single = (0..100u32, 1..9u64).prop_map(|count| vec![count]);
        let count = prop_oneof![single, run];
        prop::collection::vec(count, 0..100)
    }

    proptest! {
        /// Whatever the order and the parts; in little memory.
        #[test]
        fn buckets_hold_the_same_counts_as_a_map(runs in runs(), cut in any::<prop::sample::Index>()) {
            let mut map = std::collections::BTreeMap::<u32, u64>::new();
            for (bucket, count) in runs.iter().flatten() {
                *map.entry((*bucket).min(BUCKETS - 1)).or_default() += count;
            }
            let total = map.values().sum::<u64>();
            let (first, rest) = runs.split_at(cut.index(runs.len() + 1));
            let mut parts = [first, rest].map(|part| {
                let mut sum = DurationHistogram::default();
                part.iter().for_each(|run| {
                    let added = sum.add_to_buckets(run.iter().copied());
                    assert_eq!(added, run.iter().map(|(_, count)| count).sum::<u64>());
                });
                sum
            });
            let mut one_by_one = DurationHistogram::default();
            runs.iter().flatten().for_each(|(bucket, count)| one_by_one.add_to_bucket(*bucket, *count));
            let [all, rest] = &mut parts;
            all.absorb(std::mem::take(rest));
            for all in [&*all, &one_by_one] {
                prop_assert_eq!(all.count, total);
                let listed = all.buckets.listed_in_order();
                let found = all.buckets.in_order(&listed).filter(|(_, count)| *count > 0);
                prop_assert!(found.eq(map.iter().map(|(bucket, count)| (*bucket, *count))));
                let dense = all.buckets.dense.len();
                let listed = all.buckets.listed.len();
                // The last bucket may come several times in a run.
                let longest = runs.iter().map(Vec::len).max().unwrap_or(0).max(map.len());
                prop_assert!(dense <= DENSE_PER_COUNT_MAX * longest, "{} dense buckets", dense);
                prop_assert!(listed <= UNSORTED_MIN.max(2 * map.len()), "{} listed", listed);
            }
            prop_assert_eq!(&all.buckets, &one_by_one.buckets);
        }
    }

    #[test]
    fn dense_buckets_are_counted_in_an_array() {
        let mut all = DurationHistogram::default();
        let mut check = |buckets, expected| {
            all.add_to_buckets(pairs(buckets));
            assert_eq!(lengths(&all), expected);
        };
        check(5_000..5_400, (400, 0));
        check(5_100..5_150, (400, 0));
        // A run continues after a gap, or begins earlier.
        check(5_500..6_000, (1_000, 0));
        check(4_900..5_200, (1_100, 0));
        // Distant buckets are listed, and short runs.
        check(40_000..40_100, (1_100, 100));
        check(6_000..6_020, (1_100, 120));
        // Until there are many.
        check(5_900..6_300, (1_400, 100));
    }

    fn pairs(buckets: std::ops::Range<u32>) -> impl Iterator<Item = (u32, u64)> + Clone {
        buckets.map(|bucket| (bucket, 2))
    }

    fn lengths(all: &DurationHistogram) -> (usize, usize) {
        (all.buckets.dense.len(), all.buckets.listed.len())
    }

    #[test]
    fn sums_saturate() {
        let mut all = DurationHistogram::default();
        assert_eq!(
            all.add_to_buckets([(7, u64::MAX), (7, 1)].into_iter()),
            u64::MAX
        );
        let run = (0..1_000).map(|bucket| (bucket, u64::MAX));
        assert_eq!(all.add_to_buckets(run.clone()), u64::MAX);
        assert_eq!(all.add_to_buckets(run), u64::MAX);
        assert_eq!(all.percentiles().unwrap().count, u64::MAX);
    }

    #[test]
    fn an_empty_histogram_has_no_percentiles() {
        assert_eq!(DurationHistogram::default().percentiles(), None);
    }
}
