//! What a profile was made from.

use flamegraph::text::{duration, tick_rate};
use profiler_core::Ticks;
use serde::Deserialize;

use super::{Span, grouped};
use crate::client::Answer;

/// How well a profile's range was sampled, as the headers of its answer say, and its body if that
/// is JSON.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Sampling {
    pub(crate) empty: bool,
    workers: Option<u64>,
    ticks: Option<Ticks>,
    sampled_ns: u64,
    data: Option<Span>,
    range: Option<Span>,
    total_ns: Option<u64>,
}

/// Fields of a profile's JSON that say what it is about.
#[derive(Deserialize)]
pub(crate) struct About {
    range: Span,
    totals: Totals,
}

#[derive(Deserialize)]
struct Totals {
    total_ns: u64,
}

impl Sampling {
    /// What the headers say.
    pub(crate) fn of(answer: &Answer) -> Self {
        let span = |name| {
            let text: Option<String> = answer.header(name);
            text.and_then(|text| Span::parse(&text))
        };
        let count = |name| answer.header(name).unwrap_or(0);
        Sampling {
            empty: answer.header("x-emberline-empty").unwrap_or(false),
            workers: answer.header("x-emberline-workers"),
            ticks: answer.header("x-emberline-ticks").map(|made| Ticks {
                made,
                expected: count("x-emberline-ticks-expected"),
                throttled: count("x-emberline-ticks-throttled"),
            }),
            sampled_ns: count("x-emberline-sampled-ns"),
            data: span("x-emberline-data"),
            range: span("x-emberline-range"),
            total_ns: answer.header("x-emberline-total-ns"),
        }
    }

    /// With what the body says.
    pub(crate) fn with(mut self, about: About) -> Self {
        self.range = Some(about.range);
        self.total_ns = Some(about.totals.total_ns);
        self
    }

    /// One line about a profile; `asked` is the range as it was typed.
    pub(crate) fn line(&self, asked: &str) -> String {
        let mut facts = Vec::new();
        if let Some(total_ns) = self.total_ns {
            facts.push(format!("{} of thread time", duration(total_ns)));
        }
        if let Some(workers) = self.workers {
            let plural = if workers == 1 { "" } else { "s" };
            facts.push(format!("{workers} worker{plural}"));
        }
        facts.push(self.range.as_ref().map_or(asked.to_owned(), Span::to_string));
        if let Some(ticks) = self.ticks {
            facts.push(format!("{} ticks", grouped(ticks.made)));
            facts.extend(tick_rate(ticks, self.sampled_ns));
        }
        facts.join(", ")
    }

    /// Why there is nothing to see, and where there is something.
    pub(crate) fn emptiness(&self, asked: &str) -> String {
        let range = self.range.as_ref().map_or(asked.to_owned(), Span::to_string);
        match &self.data {
            Some(data) => {
                format!("no samples of what was asked for in {range}; there is data from {data}")
            }
            None => {
                "the collector holds no samples yet; agents send theirs every second".to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: &str, to: &str) -> Option<Span> {
        Some(Span {
            from: format!("2026-01-31T12:{from}:00Z"),
            to: format!("2026-01-31T12:{to}:00Z"),
        })
    }

    #[test]
    fn a_line_says_how_well_it_was_sampled() {
        let sampling = Sampling {
            workers: Some(4),
            ticks: Some(Ticks { made: 11_532, expected: 12_000, throttled: 444 }),
            sampled_ns: 120_000_000_000,
            ..Sampling::default()
        };
        assert_eq!(
            sampling.line("-30s to now"),
            "4 workers, -30s to now, 11,532 ticks, 96.1 of 100 ticks/s, \
             3.7 skipped (agent CPU limit), 24 missed"
        );
        let about =
            About { range: span("00", "05").unwrap(), totals: Totals { total_ns: 83_000_000_000 } };
        assert_eq!(
            Sampling { workers: Some(1), ..Sampling::default() }.with(about).line(""),
            "1 m 23 s of thread time, 1 worker, \
             2026-01-31 12:00:00.000 UTC to 2026-01-31 12:05:00.000 UTC"
        );
    }

    #[test]
    fn an_empty_profile_says_where_there_is_data() {
        let mut sampling = Sampling { empty: true, data: span("00", "05"), ..Sampling::default() };
        assert_eq!(
            sampling.emptiness("-1m to now"),
            "no samples of what was asked for in -1m to now; there is data from \
             2026-01-31 12:00:00.000 UTC to 2026-01-31 12:05:00.000 UTC"
        );
        sampling.data = None;
        assert!(sampling.emptiness("").contains("no samples yet"));
    }
}
