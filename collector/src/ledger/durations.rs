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

/// Counts by bucket. Tables give them in long runs of rising order, so where most lie they are counted by
/// place: a hash table took most of the time of a question for percentiles, and sorting half of it.
#[derive(Clone, Debug, Default)]
struct Buckets {
    /// How many are in each bucket from `first` on.
    places: Vec<u64>,
    first: u32,
    /// What lies before and after: each bucket once and in rising order, up to `settled`; then as they
    /// came.
    listed: Vec<BucketCount>,
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

/// Most places for each count of the longest run that they were made for.
const PLACES_MAX: usize = 4;

/// Fewest counts that places are made for.
const PLACED_MIN: usize = 64;

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
    pub(crate) fn add_to_buckets(
        &mut self,
        counts: impl Iterator<Item = (u32, u64)> + Clone,
    ) -> u64 {
        let sum = self.buckets.extend(counts);
        self.count = self.count.saturating_add(sum);
        sum
    }

    /// Adds all of another set.
    pub(crate) fn absorb(&mut self, other: Durations) {
        if self.count == 0 && self.total_ns == 0 {
            *self = other;
            return;
        }
        self.buckets.extend(other.buckets.as_they_came());
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
            count => {
                let listed = self.buckets.listed_in_order();
                nearest_ranks(self.buckets.in_order(&listed), count)
            }
        };
        let (count, total_ns) = (self.count, self.total_ns);
        let mean_ns = total_ns / count;
        Some(Spread { count, min_ns, p50_ns, p90_ns, p99_ns, max_ns, mean_ns, total_ns })
    }
}

impl Buckets {
    /// Adds counts; gives their sum.
    fn extend(&mut self, counts: impl Iterator<Item = (u32, u64)> + Clone) -> u64 {
        // No table of ours has a greater one than the last.
        let counts = counts.map(|(bucket, count)| (bucket.min(BUCKETS - 1), count));
        let buckets = counts.clone().map(|(bucket, _)| bucket);
        let (length, first, last) = buckets
            .fold((0, u32::MAX, 0), |(length, first, last), bucket| {
                (length + 1, first.min(bucket), last.max(bucket))
            });
        self.make_places(length, first, last);
        let (mut sum, mut is_past_all) = (0u64, false);
        let (places, first) = (self.places.as_mut_slice(), self.first);
        for (bucket, count) in counts {
            let (next, is_past) = sum.overflowing_add(count);
            (sum, is_past_all) = (next, is_past_all | is_past);
            match places.get_mut(place(bucket, first)) {
                Some(sum) => *sum = sum.saturating_add(count),
                None => self.listed.push(BucketCount::new(bucket, count)),
            }
        }
        if self.listed.len() >= UNSETTLED_MIN.max(2 * self.settled) {
            self.settle();
        }
        if is_past_all { u64::MAX } else { sum }
    }

    /// Makes the places reach from `first` to `last`, if so many counts are enough for that.
    fn make_places(&mut self, count: usize, mut first: u32, mut last: u32) {
        if count < PLACED_MIN {
            return;
        }
        if !self.places.is_empty() {
            first = first.min(self.first);
            last = last.max(self.first + (self.places.len() - 1) as u32);
        }
        let length = (last - first) as usize + 1;
        if length == self.places.len() || length > PLACES_MAX * count {
            return;
        }
        let mut places = vec![0; length];
        if !self.places.is_empty() {
            let before = (self.first - first) as usize;
            places[before..before + self.places.len()].copy_from_slice(&self.places);
        }
        (self.places, self.first) = (places, first);
        self.place_listed();
    }

    /// Counts what was listed by its place, where it has one now.
    fn place_listed(&mut self) {
        let mut is_left = |count: &BucketCount| {
            let sum = self.places.get_mut(place(count.bucket(), self.first));
            let is_left = sum.is_none();
            if let Some(sum) = sum {
                *sum = sum.saturating_add(count.count());
            }
            is_left
        };
        let unsettled = self.listed.split_off(self.settled);
        self.listed.retain(&mut is_left);
        self.settled = self.listed.len();
        self.listed.extend(unsettled.into_iter().filter(is_left));
    }

    /// Puts what is listed in order, and in places if it is dense.
    fn settle(&mut self) {
        self.listed = self.listed_in_order().into_owned();
        self.settled = self.listed.len();
        if let [first, .., last] = self.listed[..] {
            self.make_places(self.settled, first.bucket(), last.bucket());
        }
    }

    /// What has no place: each bucket once, in rising order.
    fn listed_in_order(&self) -> Cow<'_, [BucketCount]> {
        if self.settled == self.listed.len() {
            return Cow::Borrowed(&self.listed);
        }
        let mut listed = self.listed.clone();
        // Not the unstable sort: this one finds the runs that tables give, and merges them.
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

    /// Each bucket once, in rising order, and perhaps buckets with nothing in them.
    fn in_order<'a>(
        &'a self,
        listed: &'a [BucketCount],
    ) -> impl Iterator<Item = (u32, u64)> + Clone + 'a {
        let before = listed.partition_point(|count| count.bucket() < self.first);
        let (before, after) = listed.split_at(before);
        let parts = |counts: &'a [BucketCount]| counts.iter().map(|count| count.parts());
        parts(before).chain(self.placed()).chain(parts(after))
    }

    fn placed(&self) -> impl Iterator<Item = (u32, u64)> + Clone {
        (self.first..).zip(self.places.iter().copied())
    }

    /// All but what is empty, in no order.
    fn as_they_came(&self) -> impl Iterator<Item = (u32, u64)> + Clone {
        let listed = self.listed.iter().map(|count| count.parts());
        self.placed().filter(|(_, count)| *count > 0).chain(listed)
    }
}

impl PartialEq for Buckets {
    fn eq(&self, other: &Buckets) -> bool {
        let [ours, theirs] = [self, other].map(Buckets::listed_in_order);
        let is_filled = |count: &(u32, u64)| count.1 > 0;
        let (ours, theirs) = (self.in_order(&ours), other.in_order(&theirs));
        ours.filter(is_filled).eq(theirs.filter(is_filled))
    }
}

impl Eq for Buckets {}

/// Of a bucket among the places that begin with `first`. Before these it is past their end too, as no
/// place has that number.
fn place(bucket: u32, first: u32) -> usize {
    bucket.wrapping_sub(first) as usize
}

/// For each of [`QUANTILES`], the middle of the first bucket up to which at least this share of the
/// durations lies.
fn nearest_ranks(rising: impl Iterator<Item = (u32, u64)>, count: u64) -> [u64; QUANTILES.len()] {
    let rank = |quantile: f64| ((quantile * count as f64).ceil() as u64).clamp(1, count);
    let mut ranks = QUANTILES.map(rank).into_iter();
    let (mut found, mut last) = (Vec::with_capacity(QUANTILES.len()), 0);
    let (mut reached, mut next) = (0u64, ranks.next());
    // Within, as a chain of iterators looks for each item at which of them it is.
    rising.for_each(|(bucket, count)| {
        (reached, last) = (reached.saturating_add(count), bucket);
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

    /// As tables give them: some single ones, and runs of rising buckets, near each other or not.
    fn runs() -> impl Strategy<Value = Vec<Vec<(u32, u64)>>> {
        let first = prop_oneof![0..200u32, 20_000..20_200u32, 0..u32::MAX];
        let run = (first, prop::collection::vec((1..9u32, 1..9u64), 1..300));
        let run = run.prop_map(|(first, steps)| {
            let run = steps.into_iter().scan(first, |bucket, (step, count)| {
                *bucket = bucket.saturating_add(step);
                Some((*bucket, count))
            });
            run.collect::<Vec<_>>()
        });
        let single = (0..100u32, 1..9u64).prop_map(|count| vec![count]);
        let count = prop_oneof![single, run];
        prop::collection::vec(count, 0..100)
    }

    proptest! {
        /// However they come, in whatever parts, in little memory.
        #[test]
        fn buckets_hold_what_a_map_holds(runs in runs(), cut in any::<prop::sample::Index>()) {
            let mut map = std::collections::BTreeMap::<u32, u64>::new();
            for (bucket, count) in runs.iter().flatten() {
                *map.entry((*bucket).min(BUCKETS - 1)).or_default() += count;
            }
            let total = map.values().sum::<u64>();
            let (first, rest) = runs.split_at(cut.index(runs.len() + 1));
            let mut parts = [first, rest].map(|part| {
                let mut sum = Durations::default();
                part.iter().for_each(|run| {
                    let added = sum.add_to_buckets(run.iter().copied());
                    assert_eq!(added, run.iter().map(|(_, count)| count).sum::<u64>());
                });
                sum
            });
            let mut one_by_one = Durations::default();
            runs.iter().flatten().for_each(|(bucket, count)| one_by_one.add_to_bucket(*bucket, *count));
            let [all, rest] = &mut parts;
            all.absorb(std::mem::take(rest));
            for all in [&*all, &one_by_one] {
                prop_assert_eq!(all.count, total);
                let listed = all.buckets.listed_in_order();
                let found = all.buckets.in_order(&listed).filter(|(_, count)| *count > 0);
                prop_assert!(found.eq(map.iter().map(|(bucket, count)| (*bucket, *count))));
                let (places, listed) = (all.buckets.places.len(), all.buckets.listed.len());
                // The last may stand several times in a run.
                let longest = runs.iter().map(Vec::len).max().unwrap_or(0).max(map.len());
                prop_assert!(places <= PLACES_MAX * longest, "{} places", places);
                prop_assert!(listed <= UNSETTLED_MIN.max(2 * map.len()), "{} listed", listed);
            }
            prop_assert_eq!(&all.buckets, &one_by_one.buckets);
        }
    }

    #[test]
    fn many_in_few_buckets_are_counted_by_place() {
        let mut all = Durations::default();
        let run = |buckets: std::ops::Range<u32>| buckets.map(|bucket| (bucket, 2));
        let places = |all: &Durations| (all.buckets.places.len(), all.buckets.listed.len());
        let mut check = |buckets, expected| {
            all.add_to_buckets(run(buckets));
            assert_eq!(places(&all), expected);
        };
        check(5_000..5_400, (400, 0));
        check(5_100..5_150, (400, 0));
        // A run goes on behind a gap, or begins before.
        check(5_500..6_000, (1_000, 0));
        check(4_900..5_200, (1_100, 0));
        // What is far away is listed, and what is few.
        check(40_000..40_100, (1_100, 100));
        check(6_000..6_020, (1_100, 120));
        // Until it is many.
        check(5_900..6_300, (1_400, 100));
    }

    #[test]
    fn sums_stop_at_the_largest_value() {
        let mut all = Durations::default();
        assert_eq!(all.add_to_buckets([(7, u64::MAX), (7, 1)].into_iter()), u64::MAX);
        let run = (0..1_000).map(|bucket| (bucket, u64::MAX));
        assert_eq!(all.add_to_buckets(run.clone()), u64::MAX);
        assert_eq!(all.add_to_buckets(run), u64::MAX);
        assert_eq!(all.spread().unwrap().count, u64::MAX);
    }

    #[test]
    fn nothing_has_no_spread() {
        assert_eq!(Durations::default().spread(), None);
    }
}
