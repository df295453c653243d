//! Rules on single files: homes of unsafe code, protocols, signals and formats; lengths; unfinished
//! work; sleeps in tests.

use xtask::page_bundle;

use super::finding::Finding;
use super::tokens::{self, Token};
use super::{guards, names, style, wording};

pub(super) const UNFINISHED: &str = "unfinished";
pub(super) const SIGNALS: &str = "signals";
const LENGTH: &str = "length";
pub(super) const SLEEP: &str = "sleep";
const SYNTAX: &str = "syntax";

const LINES_MAX: usize = 700;
/// Files written by hand; golden data of tests may be longer.
const WRITTEN: &[&str] = &[
    "rs", "ts", "tsx", "js", "css", "proto", "md", "toml", "sh", "yml", "mjs", "html", "py",
];

/// Tokens that only some modules may use.
struct Confined {
    rule: &'static str,
    /// Tokens, with a space between them.
    patterns: &'static [&'static str],
    /// The scope of the rule; empty means everywhere.
    inside: &'static str,
    /// The modules or folders that may use it, as paths without `.rs`.
    homes: &'static [&'static str],
}

const CONFINED: &[Confined] = &[
    Confined {
        rule: "unsafe",
        patterns: &["unsafe"],
        inside: "",
        // The last is the hostile host of the tests: signals, stacks, filters, allocators.
        homes: &[
            "agent/system",
            "agent/src/sampler/sys",
            "agent/c/src/sys",
            "agent/outside/src/sys",
            "agent/preload/src/sys",
            "cli/src/launch/sys",
            "agent/python/src/sys",
            "tests/src/hostile/sys",
        ],
    },
    Confined {
        rule: SIGNALS,
        patterns: &[
            "sigaction",
            "SigAction",
            "SigHandler",
            "SigSet",
            "pthread_sigmask",
            "nix :: sys :: signal",
        ],
        inside: "agent",
        homes: &["agent/system", "agent/src/sampler/sys", "agent/tests"],
    },
    Confined {
        rule: "protocols",
        patterns: &["h2 ::", "http ::", "tonic ::"],
        inside: "agent",
        homes: &["agent/ship/src/shipper"],
    },
    // Its license is not ours: it stays behind one crate.
    Confined {
        rule: "inferno",
        patterns: &["inferno ::"],
        inside: "",
        homes: &["flamegraph"],
    },
    Confined {
        rule: "plain-values",
        patterns: &[
            "Instant",
            "SystemTime",
            "std :: fs",
            "std :: net",
            "std :: thread",
        ],
        inside: "profiler-core/src",
        homes: &[],
    },
    Confined {
        rule: "formats",
        patterns: &["parquet ::"],
        inside: "collector/store/src",
        homes: &["collector/store/src/segment"],
    },
    Confined {
        rule: "formats",
        patterns: &["datafusion ::", "ballista_core ::"],
        inside: "",
        homes: &["sql"],
    },
];

/// Words that mark unfinished work, in comments too, and tests that do not run.
const UNFINISHED_WORDS: &[&str] = &["TODO", "FIXME", "```ignore"];
const UNFINISHED_CODE: &[&str] = &["todo !", "dbg !", "# [ ignore"];
/// Mark of the tests that only `cargo xtask test --all` runs.
const LONG_TEST: &str = "# [ ignore = \"long\" ]";

/// All findings in the file at `path`, a path from the root with `/`.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    if !WRITTEN.contains(&extension) || is_generated(path, text) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let lines = text.lines().count();
    // A check of the page is one sequence in one browser.
    if lines > LINES_MAX && extension != "mjs" {
        let text = format!("has {lines} lines; at most {LINES_MAX} are allowed");
        findings.push(finding(LENGTH, path, 0, text));
    }
    for (line, number) in text.lines().zip(1..) {
        for word in UNFINISHED_WORDS.iter().filter(|word| line.contains(**word)) {
            findings.push(finding(
                UNFINISHED,
                path,
                number,
                format!("`{word}` must not stay"),
            ));
        }
    }
    findings.extend(wording::check(path, text));
    findings.extend(wording::check_documentation(path, text));
    if ["ts", "tsx", "mjs", "proto"].contains(&extension) {
        findings.extend(names::check_text(path, text));
    }
    if extension == "rs" {
        match tokens::read(text) {
            Ok(tokens) => check_code(path, &tokens, &mut findings),
            Err(error) => {
                let line = error.span().start().line;
                findings.push(finding(SYNTAX, path, line, "is not Rust from here".into()));
            }
        }
    }
    findings
}

/// Whether a file is part of the page's bundle, or its first line says that it is generated.
fn is_generated(path: &str, text: &str) -> bool {
    let is_bundle = path
        .strip_prefix(page_bundle::DIRECTORY)
        .is_some_and(|rest| rest.starts_with('/'));
    let first = text.lines().next().unwrap_or_default();
    is_bundle || first.contains("@generated") || first.contains("generated from")
}

fn check_code(path: &str, tokens: &[Token], findings: &mut Vec<Finding>) {
    findings.extend(names::check_tokens(path, tokens));
    findings.extend(style::check(path, tokens));
    findings.extend(guards::check(path, tokens));
    for confined in CONFINED.iter().filter(|confined| confined.holds_at(path)) {
        for pattern in confined.patterns {
            let text = format!("`{}` {}", pattern.replace(' ', ""), confined.belongs());
            findings.extend(
                tokens::find(tokens, pattern)
                    .map(|token| finding(confined.rule, path, token.line, text.clone())),
            );
        }
    }
    let long_tests: Vec<usize> = tokens::find(tokens, LONG_TEST)
        .map(|token| token.line)
        .collect();
    for pattern in UNFINISHED_CODE {
        let text = format!("`{}` must not stay", pattern.replace(' ', ""));
        findings.extend(
            tokens::find(tokens, pattern)
                .filter(|token| !long_tests.contains(&token.line))
                .map(|token| finding(UNFINISHED, path, token.line, text.clone())),
        );
    }
    let is_test =
        path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs");
    findings.extend(
        tokens::find(tokens, "thread :: sleep")
            .filter(|token| is_test || token.in_test)
            .map(|token| {
                let text = "a test must wait for what it waits for, not sleep";
                finding(SLEEP, path, token.line, text.into())
            }),
    );
}

impl Confined {
    fn holds_at(&self, path: &str) -> bool {
        path.starts_with(self.inside)
            && !self.homes.iter().any(|home: &&str| {
                path.strip_prefix(home)
                    .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            })
    }

    fn belongs(&self) -> String {
        match self.homes {
            [] => format!("does not belong in {}", self.inside),
            homes => format!("belongs in {} only", homes.join(", ")),
        }
    }
}

fn finding(rule: &'static str, path: &str, line: usize, text: String) -> Finding {
    Finding {
        rule,
        path: path.into(),
        line,
        text,
    }
}
