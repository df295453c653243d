//! Banned phrases in comments, strings and documents: what a native engineer would not write.
//!
//! A file is read as words, whatever its language, so a phrase is found across line breaks. No
//! phrase occurs in code.

use super::finding::Finding;

pub(super) const WORDING: &str = "wording";

/// A phrase, with what to write instead.
struct Phrase {
    /// Words and marks with spaces between them; `|` separates alternatives. `^` is the start of a
    /// comment or a sentence.
    pattern: &'static str,
    instead: &'static str,
}

const PHRASES: &[Phrase] = &[
    Phrase {
        pattern: "is|are|was|were|be|been told",
        instead: "name who learns what, and how",
    },
    Phrase {
        pattern: "tell|tells|told of",
        instead: "reports, describes",
    },
    Phrase {
        pattern: "say|says|said of itself|themselves|it|them",
        instead: "reports, prints",
    },
    Phrase {
        pattern: "^ gives",
        instead: "Returns",
    },
    Phrase {
        pattern: "^ who",
        instead: "name the thing",
    },
    Phrase {
        pattern: "taken|takes|take|took in",
        instead: "accepted, ingested",
    },
    Phrase {
        pattern: "what is not|asked|there|known|left",
        instead: "name the thing",
    },
    Phrase {
        pattern: "who|whoever asks|waits|reads|knows|goes",
        instead: "the caller, the reader",
    },
    Phrase {
        pattern: "so many|much of",
        instead: "name the number",
    },
    Phrase {
        pattern: "of the past",
        instead: "earlier, restored from disk",
    },
    Phrase {
        pattern: "not known any more",
        instead: "not found",
    },
    Phrase {
        pattern: "anew",
        instead: "again",
    },
    Phrase {
        pattern: "beside",
        instead: "next to, compared with, in addition to",
    },
    Phrase {
        pattern: "whoever",
        instead: "name who",
    },
    Phrase {
        pattern: ", for it|its|they|there|what|who|such|that|both|nobody|nothing|others|we",
        instead: "because",
    },
    Phrase {
        pattern: "as far as it|its|the|they|that|this|we has|have|goes|go",
        instead: "name the limit",
    },
    Phrase {
        pattern: "in good order",
        instead: "cleanly",
    },
    Phrase {
        pattern: "all that is there",
        instead: "everything, or name it",
    },
];

/// A word or mark of a file, in lower case.
struct Word {
    text: String,
    line: usize,
}

/// The start of a comment, a cell or a sentence.
const START: &str = "^";

/// Finds the banned phrases in a file of any kind.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let words = words(text);
    let mut findings = Vec::new();
    for phrase in PHRASES {
        let pattern: Vec<Vec<&str>> = phrase
            .pattern
            .split(' ')
            .map(|word| word.split('|').collect())
            .collect();
        for window in words.windows(pattern.len()) {
            let is_match = pattern
                .iter()
                .zip(window)
                .all(|(alternatives, word)| alternatives.contains(&word.text.as_str()));
            if is_match {
                let found: Vec<&str> = window.iter().map(|word| word.text.as_str()).collect();
                let text = format!("\"{}\": write {}", found.join(" "), phrase.instead);
                findings.push(Finding {
                    rule: WORDING,
                    path: path.into(),
                    line: window[0].line,
                    text,
                });
            }
        }
    }
    findings.sort_by_key(|finding| finding.line);
    findings
}

/// The first words that paraphrase a thing instead of naming it.
const PARAPHRASES: [&str; 4] = ["What", "Which", "Who", "Whose"];

/// Finds documentation comments that do not start with a noun or a verb.
pub(super) fn check_documentation(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut was_comment = false;
    for (line, number) in text.lines().zip(1..) {
        let trimmed = line.trim_start();
        let marks = ["/// ", "//! ", "/** "];
        let comment = marks.iter().find_map(|mark| trimmed.strip_prefix(mark));
        let first = comment
            .and_then(|comment| comment.split(' ').next())
            .unwrap_or_default();
        if !was_comment && PARAPHRASES.contains(&first) {
            let text = format!("a comment starts with \"{first}\": start with a noun or a verb");
            findings.push(Finding {
                rule: WORDING,
                path: path.into(),
                line: number,
                text,
            });
        }
        was_comment = comment.is_some() || ["///", "//!"].contains(&trimmed);
    }
    findings
}

fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut was_comment = false;
    for (line, number) in text.lines().zip(1..) {
        let trimmed = line.trim_start();
        let rest = trimmed.trim_start_matches(['/', '!', '*', '#', '-', '|', '>']);
        let is_comment = rest.len() < trimmed.len();
        let is_blank = rest.trim().is_empty();
        if (is_comment && !was_comment) || is_blank {
            words.push(Word {
                text: START.into(),
                line: number,
            });
        }
        was_comment = is_comment && !is_blank;
        read_line(rest, number, &mut words);
    }
    words
}

fn read_line(line: &str, number: usize, words: &mut Vec<Word>) {
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let length = rest
            .find(|c| is_word_part(c) != is_word_part(first))
            .unwrap_or(rest.len());
        let (part, behind) = rest.split_at(length);
        if is_word_part(first) {
            words.push(Word {
                text: part.to_lowercase(),
                line: number,
            });
        } else {
            let marks = part
                .chars()
                .filter(|c| !c.is_whitespace() && *c != '\\' && *c != '`' && *c != '*');
            let ends_sentence = part.contains(['.', '?', '!', '|']) && part.ends_with(' ');
            if ends_sentence {
                words.push(Word {
                    text: START.into(),
                    line: number,
                });
            } else {
                words.extend(marks.map(|mark| Word {
                    text: mark.into(),
                    line: number,
                }));
            }
        }
        rest = behind;
    }
}

fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '\'' || c == '’'
}
