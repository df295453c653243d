//! A rule on documents with tables of tests: each test that they name exists.

use std::collections::HashMap;

use super::finding::Finding;

/// The documents whose tables name tests in their last column.
const DOCUMENTS: [&str; 2] = ["docs/FEATURES.md", "docs/design/security.md"];

/// Functions of the workspace and the tests that [`DOCUMENTS`] name.
#[derive(Default)]
pub(super) struct FeatureTests {
    /// Paths of the files that define a function, by its name.
    defined: HashMap<String, Vec<String>>,
    named: Vec<NamedTest>,
}

/// A test that a document names.
struct NamedTest {
    document: String,
    line: usize,
    /// Such as `truth::ticks_are_counted`.
    test: String,
}

impl FeatureTests {
    /// Collects what the file at `path` contributes.
    pub(super) fn read(&mut self, path: &str, text: &str) {
        if DOCUMENTS.contains(&path) {
            self.named.extend(named_tests(path, text));
        } else if path.ends_with(".rs") || path.ends_with(".mjs") {
            for name in functions(text) {
                self.defined
                    .entry(name.to_owned())
                    .or_default()
                    .push(path.to_owned());
            }
        }
    }

    /// Returns a finding for each named test that no file defines.
    pub(super) fn check(&self) -> Vec<Finding> {
        let missing = self.named.iter().filter(|named| !self.exists(&named.test));
        missing
            .map(|named| Finding {
                rule: "features",
                path: named.document.clone(),
                line: named.line,
                text: format!("names the test `{}`, which does not exist", named.test),
            })
            .collect()
    }

    /// Whether a file below all of the test's modules defines it.
    fn exists(&self, test: &str) -> bool {
        let (modules, name) = test.rsplit_once("::").unwrap_or(("", test));
        let paths = self.defined.get(name).map_or(&[][..], Vec::as_slice);
        paths.iter().any(|path| {
            modules
                .split("::")
                .filter(|module| !module.is_empty())
                .all(|module| is_in(path, module))
        })
    }
}

fn is_in(path: &str, module: &str) -> bool {
    path.split('/')
        .any(|part| part.split('.').next() == Some(module))
}

/// Code in the last column of each table row that is a path of identifiers.
fn named_tests(document: &str, text: &str) -> Vec<NamedTest> {
    let rows = text
        .lines()
        .zip(1..)
        .filter(|(line, _)| line.starts_with('|'));
    rows.flat_map(|(row, line)| {
        let tests = row
            .trim_end()
            .trim_end_matches('|')
            .rsplit('|')
            .next()
            .unwrap_or_default();
        let code = tests.split('`').skip(1).step_by(2);
        code.filter(|code| is_path(code))
            .map(move |test| NamedTest {
                document: document.to_owned(),
                line,
                test: test.to_owned(),
            })
    })
    .collect()
}

fn is_path(code: &str) -> bool {
    code.split("::")
        .all(|part| !part.is_empty() && part.chars().all(is_identifier))
}

fn is_identifier(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// Names that follow `fn` or `function`.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let mut words = line
            .split(|c| !is_identifier(c))
            .filter(|word| !word.is_empty());
        words.find(|word| ["fn", "function"].contains(word))?;
        words.next()
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::tidy::finding::printed;

    #[test]
    fn named_tests_must_exist_below_their_modules() {
        let mut tests = FeatureTests::default();
        tests.read(
            "tests/src/system/truth.rs",
            "#[test]\nfn time_is_true() {}\n    fn a(x: u8) {}",
        );
        tests.read(
            "collector/ui/check/run.mjs",
            "async function flameGraph() {}",
        );
        tests.read(
            "docs/FEATURES.md",
            "# `gone`\n| # | tests |\n|---|---|\n| A1 | system: `truth::time_is_true`, `a`; page: \
             `flameGraph` |\n| `no_test` | `order::time_is_true`, `gone`, `cargo xtask x` |",
        );
        tests.read(
            "docs/design/security.md",
            "| F1 | system: `order::time_is_true`, `a` |",
        );
        expect![[r#"
            docs/FEATURES.md:5: names the test `order::time_is_true`, which does not exist [features]
            docs/FEATURES.md:5: names the test `gone`, which does not exist [features]
            docs/design/security.md:1: names the test `order::time_is_true`, which does not exist [features]
        "#]]
        .assert_eq(&printed(&tests.check()));
    }
}
