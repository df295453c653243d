//! Guards of locks in the collector: each is in a `let`, or its statement ends with what it was taken for.
//!
//! A guard that no `let` binds lives to the end of its statement: of a whole struct literal, of the body of a `for`,
//! `match` or `if let`. What is called there takes its own locks under it, which no reader of the line expects.

use super::finding::Finding;
use super::tokens::Token;

pub(super) const GUARDS: &str = "guards";

/// The folder of the rule, and the module that has the locks.
const INSIDE: &str = "collector/";
const HOME: &str = "collector/base/src/sync/";

/// Types of the standard library that have no rank.
const UNRANKED: [&str; 3] = ["Mutex", "RwLock", "Condvar"];

/// Functions that take a lock.
const TAKE: [&str; 4] = ["lock", "read", "write", "write_second"];

/// Findings in a file of the collector that is not only for tests.
pub(super) fn check(path: &str, tokens: &[Token]) -> Vec<Finding> {
    let is_test = path.contains("/tests/")
        || ["/tests.rs", "/testing.rs"]
            .iter()
            .any(|end| path.ends_with(end));
    if !path.starts_with(INSIDE) || path.starts_with(HOME) || is_test {
        return Vec::new();
    }
    let file = File::new(tokens);
    let mut findings = Vec::new();
    for (at, token) in tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| !token.in_test)
    {
        let found = if UNRANKED.contains(&token.text.as_str()) && file.is_of_std(at) {
            Some("use the lock of that name in base::sync, which has a rank")
        } else {
            file.outlives_its_use(at).then_some("bind this guard, or what it gives, with a `let`: it lives to the end of the statement, over later calls")
        };
        if let Some(text) = found {
            let text = text.to_owned();
            findings.push(Finding {
                rule: GUARDS,
                path: path.into(),
                line: token.line,
                text,
            });
        }
    }
    findings
}

/// A file, and the brackets in it.
struct File<'a> {
    tokens: &'a [Token],
    /// By the place of a bracket: that of its partner. Of another token: the bracket around it.
    partner: Vec<usize>,
    around: Vec<Option<usize>>,
    /// Of [`TAKE`], those that the file imports.
    taking: Vec<&'static str>,
}

impl<'a> File<'a> {
    fn new(tokens: &'a [Token]) -> File<'a> {
        let mut partner = vec![0; tokens.len()];
        let mut around = vec![None; tokens.len()];
        let mut open = Vec::new();
        for (at, token) in tokens.iter().enumerate() {
            match token.text.as_str() {
                "(" | "[" | "{" => {
                    around[at] = open.last().copied();
                    open.push(at);
                }
                ")" | "]" | "}" => {
                    let first = open.pop().unwrap_or(at);
                    partner[first] = at;
                    partner[at] = first;
                    around[at] = open.last().copied();
                }
                _ => around[at] = open.last().copied(),
            }
        }
        let imported = |name: &&&str| {
            tokens.iter().enumerate().any(|(at, token)| {
                token.text == **name
                    && (at.saturating_sub(40)..at).any(|start: usize| {
                        let texts: Vec<&str> = tokens[start..at]
                            .iter()
                            .map(|token| token.text.as_str())
                            .collect();
                        matches!(texts[..], ["use", "crate" | "base", "::", "sync", "::", ..])
                            && !texts.contains(&";")
                    })
            })
        };
        let taking = TAKE.iter().filter(imported).copied().collect();
        File {
            tokens,
            partner,
            around,
            taking,
        }
    }

    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    /// Whether the name is one that `use std::sync::…` imports, or is written behind `std::sync::`.
    fn is_of_std(&self, at: usize) -> bool {
        let start = (0..at)
            .rev()
            .find(|at| [";", "}"].contains(&self.text(*at)))
            .map_or(0, |before| before + 1);
        let is_path = |from: usize| {
            ["std", "::", "sync", "::"]
                .iter()
                .enumerate()
                .all(|(step, text)| self.text(from + step) == *text)
        };
        self.text(start) == "use" && is_path(start + 1) || at >= 4 && is_path(at - 4)
    }

    /// Whether a function of [`TAKE`] is called here.
    fn takes(&self, at: usize) -> bool {
        let is_function = at > 0 && ![".", "fn", "::"].contains(&self.text(at - 1));
        is_function && self.text(at + 1) == "(" && self.taking.contains(&self.text(at))
    }

    /// Whether a guard is taken here that no `let` binds, and something is called later in its statement.
    fn outlives_its_use(&self, at: usize) -> bool {
        if !self.takes(at) {
            return false;
        }
        let taken = self.partner[at + 1] + 1;
        let end_of_chain = self.end_of_chain(taken);
        let is_used_in_place = end_of_chain > taken || ["*", "&"].contains(&self.text(at - 1));
        if !is_used_in_place {
            return false;
        }
        let nested = (taken..end_of_chain).any(|at| self.takes(at));
        nested || self.calls_after(at, end_of_chain)
    }

    /// The end of the calls and fields behind a value.
    fn end_of_chain(&self, mut at: usize) -> usize {
        loop {
            match self.text(at) {
                "." => at += 2,
                "?" => at += 1,
                "(" | "[" => at = self.partner[at] + 1,
                // The type arguments of a call.
                "::" => {
                    let open = (at..self.tokens.len()).find(|at| self.text(*at) == "(");
                    at = open.unwrap_or(self.tokens.len());
                }
                _ => return at,
            }
        }
    }

    /// Whether anything is called between `from` and the end of what a guard taken at `guard` lives for.
    fn calls_after(&self, guard: usize, from: usize) -> bool {
        let mut inner = guard;
        let mut at = from;
        loop {
            let open = self.around[inner];
            let start = self.start_of_part(inner, open);
            let part: Vec<&str> = (start..inner).map(|at| self.text(at)).collect();
            let is_lazy = part.ends_with(&["&", "&"]) || part.ends_with(&["|", "|"]);
            let is_assigned = self.text(at) == "=" && self.text(at + 1) != "="
                || self.text(at + 1) == "=" && ["+", "-"].contains(&self.text(at));
            if is_lazy || is_assigned {
                return false;
            }
            let has = |word: &str| part.contains(&word);
            let keeps = has("match") || has("for") || has("let") && (has("if") || has("while"));
            let ends_at_body = !keeps && (has("if") || has("while"));
            let close = open.map_or(self.tokens.len(), |open| self.partner[open]);
            let block = open.is_none_or(|open| self.is_block(open));
            while at < close {
                let text = self.text(at);
                if text == ";" || (text == "," && (block || self.is_closure(&part))) {
                    return false;
                }
                if text == "{" && ends_at_body {
                    return false;
                }
                if ["(", "[", "{"].contains(&text) {
                    if (at..self.partner[at]).any(|at| self.is_call(at)) || self.is_call(at - 1) {
                        return true;
                    }
                    let is_body = text == "{" && keeps && block;
                    at = self.partner[at] + 1;
                    if is_body && self.text(at) != "else" {
                        return false;
                    }
                } else {
                    at += 1;
                }
            }
            let Some(open) = open.filter(|_| !block && !self.is_closure(&part)) else {
                return false;
            };
            inner = open;
            at = close + 1;
            // A value that was made of it may be used in turn; that is one of its calls.
            at = self.end_of_chain(at);
        }
    }

    /// Where the statement, argument or arm begins that has `at`.
    fn start_of_part(&self, at: usize, open: Option<usize>) -> usize {
        let first = open.map_or(0, |open| open + 1);
        let mut start = at;
        while start > first {
            let before = start - 1;
            match self.text(before) {
                ";" | "," => break,
                ")" | "]" => start = self.partner[before],
                "}" if self.text(start) == "else" => start = self.partner[before],
                "}" => break,
                ">" if before > first && self.text(before - 1) == "=" => break,
                _ => start = before,
            }
        }
        start
    }

    fn is_closure(&self, part: &[&str]) -> bool {
        part.contains(&"|")
    }

    /// Whether braces hold statements or arms. Those of a struct literal follow a type.
    fn is_block(&self, open: usize) -> bool {
        let before = if open == 0 { "" } else { self.text(open - 1) };
        let is_type = before.starts_with(|first: char| first.is_ascii_uppercase());
        // The head of a statement may end with a constant or a type.
        let head = self.start_of_part(open, self.around[open]);
        let heads = [
            "if", "while", "for", "match", "impl", "fn", "struct", "enum", "trait",
        ];
        let is_head = (head..open).any(|at| heads.contains(&self.text(at)));
        self.text(open) == "{" && (!is_type || is_head)
    }

    /// Whether a function or method is called here. Constructors of enums begin with a capital.
    fn is_call(&self, at: usize) -> bool {
        let name = self.text(at);
        let is_name = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
        let keywords = [
            "if", "in", "match", "while", "return", "for", "else", "move", "let",
        ];
        is_name && self.text(at + 1) == "(" && !keywords.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokens;
    use super::*;

    const IMPORT: &str = "use base::sync::{lock, read, write};";

    /// The lines of `body` with findings, from 1.
    fn lines(body: &str) -> Vec<usize> {
        let source = format!("{IMPORT} fn f() {{\n{body}\n}}");
        let tokens = tokens::read(&source).unwrap();
        check("collector/src/a.rs", &tokens)
            .iter()
            .map(|finding| finding.line - 1)
            .collect()
    }

    #[test]
    fn a_guard_in_a_statement_with_later_calls_is_found() {
        for body in [
            "Update { data: read(&a.windows).data(), reason: ingest.reason() }",
            "Update { data: Some(read(&a.windows).data()), reason: ingest.reason() }",
            "let update = Update { now: clock.now(), data: read(&w).data(), reason: reason() };",
            "let rows = read(&a.ledger).bytes() + read(&a.telemetry).bytes();",
            "for cell in lock(&a.registry).all() { check(cell); }",
            "match &*lock(&a.queue) { Some(queue) => queue.send(work), None => work() }",
            "if let Some(file) = lock(&a.open).get(build) { return Ok(file.clone()); }",
            "while let Some(x) = lock(&a.x).pop() { x.run(); }",
            "let x = (lock(&a).x, b.y());",
            "names.extend(lock(&a).names(read(&b).x()));",
            "f(lock(&a).x(), b.y());",
            "let x = lock(&a).x().filter(|x| *x > 0) == other();",
            "if let Some(x) = lock(&a).x() && f(x) { }",
        ] {
            assert_eq!(lines(body), [1], "{body}");
        }
    }

    #[test]
    fn a_guard_in_a_let_or_at_the_end_of_its_statement_is_fine() {
        for body in [
            "let data = read(&a.windows).data();\nlet reason = ingest.reason();",
            "let mut status = lock(&a.status);\nstatus.update(&health());",
            "let is_much = a.bytes() > 3 || lock(&a.late).is_full();",
            "if lock(&a.state).is_empty() { return b.x(); }",
            "let cells = cells.iter().map(|cell| lock(&cell.state).x).map(f).collect();",
            "x.map(|x| lock(&x).y(), other());",
            "*lock(&a.thread) = Some(spawn(body)?);",
            "*lock(&a.count) += one();",
            "drop(lock(&a.queue).take());",
            "let name = match x { A => lock(&a).name(), B => b.name() };",
            "ledger.add_all(&read(&a.ledger));",
            "if a { lock(&b).x() } else { c.x() }",
            "let view = View { node_count: read(&a.tree).count() };\nview.show();",
            "if let Some(x) = lock(&a).x.get(1).cloned() { return Some(x); }",
            "file.read(&x) + b.read(&y)",
        ] {
            assert!(lines(body).is_empty(), "{body}");
        }
    }

    #[test]
    fn locks_without_a_rank_are_found_except_in_tests() {
        let path = "collector/src/a.rs";
        assert_eq!(
            finding_count(path, "use std::sync::{Arc, Mutex};\nfn f(a: Mutex<u8>) {}"),
            1
        );
        assert_eq!(finding_count(path, "struct A(std::sync::RwLock<u8>);"), 1);
        assert_eq!(
            finding_count(path, "use tokio::sync::Mutex;\nfn f(a: Mutex<u8>) {}"),
            0
        );
        assert_eq!(
            finding_count(path, "#[cfg(test)] mod tests { use std::sync::Mutex; }"),
            0
        );
        assert_eq!(
            finding_count("collector/src/a/tests.rs", "use std::sync::Mutex;"),
            0
        );
        assert_eq!(finding_count("agent/src/a.rs", "use std::sync::Mutex;"), 0);
    }

    fn finding_count(path: &str, source: &str) -> usize {
        check(path, &tokens::read(source).unwrap()).len()
    }
}
