//! Histogram buckets of durations, the same in agents that send sums instead of rows and in the
//! collector's tables.
//!
//! They are the buckets of HdrHistogram with three significant digits (2,048 sub-buckets) over all of
//! `u64`: a nanosecond wide up to 2,048 ns; from there on each doubling has 1,024 of equal width. No
//! bucket is wider than 1/1024 of its values, so a percentile is off by at most half a bucket, and
//! histograms merge by addition. A test compares every index with the `hdrhistogram` crate, which is
//! no dependency: its dense counts take 440 KB a histogram, where most have a few hundred buckets.

/// Buckets of each doubling, as a power of 2.
const FINE_BITS: u32 = 10;

/// Number of buckets; every duration has one below it.
pub const BUCKETS: u32 = (u64::BITS - FINE_BITS + 1) << FINE_BITS;

/// The bucket of a duration.
#[must_use]
pub const fn bucket(nanoseconds: u64) -> u32 {
    let bits = u64::BITS - nanoseconds.leading_zeros();
    let shift = bits.saturating_sub(FINE_BITS + 1);
    // Once bits are shifted out, the top 11 bits begin with a 1, so they continue the numbering.
    (shift << FINE_BITS) + (nanoseconds >> shift) as u32
}

/// The middle of a bucket, rounded down; the largest duration for an invalid bucket.
#[must_use]
pub const fn bucket_middle_ns(bucket: u32) -> u64 {
    if bucket >= BUCKETS {
        return u64::MAX;
    }
    let shift = (bucket >> FINE_BITS).saturating_sub(1);
    let first = ((bucket - (shift << FINE_BITS)) as u64) << shift;
    first + ((1 << shift) - 1) / 2
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use proptest::prelude::*;

    use super::*;

    /// Durations of every magnitude, not mostly the largest.
    fn durations() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..u64::BITS).prop_map(|(bits, shift)| bits >> shift)
    }

    proptest! {
        #[test]
        fn buckets_keep_order_and_are_at_most_a_1024th_wide(a in durations(), b in durations()) {
            prop_assert!(bucket(a) < BUCKETS);
            if bucket(a) != bucket(b) {
                prop_assert_eq!(bucket(a).cmp(&bucket(b)), a.cmp(&b));
            }
            let middle = bucket_middle_ns(bucket(a));
            prop_assert_eq!(bucket(middle), bucket(a));
            prop_assert!(middle.abs_diff(a) <= a / 2_048, "{} for {}", middle, a);
        }
    }

    #[test]
    fn every_bucket_is_the_one_of_hdrhistogram() {
        let histogram = Histogram::<u64>::new_with_bounds(1, u64::MAX, 3).unwrap();
        assert_eq!(histogram.distinct_values(), BUCKETS as usize);
        let mut index = 0;
        for step in histogram.iter_all() {
            let last = step.value_iterated_to();
            let first = histogram.lowest_equivalent(last);
            assert_eq!(
                [bucket(first), bucket(last)],
                [index, index],
                "{first} to {last}"
            );
            assert_eq!(bucket_middle_ns(index), first + (last - first) / 2);
            index += 1;
        }
        assert_eq!(index, BUCKETS);
    }

    #[test]
    fn bucket_numbers_match_those_in_stored_tables() {
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
    }

    fn check(nanoseconds: u64, expected: u32) {
        assert_eq!(bucket(nanoseconds), expected)
    }
}
