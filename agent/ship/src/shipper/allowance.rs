//! How fast the collector may give the agent work, whatever it sends.

use std::time::{Duration, Instant};

/// A stock of units that is used up by work and refilled at a constant rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    most: u32,
    per_second: u32,
    left: u32,
    refilled_at: Instant,
}

impl Allowance {
    /// A full stock of `most` units.
    pub(super) fn new(most: u32, per_second: u32, now: Instant) -> Allowance {
        Allowance {
            most,
            per_second,
            left: most,
            refilled_at: now,
        }
    }

    /// Returns the units left at `now`.
    pub(super) fn left(&mut self, now: Instant) -> u32 {
        let elapsed = now.saturating_duration_since(self.refilled_at);
        let earned = elapsed.as_nanos() * u128::from(self.per_second) / 1_000_000_000;
        let room = self.most - self.left;
        if earned >= u128::from(room) {
            self.left = self.most;
            self.refilled_at = now;
        } else if earned > 0 {
            let earned = earned as u32;
            self.left += earned;
            // Only the time that these units took, so that parts of a unit are not lost.
            self.refilled_at += Duration::from_secs(1) * earned / self.per_second;
        }
        self.left
    }

    /// Uses up `units`, at most those that remain.
    pub(super) fn spend(&mut self, units: u32) {
        self.left = self.left.saturating_sub(units);
    }

    /// Uses up one unit; returns whether one was left.
    pub(super) fn take_one(&mut self, now: Instant) -> bool {
        let is_left = self.left(now) > 0;
        self.spend(1);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_refilled_up_to_the_limit_without_losing_parts() {
        let begin = Instant::now();
        let mut allowance = Allowance::new(10, 3, begin);
        assert_eq!(allowance.left(begin), 10);
        allowance.spend(25);
        let mut taken = 0;
        // A third of a unit each time.
        for step in 1..=90 {
            let now = begin + Duration::from_nanos(111_111_112) * step;
            taken += u32::from(allowance.take_one(now));
        }
        assert_eq!(taken, 30);
        assert_eq!(allowance.left(begin + Duration::from_secs(3_600)), 10);
        assert_eq!(allowance.left(begin), 10, "time does not run backward");
    }
}
