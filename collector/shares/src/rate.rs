//! Pacing: an amount a second, with a burst.

use std::time::{Duration, Instant};

use base::limits::{QUOTA_BURST, QUOTA_WAIT_MAX};
use base::sync::{Mutex, lock, rank};

/// A token bucket that holds what [`QUOTA_BURST`] brings. Amounts are charged before they are waited
/// for, so those who wait need no queue: each waits until what was charged before it is paid.
#[derive(Debug)]
pub(super) struct Rate {
    per_second: u64,
    /// When everything charged so far is paid; `None` before the first charge.
    paid_at: Mutex<Option<Instant>, rank::AccountRate>,
}

/// The bucket stays empty for longer than anyone should wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooFast {
    /// When it is no longer so.
    pub retry_after: Duration,
}

impl Rate {
    pub(super) fn new(per_second: u64) -> Rate {
        Rate {
            per_second: per_second.max(1),
            paid_at: Mutex::default(),
        }
    }

    /// Charges an amount of any size. Returns how long to wait until it may be used.
    pub(super) fn charge(&self, amount: u64, now: Instant) -> Result<Duration, TooFast> {
        let mut paid_at = lock(&self.paid_at);
        let start = paid_at.map_or(now, |paid_at| paid_at.max(now));
        let wait = start.duration_since(now).saturating_sub(QUOTA_BURST);
        if wait > QUOTA_WAIT_MAX {
            return Err(TooFast { retry_after: wait });
        }
        let cost_ns = u128::from(amount) * 1_000_000_000 / u128::from(self.per_second);
        let cost = Duration::from_nanos(u64::try_from(cost_ns).unwrap_or(u64::MAX));
        *paid_at = start.checked_add(cost).or(*paid_at);
        Ok(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_each_amount_waits_for_those_before_it() {
        let rate = Rate::new(100);
        let begin = Instant::now();
        let burst = 100 * QUOTA_BURST.as_secs();
        assert_eq!(rate.charge(burst, begin), Ok(Duration::ZERO));
        // It ends exactly where the burst does.
        assert_eq!(rate.charge(100, begin), Ok(Duration::ZERO));
        assert_eq!(rate.charge(150, begin), Ok(Duration::from_secs(1)));
        assert_eq!(rate.charge(10, begin), Ok(Duration::from_millis(2_500)));
        assert_eq!(
            rate.charge(0, begin + Duration::from_secs(2)),
            Ok(Duration::from_millis(600))
        );
    }

    #[test]
    fn what_is_refused_is_not_charged_and_a_large_amount_passes_after_a_rest() {
        let rate = Rate::new(100);
        let begin = Instant::now();
        assert_eq!(
            rate.charge(1_000_000, begin),
            Ok(Duration::ZERO),
            "of any size"
        );
        let retry_after = Duration::from_secs(10_000) - QUOTA_BURST;
        for _ in 0..1_000 {
            assert_eq!(rate.charge(100, begin), Err(TooFast { retry_after }));
        }
        assert_eq!(rate.charge(100, begin + retry_after), Ok(Duration::ZERO));
        assert_eq!(
            rate.charge(u64::MAX, begin + 2 * retry_after),
            Ok(Duration::ZERO)
        );
    }
}
