//! Parsing and printing of times and durations.

use jiff::Timestamp as Calendar;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::Offset;
use profiler_core::Timestamp;

/// The inputs of [`parse_time`], for error texts.
pub(crate) const TIME_ALLOWED: [&str; 4] = [
    "now",
    "a time ago: -5m, -90s, -1h30m, -2d",
    "RFC 3339: 2026-01-31T12:00:00Z, or without a zone, in UTC: 2026-01-31 12:00:00.5",
    "Unix seconds: 1769860800.5",
];

/// The inputs of [`parse_span_ns`], for error texts.
pub(crate) const SPAN_ALLOWED: [&str; 1] = ["numbers with the units w, d, h, m, s, ms: 1s, 1h30m"];

const SECOND_NS: i64 = 1_000_000_000;

/// Why a text is not a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimeError {
    /// It has none of the forms.
    Form,
    /// It is a time beyond 64 bits of nanoseconds.
    Range,
}

/// Parses a point in time: `now`, a time ago, RFC 3339, the same as printed for people, or seconds
/// since the Unix epoch.
pub(crate) fn parse_time(text: &str, now: Timestamp) -> Result<Timestamp, TimeError> {
    if text == "now" {
        return Ok(now);
    }
    if let Some(span) = text.strip_prefix('-') {
        let ago_ns = i64::try_from(span_ns(span)?).map_err(|_| TimeError::Range)?;
        let at_ns = now.unix_ns().checked_sub(ago_ns).ok_or(TimeError::Range)?;
        return Ok(Timestamp::from_unix_ns(at_ns));
    }
    match parse_unix_seconds(text) {
        Err(TimeError::Form) => parse_calendar(text),
        seconds => seconds,
    }
}

/// Date and time, separated by `T` or a space. Without a zone, in UTC like all printed times.
fn parse_calendar(text: &str) -> Result<Timestamp, TimeError> {
    let printed = text.strip_suffix(" UTC");
    let pieces = DateTimeParser::new().parse_pieces(printed.unwrap_or(text));
    let pieces = pieces.map_err(|_| TimeError::Form)?;
    let offset = match pieces.offset() {
        // A zone without an offset may mean two times, or none.
        None if pieces.time_zone_annotation().is_some() => return Err(TimeError::Form),
        Some(_) if printed.is_some() => return Err(TimeError::Form),
        None => Offset::UTC,
        Some(offset) => offset.to_numeric_offset(),
    };
    // A date alone is ambiguous: its first moment as `from`, but its last as `to`.
    let time = pieces.time().ok_or(TimeError::Form)?;
    let at = offset.to_timestamp(pieces.date().to_datetime(time)).map_err(|_| TimeError::Range)?;
    let at_ns = i64::try_from(at.as_nanosecond()).map_err(|_| TimeError::Range)?;
    Ok(Timestamp::from_unix_ns(at_ns))
}

/// Parses a duration such as `90s` or `1h30m`, in nanoseconds.
pub(crate) fn parse_span_ns(text: &str) -> Option<u64> {
    span_ns(text).ok()
}

fn span_ns(text: &str) -> Result<u64, TimeError> {
    const UNITS_MS: [(&str, u64); 6] = [
        ("w", 7 * 86_400_000),
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let mut rest = text;
    // After an overflow the rest is still parsed: it may be invalid.
    let mut sum_ns = Some(0u64);
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits > 0);
        let (number, after) = rest.split_at(digits.ok_or(TimeError::Form)?);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(letters);
        let unit = UNITS_MS.into_iter().find(|(name, _)| *name == unit);
        let (_, unit_ms) = unit.ok_or(TimeError::Form)?;
        let part_ns = number
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(unit_ms)?.checked_mul(1_000_000));
        sum_ns = sum_ns.zip(part_ns).and_then(|(sum_ns, part_ns)| sum_ns.checked_add(part_ns));
        if next.is_empty() {
            return sum_ns.ok_or(TimeError::Range);
        }
        rest = next;
    }
}

/// Digits, with or without a fraction, which is truncated to nanoseconds.
fn parse_unix_seconds(text: &str) -> Result<Timestamp, TimeError> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err(TimeError::Form);
    }
    let fraction_ns = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let fraction_ns = fraction_ns.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let seconds = whole.parse::<i64>().ok();
    let whole_ns = seconds.and_then(|seconds| seconds.checked_mul(SECOND_NS));
    let at_ns = whole_ns.and_then(|whole_ns| whole_ns.checked_add(fraction_ns));
    at_ns.map(Timestamp::from_unix_ns).ok_or(TimeError::Range)
}

/// RFC 3339 in UTC, to the nanosecond.
pub(crate) fn format_time(time: Timestamp) -> String {
    let nanoseconds = i128::from(time.unix_ns());
    let calendar = Calendar::from_nanosecond(nanoseconds);
    let calendar = calendar.expect("64 bits of nanoseconds lie in the years 1677 to 2262");
    format!("{calendar:.9}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_NS: i64 = 1_769_860_800 * SECOND_NS + 250;

    const NOON_NS: i64 = 1_769_860_800 * SECOND_NS;

    fn check(text: &str, expected: Result<i64, TimeError>) {
        let time = parse_time(text, Timestamp::from_unix_ns(NOW_NS));
        assert_eq!(time.map(Timestamp::unix_ns), expected, "{text:?}");
    }

    #[test]
    fn times_parse_in_each_form() {
        for (text, ago_s) in [("-5m", 300), ("-90s", 90), ("-1h30m", 5_400), ("-2d", 172_800)] {
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
            "5m",
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
            "2026-01-31",
            "2026-01-31 UTC",
            "2026-01-31Z",
            "12:00:00",
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
            "99999999999999999999d",
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
            let text = format_time(Timestamp::from_unix_ns(nanoseconds));
            check(&text, Ok(nanoseconds));
            // As it is printed for people.
            check(&text.replace('T', " ").replace('Z', " UTC"), Ok(nanoseconds));
        }
        assert_eq!(format_time(Timestamp::from_unix_ns(NOW_NS)), "2026-01-31T12:00:00.000000250Z");
    }
}
