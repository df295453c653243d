//! Text for SVG and HTML: escaped names, and formatted numbers.

use profiler_core::Timestamp;

/// Most characters of a name in a picture.
const SHOWN_MAX: usize = 60;

/// Returns `name` as text for SVG and HTML, also inside attributes: markup is escaped, invisible and
/// direction-changing characters are spelled out, and long names are cut.
pub(super) fn shown(name: &str) -> String {
    shown_up_to(name, SHOWN_MAX)
}

pub(super) fn shown_up_to(name: &str, characters_max: usize) -> String {
    let mut shown = String::with_capacity(name.len().min(4 * characters_max));
    for (index, character) in name.chars().enumerate() {
        if index == characters_max {
            shown.push('…');
            break;
        }
        match character {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            hidden if is_hidden(hidden) => shown.extend(hidden.escape_unicode()),
            other => shown.push(other),
        }
    }
    shown
}

/// Controls, line breaks, direction marks, other characters without width, and those forbidden in XML.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}'..='\u{ffff}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Formats a duration: `850 ns`, `1.23 ms`, `45.6 s`, `12 min 3 s`.
pub(super) fn duration(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..60_000_000_000 => {
            let (unit_ns, unit) = match nanoseconds {
                0..999_500 => (1e3, "µs"),
                999_500..999_500_000 => (1e6, "ms"),
                _ => (1e9, "s"),
            };
            format!("{} {unit}", three_digits(nanoseconds as f64 / unit_ns))
        }
        _ => {
            let seconds = (nanoseconds + 500_000_000) / 1_000_000_000;
            match seconds / 3_600 {
                0 => format!("{} min {} s", seconds / 60, seconds % 60),
                hours => format!("{hours} h {} min", seconds % 3_600 / 60),
            }
        }
    }
}

/// Formats three significant digits, or all digits before the point.
pub(super) fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        0.0..9.995 => 2,
        9.995..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// Formats a number of a scale: `1.5 k`, `20 M`.
pub(super) fn scaled(value: f64) -> String {
    let units = [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];
    let unit = units.into_iter().find(|(size, _)| value.abs() >= *size);
    let (size, unit) = unit.unwrap_or((1.0, ""));
    let digits = format!("{:.3}", value / size);
    format!(
        "{}{unit}",
        digits.trim_end_matches('0').trim_end_matches('.')
    )
}

/// Formats a count: `12,345`.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a time: `2026-02-28 13:05:09 UTC`.
pub(super) fn date(time: Timestamp) -> String {
    let days = time.second().div_euclid(86_400);
    let second = time.second().rem_euclid(86_400);
    // Years start in March here, so that a leap day is the last day of a year. From the first of March
    // of year 0 to the epoch there are 719,468 days, and 400 years have 146,097.
    let day = days + 719_468;
    let era = day.div_euclid(146_097);
    let day = day.rem_euclid(146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let hour = second / 3_600;
    let minute = second / 60 % 60;
    let second = second % 60;
    format!("{year:04}-{month:02}-{day_of_month:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        for (name, expected) in [
            ("load", "load"),
            ("größe-1 🦀", "größe-1 🦀"),
            (
                "</text><script>alert(1)</script>",
                "&lt;/text&gt;&lt;script&gt;alert(1)&lt;/script&gt;",
            ),
            ("\" onload='x' &amp;", "&quot; onload=&#39;x&#39; &amp;amp;"),
            ("a\u{202e}b\u{200f}c", "a\\u{202e}b\\u{200f}c"),
            ("a\nb\0c\u{7f}", "a\\u{a}b\\u{0}c\\u{7f}"),
            ("]]>", "]]&gt;"),
        ] {
            assert_eq!(shown(name), expected, "{name:?}");
        }
        assert_eq!(shown_up_to("<<<<", 2), "&lt;&lt;…");
    }

    #[test]
    fn numbers_are_formatted() {
        for (nanoseconds, expected) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (12_345_678, "12.3 ms"),
            (999_499_999, "999 ms"),
            (999_500_000, "1.00 s"),
            (59_949_000_000, "59.9 s"),
            (60_000_000_000, "1 min 0 s"),
            (723_400_000_000, "12 min 3 s"),
            (7_384_000_000_000, "2 h 3 min"),
        ] {
            assert_eq!(duration(nanoseconds), expected);
        }
        for (value, expected) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (250.0, "250"),
            (1_500.0, "1.5 k"),
            (2e7, "20 M"),
        ] {
            assert_eq!(scaled(value), expected);
        }
        for (count, expected) in [
            (7, "7"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(count), expected);
        }
    }

    #[test]
    fn dates_are_right_around_leap_days() {
        for (second, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_772_283_909, "2026-02-28 13:05:09 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(
                date(Timestamp::from_unix_ns(second * 1_000_000_000)),
                expected
            );
        }
    }
}
