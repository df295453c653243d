//! How readers select functions: by name or a part of it, by crate, or by a pattern. The page has the same rules
//! (`collector/ui/src/flame/select.ts`).

use profiler_core::{Frame, FrameKind, Profile};
use regex::{Regex, RegexBuilder};

use super::of_frames;
use crate::symbols::{crate_of, label, portable_file};

/// Selects all functions of a crate.
const CRATE: &str = "crate:";
/// Selects functions by a pattern of their names.
const NAMES: &str = "re:";
/// Selects functions by a pattern of their files.
const FILES: &str = "file:";
/// Selects functions by a part of their names or labels.
const PART: &str = "part:";

/// Largest compiled pattern, and its cache while it matches, in bytes. Repetitions of repetitions grow
/// without a limit.
const PATTERN_BYTES_MAX: usize = 256 << 10;

/// Selects functions of a profile:
///
/// | text | functions |
/// |---|---|
/// | `crate:NAME` | of that crate |
/// | `re:PATTERN` | whose full name matches the regular expression, in any case |
/// | `file:PATTERN` | whose file matches it |
/// | `part:TEXT` | whose full name or label has that text, in any case |
/// | any other | with that label |
///
/// A text that is the full name of a function selects these functions, whatever it begins with.
#[derive(Clone, Debug)]
pub struct Selector {
    text: String,
    matcher: Matcher,
}

#[derive(Clone, Debug)]
enum Matcher {
    Name,
    Crate,
    Names(Regex),
    Files(Regex),
    /// In lower case.
    Part(String),
}

/// A pattern that is not a regular expression, or too large.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid regular expression {pattern:?}: {reason}")]
pub struct SelectorError {
    /// The pattern without its prefix.
    pub pattern: String,
    /// The problem found, in one line.
    pub reason: String,
}

impl Selector {
    /// Parses a selector.
    ///
    /// # Errors
    /// [`SelectorError`] if its pattern is invalid.
    pub fn parse(text: &str) -> Result<Selector, SelectorError> {
        let matcher = if text.starts_with(CRATE) {
            Matcher::Crate
        } else if let Some(pattern) = text.strip_prefix(NAMES) {
            Matcher::Names(compile(pattern)?)
        } else if let Some(pattern) = text.strip_prefix(FILES) {
            Matcher::Files(compile(pattern)?)
        } else if let Some(part) = text.strip_prefix(PART) {
            Matcher::Part(part.to_lowercase())
        } else {
            Matcher::Name
        };
        Ok(Selector {
            text: text.to_owned(),
            matcher,
        })
    }

    /// The selector as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is a pattern, which costs more than a name.
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        matches!(
            self.matcher,
            Matcher::Names(_) | Matcher::Files(_) | Matcher::Part(_)
        )
    }

    /// By frame, whether it is selected.
    fn selected(&self, profile: &Profile, full_names: &[String]) -> Vec<bool> {
        let of_crate = self.text.strip_prefix(CRATE).unwrap_or_default();
        let is_full = full_names.contains(&self.text);
        of_frames(profile, |id, frame| match &self.matcher {
            _ if is_full => full_names[id] == self.text,
            Matcher::Name => label(frame) == self.text,
            Matcher::Crate => is_code(frame) && crate_of(frame) == of_crate,
            Matcher::Names(pattern) => pattern.is_match(&full_names[id]),
            Matcher::Files(pattern) => {
                is_code(frame) && pattern.is_match(portable_file(frame.file))
            }
            Matcher::Part(part) => {
                let has_part = |text: &str| text.to_lowercase().contains(part);
                has_part(&full_names[id]) || has_part(&label(frame))
            }
        })
    }
}

impl PartialEq for Selector {
    fn eq(&self, other: &Selector) -> bool {
        self.text == other.text
    }
}

impl Eq for Selector {}

/// Frames that selectors select.
pub(super) struct Selection {
    /// By frame, whether one of them selects it.
    pub(super) frames: Vec<bool>,
    /// Those that select no frame.
    pub(super) unmatched: Vec<Selector>,
}

impl Selection {
    pub(super) fn of(profile: &Profile, selectors: &[Selector]) -> Selection {
        let mut selection = Selection {
            frames: vec![false; profile.symbols().frame_count() as usize],
            unmatched: Vec::new(),
        };
        if selectors.is_empty() {
            return selection;
        }
        let full_names = of_frames(profile, |_, frame| frame.label());
        for selector in selectors {
            let selected = selector.selected(profile, &full_names);
            if !selected.contains(&true) {
                selection.unmatched.push(selector.clone());
            }
            for (one, more) in selection.frames.iter_mut().zip(selected) {
                *one |= more;
            }
        }
        selection
    }
}

fn is_code(frame: &Frame<&str>) -> bool {
    matches!(frame.kind, FrameKind::Function | FrameKind::Unresolved)
}

fn compile(pattern: &str) -> Result<Regex, SelectorError> {
    let mut builder = RegexBuilder::new(pattern);
    builder.case_insensitive(true);
    builder
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX);
    builder.build().map_err(|error| {
        let text = error.to_string();
        // A syntax error repeats the pattern in lines of its own; the last line is the reason.
        let last = text.lines().last().unwrap_or_default();
        let reason = last.strip_prefix("error: ").unwrap_or(last).to_owned();
        SelectorError {
            pattern: pattern.to_owned(),
            reason,
        }
    })
}
