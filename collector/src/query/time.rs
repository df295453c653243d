//! Times and spans as people write them.

use jiff::Timestamp as Calendar;
use profiler_core::Timestamp;

/// What [`parse_time`] takes, for error texts.
pub(crate) const TIME_ALLOWED: [&str; 4] = [
    "now",
    "a time ago: -5m, -90s, -1h30m, -2d",
    "RFC 3339: 2026-01-31T12:00:00Z",
    "Unix seconds: 1769860800.5",
];

/// What [`parse_span_ns`] takes, for error texts.
pub(crate) const SPAN_ALLOWED: [&str; 1] = ["numbers with the units w, d, h, m, s, ms: 1s, 1h30m"];

const SECOND_NS: i64 = 1_000_000_000;

/// A point in time: `now`, a time ago, RFC 3339, or seconds since the Unix epoch.
pub(crate) fn parse_time(text: &str, now: Timestamp) -> Option<Timestamp> {
    if text == "now" {
        return Some(now);
    }
    if let Some(span) = text.strip_prefix('-') {
        let ago_ns = i64::try_from(parse_span_ns(span)?).ok()?;
        return now.unix_ns().checked_sub(ago_ns).map(Timestamp::from_unix_ns);
    }
    parse_unix_seconds(text).or_else(|| {
        let time: Calendar = text.parse().ok()?;
        let nanoseconds = i64::try_from(time.as_nanosecond()).ok()?;
        Some(Timestamp::from_unix_ns(nanoseconds))
    })
}

/// A span such as `90s` or `1h30m`, in nanoseconds.
pub(crate) fn parse_span_ns(text: &str) -> Option<u64> {
    const UNITS_MS: [(&str, u64); 6] = [
        ("w", 7 * 86_400_000),
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let mut rest = text;
    let mut sum_ns = 0u64;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(letters);
        let (_, unit_ms) = UNITS_MS.into_iter().find(|(name, _)| *name == unit)?;
        let part_ns = number.parse::<u64>().ok()?.checked_mul(unit_ms)?.checked_mul(1_000_000)?;
        sum_ns = sum_ns.checked_add(part_ns)?;
        if next.is_empty() {
            return Some(sum_ns);
        }
        rest = next;
    }
}

/// Digits, with a fraction or not; past nanoseconds the fraction is cut.
fn parse_unix_seconds(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let seconds: i64 = whole.parse().ok()?;
    let fraction_ns = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let fraction_ns = fraction_ns.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let nanoseconds = seconds.checked_mul(SECOND_NS)?.checked_add(fraction_ns)?;
    Some(Timestamp::from_unix_ns(nanoseconds))
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

    fn check(text: &str, expected: Option<i64>) {
        let time = parse_time(text, Timestamp::from_unix_ns(NOW_NS));
        assert_eq!(time.map(Timestamp::unix_ns), expected, "{text:?}");
    }

    #[test]
    fn times_are_read_in_each_form() {
        for (text, ago_s) in [("-5m", 300), ("-90s", 90), ("-1h30m", 5_400), ("-2d", 172_800)] {
            check(text, Some(NOW_NS - ago_s * SECOND_NS));
        }
        check("now", Some(NOW_NS));
        check("-1w", Some(NOW_NS - 604_800 * SECOND_NS));
        check("-1s500ms", Some(NOW_NS - 1_500_000_000));
        check("-0s", Some(NOW_NS));
        check("0", Some(0));
        check("1769860800", Some(1_769_860_800 * SECOND_NS));
        check("1769860800.5", Some(1_769_860_800 * SECOND_NS + 500_000_000));
        check("1.0000000019", Some(SECOND_NS + 1));
        check("2026-01-31T12:00:00Z", Some(1_769_860_800 * SECOND_NS));
        check("2026-01-31T13:00:00.000000001+01:00", Some(1_769_860_800 * SECOND_NS + 1));
    }

    #[test]
    fn what_is_no_time_is_refused() {
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
            "2026-01-31",
            "2026-01-31T12:00:00",
            "99999999999999999999",
            "9999999999999",
            "-99999999999999999999d",
            "-300000d",
            "9999-01-01T00:00:00Z",
            "-٣m",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn a_formatted_time_leads_back() {
        for nanoseconds in [0, -1, NOW_NS, i64::MIN, i64::MAX] {
            let text = format_time(Timestamp::from_unix_ns(nanoseconds));
            check(&text, Some(nanoseconds));
        }
        assert_eq!(format_time(Timestamp::from_unix_ns(NOW_NS)), "2026-01-31T12:00:00.000000250Z");
    }
}
