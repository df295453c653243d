//! Reads a profile from the JSON that [`json()`](crate::json()) writes, for HTTP clients.

use std::borrow::Cow;

use profiler_core::{
    CallTrie, Filter, Frame, FrameId, FrameKind, NodeId, Profile, State, SymbolTable, ThreadKind,
    Weight,
};
use serde::Deserialize;

/// A profile deserialized from the format of [`ProfileJson`](crate::ProfileJson). A written profile
/// reads back equal. Unknown fields are ignored.
///
/// ```
/// let text = r#"{"unit":"ns","nodes":[{"parent":0,"name":"load","kind":"task","self":{"cpu":5}}]}"#;
/// let parsed: emberline_flamegraph::ParsedProfile = serde_json::from_str(text)?;
/// assert_eq!(parsed.0.total().total_ns(), 5);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(try_from = "Table")]
pub struct ParsedProfile(pub Profile);

/// Why well-formed JSON is not a profile.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ParseError {
    #[error("unknown unit {0:?}; expected \"ns\"")]
    Unit(String),
    #[error("invalid parent {parent} of node {node}; expected a smaller number")]
    Order { node: u32, parent: u32 },
    #[error("unknown kind of node {0}; a newer version of Emberline may have written it")]
    Kind(u32),
    #[error("too many nodes: {0}; a profile has fewer than 2^32")]
    Size(usize),
    #[error("invalid columns of a profile: {0}")]
    Columns(&'static str),
}

#[derive(Deserialize)]
struct Table<'a> {
    #[serde(borrow)]
    unit: Cow<'a, str>,
    #[serde(borrow)]
    nodes: Vec<Node<'a>>,
}

#[derive(Deserialize)]
struct Node<'a> {
    parent: u32,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    file: Cow<'a, str>,
    #[serde(default)]
    line: u32,
    #[serde(borrow, default)]
    module: Cow<'a, str>,
    #[serde(borrow, default)]
    build_id: Cow<'a, str>,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    inlined: bool,
    #[serde(rename = "self", default)]
    own: States,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct States {
    cpu: u64,
    runnable: u64,
    wait: u64,
    lock: u64,
    interpreter: u64,
    sleep: u64,
    network: u64,
    disk: u64,
    other: u64,
}

impl States {
    /// Converts to a weight. Waiting of no named kind is [`State::Other`].
    fn weight(&self) -> Weight {
        let named: Weight = [
            (State::Cpu, self.cpu),
            (State::Runnable, self.runnable),
            (State::Lock, self.lock),
            (State::Interpreter, self.interpreter),
            (State::Sleep, self.sleep),
            (State::Network, self.network),
            (State::Disk, self.disk),
            (State::Other, self.other),
        ]
        .map(|(state, part)| Weight::of(state, part))
        .into_iter()
        .sum();
        named + Weight::of(State::Other, self.wait.saturating_sub(named.wait_ns()))
    }
}

impl Node<'_> {
    fn frame(&self, kind: FrameKind) -> Frame<&str> {
        let frame = Frame {
            kind,
            function: "",
            file: &*self.file,
            line: self.line,
            module: &*self.module,
            build_id: &*self.build_id,
            offset: self.offset,
            inlined: self.inlined,
        };
        // The name of an unresolved address may follow from its module and offset.
        if kind == FrameKind::Unresolved && frame.label() == *self.name {
            return frame;
        }
        Frame {
            function: &*self.name,
            ..frame
        }
    }
}

impl TryFrom<Table<'_>> for ParsedProfile {
    type Error = ParseError;

    fn try_from(table: Table<'_>) -> Result<Self, ParseError> {
        if table.unit != "ns" {
            return Err(ParseError::Unit(table.unit.chars().take(40).collect()));
        }
        let count = table.nodes.len();
        let count = u32::try_from(count).map_err(|_| ParseError::Size(count))?;
        let mut symbols = SymbolTable::new();
        let mut trie = CallTrie::new(count as usize);
        let mut ids = vec![NodeId::ROOT];
        for (number, node) in (1..=count).zip(&table.nodes) {
            let parent = node.parent;
            let place = *ids.get(parent as usize).ok_or(ParseError::Order {
                node: number,
                parent,
            })?;
            let kind = kind_of(&node.kind).ok_or(ParseError::Kind(number))?;
            let frame: FrameId = symbols.intern(&node.frame(kind));
            let id = trie.insert_past_limit(place, frame);
            trie.add_weight(id, node.own.weight());
            ids.push(id);
        }
        let all = Filter {
            threads: ThreadKind::All,
            ..Filter::default()
        };
        let delta = trie.take_delta();
        Ok(ParsedProfile(Profile::collect(
            &symbols,
            &trie,
            [&delta],
            &all,
        )))
    }
}

/// Inverse of [`kind_name`](crate::json::kind_name).
pub(crate) fn kind_of(name: &str) -> Option<FrameKind> {
    const KINDS: [FrameKind; 11] = [
        FrameKind::Group,
        FrameKind::Task,
        FrameKind::NoTask,
        FrameKind::Agent,
        FrameKind::Truncated,
        FrameKind::NoStack,
        FrameKind::Overflow,
        FrameKind::Function,
        FrameKind::Unresolved,
        FrameKind::Phase,
        FrameKind::Thread,
    ];
    KINDS
        .into_iter()
        .find(|kind| crate::json::kind_name(*kind) == name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json;
    use crate::testing::hostile_profiles;

    fn check_rejected(nodes: &str, why: &str) {
        let text = format!(r#"{{"unit":"ns","nodes":[{nodes}]}}"#);
        let error = serde_json::from_str::<ParsedProfile>(&text).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }

    #[test]
    fn nodes_that_are_not_a_tree_are_rejected() {
        check_rejected(
            r#"{"parent":1,"name":"a","kind":"task"}"#,
            "invalid parent 1 of node 1",
        );
        check_rejected(
            r#"{"parent":9,"name":"a","kind":"task"}"#,
            "invalid parent 9 of node 1",
        );
        check_rejected(r#"{"parent":0,"name":"a","kind":"color"}"#, "unknown kind");
        check_rejected(r#"{"parent":-1,"name":"a","kind":"task"}"#, "invalid value");
        let error = serde_json::from_str::<ParsedProfile>(r#"{"unit":"s","nodes":[]}"#);
        assert!(error.unwrap_err().to_string().contains("expected \"ns\""));
    }

    #[test]
    fn waiting_of_no_kind_counts_as_other() {
        let text = r#"{"unit":"ns","nodes":[{"parent":0,"name":"t","kind":"task",
            "self":{"cpu":1,"wait":9,"lock":2,"disk":3}}]}"#;
        let parsed: ParsedProfile = serde_json::from_str(text).unwrap();
        let parts = [
            (State::Cpu, 1),
            (State::Lock, 2),
            (State::Disk, 3),
            (State::Other, 4),
        ]
        .map(|(state, nanoseconds)| Weight::of(state, nanoseconds));
        assert_eq!(parsed.0.total(), parts.into_iter().sum());
    }

    proptest! {
        #[test]
        fn written_profiles_read_back_equal(profile in hostile_profiles()) {
            let parsed: ParsedProfile = serde_json::from_str(&json(&profile)).unwrap();
            prop_assert_eq!(parsed.0, profile);
        }
    }
}
