//! Contestants that take turns, and the table of their times.

use std::fmt;
use std::time::{Duration, Instant};

/// Fewest rounds with a meaningful median on a shared machine.
pub(super) const ROUNDS_MIN: u32 = 7;

/// One way to do a job.
pub(super) struct Contestant<'a> {
    name: &'static str,
    /// Does the job once; returns the time of the measured part and its number of operations.
    run: Box<dyn FnMut() -> (Duration, usize) + 'a>,
}

impl<'a> Contestant<'a> {
    pub(super) fn new(
        name: &'static str,
        run: impl FnMut() -> (Duration, usize) + 'a,
    ) -> Contestant<'a> {
        Contestant {
            name,
            run: Box::new(run),
        }
    }
}

/// One contestant's nanoseconds per operation, round by round.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Timings(Vec<f64>);

impl Timings {
    /// Times that were measured elsewhere, of at least one round.
    pub(super) fn new(rounds: Vec<f64>) -> Timings {
        assert!(!rounds.is_empty(), "timings need at least one round");
        Timings(rounds)
    }

    /// These times as multiples of `other`, round by round: other work on the machine slows both
    /// in the same round.
    pub(super) fn over(&self, other: &Timings) -> Timings {
        Timings(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }

    pub(super) fn summary(&self) -> Summary {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Summary {
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
        }
    }
}

/// Median, least and most.
pub(super) struct Summary {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { median, min, max } = *self;
        let decimals = if median < 10.0 {
            2
        } else {
            usize::from(median < 1_000.0)
        };
        write!(f, "{median:.decimals$} ({min:.decimals$}–{max:.decimals$})")
    }
}

/// Times `work`. The optimizer must not drop its result.
pub(super) fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    std::hint::black_box(work());
    start.elapsed()
}

/// Runs the contestants in turns: once each without counting, then `rounds` times each.
pub(super) fn run(contestants: &mut [Contestant<'_>], rounds: u32) -> Vec<Timings> {
    let mut took: Vec<Vec<f64>> = contestants.iter().map(|_| Vec::new()).collect();
    for round in 0..=rounds {
        for (contestant, took) in contestants.iter_mut().zip(&mut took) {
            let (time, operations) = (contestant.run)();
            if round > 0 {
                took.push(time.as_secs_f64() * 1e9 / operations as f64);
            }
        }
    }
    took.into_iter().map(Timings).collect()
}

/// Prints a Markdown table with a row for each contestant: the median with the least and the most.
/// `unit` names one operation; `bases` are the contestants that ratios refer to.
pub(super) fn print(contestants: &[Contestant<'_>], took: &[Timings], unit: &str, bases: &[usize]) {
    let mut head = format!("| | ns each {unit} | million a second |");
    let mut rule = "|---|--:|--:|".to_owned();
    for base in bases {
        head += &format!(" time, as multiple of {} |", contestants[*base].name);
        rule += "--:|";
    }
    println!("{head}\n{rule}");
    for (contestant, one) in contestants.iter().zip(took) {
        let summary = one.summary();
        let millions = 1e3 / summary.median;
        print!("| {} | {summary} | {millions:.2} |", contestant.name);
        for base in bases {
            print!(" {} |", one.over(&took[*base]).summary());
        }
        println!();
    }
    println!();
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn contestants_take_turns_and_the_first_turn_does_not_count() {
        let turns = RefCell::new(String::new());
        let mut took_ns = [900u64, 80, 20, 40].into_iter();
        let mut contestants = [
            Contestant::new("a", || {
                turns.borrow_mut().push('a');
                (Duration::from_nanos(took_ns.next().unwrap()), 10)
            }),
            Contestant::new("b", || {
                turns.borrow_mut().push('b');
                (Duration::from_nanos(4), 1)
            }),
        ];
        let took = run(&mut contestants, 3);
        drop(contestants);
        assert_eq!(turns.into_inner(), "abababab");
        assert_eq!(took[0].0, [8.0, 2.0, 4.0]);
        assert_eq!(took[0].over(&took[1]).0, [2.0, 0.5, 1.0]);
        assert_eq!(took[0].summary().to_string(), "4.00 (2.00–8.00)");
    }

    #[test]
    fn the_median_of_an_even_number_is_the_midpoint() {
        assert_eq!(Timings(vec![4.0, 1.0, 2.0, 9.0]).summary().median, 3.0);
    }
}
