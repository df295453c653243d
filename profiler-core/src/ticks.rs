//! Counts of a sampler's ticks.

use std::ops::{Add, AddAssign};

/// Counts of ticks, the instants at which a sampler looks at all threads. Adding never wraps.
///
/// ```
/// use emberline_profiler_core::Ticks;
///
/// let ticks = Ticks { made: 96, expected: 100, throttled: 3 };
/// assert_eq!((ticks + ticks).missed(), 2);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ticks {
    /// Ticks that were made.
    pub made: u64,
    /// Ticks that the interval asks for.
    pub expected: u64,
    /// Ticks that the sampler skipped to stay within its CPU limit; part of `expected`.
    pub throttled: u64,
}

impl Ticks {
    /// Ticks that were expected, and neither made nor throttled.
    #[must_use]
    pub const fn missed(self) -> u64 {
        self.expected
            .saturating_sub(self.made)
            .saturating_sub(self.throttled)
    }
}

impl AddAssign for Ticks {
    fn add_assign(&mut self, other: Ticks) {
        *self = *self + other;
    }
}

impl Add for Ticks {
    type Output = Ticks;

    fn add(self, other: Ticks) -> Ticks {
        Ticks {
            made: self.made.saturating_add(other.made),
            expected: self.expected.saturating_add(other.expected),
            throttled: self.throttled.saturating_add(other.throttled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from the wire may have any value.
    #[test]
    fn counts_stop_at_the_largest_value_and_at_nothing_missed() {
        let most = Ticks {
            made: u64::MAX,
            expected: 5,
            throttled: u64::MAX,
        };
        assert_eq!(
            most + most,
            Ticks {
                expected: 10,
                ..most
            }
        );
        assert_eq!(most.missed(), 0);
    }
}
