//! Circles: groups of files of one crate that use each other.
//!
//! [`modules`] reads a crate's module tree from its tokens, and [`graph`] resolves every path in it,
//! through re-exports, to the file that defines the item. Such a reference is an edge between two
//! files. `mod` lines, re-exports that their own file does not use, and test code are not edges.
//! Calls of methods are not seen, because they name no path.

mod graph;
mod modules;

use std::path::Path;
use std::{fmt::Write as _, fs};

use anyhow::{Context, Result};
use serde_json::Value;

use self::graph::{Component, Graph};
use super::finding::Finding;

const RULE: &str = "circle";

/// Most files of one crate that may use each other.
const FILES_MAX: usize = 6;

/// The kinds of cargo's targets that are the product's, not a test's or an example's.
const PRODUCT_KINDS: [&str; 2] = ["lib", "bin"];

/// Prints, for each crate, its largest circle with the edges inside it.
///
/// # Errors
/// If cargo's metadata does not have the form that cargo documents, or a source is not Rust.
pub(super) fn print(metadata: &Value, root: &Path) -> Result<()> {
    for target in targets(metadata, root)? {
        let graph = read(root, &target.source)?;
        let largest = graph.components().into_iter().next();
        print!("{}", describe(&target.name, &graph, largest.as_ref()));
    }
    Ok(())
}

/// Finds circles that are too large.
///
/// # Errors
/// As [`fn@print`].
pub(super) fn check(metadata: &Value, root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for target in targets(metadata, root)? {
        let graph = read(root, &target.source)?;
        let Some(largest) = graph.components().into_iter().next() else {
            continue;
        };
        if largest.files.len() > FILES_MAX {
            let text = format!(
                "{} files use each other; at most {FILES_MAX} may: see `cargo xtask tidy --circles`",
                largest.files.len()
            );
            findings.push(Finding {
                rule: RULE,
                path: target.source,
                line: 0,
                text,
            });
        }
    }
    Ok(findings)
}

/// A crate that rustc compiles: a library or a binary.
struct Target {
    /// Its package, and its own name if the package has several.
    name: String,
    /// Path of its root file from the workspace's root.
    source: String,
}

fn targets(metadata: &Value, root: &Path) -> Result<Vec<Target>> {
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata has no packages")?;
    let mut targets = Vec::new();
    for package in packages {
        let package_name = super::edges::short_name(package)?;
        let all = package["targets"]
            .as_array()
            .context("a package has no targets")?;
        let products: Vec<&Value> = all
            .iter()
            .filter(|target: &&Value| {
                let kinds = target["kind"].as_array().map_or(&[][..], Vec::as_slice);
                kinds
                    .iter()
                    .any(|kind| PRODUCT_KINDS.iter().any(|product| kind == product))
            })
            .collect();
        for target in &products {
            let source = target["src_path"]
                .as_str()
                .context("a target has no source")?;
            let source = Path::new(source)
                .strip_prefix(root)?
                .to_str()
                .context("a path is not UTF-8")?;
            let own_name = target["name"].as_str().context("a target has no name")?;
            let name = match products.len() {
                1 => package_name.to_owned(),
                _ => format!("{package_name} ({own_name})"),
            };
            targets.push(Target {
                name,
                source: source.to_owned(),
            });
        }
    }
    Ok(targets)
}

fn read(root: &Path, source: &str) -> Result<Graph> {
    let tree = modules::read(source, |path| fs::read_to_string(root.join(path)).ok())?;
    Ok(Graph::new(&tree))
}

/// The circle's size, its files and the edges that close it.
fn describe(name: &str, graph: &Graph, largest: Option<&Component>) -> String {
    let mut text = String::new();
    let size = largest.map_or(0, |component| component.files.len());
    let _ = writeln!(
        text,
        "{name}: {} files, largest circle {size}",
        graph.files.len()
    );
    let Some(component) = largest else {
        return text;
    };
    for &file in &component.files {
        let _ = writeln!(text, "    {}", graph.files[file]);
    }
    for edge in &component.edges {
        let reference = &graph.references[edge];
        let without = graph.largest_without(component, *edge);
        let note = if without < size {
            format!("  (without it {without})")
        } else {
            String::new()
        };
        let names: Vec<&str> = reference.names.iter().map(String::as_str).collect();
        let _ = writeln!(
            text,
            "  {}:{} -> {}: {}{note}",
            graph.files[edge.from],
            reference.line,
            graph.files[edge.to],
            names.join(", "),
        );
    }
    text
}

#[cfg(test)]
mod tests;
