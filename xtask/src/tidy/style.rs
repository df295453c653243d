//! Statements and signatures that pack several into one, names that change their value at once, and `match` on a `bool`.

use super::finding::Finding;
use super::tokens::Token;

pub(super) const STYLE: &str = "style";

/// Findings in Rust: `let (a, b) = (x, y)`, `let a = x; let a = a.b()`, parameters that are tuple patterns, `match` on
/// a `bool`.
pub(super) fn check(path: &str, tokens: &[Token]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let found = match token.text.as_str() {
            "let" => parallel_let(&tokens[at..]).or_else(|| shadowing_let(&tokens[at..])),
            "fn" => tuple_parameter(&tokens[at..]),
            "{" => match_on_bool(&tokens[at..]),
            _ => None,
        };
        if let Some(text) = found {
            let text = text.to_owned();
            findings.push(Finding {
                rule: STYLE,
                path: path.into(),
                line: token.line,
                text,
            });
        }
    }
    findings
}

/// `tokens` begin with `let`.
fn parallel_let(tokens: &[Token]) -> Option<&'static str> {
    let pattern = group(tokens, 1)?;
    let equals = 1 + pattern.length;
    if tokens.get(equals)?.text != "=" || tokens.get(equals + 1)?.text == "=" {
        return None;
    }
    let value = group(tokens, equals + 1)?;
    let is_whole = tokens.get(equals + 1 + value.length)?.text == ";";
    let is_parallel = is_whole && pattern.elements > 1 && pattern.elements == value.elements;
    is_parallel.then_some("a `let` for each name: `let (a, b) = (x, y)` is two statements")
}

/// `tokens` begin with `let`.
fn shadowing_let(tokens: &[Token]) -> Option<&'static str> {
    let first = binding(tokens)?;
    let end = first.value + length_until(&tokens[first.value..], ";")?;
    let next = &tokens[end + 1..];
    let second = binding(next)?;
    let value = next[second.value..]
        .iter()
        .skip_while(|token| ["&", "*", "mut"].contains(&token.text.as_str()))
        .take(2)
        .map(|token| token.text.as_str())
        .collect::<Vec<_>>();
    // `let a = a(b)` and `let a = a::b` read a function or a module of that name.
    let is_chained = second.name == first.name
        && value.first() == Some(&first.name)
        && !["(", "::"].contains(value.get(1)?);
    is_chained
        .then_some("one chain, or a second name: the next `let` shadows this one with a part of it")
}

/// A `let` with a plain name.
struct Binding<'a> {
    name: &'a str,
    /// Where its value begins.
    value: usize,
}

/// The `let` that `tokens` begin with.
fn binding(tokens: &[Token]) -> Option<Binding<'_>> {
    if tokens.first()?.text != "let" {
        return None;
    }
    let name_at = 1 + usize::from(tokens.get(1)?.text == "mut");
    let name = tokens.get(name_at)?.text.as_str();
    let after = &tokens[name_at + 1..];
    if ![":", "="].contains(&after.first()?.text.as_str()) {
        return None;
    }
    let value = name_at + 1 + length_until(after, "=")? + 1;
    Some(Binding { name, value })
}

/// Tokens before the first `end` outside of groups; `None` if the group around them ends first.
fn length_until(tokens: &[Token], end: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            text if text == end && depth == 0 => return Some(at),
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => return None,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
    }
    None
}

/// `tokens` begin with `fn`.
fn tuple_parameter(tokens: &[Token]) -> Option<&'static str> {
    // Generic arguments may stand between the name and the parameters.
    let open = 2 + tokens
        .get(2..)?
        .iter()
        .position(|token| token.text == "(")?;
    let parameters = group(tokens, open)?;
    let inside = &tokens[open..open + parameters.length];
    let mut depth = 0;
    let mut before = "";
    for pair in inside.windows(2) {
        match pair[0].text.as_str() {
            "(" | "[" | "{" | "<" => depth += 1,
            // The end of an arrow closes nothing.
            ">" if before == "-" => {}
            ")" | "]" | "}" | ">" => depth -= 1,
            _ => {}
        }
        before = &pair[0].text;
        let starts_parameter = depth == 1 && ["(", ","].contains(&pair[0].text.as_str());
        if starts_parameter && pair[1].text == "(" {
            return Some("name each parameter, or make a struct: a tuple hides what they are");
        }
    }
    None
}

/// `tokens` begin with `{`.
fn match_on_bool(tokens: &[Token]) -> Option<&'static str> {
    let [_, pattern, equals, arrow, ..] = tokens else {
        return None;
    };
    let is_bool = pattern.text == "true" || pattern.text == "false";
    let is_arm = equals.text == "=" && arrow.text == ">";
    (is_bool && is_arm).then_some("`if` and `else` instead of `match` on a `bool`")
}

/// A group in parentheses.
struct Parenthesized {
    /// Tokens, with its own two.
    length: usize,
    elements: usize,
}

/// The group that opens at `at`.
fn group(tokens: &[Token], at: usize) -> Option<Parenthesized> {
    if tokens.get(at)?.text != "(" {
        return None;
    }
    let mut depth = 0;
    let mut commas = 0;
    for (index, token) in tokens[at..].iter().enumerate() {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            "," if depth == 1 => commas += 1,
            _ => {}
        }
        if depth == 0 {
            let has_last_comma = tokens[at + index - 1].text == ",";
            let elements = commas + usize::from(!has_last_comma);
            return Some(Parenthesized {
                length: index + 1,
                elements,
            });
        }
    }
    None
}
