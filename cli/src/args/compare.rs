//! `emberline compare`

use clap::{Args, ValueEnum};

use super::query::{OutputArgs, UrlArgs};

/// `emberline compare`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline compare                                with the 5 minutes before\n  \
    emberline compare --before 16:00..16:30 --after 17:00..17:30\n  \
    emberline compare --before -2h..-1h --task load  one task name, in detail\n  \
    emberline compare --before-run monday --after-run tuesday\n  \
    emberline compare --before-worker w-1 --after-worker w-2 --after -1h..\n  \
    emberline compare --before-label v=1.4 --after-label v=1.5 --after -1d..\n  \
    emberline compare --task load -o change.svg      flame graph of the difference\n\n\
    A change \"exceeds noise\" if it is larger than chance explains, given the number of tasks \
    and how much each side fluctuates; of such changes at most 5% are expected to be false \
    alarms. \"too few\": with so few tasks no change could exceed noise. For the names that \
    changed most, the functions whose self time per task, running and waiting, changed most \
    follow.\n\n\
    The flame graph compares shares of the time of tasks, running and waiting, so that sides of \
    different lengths compare: red functions have a larger share after, blue ones a smaller one.")]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// Output format. Default: by the extension of -o, else table.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<CompareFormat>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Range before, such as -20m..-10m or 16:00..16:30; see --from of `emberline profile` for times.
    /// Default: that of equal length right before --after; if only workers or labels of one side are
    /// given, the same.
    #[arg(long, value_name = "FROM..TO", allow_hyphen_values = true, value_parser = TimeSpan::parse)]
    pub(crate) before: Option<TimeSpan>,

    /// Range after, in the same notation; without TO until now. Default: -5m..now.
    #[arg(long, value_name = "FROM..TO", allow_hyphen_values = true, value_parser = TimeSpan::parse)]
    pub(crate) after: Option<TimeSpan>,

    /// Named run instead of --before (see `emberline runs`).
    #[arg(long, value_name = "NAME", conflicts_with = "before")]
    pub(crate) before_run: Option<String>,

    /// Named run instead of --after.
    #[arg(long, value_name = "NAME", conflicts_with = "after")]
    pub(crate) after_run: Option<String>,

    /// Only this task, with all its figures; may be repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Vec<String>,

    /// Only this worker, on both sides; may be repeated. Default: all.
    #[arg(long, value_name = "ID")]
    pub(crate) worker: Vec<String>,

    /// Only workers with this label, such as zone=a, on both sides; may be repeated, then all must
    /// match.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) label: Vec<String>,

    /// Only this worker before, instead of --worker; may be repeated.
    #[arg(long, value_name = "ID")]
    pub(crate) before_worker: Vec<String>,

    /// Only this worker after, instead of --worker; may be repeated.
    #[arg(long, value_name = "ID")]
    pub(crate) after_worker: Vec<String>,

    /// Only workers with this label before, instead of --label; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) before_label: Vec<String>,

    /// Only workers with this label after, instead of --label; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) after_label: Vec<String>,

    /// Maximum number of names, 1 to 10000: those that got slower first. Default: 20; JSON: 1000.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: Option<u32>,
}

/// Output format of a comparison.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CompareFormat {
    /// Aligned columns for terminals.
    Table,
    /// The collector's response, for programs.
    Json,
    /// A flame graph of the difference, for browsers.
    Svg,
}

/// Two times as typed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TimeSpan {
    pub(crate) from: String,
    pub(crate) to: String,
}

impl TimeSpan {
    /// `FROM..TO`; without `TO` it ends now.
    fn parse(text: &str) -> Result<TimeSpan, String> {
        let ends = text
            .split_once("..")
            .map(|(from, to)| (from.trim(), to.trim()));
        match ends {
            Some((from, to)) if !from.is_empty() => {
                let to = if to.is_empty() { "now" } else { to };
                Ok(TimeSpan {
                    from: from.to_owned(),
                    to: to.to_owned(),
                })
            }
            _ => Err("expected FROM..TO, such as -20m..-10m, 16:00..16:30 or -10m..".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_two_times_and_may_end_now() {
        check("-20m..-10m", Some(("-20m", "-10m")));
        check(
            "2026-01-31 16:00 .. 2026-01-31 16:30",
            Some(("2026-01-31 16:00", "2026-01-31 16:30")),
        );
        check(
            "1769860800.5..1769860801.5",
            Some(("1769860800.5", "1769860801.5")),
        );
        check("-10m..", Some(("-10m", "now")));
        for invalid in ["", "-10m", "..-10m", "..", "-10m,-5m"] {
            check(invalid, None);
        }
    }

    fn check(text: &str, expected: Option<(&str, &str)>) {
        let parsed = TimeSpan::parse(text).ok();
        let span = parsed.as_ref().map(|span| (&*span.from, &*span.to));
        assert_eq!(span, expected, "{text}");
    }
}
