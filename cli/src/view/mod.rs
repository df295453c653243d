//! Answers of a collector as text for the terminal.

pub(crate) mod clocks;
pub(crate) mod compare;
pub(crate) mod profile;
pub(crate) mod progress;
pub(crate) mod report_diff;
pub(crate) mod resources;
pub(crate) mod runs;
mod services;
pub(crate) mod settings;
pub(crate) mod sql;
pub(crate) mod store;
pub(crate) mod symbols;
pub(crate) mod tasks;
pub(crate) mod thread_dump;
pub(crate) mod thread_time;
mod timeline;
pub(crate) mod token;
pub(crate) mod transfers;
pub(crate) mod workers;

pub(crate) use flamegraph::text::{bytes, count as grouped, counted};
use flamegraph::text::{digits, percentage, rounded_percent};

use crate::zone;

/// An answer that can be shown.
pub(crate) trait View: serde::de::DeserializeOwned {
    /// Lines for stderr: the range, and what is missing.
    fn notes(&self) -> Vec<String>;

    /// The answer itself, for stdout.
    fn text(&self) -> String;
}

/// A note about the number of rows, if there are none or more than those `shown`.
fn row_count(
    noun: &str,
    shown: usize,
    total: u64,
    of: &api::TimeRange,
    advice: &str,
) -> Option<String> {
    if total == 0 {
        return Some(format!("no matching {noun} in {}", range(of)));
    }
    let shown = shown as u64;
    (total > shown).then(|| {
        format!(
            "the latest {} of {} {noun}; {advice}",
            grouped(shown),
            grouped(total)
        )
    })
}

/// A note about files of the store that could not be read, if there are any.
pub(crate) fn corrupt_files(files: &[String]) -> Option<String> {
    (!files.is_empty()).then(|| format!("data is missing: {} cannot be read", files.join(", ")))
}

/// A note about tasks without a row, if there are any.
pub(crate) fn aggregated(tasks: u64) -> Option<String> {
    (tasks > 0).then(|| {
        format!(
            "{} tasks have no row: only totals of all workers, keys and types have them",
            grouped(tasks)
        )
    })
}

/// A range of time: two moments in RFC 3339.
pub(crate) fn span(from: &str, to: &str) -> String {
    format!("{} to {}", moment(from), moment(to))
}

/// A range of an answer.
pub(crate) fn range(range: &api::TimeRange) -> String {
    span(&range.from, &range.to)
}

/// A time in RFC 3339 to the millisecond, in the selected zone; any other text as it is.
pub(crate) fn moment(text: &str) -> String {
    text.parse()
        .map_or_else(|_| text.to_owned(), zone::with_zone)
}

/// The same without its zone, for columns whose title names it.
fn moment_in_zone(text: &str) -> String {
    text.parse()
        .map_or_else(|_| text.to_owned(), zone::without_zone)
}

/// A cell of a table: `-` where there is no value.
fn or_dash<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two seconds of which answers in tests are.
    pub(super) fn range_of_test() -> api::TimeRange {
        api::TimeRange {
            from: "2026-01-31T12:00:00Z".to_owned(),
            to: "2026-01-31T12:00:02Z".to_owned(),
            ..api::TimeRange::default()
        }
    }

    #[test]
    fn times_are_written_to_the_millisecond() {
        assert_eq!(
            span("2026-01-31T12:00:00.000000250Z", "2026-01-31T12:05:00.5Z"),
            "2026-01-31 12:00:00.000 UTC to 2026-01-31 12:05:00.500 UTC"
        );
        assert_eq!(moment("-5m"), "-5m");
    }
}
