//! How long young threads wait for processors, for each part of a thread's own account.

use crate::registry::EarlyTime;

/// Turns on a processor after which older waits count half.
const WAITS_KEPT: u64 = 1_000;

/// How long threads of the program wait for a processor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    ns: f64,
    /// The sum of the squares of all waits.
    squares: f64,
    turns: u64,
}

impl Waits {
    /// Adds the waits before some turns on a processor. Later ones count more.
    pub(super) fn add(&mut self, ns: u64, turns: u64) {
        if turns == 0 {
            return;
        }
        if self.turns >= WAITS_KEPT {
            *self = Waits {
                ns: self.ns / 2.0,
                squares: self.squares / 2.0,
                turns: self.turns / 2,
            };
        }
        self.ns += ns as f64;
        self.squares += ns as f64 * ns as f64 / turns as f64;
        self.turns += turns;
    }

    /// The wait before a turn, on average.
    pub(super) fn mean_ns(self) -> u64 {
        (self.ns / self.turns.max(1) as f64) as u64
    }

    /// The waits before `turns` turns, each as long as the wait that a moment of waiting belongs to, on average.
    pub(super) fn of_turns(self, turns: u64) -> u64 {
        (self.squares / self.ns.max(1.0) * turns as f64) as u64
    }
}

/// A thread's waits for processors since it began to measure itself, as the kernel reports them.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportedDelay {
    /// All waits that have ended.
    pub(super) ns: u64,
    /// Whether it waits now.
    pub(super) is_waiting: bool,
}

/// Divides a young thread's waits among the parts of its account. In a part without a block it waited for a processor
/// whenever it did not run. Parts with blocks have the rest of what the kernel reports, by their turns.
#[derive(Debug)]
pub(super) struct EarlyWaits {
    is_reported: bool,
    /// The wait that has not ended.
    unreported_ns: u64,
    off_cpu_ns: u64,
    /// Waits and turns of the parts with blocks that follow.
    rest_ns: u64,
    rest_turns: u64,
}

impl EarlyWaits {
    /// `times` are the parts of the account, the present one last.
    pub(super) fn new(
        waits: Waits,
        reported: Option<ReportedDelay>,
        times: impl Iterator<Item = EarlyTime>,
    ) -> EarlyWaits {
        let mut off_cpu_ns = 0;
        let mut last_ns = 0;
        let mut certain_ns = 0;
        let mut rest_turns = 0;
        for time in times {
            last_ns = time.off_cpu_ns();
            off_cpu_ns += last_ns;
            match time.blocks {
                0 => certain_ns += last_ns,
                blocks => rest_turns += blocks + time.preemptions,
            }
        }
        let delay = reported.unwrap_or(ReportedDelay {
            ns: 0,
            is_waiting: false,
        });
        let unreported_ns = if !delay.is_waiting {
            0
        } else if rest_turns == 0 {
            certain_ns.saturating_sub(delay.ns)
        } else {
            // On average, half of the wait is over.
            (waits.of_turns(1) / 2).min(last_ns)
        };
        EarlyWaits {
            is_reported: reported.is_some(),
            unreported_ns,
            off_cpu_ns,
            rest_ns: (delay.ns + unreported_ns).saturating_sub(certain_ns),
            rest_turns,
        }
    }

    /// The waits of the next part; `None` if only samples or the waits of other threads tell them.
    pub(super) fn of(&mut self, time: EarlyTime) -> Option<u64> {
        if time.blocks == 0 {
            return Some(time.off_cpu_ns());
        }
        if !self.is_reported {
            return None;
        }
        let turns = time.blocks + time.preemptions;
        let share =
            u128::from(self.rest_ns) * u128::from(turns) / u128::from(self.rest_turns.max(1));
        let share_ns = u64::try_from(share).unwrap_or(self.rest_ns);
        let waited_ns = share_ns.min(time.off_cpu_ns());
        self.rest_ns -= waited_ns;
        self.rest_turns -= turns;
        Some(waited_ns)
    }

    /// The part of the waits that the kernel will report later.
    pub(super) fn unreported_ns(&self) -> u64 {
        self.unreported_ns
    }

    /// The time off the processor of all parts.
    pub(super) fn off_cpu_ns(&self) -> u64 {
        self.off_cpu_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(elapsed_ns: u64, blocks: u64, preemptions: u64) -> EarlyTime {
        EarlyTime {
            word: 0,
            elapsed_ns,
            cpu_ns: 0,
            blocks,
            preemptions,
        }
    }

    fn divided(waits: Waits, delay: ReportedDelay, parts: &[EarlyTime]) -> Vec<u64> {
        let mut divided = EarlyWaits::new(waits, Some(delay), parts.iter().copied());
        parts
            .iter()
            .map(|time| divided.of(*time).unwrap_or(0))
            .collect()
    }

    #[test]
    fn long_waits_count_for_as_long_as_they_are() {
        let mut waits = Waits::default();
        assert_eq!(waits.of_turns(3), 0, "nothing is known");
        (0..100).for_each(|_| waits.add(1_000, 1));
        assert_eq!(waits.of_turns(2), 2_000);
        waits.add(900_000, 1);
        let long = waits.of_turns(1);
        assert!(
            (800_000..900_000).contains(&long),
            "nine tenths of the time is in it: {long}"
        );
        (0..4 * WAITS_KEPT).for_each(|_| waits.add(1_000, 1));
        assert!(waits.of_turns(1) < 100_000, "it was long ago");
    }

    #[test]
    fn a_thread_that_slept_did_not_wait_as_others_did() {
        let mut waits = Waits::default();
        (0..100).for_each(|_| waits.add(900_000, 1));
        let delay = ReportedDelay {
            ns: 30,
            is_waiting: false,
        };
        assert_eq!(divided(waits, delay, &[part(500_000, 1, 0)]), [30]);
        let parts = [part(100, 0, 3), part(500_000, 2, 0), part(400_000, 1, 0)];
        assert_eq!(divided(waits, delay, &parts), [100, 0, 0]);
        let delay = ReportedDelay {
            ns: 190,
            is_waiting: false,
        };
        assert_eq!(divided(waits, delay, &parts), [100, 60, 30]);
    }

    #[test]
    fn a_wait_that_has_not_ended_counts() {
        let mut waits = Waits::default();
        (0..100).for_each(|_| waits.add(900, 1));
        let delay = ReportedDelay {
            ns: 30,
            is_waiting: true,
        };
        let computes = part(500, 0, 0);
        let has_slept = part(5_000, 1, 0);
        assert_eq!(divided(waits, delay, &[computes]), [500]);
        assert_eq!(divided(waits, delay, &[has_slept]), [30 + 450]);
        let unreported = |parts: &[EarlyTime]| {
            EarlyWaits::new(waits, Some(delay), parts.iter().copied()).unreported_ns()
        };
        assert_eq!(unreported(&[computes]), 470);
        assert_eq!(unreported(&[has_slept]), 450);
    }

    proptest! {
        #[test]
        fn waits_are_those_that_the_kernel_reports(
            delay_ns in 0..1_000_000u64,
            parts in prop::collection::vec((0..1_000_000u64, 0..5u64, 0..5u64), 1..9),
        ) {
            let parts: Vec<EarlyTime> = parts
                .into_iter()
                .map(|(elapsed_ns, blocks, preemptions)| part(elapsed_ns, blocks, preemptions))
                .collect();
            let delay = ReportedDelay { ns: delay_ns, is_waiting: false };
            let divided = divided(Waits::default(), delay, &parts);
            let certain: u64 = parts.iter().filter(|part| part.blocks == 0).map(EarlyTime::off_cpu_ns).sum();
            let sum: u64 = divided.iter().sum();
            prop_assert!(sum <= delay_ns.max(certain), "{sum}");
            prop_assert!(parts.iter().zip(&divided).all(|(part, waited)| *waited <= part.off_cpu_ns()));
        }
    }
}
