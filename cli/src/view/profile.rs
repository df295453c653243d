//! The range of a profile, and how well it was sampled.

use flamegraph::text::{duration, tick_rate};
use profiler_core::Ticks;

use super::{counted, grouped, span};
use crate::client::Answer;

/// The headers of a profile's answer, which all formats have.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Sampling {
    pub(crate) empty: bool,
    workers: u64,
    ticks: Ticks,
    sampled_ns: u64,
    total_ns: u64,
    /// The range of the answer.
    range: String,
    /// The span of all retained samples; empty if there are none.
    data: String,
}

impl Sampling {
    pub(crate) fn from_headers(answer: &Answer) -> Self {
        let count = |name| answer.header(name).unwrap_or(0);
        let range = |name| {
            let text: String = answer.header(name).unwrap_or_default();
            text.split_once('/').map_or(String::new(), |(from, to)| span(from, to))
        };
        Sampling {
            empty: answer.header("x-emberline-empty").unwrap_or(false),
            workers: count("x-emberline-workers"),
            ticks: Ticks {
                made: count("x-emberline-ticks"),
                expected: count("x-emberline-ticks-expected"),
                throttled: count("x-emberline-ticks-throttled"),
            },
            sampled_ns: count("x-emberline-sampled-ns"),
            total_ns: count("x-emberline-total-ns"),
            range: range("x-emberline-range"),
            data: range("x-emberline-data"),
        }
    }

    /// One line about the profile.
    pub(crate) fn line(&self) -> String {
        if self.empty && self.data.is_empty() {
            return "the collector has no samples yet; agents send theirs every second".to_owned();
        }
        if self.empty {
            let Sampling { range, data, .. } = self;
            return format!("no matching samples in {range}; there is data from {data}");
        }
        let mut facts = vec![
            format!("{} of thread time", duration(self.total_ns)),
            counted(self.workers, "worker"),
            self.range.clone(),
            format!("{} ticks", grouped(self.ticks.made)),
        ];
        facts.extend(tick_rate(self.ticks, self.sampled_ns));
        facts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling() -> Sampling {
        Sampling {
            empty: false,
            workers: 4,
            ticks: Ticks { made: 11_532, expected: 12_000, throttled: 444 },
            sampled_ns: 120_000_000_000,
            total_ns: 83_000_000_000,
            range: span("2026-01-31T12:00:00Z", "2026-01-31T12:05:00Z"),
            data: span("2026-01-31T11:00:00Z", "2026-01-31T12:05:00Z"),
        }
    }

    #[test]
    fn a_line_has_range_time_and_sampling_quality() {
        assert_eq!(
            sampling().line(),
            "1 m 23 s of thread time, 4 workers, \
             2026-01-31 12:00:00.000 UTC to 2026-01-31 12:05:00.000 UTC, 11,532 ticks, \
             96.1 of 100 ticks/s, 3.7 skipped (agent CPU limit), 24 missed"
        );
    }

    #[test]
    fn an_empty_profile_names_the_span_of_the_data() {
        let mut sampling = Sampling { empty: true, ..sampling() };
        assert_eq!(
            sampling.line(),
            "no matching samples in 2026-01-31 12:00:00.000 UTC to 2026-01-31 12:05:00.000 UTC; \
             there is data from 2026-01-31 11:00:00.000 UTC to 2026-01-31 12:05:00.000 UTC"
        );
        sampling.data.clear();
        assert!(sampling.line().contains("no samples yet"));
    }
}
