//! Which of our crates may depend on which, as DESIGN.md ("Folders") gives it.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Finding;

const RULE: &str = "edges";

/// A crate's folder, and the folders of ours that it may depend on.
const EDGES: &[(&str, &[&str])] = &[
    ("profiler-core", &[]),
    ("flamegraph", &["profiler-core"]),
    ("agent", &["profiler-core"]),
    ("collector", &["profiler-core", "flamegraph"]),
    // What a user copies depends on what a user's program would.
    ("examples", &["profiler-core", "flamegraph", "agent"]),
    ("cli", &["profiler-core", "flamegraph", "agent", "collector", "examples"]),
    // These two only look at the others.
    ("tests", FREE),
    ("xtask", FREE),
    // It meets the others on the wire only, or it could not hold them to what they promise.
    ("simulation", &["profiler-core"]),
    // What benchmarks run.
    ("load", &["profiler-core", "agent"]),
];

const FREE: &[&str] =
    &["profiler-core", "flamegraph", "agent", "collector", "examples", "simulation"];

/// These two meet on the wire only, not even in their tests.
const STRANGERS: [&str; 2] = ["agent", "collector"];

/// Checks what `cargo metadata` says.
///
/// # Errors
/// If it does not have the form that cargo documents.
pub(super) fn check(metadata: &Value) -> Result<Vec<Finding>> {
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let mut findings = Vec::new();
    for package in packages {
        let from = folder(package)?;
        let mut finding = |text: String| {
            findings.push(Finding {
                rule: RULE,
                path: format!("{from}/Cargo.toml"),
                line: 0,
                text,
            });
        };
        let Some((_, allowed)) = EDGES.iter().find(|(folder, _)| *folder == from) else {
            finding("is not in xtask/src/tidy/edges.rs, which gives every crate its edges".into());
            continue;
        };
        let dependencies =
            package["dependencies"].as_array().context("a package has no dependencies")?;
        // Only crates of the workspace have a path.
        for dependency in dependencies.iter().filter(|each| each["path"].is_string()) {
            let to = folder(dependency)?;
            let only_for_tests = dependency["kind"] == "dev";
            let strangers = STRANGERS.contains(&from) && STRANGERS.contains(&to);
            let forbidden = to == "cli" || (strangers && from != to);
            if forbidden || (!only_for_tests && !allowed.contains(&to)) {
                let allowed = match allowed.len() {
                    0 => "nothing".to_owned(),
                    _ => allowed.join(", "),
                };
                finding(format!("{from} must not depend on {to}; of ours it may use {allowed}"));
            }
        }
    }
    Ok(findings)
}

/// The folder of a package or a dependency: its name is `emberline-<folder>`.
fn folder(package: &Value) -> Result<&str> {
    let name = package["name"].as_str().context("a package has no name")?;
    Ok(name.strip_prefix("emberline-").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;
    use crate::tidy::printed;

    /// `edges`: from, to, kind.
    fn check_edges(edges: &[(&str, &str, Option<&str>)], expected: Expect) {
        let packages: Vec<Value> = edges
            .iter()
            .map(|(from, to, kind)| {
                json!({
                    "name": format!("emberline-{from}"),
                    "dependencies": [
                        {"name": format!("emberline-{to}"), "path": "/somewhere", "kind": kind},
                        {"name": "anyhow", "kind": null},
                    ],
                })
            })
            .collect();
        let findings = super::check(&json!({ "packages": packages })).unwrap();
        expected.assert_eq(&printed(&findings));
    }

    #[test]
    fn the_edges_of_the_design_are_fine() {
        check_edges(
            &[
                ("agent", "profiler-core", None),
                ("collector", "flamegraph", None),
                ("cli", "collector", None),
                ("examples", "agent", None),
                ("tests", "collector", None),
                ("xtask", "agent", None),
                ("profiler-core", "flamegraph", Some("dev")),
            ],
            expect![""],
        );
    }

    #[test]
    fn other_edges_are_not() {
        check_edges(
            &[
                ("profiler-core", "flamegraph", None),
                ("flamegraph", "agent", Some("build")),
                ("examples", "collector", None),
                ("tests", "cli", None),
            ],
            expect![[r#"
                profiler-core/Cargo.toml: profiler-core must not depend on flamegraph; of ours it may use nothing [edges]
                flamegraph/Cargo.toml: flamegraph must not depend on agent; of ours it may use profiler-core [edges]
                examples/Cargo.toml: examples must not depend on collector; of ours it may use profiler-core, flamegraph, agent [edges]
                tests/Cargo.toml: tests must not depend on cli; of ours it may use profiler-core, flamegraph, agent, collector, examples, simulation [edges]
            "#]],
        );
    }

    #[test]
    fn agent_and_collector_never_meet_even_in_tests() {
        check_edges(
            &[("agent", "collector", Some("dev")), ("collector", "agent", Some("dev"))],
            expect![[r#"
                agent/Cargo.toml: agent must not depend on collector; of ours it may use profiler-core [edges]
                collector/Cargo.toml: collector must not depend on agent; of ours it may use profiler-core, flamegraph [edges]
            "#]],
        );
    }

    #[test]
    fn a_new_crate_needs_its_edges() {
        check_edges(
            &[("novelty", "agent", None)],
            expect![[r#"
                novelty/Cargo.toml: is not in xtask/src/tidy/edges.rs, which gives every crate its edges [edges]
            "#]],
        );
    }
}
