//! Buckets that durations are counted in, by agents that send sums instead of rows and in the
//! collector's tables alike.
//!
//! Buckets are a nanosecond wide up to 2,048 ns; from there on, each doubling of the duration has
//! 1,024 of equal width, so that none is wider than 1/1024 of what it holds. So sets of durations
//! merge by addition, and a percentile is off by half a bucket at most.

/// Buckets of each doubling, as a power of 2.
const FINE_BITS: u32 = 10;

/// Number of buckets; no duration has one past it.
pub const BUCKETS: u32 = (u64::BITS - FINE_BITS + 1) << FINE_BITS;

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
    }
}
