//! Parsing and printing of times and durations: one notation for the API, the command line and the page
//! (`collector/ui/src/core/time.ts`). `api/times.json` has examples that both parsers are tested with.

use jiff::Timestamp;
use jiff::civil::{self, DateTime};
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::TimeZone;

/// The inputs of [`TimeParser::parse`], for error texts.
pub const TIME_ALLOWED: [&str; 6] = [
    "now",
    "a time ago: -5m, -90s, -1h30m, -2d, 10m ago",
    "a time of day, the last one: 17:20, 17:20:05.5",
    "a date, or a date and a time of day: 2026-01-31, 2026-01-31 12:00",
    "RFC 3339: 2026-01-31T12:00:00Z, 2026-01-31T13:00:00+01:00",
    "Unix seconds: 1769860800.5",
];

/// The inputs of [`parse_span_ns`], for error texts.
pub const SPAN_ALLOWED: [&str; 1] = ["numbers with the units w, d, h, m, s, ms: 1s, 1h30m"];

const SECOND_NS: i64 = 1_000_000_000;

/// Units of durations, with their names.
const UNITS_MS: [(&[&str], u64); 6] = [
    (&["w", "week", "weeks"], 7 * 86_400_000),
    (&["d", "day", "days"], 86_400_000),
    (&["h", "hour", "hours"], 3_600_000),
    (&["m", "min", "minute", "minutes"], 60_000),
    (&["s", "sec", "second", "seconds"], 1_000),
    (&["ms"], 1),
];

/// Why a text is not a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeError {
    /// It has none of the forms.
    Form,
    /// It is a time beyond 64 bits of nanoseconds.
    Range,
}

/// The end of a range that a time stands for. It decides what a date alone means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeEnd {
    /// A date alone is its first moment.
    From,
    /// A date alone is the first moment of the next day, because ranges exclude their end.
    To,
}

/// Parses points in time.
///
/// ```
/// use emberline_api::time::{RangeEnd, TimeParser, format_time};
/// use jiff::tz::TimeZone;
///
/// let parser = TimeParser { now_ns: 1_769_860_800_000_000_000, zone: TimeZone::UTC };
/// let at_ns = parser.parse("11:30", RangeEnd::From).unwrap();
/// assert_eq!(format_time(at_ns), "2026-01-31T11:30:00.000000000Z");
/// ```
#[derive(Clone, Debug)]
pub struct TimeParser {
    /// The current time, in nanoseconds since the Unix epoch.
    pub now_ns: i64,
    /// The zone of times without one.
    pub zone: TimeZone,
}

impl TimeParser {
    /// The nanoseconds since the Unix epoch of a time in one of the forms of [`TIME_ALLOWED`]. A time of
    /// day is the last one before now.
    ///
    /// # Errors
    /// [`TimeError`] if it has none of the forms, or is out of range.
    pub fn parse(&self, text: &str, end: RangeEnd) -> Result<i64, TimeError> {
        if text == "now" {
            return Ok(self.now_ns);
        }
        if let Some(span) = ago(text) {
            let ago_ns = i64::try_from(span_ns(span)?).map_err(|_| TimeError::Range)?;
            return self.now_ns.checked_sub(ago_ns).ok_or(TimeError::Range);
        }
        match parse_unix_seconds(text) {
            Err(TimeError::Form) => self.parse_calendar(text, end),
            seconds => seconds,
        }
    }

    /// A date, a time of day, or both, separated by `T` or a space.
    fn parse_calendar(&self, text: &str, end: RangeEnd) -> Result<i64, TimeError> {
        let in_utc = text.strip_suffix(" UTC");
        let zone = if in_utc.is_some() {
            &TimeZone::UTC
        } else {
            &self.zone
        };
        let text = in_utc.unwrap_or(text);
        if let Some(time) = parse_time_of_day(text) {
            return self.last_time_of_day(time, zone);
        }
        let pieces = DateTimeParser::new()
            .parse_pieces(text)
            .map_err(|_| TimeError::Form)?;
        let fixed_zone = match pieces.offset() {
            // A zone without an offset may mean two times, or none.
            None if pieces.time_zone_annotation().is_some() => return Err(TimeError::Form),
            Some(_) if in_utc.is_some() => return Err(TimeError::Form),
            None => None,
            Some(offset) => Some(TimeZone::fixed(offset.to_numeric_offset())),
        };
        let at = match pieces.time() {
            Some(time) => pieces.date().to_datetime(time),
            None if fixed_zone.is_some() => return Err(TimeError::Form),
            None => {
                let first_moment = pieces.date().to_datetime(civil::Time::midnight());
                match end {
                    RangeEnd::From => first_moment,
                    RangeEnd::To => first_moment.tomorrow().map_err(|_| TimeError::Range)?,
                }
            }
        };
        unix_ns(at, fixed_zone.as_ref().unwrap_or(zone))
    }

    fn last_time_of_day(&self, time: civil::Time, zone: &TimeZone) -> Result<i64, TimeError> {
        let now =
            Timestamp::from_nanosecond(i128::from(self.now_ns)).map_err(|_| TimeError::Range)?;
        let today = zone.to_datetime(now).date();
        let at_ns = unix_ns(today.to_datetime(time), zone)?;
        if at_ns <= self.now_ns {
            return Ok(at_ns);
        }
        let yesterday = today.yesterday().map_err(|_| TimeError::Range)?;
        unix_ns(yesterday.to_datetime(time), zone)
    }
}

/// The moment of a calendar time. One that occurs twice is the first; one that a change of clocks skips
/// is moved by the change.
fn unix_ns(at: DateTime, zone: &TimeZone) -> Result<i64, TimeError> {
    let at = zone.to_timestamp(at).map_err(|_| TimeError::Range)?;
    i64::try_from(at.as_nanosecond()).map_err(|_| TimeError::Range)
}

/// The duration of a time ago: `-5m`, `now-5m`, `5m ago`, `5m`.
fn ago(text: &str) -> Option<&str> {
    if let Some(span) = text.strip_prefix('-').or_else(|| text.strip_prefix("now-")) {
        return Some(span);
    }
    let is_span = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase() || byte == b' ';
    let has_unit = text.ends_with(|c: char| c.is_ascii_lowercase());
    (has_unit && text.bytes().all(is_span)).then(|| text.strip_suffix(" ago").unwrap_or(text))
}

/// Whether a time in one of the forms of [`TIME_ALLOWED`] moves with the clock.
#[must_use]
pub fn is_relative(text: &str) -> bool {
    text == "now" || ago(text).is_some()
}

/// `17:20`, `17:20:05`, `17:20:05.5`.
fn parse_time_of_day(text: &str) -> Option<civil::Time> {
    let has_minutes = text.as_bytes().get(2) == Some(&b':');
    has_minutes.then(|| DateTimeParser::new().parse_time(text).ok())?
}

/// Parses a duration such as `90s`, `1h30m` or `10 minutes`, in nanoseconds.
#[must_use]
pub fn parse_span_ns(text: &str) -> Option<u64> {
    span_ns(text).ok()
}

fn span_ns(text: &str) -> Result<u64, TimeError> {
    let mut rest = text;
    // After an overflow the rest is still parsed: it may be invalid.
    let mut sum_ns = Some(0u64);
    loop {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .filter(|digits| *digits > 0);
        let (number, after) = rest.split_at(digits.ok_or(TimeError::Form)?);
        let after = after.strip_prefix(' ').unwrap_or(after);
        let letters = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(letters);
        let known_unit = UNITS_MS
            .into_iter()
            .find(|(names, _)| names.contains(&unit));
        let (_, unit_ms) = known_unit.ok_or(TimeError::Form)?;
        let part_ns = number
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(unit_ms)?.checked_mul(1_000_000));
        sum_ns = sum_ns
            .zip(part_ns)
            .and_then(|(sum_ns, part_ns)| sum_ns.checked_add(part_ns));
        if next.is_empty() {
            return sum_ns.ok_or(TimeError::Range);
        }
        rest = next.strip_prefix(' ').unwrap_or(next);
    }
}

/// Digits, with or without a fraction, which is truncated to nanoseconds.
fn parse_unix_seconds(text: &str) -> Result<i64, TimeError> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if !is_digits(whole) || !is_digits(fraction) {
        return Err(TimeError::Form);
    }
    let padded = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let fraction_ns = padded.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let seconds = whole.parse::<i64>().ok();
    let whole_ns = seconds.and_then(|seconds| seconds.checked_mul(SECOND_NS));
    let at_ns = whole_ns.and_then(|whole_ns| whole_ns.checked_add(fraction_ns));
    at_ns.ok_or(TimeError::Range)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// RFC 3339 in UTC, to the nanosecond, of a time in nanoseconds since the Unix epoch.
#[must_use]
pub fn format_time(unix_ns: i64) -> String {
    let at = Timestamp::from_nanosecond(i128::from(unix_ns))
        .expect("64 bits of nanoseconds lie in the years 1677 to 2262");
    format!("{at:.9}")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// The examples that the page's parser is tested with too.
    const EXAMPLES: &str = include_str!("../times.json");

    #[derive(Deserialize)]
    struct Examples {
        /// RFC 3339.
        now: String,
        /// RFC 3339 by text.
        from: Vec<(String, String)>,
        to: Vec<(String, String)>,
        invalid: Vec<String>,
    }

    const NOW_NS: i64 = 1_769_860_800 * SECOND_NS + 250;

    const NOON_NS: i64 = 1_769_860_800 * SECOND_NS;

    fn in_utc() -> TimeParser {
        TimeParser {
            now_ns: NOW_NS,
            zone: TimeZone::UTC,
        }
    }

    fn check(text: &str, expected: Result<i64, TimeError>) {
        assert_eq!(in_utc().parse(text, RangeEnd::From), expected, "{text:?}");
    }

    #[test]
    fn the_examples_parse_as_the_page_parses_them() {
        let examples: Examples = serde_json::from_str(EXAMPLES).unwrap();
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let now_ns = in_utc().parse(&examples.now, RangeEnd::From).unwrap();
        let parser = TimeParser { now_ns, zone };
        for (end, times) in [
            (RangeEnd::From, &examples.from),
            (RangeEnd::To, &examples.to),
        ] {
            for (text, expected) in times {
                let at = parser.parse(text, end).map(format_time);
                let expected_ns = in_utc().parse(expected, end).unwrap();
                assert_eq!(at, Ok(format_time(expected_ns)), "{text:?} as {end:?}");
            }
        }
        for text in &examples.invalid {
            let at = parser.parse(text, RangeEnd::From);
            assert_eq!(at, Err(TimeError::Form), "{text:?}");
        }
    }

    #[test]
    fn times_parse_in_each_form() {
        for (text, ago_s) in [
            ("-5m", 300),
            ("-90s", 90),
            ("-1h30m", 5_400),
            ("-2d", 172_800),
            ("5m", 300),
        ] {
            check(text, Ok(NOW_NS - ago_s * SECOND_NS));
        }
        for (text, expected_ns) in [
            ("now", NOW_NS),
            ("-1w", NOW_NS - 604_800 * SECOND_NS),
            ("-1s500ms", NOW_NS - 1_500_000_000),
            ("-0s", NOW_NS),
            ("0", 0),
            ("1769860800", NOON_NS),
            ("1769860800.5", NOON_NS + 500_000_000),
            ("1.0000000019", SECOND_NS + 1),
            ("2026-01-31T12:00:00Z", NOON_NS),
            ("2026-01-31T13:00:00.000000001+01:00", NOON_NS + 1),
            ("2026-01-31 12:00:00Z", NOON_NS),
            ("2026-01-31 06:30:00-05:30", NOON_NS),
            ("2026-01-31T12:00:00", NOON_NS),
            ("2026-01-31 12:00:00", NOON_NS),
            ("2026-01-31 12:00", NOON_NS),
            ("2026-01-31 12:00:00.250", NOON_NS + 250_000_000),
            ("2026-01-31 12:00:00.000 UTC", NOON_NS),
            ("2026-01-31 13:00:00 UTC", NOON_NS + 3_600 * SECOND_NS),
            ("2026-01-31", NOON_NS - 43_200 * SECOND_NS),
            ("2026-01-31 UTC", NOON_NS - 43_200 * SECOND_NS),
            ("11:59", NOON_NS - 60 * SECOND_NS),
            ("12:00:00", NOON_NS),
            ("12:00:01", NOON_NS - 86_399 * SECOND_NS),
            ("1969-12-31 23:59:59.999", -1_000_000),
            ("2262-04-11 23:47:16.854775807", i64::MAX),
        ] {
            check(text, Ok(expected_ns));
        }
    }

    #[test]
    fn a_text_that_is_no_time_is_rejected() {
        for text in [
            "",
            "-",
            "-5",
            "-m",
            "-5x",
            "-5m3",
            "- 5m",
            "--5m",
            "+5m",
            "+5",
            "1.",
            ".5",
            "1e9",
            "yesterday",
            "NOW",
            "UTC",
            " UTC",
            "-5m UTC",
            "1769860800 UTC",
            "2026-01-31Z",
            "25:00",
            "1:00",
            "12:00 CET",
            "2026-01-31  12:00:00",
            "2026-01-31_12:00:00",
            "2026-01-31 12:00:00 CET",
            "2026-01-31 12:00:00Z UTC",
            "2026-01-31 12:00:00+01:00 UTC",
            "2026-01-31T12:00:00 01:00",
            "2026-01-31T12:00:00[Europe/Paris]",
            "2026-01-31 12:00:00 ",
            "2026-02-30 12:00:00",
            "2026-01-31 25:00:00",
            "-99999999999999999999x",
            "-99999999999999999999d5",
            "-٣m",
            "٢٠٢٦-01-31 12:00:00",
        ] {
            check(text, Err(TimeError::Form));
        }
    }

    #[test]
    fn a_time_beyond_64_bits_is_out_of_range() {
        for text in [
            "99999999999999999999",
            "9999999999999",
            "9223372036.854775808",
            "-99999999999999999999d",
            "99999999999999999999d",
            "-300000d",
            "-100000d200000d",
            "9999-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "9999-12-31 23:59:59",
            "9999-12-31 23:59:59.999 UTC",
            "9999-12-31T23:59:59-23:00",
            "0001-01-01T00:00:00Z",
            "2262-04-11 23:47:16.854775808",
            "1677-09-21 00:12:43",
        ] {
            check(text, Err(TimeError::Range));
        }
    }

    #[test]
    fn a_formatted_time_parses_back() {
        for nanoseconds in [0, -1, NOW_NS, i64::MIN, i64::MAX] {
            let text = format_time(nanoseconds);
            check(&text, Ok(nanoseconds));
            // As it is printed for people.
            check(
                &text.replace('T', " ").replace('Z', " UTC"),
                Ok(nanoseconds),
            );
        }
        assert_eq!(format_time(NOW_NS), "2026-01-31T12:00:00.000000250Z");
    }
}
