//! Numbers from a seed.

/// SplitMix64 (Steele, Lea and Flood 2014): five lines, and a stream that never changes.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// An independent generator for the `index`-th of many.
    #[must_use]
    pub fn fork(&self, index: usize) -> Random {
        let mut random = Random(self.0 ^ (index as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
        Random(random.next())
    }

    /// Any number.
    #[allow(clippy::should_implement_trait, reason = "it has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        let product = u128::from(self.next()) * end as u128;
        usize::try_from(product >> 64).expect("it is below `end`")
    }

    /// A number from `low` to `high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// A number in [0, 1).
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, share: f64) -> bool {
        self.fraction() < share
    }
}

/// Ranks by Zipf's law: rank n is drawn in proportion to n^-`exponent`.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Cumulative weights of the ranks.
    sums: Vec<f64>,
}

impl Zipf {
    /// Over `count` ranks, at least one.
    #[must_use]
    pub fn new(count: usize, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        Zipf {
            sums: (1..=count)
                .map(|rank: usize| {
                    sum += (rank as f64).powf(-exponent);
                    sum
                })
                .collect(),
        }
    }

    /// A rank, from 0.
    pub fn draw(&self, random: &mut Random) -> usize {
        let last = self.sums.len() - 1;
        let point = random.fraction() * self.sums[last];
        self.sums.partition_point(|sum| *sum <= point).min(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_stream() {
        let mut random = Random(0);
        assert_eq!(random.next(), 0xe220_a839_7b1d_cdaf);
        assert_ne!(random.fork(1).next(), random.fork(2).next());
    }

    #[test]
    fn ranks_follow_zipfs_law() {
        let zipf = Zipf::new(100, 1.5);
        let mut random = Random(1);
        let mut counts = [0u32; 100];
        (0..100_000).for_each(|_| counts[zipf.draw(&mut random)] += 1);
        // The sum over 100 ranks of n^-1.5 is 2.4126.
        assert!((40_800..42_100).contains(&counts[0]), "{}", counts[0]);
        let ratio = f64::from(counts[0]) / f64::from(counts[1]);
        assert!((2.7..2.95).contains(&ratio), "{ratio}");
    }
}
