//! Text for people: names that cannot misbehave, numbers, durations and shares.

mod numbers;

use std::borrow::Cow;
use std::fmt::Write as _;

use profiler_core::Ticks;

pub use self::numbers::{bytes, count, counted, digits, duration, percentage, rounded_percent};
pub(crate) use self::numbers::{push_digits, push_duration, push_fixed, push_percentage};

/// Escapes every character of `name` that could act on a terminal, reorder a line or be illegal in
/// XML: control characters, bidirectional marks, invisible separators. Escapes are Rust's, such as
/// `\n` and `\u{202e}`; letters of every script stay.
///
/// ```
/// assert_eq!(emberline_flamegraph::text::printable("a\u{1b}[31mb"), "a\\u{1b}[31mb");
/// assert_eq!(emberline_flamegraph::text::printable("größe"), "größe");
/// ```
#[must_use]
pub fn printable(name: &str) -> Cow<'_, str> {
    if !name.contains(misbehaves) {
        return name.into();
    }
    let mut escaped = String::with_capacity(name.len() + 16);
    for character in name.chars() {
        match character {
            '\n' | '\r' | '\t' => escaped.extend(character.escape_default()),
            _ if misbehaves(character) => escaped.extend(character.escape_unicode()),
            _ => escaped.push(character),
        }
    }
    escaped.into()
}

/// Escapes the same characters in the strings of a JSON text, which stays the same JSON. A parser
/// accepts them, but a terminal acts on some of them, such as DEL and U+202E.
///
/// ```
/// assert_eq!(emberline_flamegraph::text::printable_json("[\"a\u{202e}\"]"), r#"["a\u202e"]"#);
/// ```
#[must_use]
pub fn printable_json(json: &str) -> Cow<'_, str> {
    if !json.contains(is_escaped) {
        return json.into();
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if is_escaped(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    escaped.into()
}

/// Outside of strings, JSON has white space and ASCII only.
fn is_escaped(character: char) -> bool {
    character >= '\u{7f}' && misbehaves(character)
}

/// Whether a character is invisible or changes how others are displayed.
fn misbehaves(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{fffe}'..='\u{ffff}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Percentage of `part` in `whole`; 0 if the whole is 0.
#[must_use]
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    100.0 * part as f64 / whole as f64
}

/// Formats the achieved sampling rate over `sampled_ns`, the sum of the samplers' times: ticks per
/// second and sampler, expected, throttled and missed. `None` if no time was sampled or no ticks
/// were expected.
///
/// ```
/// use emberline_flamegraph::text::tick_rate;
/// use profiler_core::Ticks;
///
/// let ticks = Ticks { made: 961, expected: 1_000, throttled: 37 };
/// let text = "96.1 of 100 ticks/s, 3.7 skipped (agent CPU limit), 2 missed";
/// assert_eq!(tick_rate(ticks, 10_000_000_000).as_deref(), Some(text));
/// ```
#[must_use]
pub fn tick_rate(ticks: Ticks, sampled_ns: u64) -> Option<String> {
    if sampled_ns == 0 || ticks.expected == 0 {
        return None;
    }
    let rate = |ticks: u64| {
        let rate = format!("{:.1}", ticks as f64 * 1e9 / sampled_ns as f64);
        rate.strip_suffix(".0").map_or(rate.clone(), str::to_owned)
    };
    let mut text = format!("{} of {} ticks/s", rate(ticks.made), rate(ticks.expected));
    if ticks.throttled > 0 {
        let _ = write!(
            text,
            ", {} skipped (agent CPU limit)",
            rate(ticks.throttled)
        );
    }
    let _ = write!(text, ", {} missed", count(ticks.missed()));
    Some(text)
}

/// Appends `text` with XML's special characters escaped.
pub(crate) fn push_xml(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some(at) = rest
        .bytes()
        .position(|byte| matches!(byte, b'&' | b'<' | b'>' | b'"'))
    {
        out.push_str(&rest[..at]);
        out.push_str(match rest.as_bytes()[at] {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            _ => "&quot;",
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

/// Formats `text` for a table cell: printable, and cut in the middle to `columns` characters,
/// because the start of a name identifies the crate and the end the function.
/// ```
/// assert_eq!(emberline_flamegraph::text::cell("faer::linalg::qr::solve", 15), "faer::l…::solve");
/// ```
#[must_use]
pub fn cell(text: &str, columns: usize) -> String {
    let text = printable(text);
    let length = text.chars().count();
    if length <= columns {
        return text.into_owned();
    }
    let start = columns / 2;
    let end = columns.saturating_sub(start + 1);
    let mut short: String = text.chars().take(start).collect();
    let _ = write!(short, "…");
    short.extend(text.chars().skip(length - end));
    short
}

/// Joins `parts` with commas after `start`, in lines of at most `columns` characters unless a part alone is
/// longer. Further lines are indented.
///
/// ```
/// let parts = ["cpu 3.10 s".to_owned(), "wait 9.18 s".to_owned()];
/// assert_eq!(emberline_flamegraph::text::wrapped("time: ", &parts, 20), "time: cpu 3.10 s,\n  wait 9.18 s");
/// ```
#[must_use]
pub fn wrapped(start: &str, parts: &[String], columns: usize) -> String {
    let pieces = parts.iter().enumerate().map(|(index, part)| {
        let start = if index == 0 { start } else { "" };
        let comma = if index + 1 < parts.len() { "," } else { "" };
        format!("{start}{part}{comma}")
    });
    filled(pieces, 2, columns)
}

/// Breaks a sentence between words, into lines of at most `columns` characters unless a word alone is
/// longer. Further lines are indented by `indent`.
///
/// ```
/// let text = emberline_flamegraph::text::wrapped_words("warn  clock  ahead by 2 s", 13, 20);
/// assert_eq!(text, "warn  clock  ahead\n             by 2 s");
/// ```
#[must_use]
pub fn wrapped_words(text: &str, indent: usize, columns: usize) -> String {
    filled(text.split(' ').map(str::to_owned), indent, columns)
}

/// Joins pieces with spaces, in lines of at most `columns` characters.
fn filled(pieces: impl Iterator<Item = String>, indent: usize, columns: usize) -> String {
    let mut text = String::new();
    let mut line = 0;
    for (index, piece) in pieces.enumerate() {
        let length = piece.chars().count();
        if index > 0 && line + 1 + length > columns {
            let _ = write!(text, "\n{:indent$}", "");
            line = indent;
        } else if index > 0 {
            text.push(' ');
            line += 1;
        }
        text += &piece;
        line += length;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stays_the_same_and_its_text_cannot_act_on_a_terminal() {
        let names = [
            "größe",
            "a\u{1b}[2J",
            "x\u{7f}\u{9b}31m",
            "\u{202e}gnp",
            "\u{e0041}\u{feff}",
        ];
        for name in names {
            let name = format!("{name}\"\\\n");
            let json = serde_json::to_string_pretty(&[&name]).unwrap();
            let shown = printable_json(&json);
            assert!(!shown.replace('\n', "").contains(misbehaves), "{shown:?}");
            assert_eq!(serde_json::from_str::<[String; 1]>(&shown).unwrap(), [name]);
        }
        assert!(matches!(
            printable_json("[\n  \"größe\"\n]"),
            Cow::Borrowed(_)
        ));
    }

    #[test]
    fn hostile_names_are_escaped_and_others_stay() {
        for (name, expected) in [
            ("plain::name<T>", "plain::name<T>"),
            ("שלום", "שלום"),
            ("a\nb\tc", "a\\nb\\tc"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("x\u{202e}y", "x\\u{202e}y"),
            ("\u{0}\u{7f}\u{9b}", "\\u{0}\\u{7f}\\u{9b}"),
            ("\u{feff}\u{ffff}", "\\u{feff}\\u{ffff}"),
        ] {
            assert_eq!(printable(name), expected);
        }
    }

    #[test]
    fn a_rate_mentions_throttled_ticks_only_if_there_are_any() {
        let second = 1_000_000_000;
        check_rate(100, 100, second, Some("100 of 100 ticks/s, 0 missed"));
        check_rate(
            11_970,
            12_000,
            120 * second,
            Some("99.8 of 100 ticks/s, 30 missed"),
        );
        check_rate(1, 0, second, None);
        check_rate(0, 1, 0, None);
    }

    fn check_rate(made: u64, expected: u64, sampled_ns: u64, text: Option<&str>) {
        let ticks = Ticks {
            made,
            expected,
            throttled: 0,
        };
        assert_eq!(tick_rate(ticks, sampled_ns).as_deref(), text);
    }

    #[test]
    fn cells_have_the_requested_width() {
        assert_eq!(cell("short", 5), "short");
        assert_eq!(cell("sixsix", 5), "si…ix");
        assert_eq!(cell("abc", 1), "…");
        assert_eq!(cell("äöüäöü", 4), "äö…ü");
    }
}
