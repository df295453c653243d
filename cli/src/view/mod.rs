//! Answers of a collector as text for the terminal. Each type holds the fields of an answer that are
//! shown; others are passed over, so that a newer collector can be asked too.

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
use serde::Deserialize;

/// An answer that can be shown.
pub(crate) trait Answered: serde::de::DeserializeOwned {
    /// What it is not, or is of: lines for stderr.
    fn notes(&self) -> Vec<String>;

    /// What it says.
    fn text(&self) -> String;
}

/// Says that an answer lacks what damaged files held, if it does.
pub(crate) fn corrupt_files(files: &[String]) -> Option<String> {
    (!files.is_empty()).then(|| {
        format!("what these damaged files of the store held is missing: {}", files.join(", "))
    })
}

/// A number of bytes with three digits, such as `1.24 MB`.
pub(crate) fn bytes(number: u64) -> String {
    let scaled = scaled(number as f64, &["kB", "MB", "GB", "TB", "PB"], 1_000.0);
    scaled.unwrap_or_else(|| format!("{number} B"))
}

/// `number` in the largest unit in which it is at least 1; `None` if it is less in all.
fn scaled(number: f64, units: &[&str], step: f64) -> Option<String> {
    let mut power = step;
    let mut found = None;
    for unit in units {
        // From 0.9995 on, three digits round up to 1.00.
        if number / power < 0.9995 {
            break;
        }
        found = Some((number / power, unit));
        power *= step;
    }
    found.map(|(number, unit)| format!("{} {unit}", digits(number)))
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

/// A span of time as a collector writes it.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) from: String,
    pub(crate) to: String,
}

impl Span {
    /// From `start/end`, as headers have it.
    pub(crate) fn parse(text: &str) -> Option<Span> {
        let (from, to) = text.split_once('/')?;
        Some(Span { from: from.to_owned(), to: to.to_owned() })
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {}", moment(&self.from), moment(&self.to))
    }
}

/// A time in RFC 3339 as people read it, in UTC to the millisecond; anything else as it is.
pub(crate) fn moment(text: &str) -> String {
    match text.parse::<Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S.%3f UTC").to_string(),
        Err(_) => text.to_owned(),
    }
}

/// `number` with its thousands apart.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_written_for_people() {
        for (number, expected) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(number), expected);
        }
        let span = Span::parse("2026-01-31T12:00:00.000000250Z/2026-01-31T12:05:00.5Z").unwrap();
        assert_eq!(span.to_string(), "2026-01-31 12:00:00.000 UTC to 2026-01-31 12:05:00.500 UTC");
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
        assert_eq!(Span::parse(""), None);
    }
}
