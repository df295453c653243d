//! The range of a profile, and how well it was sampled.

use flamegraph::text::{duration, percentage, printable, tick_rate, wrapped};
use profiler_core::Ticks;

use super::{counted, span};
use crate::client::Answer;
use crate::grid::line_columns;

/// Time that is not shown.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Hidden {
    /// The reason, and the option that shows it.
    reason: &'static str,
    hidden_ns: u64,
}

/// A smaller share of time without names is not mentioned. The page's limit, too.
const UNNAMED_PERCENT_MIN: u64 = 1;

/// The headers with the time that is not shown, and the reasons.
const HIDDEN: [(&str, &str); 6] = [
    ("x-emberline-hidden-outside-ns", "outside tasks (--outside)"),
    ("x-emberline-hidden-cpu-ns", "on CPU (--state cpu)"),
    ("x-emberline-hidden-runnable-ns", "runnable (--runnable)"),
    ("x-emberline-hidden-wait-ns", "waiting (--waiting)"),
    ("x-emberline-hidden-functions-ns", "by --focus and --hide"),
    ("x-emberline-hidden-zoom-ns", "outside of the zoom"),
];

/// The headers of a profile's answer, which all formats have.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Sampling {
    pub(crate) empty: bool,
    workers: u64,
    ticks: Ticks,
    sampled_ns: u64,
    total_ns: u64,
    /// Time in functions without a name, and the build id of most of it.
    unnamed_ns: u64,
    unnamed_build_id: String,
    /// Whether names are being looked up.
    pending: bool,
    /// Time that is not shown, by reason.
    hidden: Vec<Hidden>,
    /// Options that select no function.
    unmatched: Vec<String>,
    /// The range of the answer.
    range: String,
    /// The span of all retained samples; empty if there are none.
    data: String,
}

impl Sampling {
    pub(crate) fn from_headers(answer: &Answer) -> Self {
        Sampling {
            empty: answer.header("x-emberline-empty").unwrap_or(false),
            workers: answer.count("x-emberline-workers"),
            ticks: Ticks {
                made: answer.count("x-emberline-ticks"),
                expected: answer.count("x-emberline-ticks-expected"),
                throttled: answer.count("x-emberline-ticks-throttled"),
            },
            sampled_ns: answer.count("x-emberline-sampled-ns"),
            total_ns: answer.count("x-emberline-total-ns"),
            unnamed_ns: answer.count("x-emberline-unnamed-ns"),
            unnamed_build_id: answer
                .header("x-emberline-unnamed-build-id")
                .unwrap_or_default(),
            pending: answer
                .header("x-emberline-unnamed-pending")
                .unwrap_or(false),
            hidden: HIDDEN
                .iter()
                .map(|(name, reason)| Hidden {
                    reason,
                    hidden_ns: answer.count(name),
                })
                .filter(|hidden| hidden.hidden_ns > 0)
                .collect(),
            unmatched: unmatched_options(
                &answer
                    .header::<String>("x-emberline-unmatched")
                    .unwrap_or_default(),
            ),
            range: shown_range(answer, "x-emberline-range"),
            data: shown_range(answer, "x-emberline-data"),
        }
    }

    /// Time, range and quality of the profile, and what is hidden if anything is.
    pub(crate) fn lines(&self) -> Vec<String> {
        if self.empty {
            return self.why_empty();
        }
        let workers = counted(self.workers, "worker");
        let mut lines = vec![
            format!("{} of thread time, {workers}", duration(self.total_ns)),
            self.range.clone(),
        ];
        lines.extend(tick_rate(self.ticks, self.sampled_ns));
        lines.extend(self.hidden_line());
        lines.extend(self.unmatched_lines());
        lines.extend(self.unnamed_line());
        lines
    }

    fn why_empty(&self) -> Vec<String> {
        if self.data.is_empty() {
            return vec![
                "the collector has no samples yet; agents send theirs every second".to_owned(),
            ];
        }
        if let Some(hidden) = self.hidden_line() {
            let mut lines = vec![
                "all matching time is hidden".to_owned(),
                self.range.clone(),
                hidden,
            ];
            lines.extend(self.unmatched_lines());
            return lines;
        }
        let data = format!("there is data from {}", self.data);
        vec!["no matching samples".to_owned(), self.range.clone(), data]
    }

    /// How much time has no names, and the command that supplies them. A small share hides no function
    /// that matters.
    fn unnamed_line(&self) -> Option<String> {
        if self.unnamed_ns == 0 || self.unnamed_ns < self.total_ns / 100 * UNNAMED_PERCENT_MIN {
            return None;
        }
        let share = percentage(self.unnamed_ns, self.total_ns);
        let what = format!("no names for {} ({share})", duration(self.unnamed_ns));
        if self.pending {
            return Some(format!(
                "{what}: they are being read; ask again in a few seconds"
            ));
        }
        let in_build = format!(", most of it in build id\n  {}", self.unnamed_build_id);
        let most = if self.unnamed_build_id.is_empty() {
            ""
        } else {
            &in_build
        };
        Some(format!(
            "{what}{most}\nto supply them: emberline symbols upload FILE"
        ))
    }

    fn unmatched_lines(&self) -> impl Iterator<Item = String> {
        let lines = self.unmatched.iter();
        lines.map(|option| {
            format!("no function matches {option}; names are as shown, and re:PATTERN is a pattern")
        })
    }

    fn hidden_line(&self) -> Option<String> {
        let parts: Vec<String> = self
            .hidden
            .iter()
            .map(|hidden| format!("{} {}", duration(hidden.hidden_ns), hidden.reason))
            .collect();
        (!parts.is_empty()).then(|| wrapped("hidden: ", &parts, line_columns()))
    }
}

/// Returns the options in a header, which are written as in a query.
fn unmatched_options(header: &str) -> Vec<String> {
    let pairs = form_urlencoded::parse(header.as_bytes());
    pairs
        .map(|(purpose, selector)| format!("--{} {}", printable(&purpose), printable(&selector)))
        .collect()
}

fn shown_range(answer: &Answer, name: &str) -> String {
    let text: String = answer.header(name).unwrap_or_default();
    text.split_once('/')
        .map_or(String::new(), |(from, to)| span(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling() -> Sampling {
        Sampling {
            empty: false,
            workers: 4,
            ticks: Ticks {
                made: 11_532,
                expected: 12_000,
                throttled: 444,
            },
            sampled_ns: 120_000_000_000,
            total_ns: 83_000_000_000,
            unnamed_ns: 0,
            unnamed_build_id: String::new(),
            pending: false,
            hidden: Vec::new(),
            unmatched: Vec::new(),
            range: span("2026-01-31T12:00:00Z", "2026-01-31T12:05:00Z"),
            data: span("2026-01-31T11:00:00Z", "2026-01-31T12:05:00Z"),
        }
    }

    #[test]
    fn lines_have_time_range_and_sampling_quality_and_fit_80_columns() {
        let lines = sampling().lines();
        assert_eq!(
            lines,
            [
                "1 min 23 s of thread time, 4 workers",
                "2026-01-31 12:00:00.000 UTC to 2026-01-31 12:05:00.000 UTC",
                "96.1 of 100 ticks/s, 3.7 skipped (agent CPU limit), 24 missed",
            ]
        );
        assert!(lines.iter().all(|line| line.len() <= 80), "{lines:?}");
    }

    #[test]
    fn hidden_time_is_listed_with_the_options_that_show_it() {
        assert_eq!(sampling().lines().len(), 3);
        let hidden = [
            ("outside tasks (--outside)", 90_000_000_000),
            ("runnable (--runnable)", 211_000_000_000),
            ("waiting (--waiting)", 5),
        ]
        .map(|(reason, hidden_ns)| Hidden { reason, hidden_ns });
        let sampling = Sampling {
            hidden: hidden.into(),
            ..sampling()
        };
        let expected = "hidden: 1 min 30 s outside tasks (--outside), 3 min 31 s runnable (--runnable),\n  \
                        5 ns waiting (--waiting)";
        assert_eq!(sampling.lines()[3], expected);
    }

    #[test]
    fn time_without_names_is_said_if_it_matters() {
        let build_id = "b0af7178ba47aca58d16966d2c4d17c913589189".to_owned();
        let sampling = |unnamed_ns| Sampling {
            unnamed_ns,
            unnamed_build_id: build_id.clone(),
            ..sampling()
        };
        let lines = sampling(8_300_000_000).lines();
        let expected = "no names for 8.30 s (10.0%), most of it in build id\n  \
                        b0af7178ba47aca58d16966d2c4d17c913589189\nto supply them: emberline symbols upload FILE";
        assert_eq!(lines[3], expected);
        assert_eq!(sampling(800_000_000).lines().len(), 3);
    }

    #[test]
    fn options_that_select_nothing_are_said() {
        let sampling = Sampling {
            unmatched: unmatched_options("focus=nosuch&hide=operator%28%29+%28int%29"),
            ..sampling()
        };
        let lines = sampling.lines();
        let advice = "; names are as shown, and re:PATTERN is a pattern";
        assert_eq!(
            lines[3..],
            [
                format!("no function matches --focus nosuch{advice}"),
                format!("no function matches --hide operator() (int){advice}"),
            ]
        );
    }

    #[test]
    fn an_empty_profile_names_the_span_of_the_data() {
        let mut sampling = Sampling {
            empty: true,
            ..sampling()
        };
        assert_eq!(
            sampling.lines(),
            [
                "no matching samples",
                "2026-01-31 12:00:00.000 UTC to 2026-01-31 12:05:00.000 UTC",
                "there is data from 2026-01-31 11:00:00.000 UTC to 2026-01-31 12:05:00.000 UTC",
            ]
        );
        assert!(sampling.lines().iter().all(|line| line.len() <= 80));
        sampling.hidden = vec![Hidden {
            reason: "waiting (--waiting)",
            hidden_ns: 5,
        }];
        assert_eq!(
            sampling.lines(),
            [
                "all matching time is hidden",
                "2026-01-31 12:00:00.000 UTC to 2026-01-31 12:05:00.000 UTC",
                "hidden: 5 ns waiting (--waiting)",
            ]
        );
        sampling.data.clear();
        assert!(sampling.lines()[0].contains("no samples yet"));
    }
}
