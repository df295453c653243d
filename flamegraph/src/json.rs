//! A profile for programs: its table of nodes.

use std::ops::Range;

use profiler_core::{Frame, FrameId, FrameKind, NodeId, Profile, State, Weight};
use serde::Serialize;

/// Writes `{"unit":"ns","nodes":[…]}` without merging lines; see [`ProfileJson`].
#[must_use]
pub fn json(profile: &Profile) -> String {
    let mut text = Vec::new();
    ProfileJson(profile).write_to(&mut text);
    String::from_utf8(text).expect("frames were serialised as texts")
}

/// A serialized profile, embedded in a larger answer:
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
/// `wait` is the sum of `lock`, `interpreter`, `sleep`, `network`, `disk` and `other`; of these only
/// nonzero ones are present.
///
/// The root is node 0 and not listed; the first listed node is node 1, and `parent` is always
/// smaller than the node's own number. Nodes are in depth-first order.
#[derive(Clone, Copy, Debug)]
pub struct ProfileJson<'a>(pub &'a Profile);

impl ProfileJson<'_> {
    /// Appends the profile to a text. The text of a frame is made once and copied for each of its
    /// nodes: names are most of a large answer, and escaping them for each node took half of the
    /// time.
    pub fn write_to(&self, text: &mut Vec<u8>) {
        let profile = self.0;
        let frames = FrameTexts::of(profile);
        text.extend_from_slice(b"{\"unit\":\"ns\",\"nodes\":[");
        let totals = profile.totals();
        for (index, (node, total)) in profile.nodes().iter().zip(&totals[1..]).enumerate() {
            let begin: &[u8] = if index == 0 {
                b"{\"parent\":"
            } else {
                b",{\"parent\":"
            };
            text.extend_from_slice(begin);
            let NodeId(parent) = node.parent;
            number(text, parent.into());
            text.extend_from_slice(frames.text(node.frame));
            text.extend_from_slice(b",\"self\":");
            states(text, &node.own);
            text.extend_from_slice(b",\"total\":");
            states(text, total);
            text.push(b'}');
        }
        text.extend_from_slice(b"]}");
    }
}

/// Serialized frames of a profile.
struct FrameTexts {
    all: Vec<u8>,
    /// By frame number.
    ranges: Vec<Range<usize>>,
}

#[derive(Serialize)]
struct FrameText<'a> {
    name: String,
    kind: &'static str,
    file: &'a str,
    line: u32,
    module: &'a str,
    build_id: &'a str,
    offset: u64,
    inlined: bool,
}

impl FrameTexts {
    fn of(profile: &Profile) -> FrameTexts {
        let mut all = Vec::new();
        let frames = (0..profile.symbols().frame_count()).map(|id| profile.frame(FrameId(id)));
        let ranges = frames
            .map(|frame| {
                let name = frame.label();
                let Frame {
                    kind,
                    file,
                    line,
                    module,
                    build_id,
                    offset,
                    inlined,
                    ..
                } = frame;
                let kind = kind_name(kind);
                let told = FrameText {
                    name,
                    kind,
                    file,
                    line,
                    module,
                    build_id,
                    offset,
                    inlined,
                };
                let start = all.len();
                serde_json::to_writer(&mut all, &told).expect("memory takes texts and numbers");
                // These are members of the node's own object.
                all[start] = b',';
                all.pop();
                start..all.len()
            })
            .collect();
        FrameTexts { all, ranges }
    }

    fn text(&self, frame: FrameId) -> &[u8] {
        &self.all[self.ranges[frame.0 as usize].clone()]
    }
}

/// Nanoseconds by state.
fn states(text: &mut Vec<u8>, weight: &Weight) {
    text.extend_from_slice(b"{\"cpu\":");
    number(text, weight.get(State::Cpu));
    text.extend_from_slice(b",\"runnable\":");
    number(text, weight.get(State::Runnable));
    text.extend_from_slice(b",\"wait\":");
    number(text, weight.wait_ns());
    // Most nodes wait in at most one kind of call: six zeros each would be half of the text.
    for state in State::WAITS
        .into_iter()
        .filter(|state| weight.get(*state) > 0)
    {
        text.extend_from_slice(b",\"");
        text.extend_from_slice(state.name().as_bytes());
        text.extend_from_slice(b"\":");
        number(text, weight.get(state));
    }
    text.push(b'}');
}

fn number(text: &mut Vec<u8>, number: u64) {
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Name of a frame's kind in exports.
pub(crate) fn kind_name(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Group => "group",
        FrameKind::Task => "task",
        FrameKind::NoTask => "no_task",
        FrameKind::Agent => "agent",
        FrameKind::Truncated => "truncated",
        FrameKind::NoStack => "no_stack",
        FrameKind::Overflow => "overflow",
        FrameKind::Function => "function",
        FrameKind::Unresolved => "unresolved",
        FrameKind::Phase => "phase",
        FrameKind::Thread => "thread",
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
        fn names_round_trip_and_selves_sum_to_the_total(all in hostile_profiles()) {
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
