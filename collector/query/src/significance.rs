//! Whether two sides of a comparison differ by more than noise.
//!
//! Every question is reduced to shares: of the tasks of a side, how many failed, or took longer than a
//! quantile of both sides together. A difference of shares must exceed two kinds of noise:
//! - that of independent tasks, by **Fisher's exact test**: right from five tasks to millions, and with
//!   ties, because it counts;
//! - the fluctuation from one slice of time to the next, by **Welch's t-test on batch means**: tasks of
//!   one slice share their neighbors, caches and input, so thousands of them may say one thing.
//!
//! The larger p-value counts. Over many names, the **Benjamini-Hochberg** procedure bounds false alarms.
//! `docs/design/query.md` has the reasons.

use statrs::function::beta::beta_reg;
use statrs::function::gamma::ln_gamma;

/// Share of false alarms among the differences that are reported. If nothing differs, this is also the
/// probability that anything is.
pub const FALSE_ALARMS: f64 = 0.05;

/// Fewest slices with tasks on each side that show a fluctuation. With fewer, tasks count as independent.
const SLICES_MIN: usize = 4;

/// Tasks of one slice of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// Tasks with the property in question.
    pub hits: u64,
    /// All tasks.
    pub total: u64,
}

impl Share {
    fn sum(shares: &[Share]) -> Share {
        shares.iter().fold(Share::default(), |sum, share| Share {
            hits: sum.hits.saturating_add(share.hits),
            total: sum.total.saturating_add(share.total),
        })
    }
}

/// Evidence from the tasks of two sides about a difference of their shares.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Evidence {
    /// The probability of such a difference, or a larger one, between equal sides.
    pub p: f64,
    /// The smallest `p` that this number of tasks could have: if all hits were on one side.
    pub p_min: f64,
}

impl Evidence {
    /// Compares two sides, each by slice of time.
    pub fn of(before: &[Share], after: &[Share]) -> Evidence {
        let sums = [before, after].map(Share::sum);
        let hits = HitsOfFirst::new(sums);
        let [first, last] = hits.support();
        let of_slices = fluctuation_p(before, after).unwrap_or(0.0);
        Evidence {
            p: hits.p_value(sums[0].hits as f64).max(of_slices),
            p_min: hits.p_value(first).min(hits.p_value(last)),
        }
    }

    /// Of sides with this number of tasks that do not differ in any way.
    pub fn of_equal(before: u64, after: u64) -> Evidence {
        let none_of_all = Share {
            hits: 0,
            total: before,
        };
        let all_of_all = Share {
            hits: after,
            total: after,
        };
        Evidence {
            p: 1.0,
            ..Evidence::of(&[none_of_all], &[all_of_all])
        }
    }
}

/// Fisher's exact test: how many of all hits are on the first side, if hits fall on tasks of both sides
/// alike. That is hypergeometric.
#[derive(Clone, Copy, Debug)]
struct HitsOfFirst {
    hits: f64,
    first_total: f64,
    total: f64,
}

impl HitsOfFirst {
    fn new([first, last]: [Share; 2]) -> HitsOfFirst {
        HitsOfFirst {
            hits: first.hits as f64 + last.hits as f64,
            first_total: first.total as f64,
            total: first.total as f64 + last.total as f64,
        }
    }

    /// The least and the largest possible number.
    fn support(&self) -> [f64; 2] {
        let least = (self.hits + self.first_total - self.total).max(0.0);
        [least, self.hits.min(self.first_total)]
    }

    /// Twice the tail from `at` outwards.
    fn p_value(&self, at: f64) -> f64 {
        let mean = if self.total > 0.0 {
            self.hits * self.first_total / self.total
        } else {
            0.0
        };
        let downwards = at <= mean;
        let [least, most] = self.support();
        let mut at = at;
        let mut term = self.probability(at);
        let mut tail = term;
        // Each term is smaller than its predecessor, by a factor that falls.
        loop {
            if downwards && at > least {
                term *= self.ratio(at - 1.0).recip();
                at -= 1.0;
            } else if !downwards && at < most {
                term *= self.ratio(at);
                at += 1.0;
            } else {
                break;
            }
            tail += term;
            if term <= tail * f64::EPSILON {
                break;
            }
        }
        (2.0 * tail).min(1.0)
    }

    fn probability(&self, at: f64) -> f64 {
        let ln_choose =
            |n: f64, k: f64| ln_gamma(n + 1.0) - ln_gamma(k + 1.0) - ln_gamma(n - k + 1.0);
        let others = self.total - self.hits;
        let ln = ln_choose(self.hits, at) + ln_choose(others, self.first_total - at)
            - ln_choose(self.total, self.first_total);
        ln.exp()
    }

    /// The probability of `at + 1` by that of `at`.
    fn ratio(&self, at: f64) -> f64 {
        let others = self.total - self.hits - self.first_total;
        (self.hits - at) * (self.first_total - at) / ((at + 1.0) * (others + at + 1.0))
    }
}

/// Welch's t-test of two shares whose variance is that between slices; `None` with too few slices.
fn fluctuation_p(before: &[Share], after: &[Share]) -> Option<f64> {
    let [before, after] = [BatchMean::of(before)?, BatchMean::of(after)?];
    let difference = (before.mean - after.mean).abs();
    if difference == 0.0 {
        return Some(1.0);
    }
    let variance = before.variance + after.variance;
    let freedom = variance * variance / (freedom_part(&before) + freedom_part(&after));
    // Without any fluctuation, the division is 0 by 0.
    if !freedom.is_finite() {
        return Some(0.0);
    }
    let t_squared = difference * difference / variance;
    Some(beta_reg(
        freedom / 2.0,
        0.5,
        freedom / (freedom + t_squared),
    ))
}

/// Its term in the Welch–Satterthwaite formula for the degrees of freedom.
fn freedom_part(side: &BatchMean) -> f64 {
    side.variance * side.variance / side.freedom
}

/// A side's share, and the variance of it that its slices show.
#[derive(Clone, Copy, Debug)]
struct BatchMean {
    mean: f64,
    variance: f64,
    freedom: f64,
}

impl BatchMean {
    fn of(shares: &[Share]) -> Option<BatchMean> {
        let count = shares.iter().filter(|share| share.total > 0).count();
        if count < SLICES_MIN {
            return None;
        }
        let sum = Share::sum(shares);
        let total = sum.total as f64;
        let mean = sum.hits as f64 / total;
        // The ratio estimator, because slices have different numbers of tasks.
        let residuals = shares
            .iter()
            .map(|share| share.hits as f64 - mean * share.total as f64);
        let squares: f64 = residuals.map(|residual| residual * residual).sum();
        let freedom = (count - 1) as f64;
        let variance = squares * count as f64 / freedom / (total * total);
        Some(BatchMean {
            mean,
            variance,
            freedom,
        })
    }
}

/// The p-values that exceed noise, and those that could have: of all questions that are asked at once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Levels {
    /// Number of questions with enough tasks for any answer.
    pub tests: usize,
    /// The largest p-value that exceeds noise.
    pub significant: f64,
    /// Level that one more p-value would have needed.
    reachable: f64,
}

/// An answer about one difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Significance {
    ExceedsNoise,
    WithinNoise,
    /// With so few tasks no difference, however large, would exceed noise.
    TooFew,
}

impl Levels {
    /// Levels by Benjamini and Hochberg. Questions that no outcome could answer are not counted: that
    /// depends on the numbers of tasks, not on what they show.
    pub fn of(all: impl Iterator<Item = Evidence>) -> Levels {
        let mut p_values: Vec<f64> = all
            .filter(|one| one.p_min <= FALSE_ALARMS)
            .map(|one| one.p)
            .collect();
        p_values.sort_by(f64::total_cmp);
        let tests = p_values.len();
        let level = |rank: usize| FALSE_ALARMS * rank.min(tests) as f64 / tests.max(1) as f64;
        let rank = (1..=tests)
            .rev()
            .find(|rank| p_values[rank - 1] <= level(*rank))
            .unwrap_or(0);
        Levels {
            tests,
            significant: level(rank),
            reachable: level(rank + 1),
        }
    }

    pub fn judge(&self, evidence: Evidence) -> Significance {
        if evidence.p_min > self.reachable {
            Significance::TooFew
        } else if evidence.p <= self.significant {
            Significance::ExceedsNoise
        } else {
            Significance::WithinNoise
        }
    }
}

#[cfg(test)]
mod tests;
