//! A profile for programs: its table of nodes.

use profiler_core::profile::ProfileNode;
use profiler_core::{Frame, FrameKind, Profile, State, Weight};
use serde::ser::{SerializeMap as _, SerializeSeq as _, SerializeStruct as _};
use serde::{Serialize, Serializer};

/// `{"unit":"ns","nodes":[…]}`, lines not folded; see [`ProfileJson`].
#[must_use]
pub fn json(profile: &Profile) -> String {
    serde_json::to_string(&ProfileJson(profile)).expect("strings and numbers always serialise")
}

/// A profile as it is serialised, to be embedded in a larger answer:
///
/// ```json
/// {"unit": "ns", "nodes": [
///   {"parent": 0, "name": "load", "kind": "task", "file": "", "line": 0, "module": "",
///    "build_id": "", "offset": 0, "inlined": false,
///    "self": {"cpu": 0, "runnable": 0, "wait": 0},
///    "total": {"cpu": 5, "runnable": 0, "wait": 3, "lock": 2, "disk": 1}}
/// ]}
/// ```
///
/// `wait` is the sum of `lock`, `sleep`, `network`, `disk` and `other`, which are there if they are
/// not 0.
///
/// The root is node 0 and is not listed; the first listed node is node 1, and `parent` is always
/// smaller than the node's own number. Nodes stand depth first.
#[derive(Clone, Copy, Debug)]
pub struct ProfileJson<'a>(pub &'a Profile);

impl Serialize for ProfileJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Profile", 2)?;
        fields.serialize_field("unit", "ns")?;
        fields.serialize_field("nodes", &Nodes(self.0))?;
        fields.end()
    }
}

/// The nodes, written one by one: a profile may have a million.
struct Nodes<'a>(&'a Profile);

impl Serialize for Nodes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let nodes = self.0.nodes();
        let totals = self.0.totals();
        let mut list = serializer.serialize_seq(Some(nodes.len()))?;
        for (node, total) in nodes.iter().zip(&totals[1..]) {
            list.serialize_element(&Node::new(node, &self.0.frame(node.frame), *total))?;
        }
        list.end()
    }
}

#[derive(Serialize)]
struct Node<'a> {
    parent: u32,
    name: String,
    kind: &'static str,
    file: &'a str,
    line: u32,
    module: &'a str,
    build_id: &'a str,
    offset: u64,
    inlined: bool,
    #[serde(rename = "self")]
    own: States,
    total: States,
}

impl<'a> Node<'a> {
    fn new(node: &ProfileNode, frame: &Frame<&'a str>, total: Weight) -> Self {
        Node {
            parent: node.parent.0,
            name: frame.label(),
            kind: kind_name(frame.kind),
            file: frame.file,
            line: frame.line,
            module: frame.module,
            build_id: frame.build_id,
            offset: frame.offset,
            inlined: frame.inlined,
            own: States(node.own),
            total: States(total),
        }
    }
}

/// Nanoseconds by state.
struct States(Weight);

impl Serialize for States {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut states = serializer.serialize_map(None)?;
        states.serialize_entry("cpu", &self.0.get(State::Cpu))?;
        states.serialize_entry("runnable", &self.0.get(State::Runnable))?;
        states.serialize_entry("wait", &self.0.wait_ns())?;
        // Most nodes wait in one kind of call or in none: five zeros each would be half the text.
        for state in State::WAITS.into_iter().filter(|state| self.0.get(*state) > 0) {
            states.serialize_entry(state.name(), &self.0.get(state))?;
        }
        states.end()
    }
}

/// The name of a frame's kind in exports.
pub(crate) fn kind_name(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Task => "task",
        FrameKind::NoTask => "no_task",
        FrameKind::Agent => "agent",
        FrameKind::Truncated => "truncated",
        FrameKind::Overflow => "overflow",
        FrameKind::Function => "function",
        FrameKind::Unresolved => "unresolved",
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{hostile_profiles, profile};

    #[test]
    fn nodes_are_listed_parents_first_with_self_and_total() {
        let text = json(&profile("t;f:3 cpu=1\nt;f:3;g lock=2"));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        expect![[r#"
            {"build_id":"","file":"","inlined":false,"kind":"task","line":0,"module":"","name":"t","offset":0,"parent":0,"self":{"cpu":0,"runnable":0,"wait":0},"total":{"cpu":1,"lock":2,"runnable":0,"wait":2}}
            {"build_id":"","file":"app/src/a.rs","inlined":false,"kind":"function","line":3,"module":"","name":"f","offset":0,"parent":1,"self":{"cpu":1,"runnable":0,"wait":0},"total":{"cpu":1,"lock":2,"runnable":0,"wait":2}}
            {"build_id":"","file":"app/src/a.rs","inlined":false,"kind":"function","line":0,"module":"","name":"g","offset":0,"parent":2,"self":{"cpu":0,"lock":2,"runnable":0,"wait":2},"total":{"cpu":0,"lock":2,"runnable":0,"wait":2}}
        "#]]
        .assert_eq(
            &value["nodes"].as_array().unwrap().iter().fold(String::new(), |all, node| {
                format!("{all}{node}\n")
            }),
        );
        assert_eq!(value["unit"], "ns");
    }

    #[test]
    fn an_empty_profile_has_no_nodes() {
        assert_eq!(json(&Profile::default()), r#"{"unit":"ns","nodes":[]}"#);
    }

    proptest! {
        #[test]
        fn names_read_back_as_they_were_and_selves_sum_to_the_total(all in hostile_profiles()) {
            let value: serde_json::Value = serde_json::from_str(&json(&all)).unwrap();
            let nodes = value["nodes"].as_array().unwrap();
            let mut sum = 0;
            for (read, node) in nodes.iter().zip(all.nodes()) {
                prop_assert_eq!(read["name"].as_str().unwrap(), all.frame(node.frame).label());
                sum += ["cpu", "runnable", "wait"]
                    .iter()
                    .map(|state| read["self"][state].as_u64().unwrap())
                    .sum::<u64>();
            }
            prop_assert_eq!(nodes.len(), all.nodes().len());
            prop_assert_eq!(sum, all.total().total_ns());
        }
    }
}
