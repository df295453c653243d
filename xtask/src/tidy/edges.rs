//! Allowed dependencies between our crates: the map of ARCHITECTURE.md as rules.

use anyhow::{Context, Result};
use serde_json::Value;

use super::finding::Finding;

const RULE: &str = "edges";

/// A crate, and the crates of the workspace that it may depend on.
const EDGES: &[(&str, &[&str])] = &[
    ("profiler-core", &[]),
    ("api", &["profiler-core"]),
    ("flamegraph", &["profiler-core"]),
    ("jfr", &[]),
    ("import", &["profiler-core", "flamegraph", "jfr", "symbols"]),
    ("tls", &["profiler-core"]),
    // How code is named, for the process itself and for files.
    ("symbols", &["profiler-core"]),
    ("symbol-files", &["profiler-core", "symbols"]),
    ("system", &[]),
    ("ship", &["profiler-core", "tls", "system"]),
    ("symbolize", &["profiler-core", "symbols", "system"]),
    ("agent", &["profiler-core", "symbolize", "system", "ship"]),
    ("diagnostics", &["profiler-core", "agent"]),
    // The interface of C, which is that of the agent.
    ("c", &["agent"]),
    ("preload", &["agent", "python-stacks", "system"]),
    (
        "outside",
        &["profiler-core", "agent", "python-stacks", "system"],
    ),
    // The agent knows no Python: both share the types of `system::foreign`.
    ("python-stacks", &["system"]),
    // A workspace of its own.
    ("python", &["system", "agent", "python-stacks"]),
    // The collector, from the lowest floor up. Only `front`, `bridge` and `collector` know sockets.
    ("collector-base", &["profiler-core"]),
    (
        "naming",
        &["profiler-core", "symbol-files", "collector-base"],
    ),
    ("shares", &["profiler-core", "collector-base"]),
    ("store", &["profiler-core", "collector-base", "naming"]),
    (
        "front",
        &["profiler-core", "api", "tls", "collector-base", "shares"],
    ),
    ("state", STATE),
    ("query", QUERY),
    ("bridge", BRIDGE),
    ("collector", COLLECTOR),
    // An example depends on what a user's program would depend on.
    ("examples", &["profiler-core", "flamegraph", "agent"]),
    (
        "cli",
        &[
            "profiler-core",
            "api",
            "flamegraph",
            "import",
            "symbol-files",
            "tls",
            "agent",
            "outside",
            "preload",
            "collector",
            "examples",
        ],
    ),
    // A workspace of its own. It meets the CLI at its arguments only.
    (
        "sql",
        &[
            "profiler-core",
            "api",
            "flamegraph",
            "collector-base",
            "store",
        ],
    ),
    ("tests", FREE),
    // It compiles in seconds; what needs our crates is in `bench`.
    ("xtask", &[]),
    (
        "bench",
        &[
            "xtask",
            "profiler-core",
            "simulation",
            "symbol-files",
            "tls",
        ],
    ),
    // It meets the others on the wire only, so that it can check them independently.
    ("simulation", &["profiler-core"]),
    // Steps the real code of both, which still meet on the wire only.
    ("fault-simulation", FAULT_SIMULATION),
    // The programs that benchmarks run.
    ("load", &["profiler-core", "agent"]),
];

const STATE: &[&str] = &[
    "profiler-core",
    "api",
    "import",
    "collector-base",
    "naming",
    "shares",
    "store",
];

const QUERY: &[&str] = &[
    "profiler-core",
    "api",
    "flamegraph",
    "collector-base",
    "naming",
    "store",
    "state",
];

const BRIDGE: &[&str] = &[
    "profiler-core",
    "api",
    "flamegraph",
    "import",
    "collector-base",
    "shares",
    "store",
    "front",
    "state",
    "query",
];

const COLLECTOR: &[&str] = &[
    "profiler-core",
    "api",
    "flamegraph",
    "import",
    "tls",
    "collector-base",
    "naming",
    "shares",
    "store",
    "front",
    "state",
    "query",
    "bridge",
];

const FAULT_SIMULATION: &[&str] = &[
    "profiler-core",
    "flamegraph",
    "ship",
    "collector-base",
    "shares",
    "store",
    "state",
    "query",
    "simulation",
];

const FREE: &[&str] = &[
    "profiler-core",
    "api",
    "flamegraph",
    "tls",
    "agent",
    "collector",
    "examples",
    "simulation",
];

/// The crates of a worker's side and those of the collector's side meet on the wire only, even in their tests.
const SIDES: [&[&str]; 2] = [
    &["system", "ship", "agent", "c", "diagnostics", "preload"],
    &[
        "collector",
        "collector-base",
        "naming",
        "shares",
        "store",
        "front",
        "state",
        "query",
        "bridge",
    ],
];

/// Checks the output of `cargo metadata`.
///
/// # Errors
/// If it does not have the documented form.
pub(super) fn check(metadata: &Value) -> Result<Vec<Finding>> {
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata has no packages")?;
    let mut findings = Vec::new();
    for package in packages {
        let from = short_name(package)?;
        let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == from) else {
            add_finding(
                &mut findings,
                from,
                "is not in xtask/src/tidy/edges.rs, which lists the edges of every crate".into(),
            );
            continue;
        };
        let dependencies = package["dependencies"]
            .as_array()
            .context("a package has no dependencies")?;
        // Only crates of the workspace have a path.
        for dependency in dependencies.iter().filter(|each| each["path"].is_string()) {
            let to = short_name(dependency)?;
            let only_for_tests = dependency["kind"] == "dev";
            let strangers = side(from).is_some_and(|own| side(to).is_some_and(|it| it != own));
            let is_program = ["cli", "sql"].contains(&to);
            let forbidden = is_program || strangers;
            if forbidden || (!only_for_tests && !allowed.contains(&to)) {
                let allowed = match allowed.len() {
                    0 => "nothing".to_owned(),
                    _ => allowed.join(", "),
                };
                add_finding(
                    &mut findings,
                    from,
                    format!("{from} must not depend on {to}; it may use {allowed}"),
                );
            }
        }
    }
    Ok(findings)
}

fn add_finding(findings: &mut Vec<Finding>, from: &str, text: String) {
    findings.push(Finding {
        rule: RULE,
        path: format!("{from}/Cargo.toml"),
        line: 0,
        text,
    });
}

/// The index in [`SIDES`] of a crate that is on one.
fn side(crate_name: &str) -> Option<usize> {
    SIDES.iter().position(|side| side.contains(&crate_name))
}

/// The name of a package or a dependency without `emberline-`: most are the crate's folder.
pub(super) fn short_name(package: &Value) -> Result<&str> {
    let name = package["name"].as_str().context("a package has no name")?;
    Ok(name.strip_prefix("emberline-").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;
    use crate::tidy::finding::printed;

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
    fn the_edges_of_the_design_pass() {
        check_edges(
            &[
                ("agent", "profiler-core", None),
                ("collector", "flamegraph", None),
                ("collector", "import", None),
                ("naming", "symbol-files", None),
                ("cli", "collector", None),
                ("examples", "agent", None),
                ("tests", "collector", None),
                ("bench", "simulation", None),
                ("profiler-core", "flamegraph", Some("dev")),
            ],
            expect![""],
        );
    }

    #[test]
    fn other_edges_fail() {
        check_edges(
            &[
                ("profiler-core", "flamegraph", None),
                ("flamegraph", "agent", Some("build")),
                ("flamegraph", "import", None),
                ("examples", "collector", None),
                ("tests", "cli", None),
                ("cli", "sql", None),
            ],
            expect![[r#"
                profiler-core/Cargo.toml: profiler-core must not depend on flamegraph; it may use nothing [edges]
                flamegraph/Cargo.toml: flamegraph must not depend on agent; it may use profiler-core [edges]
                flamegraph/Cargo.toml: flamegraph must not depend on import; it may use profiler-core [edges]
                examples/Cargo.toml: examples must not depend on collector; it may use profiler-core, flamegraph, agent [edges]
                tests/Cargo.toml: tests must not depend on cli; it may use profiler-core, api, flamegraph, tls, agent, collector, examples, simulation [edges]
                cli/Cargo.toml: cli must not depend on sql; it may use profiler-core, api, flamegraph, import, symbol-files, tls, agent, outside, preload, collector, examples [edges]
            "#]],
        );
    }

    #[test]
    fn agent_and_collector_never_meet_even_in_tests() {
        check_edges(
            &[
                ("agent", "collector", Some("dev")),
                ("collector", "agent", Some("dev")),
                ("diagnostics", "store", Some("dev")),
                ("agent", "symbol-files", Some("dev")),
            ],
            expect![[r#"
                agent/Cargo.toml: agent must not depend on collector; it may use profiler-core, symbolize, system, ship [edges]
                collector/Cargo.toml: collector must not depend on agent; it may use profiler-core, api, flamegraph, import, tls, collector-base, naming, shares, store, front, state, query, bridge [edges]
                diagnostics/Cargo.toml: diagnostics must not depend on store; it may use profiler-core, agent [edges]
            "#]],
        );
    }

    #[test]
    fn a_new_crate_needs_its_edges() {
        check_edges(
            &[("novelty", "agent", None)],
            expect![[r#"
                novelty/Cargo.toml: is not in xtask/src/tidy/edges.rs, which lists the edges of every crate [edges]
            "#]],
        );
    }
}
