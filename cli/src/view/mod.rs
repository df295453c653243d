//! Answers of a collector as text for the terminal.

pub(crate) mod profile;
pub(crate) mod progress;
pub(crate) mod resources;
pub(crate) mod runs;
pub(crate) mod settings;
pub(crate) mod store;
pub(crate) mod tasks;
pub(crate) mod thread_dump;
pub(crate) mod thread_time;
pub(crate) mod transfers;
pub(crate) mod workers;

use jiff::Timestamp;

/// An answer that can be shown.
pub(crate) trait View: serde::de::DeserializeOwned {
    /// Lines for stderr: the range, and what is missing.
    fn notes(&self) -> Vec<String>;

    /// The answer itself, for stdout.
    fn text(&self) -> String;
}

/// A note about files of the store that could not be read, if there are any.
pub(crate) fn corrupt_files(files: &[String]) -> Option<String> {
    let missing = || format!("data is missing, because of corrupt files: {}", files.join(", "));
    (!files.is_empty()).then(missing)
}

/// A note about tasks without a row, if there are any.
pub(crate) fn aggregated(tasks: u64) -> Option<String> {
    let note = || format!("{} tasks have no row: they are in totals only", grouped(tasks));
    (tasks > 0).then(note)
}

/// A number of bytes with three digits, such as `1.24 MB`.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    let mut scaled = number as f64;
    let mut text = format!("{number} B");
    for unit in UNITS {
        scaled /= 1_000.0;
        // From 0.9995 on, three digits round up to 1.00.
        if scaled < 0.9995 {
            break;
        }
        text = format!("{} {unit}", digits(scaled));
    }
    text
}

/// A number with three digits.
fn digits(number: f64) -> String {
    let decimals = match number {
        number if number >= 99.95 => 0,
        number if number >= 9.995 => 1,
        _ => 2,
    };
    format!("{number:.decimals$}")
}

/// A share in percent, such as `85.2%`.
fn percentage(part: u64, whole: u64) -> String {
    format!("{:.1}%", flamegraph::text::percent(part, whole))
}

/// A range of time: two moments in RFC 3339.
pub(crate) fn span(from: &str, to: &str) -> String {
    format!("{} to {}", moment(from), moment(to))
}

/// A range of an answer.
pub(crate) fn range(range: &api::TimeRange) -> String {
    span(&range.from, &range.to)
}

/// A time in RFC 3339 in UTC to the millisecond; any other text as it is.
pub(crate) fn moment(text: &str) -> String {
    match text.parse::<Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S.%3f UTC").to_string(),
        Err(_) => text.to_owned(),
    }
}

/// The same without its zone, for columns whose title names it.
fn moment_utc(text: &str) -> String {
    moment(text).trim_end_matches(" UTC").to_owned()
}

/// `number` with its thousands grouped by commas.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 task`, `2 tasks`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
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
    fn numbers_and_times_are_written_for_people() {
        for (number, expected) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(number), expected);
        }
        assert_eq!([counted(1, "task"), counted(2_000, "task")], ["1 task", "2,000 tasks"]);
        assert_eq!(
            span("2026-01-31T12:00:00.000000250Z", "2026-01-31T12:05:00.5Z"),
            "2026-01-31 12:00:00.000 UTC to 2026-01-31 12:05:00.500 UTC"
        );
        for (number, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (12_345, "12.3 kB"),
            (999_600, "1.00 MB"),
            (u64::MAX, "18447 PB"),
        ] {
            assert_eq!(bytes(number), expected);
        }
        assert_eq!(moment("-5m"), "-5m");
    }
}
