//! Lines of collapsed stacks, and what all lines of a file say together.

use std::borrow::Cow;

use super::super::error::{ImportError, echo};
use super::super::limits::{COLLAPSED_NANOSECONDS_DIGITS, ENTRY_BYTES_MAX};
use super::austin::{Mode, has_thread};

/// A number of samples or of units of time, exact to a billionth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Weight {
    whole: u64,
    billionths: u64,
}

impl Weight {
    /// `digits` or `digits.digits`, as flamegraph.pl reads them.
    pub(super) fn parse(text: &str) -> Option<Weight> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) {
            return None;
        }
        let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
        Some(Weight {
            whole: whole.parse().ok()?,
            billionths: digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')),
        })
    }

    /// This number of units; `None` if that exceeds 64 bits.
    pub(super) fn nanoseconds(self, unit_ns: u64) -> Option<u64> {
        let part =
            (u128::from(self.billionths) * u128::from(unit_ns) + 500_000_000) / 1_000_000_000;
        let whole = self.whole.checked_mul(unit_ns)?;
        whole.checked_add(u64::try_from(part).ok()?)
    }
}

/// A line that is not blank.
pub(super) struct Line<'c> {
    pub(super) number: usize,
    pub(super) text: Cow<'c, str>,
}

/// The lines that are not blank.
pub(super) fn lines(content: &[u8]) -> impl Iterator<Item = Result<Line<'_>, ImportError>> {
    let numbered = content.split(|byte| *byte == b'\n').zip(1..);
    numbered
        .filter(|(bytes, _)| !bytes.trim_ascii().is_empty())
        .map(|(bytes, number)| {
            if bytes.len() > ENTRY_BYTES_MAX {
                return Err(ImportError::TooMany {
                    what: "too many bytes in a line",
                    limit: ENTRY_BYTES_MAX,
                });
            }
            let text = String::from_utf8_lossy(bytes.trim_ascii_end());
            Ok(Line { number, text })
        })
}

/// The two parts of a line.
#[derive(Clone, Copy)]
pub(super) struct Stack<'l> {
    pub(super) frames: &'l str,
    pub(super) weight: &'l str,
}

/// The kind of a line.
pub(super) enum Kind<'l> {
    Stack(Stack<'l>),
    Comment,
    /// Neither frames nor a number.
    Other,
    /// It has frames and no number, or one that no weight can be.
    Invalid,
}

impl<'l> Kind<'l> {
    pub(super) fn of(line: &'l str) -> Kind<'l> {
        let stack = line
            .rsplit_once([' ', '\t'])
            .map(|(frames, weight)| Stack { frames, weight })
            .filter(|stack| !stack.frames.trim().is_empty());
        // A name may begin like a comment: `#<Class:App>;main 3`.
        let is_marked = ["#", "//"].iter().any(|mark| {
            line.strip_prefix(mark)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '#', '!']))
        });
        match stack {
            Some(stack) if is_marked && !stack.frames.contains(';') => Kind::Comment,
            None if is_marked => Kind::Comment,
            Some(stack) if Weight::parse(stack.weight).is_some() => Kind::Stack(stack),
            Some(stack) if is_metric_list(stack.weight) => Kind::Stack(stack),
            Some(stack) if is_like_number(stack.weight) => Kind::Invalid,
            _ if is_marked => Kind::Comment,
            _ if line.contains(';') => Kind::Invalid,
            _ => Kind::Other,
        }
    }
}

/// The metrics of austin's mode `full`.
fn is_metric_list(text: &str) -> bool {
    text.split(',').count() == 3 && text.split(',').all(|metric| metric.parse::<i64>().is_ok())
}

/// Whether it was meant to be a number: `-1`, `1e3`, `1,000`, and numbers of more than 64 bits.
fn is_like_number(text: &str) -> bool {
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    let is_grouped = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b',' | b'_'));
    has_digit && (is_grouped || text.parse::<f64>().is_ok())
}

/// Where a thread waits, as stacks off the CPU end.
fn is_in_scheduler(frame: &str) -> bool {
    let name = frame.strip_suffix("_[k]").unwrap_or(frame);
    // Compilers add suffixes: `finish_task_switch.isra.0`.
    let plain = name.split_once('.').map_or(name, |(plain, _)| plain);
    matches!(
        plain,
        "finish_task_switch" | "schedule" | "__schedule" | "__traceiter_sched_switch"
    )
}

/// Whether a weight has the digits of one in nanoseconds. Its value does not matter: 4,321 of a short wait in our own
/// export is `04321`, 4,321 samples are `4321`.
fn has_long_weight(stack: Stack<'_>) -> bool {
    let whole = stack.weight.split('.').next().unwrap_or_default();
    Weight::parse(stack.weight).is_some() && whole.len() >= COLLAPSED_NANOSECONDS_DIGITS
}

/// Facts about all lines of a file.
pub(super) struct Survey {
    pub(super) stacks: usize,
    pub(super) others: usize,
    pub(super) comments: usize,
    /// The first line that is neither a stack nor a comment.
    pub(super) first_other: Option<String>,
    /// Whether each weight has too many digits for a number of samples.
    pub(super) has_long_weights: bool,
    /// Whether a weight has the zeros that only our exports write.
    pub(super) has_leading_zeros: bool,
    /// Whether each stack ends with a number too, so that the lines have two.
    pub(super) has_two_weights: bool,
    /// Whether each stack ends where threads wait.
    pub(super) is_off_cpu: bool,
    /// Of recordings of austin: by its comments, or because each stack begins with a process and a thread.
    pub(super) austin: Option<Mode>,
    has_threads: bool,
    /// Whether a stack has more than one frame.
    pub(super) has_frames: bool,
}

impl Survey {
    /// Reads all lines once.
    pub(super) fn of(content: &[u8]) -> Result<Survey, ImportError> {
        let mut survey = Survey {
            stacks: 0,
            others: 0,
            comments: 0,
            first_other: None,
            has_long_weights: true,
            has_leading_zeros: false,
            has_two_weights: true,
            is_off_cpu: true,
            austin: None,
            has_threads: true,
            has_frames: false,
        };
        for line in lines(content) {
            let Line { number, text } = line?;
            match Kind::of(&text) {
                Kind::Stack(stack) => survey.stack(stack),
                Kind::Comment => {
                    survey.comments += 1;
                    survey.austin = Mode::of_comment(survey.austin, &text);
                }
                Kind::Other => {
                    survey.others += 1;
                    survey.first_other.get_or_insert_with(|| {
                        format!(
                            "line {number} is not `frame;frame number`: {:?}",
                            echo(&text)
                        )
                    });
                }
                Kind::Invalid => {
                    // The parser names the line.
                    survey.stacks += 1;
                    survey.has_frames |= text.contains(';');
                    survey.has_long_weights = false;
                    survey.has_two_weights = false;
                    survey.is_off_cpu = false;
                    survey.has_threads = false;
                }
            }
        }
        if survey.has_threads && survey.stacks > 0 {
            survey.austin = survey.austin.or(Some(Mode::Unknown));
        }
        Ok(survey)
    }

    fn stack(&mut self, stack: Stack<'_>) {
        self.stacks += 1;
        self.has_long_weights &= has_long_weight(stack);
        self.has_leading_zeros |= stack.weight.starts_with('0') && has_long_weight(stack);
        self.has_two_weights &= stack
            .frames
            .rsplit_once([' ', '\t'])
            .is_some_and(|(name, last)| !name.trim().is_empty() && Weight::parse(last).is_some());
        let last = stack.frames.rsplit(';').next().unwrap_or_default();
        self.is_off_cpu &= is_in_scheduler(last.trim());
        self.has_threads &= has_thread(stack.frames);
        self.has_frames |= stack.frames.contains(';');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_exact() {
        for (text, unit_ns, expected) in [
            ("31", 10_000_000, Some(310_000_000)),
            ("31.25", 10_000_000, Some(312_500_000)),
            ("0.000000001", 1_000_000_000, Some(1)),
            ("7.", 1, Some(7)),
            ("2.5", 1, Some(3)),
            ("0.9999999999", 1_000_000_000, Some(999_999_999)),
            ("18446744073709551615", 1, Some(u64::MAX)),
            ("18446744073709551615.5", 1, None),
            ("18446744073709551615", 2, None),
        ] {
            let weight = Weight::parse(text).unwrap();
            assert_eq!(weight.nanoseconds(unit_ns), expected, "{text}");
        }
        for text in [
            "",
            ".5",
            "-1",
            "1e3",
            "1.2.3",
            "0x10",
            "18446744073709551616",
            "١",
        ] {
            assert_eq!(Weight::parse(text), None, "{text}");
        }
    }
}
