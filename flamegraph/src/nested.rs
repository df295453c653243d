//! A profile as nested objects, in the format of Dask's profiler.

use std::collections::HashSet;
use std::fmt::Write as _;

use profiler_core::{Frame, NodeId, Profile};
use serde_json::json;

use crate::prune::depths;
use crate::symbols::portable_file;

/// Writes the tree as nested objects. Each has `name`, `count` (nanoseconds including children),
/// `identifier` (`name;file;line`, unique among its siblings), `description` (`filename`, `name`,
/// `line_number`, and `line`, which is empty because a profile holds no source text) and `children`
/// by identifier.
///
/// Nesting is up to twice [`DEPTH_MAX`](profiler_core::limits::DEPTH_MAX); readers that limit
/// nesting should use [`json()`](crate::json()).
#[must_use]
pub fn nested_json(profile: &Profile) -> String {
    let totals = profile.totals();
    let depths = depths(profile);
    let mut identifiers = Identifiers::default();
    let mut text = String::new();
    open(&mut text, "root", totals[0].total_ns(), &root());

    let mut last_depth = 0;
    for (id, node) in (1..).zip(profile.nodes()) {
        let depth = depths[id];
        // Closes each node that ends here: the last one, and its finished ancestors.
        (depth..=last_depth).for_each(|_| text.push_str("}}"));
        if depth <= last_depth {
            text.push(',');
        }
        let frame = profile.frame(node.frame);
        let identifier = identifiers.unique(node.parent, id, &frame);
        let _ = write!(text, "{}:", json!(identifier));
        open(&mut text, &identifier, totals[id].total_ns(), &frame);
        last_depth = depth;
    }
    (0..=last_depth).for_each(|_| text.push_str("}}"));
    text
}

/// Writes the root.
fn root() -> Frame<&'static str> {
    Frame::function("root", "", 0)
}

/// Writes a node up to the start of its children.
fn open(text: &mut String, identifier: &str, count: u64, frame: &Frame<&str>) {
    let name = frame.label();
    let description = json!({
        "filename": portable_file(frame.file),
        "name": name,
        "line_number": frame.line,
        "line": "",
    });
    let _ = write!(
        text,
        r#"{{"name":{},"count":{count},"identifier":{},"description":{description},"children":{{"#,
        json!(name),
        json!(identifier),
    );
}

/// Identifiers in use, by parent.
#[derive(Default)]
struct Identifiers(HashSet<(NodeId, String)>);

impl Identifiers {
    /// `name;file;line`, followed by the node's number if a sibling already has that identifier.
    /// Siblings may differ by module alone, and a repeated key would lose one of them.
    fn unique(&mut self, parent: NodeId, id: usize, frame: &Frame<&str>) -> String {
        let mut identifier = format!(
            "{};{};{}",
            frame.label(),
            portable_file(frame.file),
            frame.line
        );
        while !self.0.insert((parent, identifier.clone())) {
            let _ = write!(identifier, ";{id}");
        }
        identifier
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::testing::{deep_profile, hostile_profiles, profile};

    #[test]
    fn nodes_nest_by_identifier_with_counts_of_the_whole_subtree() {
        expect![[r#"{"name":"root","count":7,"identifier":"root","description":{"filename":"","line":"","line_number":0,"name":"root"},"children":{"t;;0":{"name":"t","count":3,"identifier":"t;;0","description":{"filename":"","line":"","line_number":0,"name":"t"},"children":{"f;app/src/a.rs;3":{"name":"f","count":3,"identifier":"f;app/src/a.rs;3","description":{"filename":"app/src/a.rs","line":"","line_number":3,"name":"f"},"children":{}}}},"u;;0":{"name":"u","count":4,"identifier":"u;;0","description":{"filename":"","line":"","line_number":0,"name":"u"},"children":{}}}}"#]]
        .assert_eq(&nested_json(&profile("t;f:3 cpu=1\nt;f:3 disk=2\nu cpu=4")));
    }

    #[test]
    fn an_empty_profile_is_a_root_alone() {
        let value: Value = serde_json::from_str(&nested_json(&Profile::default())).unwrap();
        assert_eq!(
            (&value["count"], &value["children"]),
            (&json!(0), &json!({}))
        );
    }

    #[test]
    fn the_deepest_tree_is_written_without_recursion() {
        let text = nested_json(&deep_profile(1_000));
        assert_eq!(text.matches(r#""children":{"#).count(), 1_001);
        assert!(text.ends_with(&"}}".repeat(1_001)));
    }

    /// Number of nodes below, and the sum of the first level's counts.
    fn walk(node: &Value) -> (usize, u64) {
        let children = node["children"].as_object().unwrap();
        let nodes = children.values().map(|child| 1 + walk(child).0).sum();
        let counts = children
            .values()
            .map(|child| child["count"].as_u64().unwrap());
        (nodes, counts.sum())
    }

    proptest! {
        #[test]
        fn every_node_is_there_and_counts_sum_to_the_total(all in hostile_profiles()) {
            let value: Value = serde_json::from_str(&nested_json(&all)).unwrap();
            prop_assert_eq!(walk(&value), (all.nodes().len(), all.total().total_ns()));
            prop_assert_eq!(&value["count"], all.total().total_ns());
        }
    }
}
