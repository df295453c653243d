//! Numbers as text, the same in a terminal, in files and on the page (`collector/ui/src/core/time.ts`).
//! `numbers.json` has examples that both sides are tested with.

use std::fmt::Write as _;

/// A whole number with commas between thousands.
///
/// ```
/// assert_eq!(emberline_flamegraph::text::count(155_711), "155,711");
/// ```
#[must_use]
pub fn count(number: u64) -> String {
    let mut text = String::new();
    push_count(&mut text, number);
    text
}

fn push_count(out: &mut String, number: u64) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(number);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
}

/// A count with its noun: `1 task`, `2 tasks`.
#[must_use]
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// A number that is not negative with three significant digits, at most two of them decimals.
#[must_use]
pub fn digits(number: f64) -> String {
    let mut text = String::new();
    push_digits(&mut text, number);
    text
}

pub(crate) fn push_digits(out: &mut String, number: f64) {
    // The number of decimals is that of the rounded number.
    match number {
        0.0 => out.push('0'),
        ..9.995 => push_fixed(out, number, 2),
        ..99.95 => push_fixed(out, number, 1),
        _ => push_count(out, number.round() as u64),
    }
}

/// Appends a number that is not negative with so many decimals, rounded as `format!` rounds it, but in a
/// fifth of the time: pictures have several numbers in each frame.
pub(crate) fn push_fixed(out: &mut String, number: f64, decimals: usize) {
    /// Below it, a product with a power of ten is exact enough to tell the sides of a middle apart.
    const SCALED_MAX: f64 = 1e12;
    let scale = 10u64.pow(decimals as u32);
    let scaled = number * scale as f64;
    let rounded = scaled.round();
    if scaled.is_nan() || scaled > SCALED_MAX || (scaled - rounded).abs() > 0.499 {
        let _ = write!(out, "{number:.decimals$}");
        return;
    }
    let rounded = rounded as u64;
    let mut buffer = itoa::Buffer::new();
    out.push_str(buffer.format(rounded / scale));
    out.push('.');
    let fraction = buffer.format(rounded % scale);
    out.extend(std::iter::repeat_n('0', decimals - fraction.len()));
    out.push_str(fraction);
}

/// The share of `part` in `whole` in percent with three digits; `0%` if the whole is 0.
///
/// ```
/// assert_eq!(emberline_flamegraph::text::percentage(852, 1_000), "85.2%");
/// ```
#[must_use]
pub fn percentage(part: u64, whole: u64) -> String {
    rounded_percent(super::percent(part, whole))
}

pub(crate) fn push_percentage(out: &mut String, part: u64, whole: u64) {
    push_percent(out, super::percent(part, whole));
}

/// A number of percent with three digits.
#[must_use]
pub fn rounded_percent(percent: f64) -> String {
    let mut text = String::new();
    push_percent(&mut text, percent);
    text
}

fn push_percent(out: &mut String, percent: f64) {
    if percent > 0.0 && percent < 0.01 {
        out.push_str("<0.01");
    } else {
        push_digits(out, percent);
    }
    out.push('%');
}

/// A number of bytes with three digits and the decimal unit that fits.
///
/// ```
/// assert_eq!(emberline_flamegraph::text::bytes(1_240_000), "1.24 MB");
/// ```
#[must_use]
pub fn bytes(number: u64) -> String {
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

/// A duration with three digits and the unit that fits; from a minute on, in two units. The largest
/// number is `over 584 years`: sums end there.
///
/// ```
/// use emberline_flamegraph::text::duration;
/// assert_eq!(duration(1_240_000), "1.24 ms");
/// assert_eq!(duration(7_140_000_000_000), "1 h 59 min");
/// ```
#[must_use]
pub fn duration(nanoseconds: u64) -> String {
    let mut text = String::new();
    push_duration(&mut text, nanoseconds);
    text
}

pub(crate) fn push_duration(out: &mut String, nanoseconds: u64) {
    const SECOND: u64 = 1_000_000_000;
    // From here on, three digits round up to 60.0 s.
    const MINUTE_ROUNDED: u64 = 59_950_000_000;
    if nanoseconds < MINUTE_ROUNDED {
        push_short_duration(out, nanoseconds);
        return;
    }
    if nanoseconds == u64::MAX {
        out.push_str("over 584 years");
        return;
    }
    // Saturates so that numbers near the largest do not wrap to zero.
    let in_units = |unit: u64| nanoseconds.saturating_add(unit / 2) / unit;
    let seconds = in_units(SECOND);
    let minutes = in_units(60 * SECOND);
    out.push_str(&if seconds < 3_600 {
        two_units(seconds, 60, ["min", "s"])
    } else if minutes < 1_440 {
        two_units(minutes, 60, ["h", "min"])
    } else {
        two_units(in_units(3_600 * SECOND), 24, ["d", "h"])
    });
}

/// `1 h 59 min`, or `2 h` if nothing is left.
fn two_units(value: u64, size: u64, [large, small]: [&str; 2]) -> String {
    let whole = format!("{} {large}", count(value / size));
    match value % size {
        0 => whole,
        rest => format!("{whole} {rest} {small}"),
    }
}

fn push_short_duration(out: &mut String, nanoseconds: u64) {
    const UNITS: [(f64, &str); 3] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    // From 0.9995 on, three digits round up to 1.00 of the larger unit.
    match UNITS
        .into_iter()
        .find(|unit: &(f64, &str)| nanoseconds as f64 / unit.0 >= 0.9995)
    {
        Some((unit, name)) => {
            push_digits(out, nanoseconds as f64 / unit);
            out.push(' ');
            out.push_str(name);
        }
        None if nanoseconds == 0 => out.push_str("0 s"),
        None => {
            out.push_str(itoa::Buffer::new().format(nanoseconds));
            out.push_str(" ns");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    /// The examples that the page's formatters are tested with too.
    const EXAMPLES: &str = include_str!("../../numbers.json");

    #[derive(Deserialize)]
    struct Examples {
        count: Vec<(u64, String)>,
        digits: Vec<(f64, String)>,
        /// Texts of parts and wholes.
        percent: Vec<([u64; 2], String)>,
        bytes: Vec<(u64, String)>,
        /// Texts of nanoseconds.
        duration: Vec<(u64, String)>,
    }

    #[test]
    fn numbers_are_written_as_on_the_page() {
        let examples: Examples = serde_json::from_str(EXAMPLES).unwrap();
        for (number, text) in examples.count {
            assert_eq!(count(number), text);
        }
        for (number, text) in examples.digits {
            assert_eq!(digits(number), text);
        }
        for ([part, whole], text) in examples.percent {
            assert_eq!(percentage(part, whole), text, "{part} of {whole}");
        }
        for (number, text) in examples.bytes {
            assert_eq!(bytes(number), text);
        }
        for (nanoseconds, text) in examples.duration {
            assert_eq!(duration(nanoseconds), text);
        }
    }

    #[test]
    fn the_middle_between_two_numbers_is_rounded_as_always() {
        for number in [0.0, 0.125, 1.005, 1.115, 0.285, 8.5, 1e13, f64::INFINITY] {
            check_fixed(number);
        }
    }

    fn check_fixed(number: f64) {
        for decimals in [1, 2, 4] {
            let mut text = String::new();
            push_fixed(&mut text, number, decimals);
            assert_eq!(text, format!("{number:.decimals$}"));
        }
    }

    proptest! {
        #[test]
        fn fixed_decimals_are_those_of_the_standard_library(number in 0.0..1e9, cents in 0u32..1_000_000) {
            check_fixed(number);
            check_fixed(f64::from(cents) / 1_000.0);
        }
    }

    #[test]
    fn the_largest_numbers_have_a_text() {
        assert_eq!(duration(u64::MAX - 1), "213,503 d 23 h");
        assert_eq!(bytes(u64::MAX), "18,447 PB");
        assert_eq!(percentage(5, 0), "0%");
        assert_eq!(
            [counted(1, "task"), counted(2_000, "task")],
            ["1 task", "2,000 tasks"]
        );
    }
}
