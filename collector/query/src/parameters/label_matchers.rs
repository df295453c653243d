//! Matchers of labels, in the notation of Prometheus: `{region="eu", task=~"load.*"}`.

use regex::{Regex, RegexBuilder};

use crate::QueryError;
use crate::error::echo;
use base::limits::{MATCHER_PATTERN_BYTES_MAX, MATCHERS_BYTES_MAX, MATCHERS_MAX};

/// How a matcher compares.
#[derive(Clone, Debug)]
enum Comparison {
    Equal(String),
    NotEqual(String),
    Pattern(Regex),
    NotPattern(Regex),
}

/// Condition on one label.
#[derive(Clone, Debug)]
struct LabelMatcher {
    name: String,
    comparison: Comparison,
}

impl LabelMatcher {
    /// Whether this value passes. A label that is missing has an empty value.
    fn accepts(&self, value: &str) -> bool {
        match &self.comparison {
            Comparison::Equal(expected) => value == expected,
            Comparison::NotEqual(unwanted) => value != unwanted,
            Comparison::Pattern(pattern) => pattern.is_match(value),
            Comparison::NotPattern(pattern) => !pattern.is_match(value),
        }
    }
}

/// Matchers that must all accept.
#[derive(Clone, Debug, Default)]
pub struct LabelMatchers(Vec<LabelMatcher>);

impl LabelMatchers {
    /// Parses matchers in braces; an empty text has none.
    pub fn parse(text: &str) -> Result<LabelMatchers, QueryError> {
        let failed = |error: MatcherError| QueryError::Matchers {
            text: echo(text),
            error,
        };
        if text.len() > MATCHERS_BYTES_MAX {
            return Err(failed(MatcherError::TooLong));
        }
        let mut rest = Rest(text.trim());
        if rest.0.is_empty() {
            return Ok(LabelMatchers::default());
        }
        rest.matchers().map(LabelMatchers).map_err(failed)
    }

    /// Matchers that accept nothing.
    pub fn nothing() -> LabelMatchers {
        let empty = String::new;
        let comparisons = [Comparison::Equal(empty()), Comparison::NotEqual(empty())];
        LabelMatchers(
            comparisons
                .map(|comparison| LabelMatcher {
                    name: empty(),
                    comparison,
                })
                .into(),
        )
    }

    /// Whether the matchers of this label accept the value.
    pub fn accept(&self, name: &str, value: &str) -> bool {
        self.of(name).all(|matcher| matcher.accepts(value))
    }

    /// Whether all matchers accept. `value` returns the value of a label.
    pub fn accept_all<'a>(&self, value: impl Fn(&str) -> &'a str) -> bool {
        self.0
            .iter()
            .all(|matcher| matcher.accepts(value(&matcher.name)))
    }

    /// Takes the matchers of a label away.
    pub fn split_off(&mut self, name: &str) -> LabelMatchers {
        let (taken, kept) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|it| it.name == name);
        self.0 = kept;
        LabelMatchers(taken)
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a LabelMatcher> {
        self.0.iter().filter(move |matcher| matcher.name == name)
    }
}

/// Error in matchers.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MatcherError {
    #[error("they are longer than {MATCHERS_BYTES_MAX} bytes")]
    TooLong,
    #[error("there are more than {MATCHERS_MAX}")]
    TooMany,
    #[error("{expected} is missing at {rest:?}")]
    Missing {
        expected: &'static str,
        rest: String,
    },
    #[error("the string has no end")]
    OpenString,
    #[error("unknown escape \\{0} in a string")]
    Escape(char),
    #[error("invalid pattern {pattern:?}: {reason}")]
    Pattern { pattern: String, reason: String },
}

/// The text that is not parsed yet.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    fn matchers(&mut self) -> Result<Vec<LabelMatcher>, MatcherError> {
        let mut matchers = Vec::new();
        self.expect("{", "an opening brace")?;
        while !self.take("}") {
            if matchers.len() == MATCHERS_MAX {
                return Err(MatcherError::TooMany);
            }
            matchers.push(self.matcher()?);
            if !self.take(",") {
                self.expect("}", "a comma or a closing brace")?;
                break;
            }
        }
        if !self.0.is_empty() {
            return Err(self.missing("the end"));
        }
        Ok(matchers)
    }

    fn matcher(&mut self) -> Result<LabelMatcher, MatcherError> {
        let name = match self.string()? {
            Some(quoted) => quoted,
            None => self.name()?,
        };
        // Longer operators first.
        let operators = ["=~", "!~", "!=", "="];
        let operator = operators
            .into_iter()
            .find(|operator| self.take(operator))
            .ok_or_else(|| self.missing("one of =, !=, =~, !~"))?;
        let value = self
            .string()?
            .ok_or_else(|| self.missing("a quoted value"))?;
        let comparison = match operator {
            "=~" => Comparison::Pattern(whole_pattern(&value)?),
            "!~" => Comparison::NotPattern(whole_pattern(&value)?),
            "!=" => Comparison::NotEqual(value),
            _ => Comparison::Equal(value),
        };
        Ok(LabelMatcher { name, comparison })
    }

    /// A name without quotes. Dots belong to it, as in names of OpenTelemetry.
    fn name(&mut self) -> Result<String, MatcherError> {
        let end = self
            .0
            .find(|part| !is_name_part(part))
            .unwrap_or(self.0.len());
        if end == 0 {
            return Err(self.missing("the name of a label"));
        }
        let (name, rest) = self.0.split_at(end);
        self.0 = rest.trim_start();
        Ok(name.to_owned())
    }

    /// A string, if one starts here.
    fn string(&mut self) -> Result<Option<String>, MatcherError> {
        let Some(quote) = self
            .0
            .chars()
            .next()
            .filter(|first| matches!(first, '"' | '\'' | '`'))
        else {
            return Ok(None);
        };
        let mut text = String::new();
        let mut parts = self.0.char_indices().skip(1);
        while let Some((at, part)) = parts.next() {
            match part {
                part if part == quote => {
                    self.0 = self.0[at + 1..].trim_start();
                    return Ok(Some(text));
                }
                '\\' if quote != '`' => {
                    let (_, escaped) = parts.next().ok_or(MatcherError::OpenString)?;
                    text.push(unescaped(escaped)?);
                }
                part => text.push(part),
            }
        }
        Err(MatcherError::OpenString)
    }

    fn take(&mut self, token: &str) -> bool {
        match self.0.strip_prefix(token) {
            Some(rest) => {
                self.0 = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str, expected: &'static str) -> Result<(), MatcherError> {
        if self.take(token) {
            Ok(())
        } else {
            Err(self.missing(expected))
        }
    }

    fn missing(&self, expected: &'static str) -> MatcherError {
        MatcherError::Missing {
            expected,
            rest: self.0.chars().take(20).collect(),
        }
    }
}

fn is_name_part(part: char) -> bool {
    part.is_alphanumeric() || matches!(part, '_' | '.' | ':' | '-')
}

fn unescaped(escaped: char) -> Result<char, MatcherError> {
    match escaped {
        'n' => Ok('\n'),
        't' => Ok('\t'),
        'r' => Ok('\r'),
        '\\' | '"' | '\'' => Ok(escaped),
        other => Err(MatcherError::Escape(other)),
    }
}

/// A pattern that must match the whole value.
fn whole_pattern(pattern: &str) -> Result<Regex, MatcherError> {
    let built = RegexBuilder::new(&format!("^(?:{pattern})$"))
        .dot_matches_new_line(true)
        .size_limit(MATCHER_PATTERN_BYTES_MAX)
        .dfa_size_limit(MATCHER_PATTERN_BYTES_MAX)
        .build();
    built.map_err(|error| MatcherError::Pattern {
        pattern: echo(pattern),
        reason: match error {
            regex::Error::CompiledTooBig(_) => "it is too large".to_owned(),
            error => error.to_string(),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> LabelMatchers {
        LabelMatchers::parse(text).unwrap()
    }

    fn error(text: &str) -> String {
        LabelMatchers::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn values_are_compared_whole_and_missing_labels_are_empty() {
        let held = BTreeMap::from([("region", "eu"), ("a.b", "x\"y")]);
        let accepts = |text: &str| {
            parsed(text).accept_all(|name| held.get(name).copied().unwrap_or_default())
        };
        for text in [
            "",
            " {} ",
            r#"{region="eu"}"#,
            r#"{region!="us",}"#,
            r#"{ region =~ "e.|us" , region!~'u' }"#,
            r#"{"a.b"="x\"y"}"#,
            r#"{a.b=`x"y`}"#,
            r#"{none=""}"#,
            r#"{none!~".+"}"#,
        ] {
            assert!(accepts(text), "{text}");
        }
        for text in [
            r#"{region="e"}"#,
            r#"{region=~"e"}"#,
            r#"{region="eu",region!="eu"}"#,
            r#"{none!=""}"#,
            r#"{region=~"us|e"}"#,
        ] {
            assert!(!accepts(text), "{text}");
        }
    }

    #[test]
    fn errors_say_what_is_missing_and_where() {
        check_rejected("region", "an opening brace is missing at \"region\"");
        check_rejected("{region}", "one of =, !=, =~, !~ is missing at \"}\"");
        check_rejected("{region=eu}", "a quoted value is missing at \"eu}\"");
        check_rejected(
            "{=\"\"}",
            "the name of a label is missing at \"=\\\"\\\"}\"",
        );
        check_rejected("{a=\"b\"", "a comma or a closing brace is missing at \"\"");
        check_rejected("{a=\"b\"} or", "the end is missing at \"or\"");
        check_rejected("{a=\"b", "the string has no end");
        check_rejected("{a=\"\\x\"}", "unknown escape \\x in a string");
        let nested = format!("{{a=~\"{}\"}}", "(a{1000}){1000}");
        assert!(
            error(&nested).contains("it is too large"),
            "{}",
            error(&nested)
        );
        let many = format!("{{{}}}", "a=\"b\",".repeat(MATCHERS_MAX + 1));
        assert!(error(&many).contains("there are more than 32"));
        assert!(error(&"x".repeat(MATCHERS_BYTES_MAX + 1)).contains("longer than"));
    }

    fn check_rejected(text: &str, reason: &str) {
        let expected = format!(
            "invalid matchers {text:?}: {reason}; allowed: \
                {{label=\"value\"}} with =, !=, =~ or !~, separated by commas"
        );
        assert_eq!(error(text), expected);
    }

    proptest! {
        #[test]
        fn any_value_can_be_matched(value in any::<String>()) {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            prop_assume!(quoted.len() < MATCHERS_BYTES_MAX - 10);
            let matchers = parsed(&format!("{{a=\"{quoted}\"}}"));
            prop_assert!(matchers.accept("a", &value));
            prop_assert!(matchers.accept("b", "other"));
        }

        #[test]
        fn any_text_is_parsed_or_rejected(text in "[{}a=!~\"'`,.\\\\ ]{0,40}") {
            let _ = LabelMatchers::parse(&text);
        }
    }
}
