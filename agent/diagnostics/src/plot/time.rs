//! The common time axis of all plots.

use std::fmt::Write as _;

use profiler_core::Timestamp;

use super::source::Source;

/// A plot's width in units, in which it is zoomed. Integers up to this are exact in the `f32` with which
/// browsers draw.
pub(super) const UNITS: u64 = 10_000_000;

/// Approximate number of ticks of a scale.
const TICKS: f64 = 8.0;

/// Length of an empty picture.
const EMPTY_NS: u64 = 1_000_000_000;

/// The time from the start of the first plot to the end of the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Axis {
    pub(super) from: Timestamp,
    /// Not 0.
    pub(super) length_ns: u64,
}

impl Axis {
    /// Returns an axis for all results and observed periods.
    pub(super) fn of(sources: &[Source]) -> Axis {
        let mut range: Option<(Timestamp, Timestamp)> = None;
        let mut include = |time: Timestamp| {
            let (from, to) = range.unwrap_or((time, time));
            range = Some((from.min(time), to.max(time)));
        };
        for source in sources {
            let observed = match source {
                Source::Tasks {
                    results, observed, ..
                } => {
                    for task in results {
                        include(task.started_at);
                        include(task.finished_at);
                    }
                    observed
                }
                Source::Resources {
                    results, observed, ..
                } => {
                    results.iter().for_each(|row| include(row.at));
                    observed
                }
                Source::Caches {
                    results, observed, ..
                } => {
                    for value in results {
                        include(value.entered_at);
                        value.exited_at.into_iter().for_each(&mut include);
                    }
                    observed
                }
            };
            observed
                .from
                .into_iter()
                .chain(observed.to)
                .for_each(&mut include);
        }
        let (from, to) = range.unwrap_or_default();
        let length_ns = if from == to {
            EMPTY_NS
        } else {
            to.since_ns(from)
        };
        Axis { from, length_ns }
    }

    pub(super) fn to(&self) -> Timestamp {
        self.from
            .shifted(i64::try_from(self.length_ns).unwrap_or(i64::MAX))
    }

    /// The position of a time, from 0 to [`UNITS`].
    pub(super) fn x(&self, time: Timestamp) -> u64 {
        let since = u128::from(time.since_ns(self.from).min(self.length_ns));
        let x = since * u128::from(UNITS) / u128::from(self.length_ns);
        u64::try_from(x).unwrap_or(UNITS)
    }

    /// Returns the ticks in seconds from the start, and the decimals that they need.
    pub(super) fn ticks_seconds(&self) -> (Vec<f64>, usize) {
        let length = self.length_ns as f64 / 1e9;
        let step = nice_step(length / TICKS);
        let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        (
            (0..)
                .map(|index| f64::from(index) * step)
                .take_while(|tick| *tick <= length)
                .collect(),
            decimals,
        )
    }

    /// Returns lines at the ticks for a plot of this height.
    pub(super) fn grid(&self, height: f64) -> String {
        let mut path = String::new();
        for tick in self.ticks_seconds().0 {
            let _ = write!(path, "M{} 0V{height}", self.x_of_seconds(tick));
        }
        format!("<path class=\"grid\" d=\"{path}\"/>\n")
    }

    pub(super) fn x_of_seconds(&self, seconds: f64) -> u64 {
        (seconds * 1e9 / self.length_ns as f64 * UNITS as f64) as u64
    }
}

/// Returns the smallest of 1, 2 and 5 times a power of ten that is at least `step`.
pub(super) fn nice_step(step: f64) -> f64 {
    if !step.is_finite() || step <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(step.log10().floor());
    let nice = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    nice.into_iter()
        .find(|nice| *nice >= step * 0.999_999)
        .unwrap_or(10.0 * power)
}

/// A scale that starts at 0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Scale {
    pub(super) top: f64,
    pub(super) step: f64,
}

/// The scale that includes `max` and `min`.
pub(super) fn nice_scale(max: f64, min: f64) -> Scale {
    let max = if max.is_finite() { max.max(min) } else { min };
    let step = nice_step(max / 4.0);
    Scale {
        top: step * (max / step - 1e-9).ceil(),
        step,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_scales_are_round() {
        for (step, expected) in [
            (0.9, 1.0),
            (1.0, 1.0),
            (1.1, 2.0),
            (3.0, 5.0),
            (7.0, 10.0),
            (0.03, 0.05),
        ] {
            assert!(
                (nice_step(step) - expected).abs() < 1e-12 * expected,
                "{step}"
            );
        }
        for (max, min, expected) in [
            (380.0, 100.0, (400.0, 100.0)),
            (12.0, 100.0, (100.0, 50.0)),
            (1_050.0, 1.0, (1_500.0, 500.0)),
            (f64::NAN, 1.0, (1.0, 0.5)),
            (f64::INFINITY, 1.0, (1.0, 0.5)),
        ] {
            let scale = nice_scale(max, min);
            assert_eq!((scale.top, scale.step), expected, "{max}");
        }
        for step in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(nice_step(step), 1.0);
        }
    }

    #[test]
    fn times_are_clamped_to_the_axis() {
        let at = Timestamp::from_unix_ns;
        let axis = Axis {
            from: at(100),
            length_ns: 50,
        };
        for (time, expected) in [
            (100, 0),
            (125, UNITS / 2),
            (150, UNITS),
            (99, 0),
            (151, UNITS),
            (i64::MAX, UNITS),
        ] {
            assert_eq!(axis.x(at(time)), expected, "{time}");
        }
        let all = Axis {
            from: Timestamp::MIN,
            length_ns: u64::MAX,
        };
        assert_eq!((all.x(Timestamp::MIN), all.x(Timestamp::MAX)), (0, UNITS));
        assert_eq!(Axis::of(&[]).length_ns, EMPTY_NS);
    }
}
