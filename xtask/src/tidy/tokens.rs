//! Rust as a flat list of tokens with their lines: no comment and no string looks like code.

use proc_macro2::{Delimiter, Group, LexError, Spacing, TokenStream, TokenTree};

/// One token; `::` is one.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) text: String,
    /// From 1.
    pub(super) line: usize,
    /// Whether it stands in an item that only tests are built with.
    pub(super) in_test: bool,
}

/// Reads `source`.
///
/// # Errors
/// If it is not Rust.
pub(super) fn read(source: &str) -> Result<Vec<Token>, LexError> {
    let mut tokens = Vec::new();
    flatten(source.parse()?, false, &mut tokens);
    Ok(tokens)
}

/// The first tokens of every place where `pattern` stands, which is written with a space between
/// tokens: `thread :: sleep`.
pub(super) fn find<'a>(tokens: &'a [Token], pattern: &str) -> impl Iterator<Item = &'a Token> {
    let pattern: Vec<String> = pattern.split(' ').map(str::to_owned).collect();
    tokens
        .windows(pattern.len())
        .filter(move |window| {
            window
                .iter()
                .map(|token| &token.text)
                .eq(pattern.iter().by_ref())
        })
        .map(|window| &window[0])
}

fn flatten(stream: TokenStream, in_test: bool, tokens: &mut Vec<Token>) {
    // Set by `#[test]` and `#[cfg(test)]`, until the item that they stand at is over.
    let mut item_is_test = false;
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let is_attribute = tokens.last().is_some_and(|token| token.text == "#");
                item_is_test |= is_attribute && marks_test(&group);
                let is_body = group.delimiter() == Delimiter::Brace;
                flatten_group(&group, in_test || (is_body && item_is_test), tokens);
                item_is_test &= !is_body;
            }
            TokenTree::Punct(mark) => {
                let mut text = mark.as_char().to_string();
                if text == ":"
                    && mark.spacing() == Spacing::Joint
                    && trees
                        .next_if(|next: &TokenTree| match next {
                            TokenTree::Punct(next) => next.as_char() == ':',
                            _ => false,
                        })
                        .is_some()
                {
                    text.push(':');
                }
                item_is_test &= text != ";";
                tokens.push(Token {
                    text,
                    line,
                    in_test,
                });
            }
            tree @ (TokenTree::Ident(_) | TokenTree::Literal(_)) => tokens.push(Token {
                text: tree.to_string(),
                line,
                in_test,
            }),
        }
    }
}

fn flatten_group(group: &Group, in_test: bool, tokens: &mut Vec<Token>) {
    let (open, close) = match group.delimiter() {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::None => ("", ""),
    };
    push(open, group.span_open().start().line, tokens, in_test);
    flatten(group.stream(), in_test, tokens);
    push(close, group.span_close().start().line, tokens, in_test);
}

fn push(text: &str, line: usize, tokens: &mut Vec<Token>, in_test: bool) {
    tokens.push(Token {
        text: text.into(),
        line,
        in_test,
    });
}

/// Whether an attribute is `[test]`, `[cfg(test)]` or of their kind.
pub(super) fn marks_test(attribute: &Group) -> bool {
    let mut words = Vec::new();
    flatten(attribute.stream(), false, &mut words);
    let has = |word: &str| words.iter().any(|token| token.text == word);
    let has_condition = words.first().is_some_and(|token| token.text == "cfg");
    let is_test = words.last().is_some_and(|token| token.text == "test");
    (has_condition && has("test") && !has("not")) || is_test
}
