//! Reads a profile in columns, such as that of a report.

use std::borrow::Cow;
use std::collections::BTreeMap;

use profiler_core::{
    CallTrie, Filter, Frame, FrameKind, NodeId, Profile, State, SymbolTable, ThreadKind, Weight,
};
use serde::Deserialize;

use crate::parse::{ParseError, kind_of};

/// A profile deserialized from the format of [`ProfileColumns`](crate::ProfileColumns). Columns have the
/// names that are drawn, so an unresolved address becomes a function of that name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(try_from = "Columns")]
pub struct ParsedColumns(pub Profile);

#[derive(Deserialize)]
struct Columns<'a> {
    #[serde(borrow)]
    unit: Cow<'a, str>,
    #[serde(borrow)]
    functions: Functions<'a>,
    parents: Vec<u32>,
    numbers: Vec<u32>,
    #[serde(rename = "self", borrow)]
    own: BTreeMap<Cow<'a, str>, Sparse>,
}

#[derive(Deserialize)]
struct Functions<'a> {
    #[serde(borrow)]
    names: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    kinds: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    files: Vec<Cow<'a, str>>,
    lines: Vec<u32>,
    #[serde(borrow)]
    modules: Vec<Cow<'a, str>>,
}

/// Weights of some nodes: the distances between them, and their nanoseconds.
#[derive(Deserialize)]
struct Sparse {
    nodes: Vec<u32>,
    ns: Vec<u64>,
}

impl Functions<'_> {
    fn frame(&self, at: usize) -> Result<Frame<&str>, ParseError> {
        const SHORT: ParseError = ParseError::Columns("the columns of functions differ in length");
        let kind = kind_of(self.kinds.get(at).ok_or(SHORT)?);
        let kind = match kind.ok_or(ParseError::Columns("unknown kind of a function"))? {
            FrameKind::Unresolved => FrameKind::Function,
            kind => kind,
        };
        Ok(Frame {
            kind,
            function: self.names.get(at).ok_or(SHORT)?,
            file: self.files.get(at).ok_or(SHORT)?,
            line: *self.lines.get(at).ok_or(SHORT)?,
            module: self.modules.get(at).ok_or(SHORT)?,
            build_id: "",
            offset: 0,
            inlined: false,
        })
    }
}

impl TryFrom<Columns<'_>> for ParsedColumns {
    type Error = ParseError;

    fn try_from(columns: Columns<'_>) -> Result<Self, ParseError> {
        if columns.unit != "ns" {
            return Err(ParseError::Unit(columns.unit.chars().take(40).collect()));
        }
        let count = columns.parents.len();
        if columns.numbers.len() != count {
            return Err(ParseError::Columns("parents and numbers differ in length"));
        }
        u32::try_from(count).map_err(|_| ParseError::Size(count))?;
        let mut symbols = SymbolTable::new();
        let frames = (0..columns.functions.names.len())
            .map(|at| {
                columns
                    .functions
                    .frame(at)
                    .map(|frame| symbols.intern(&frame))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let mut trie = CallTrie::new(count);
        let mut ids = vec![NodeId::ROOT];
        for (node, (distance, number)) in columns.parents.iter().zip(&columns.numbers).enumerate() {
            let parent = (node + 1)
                .checked_sub(*distance as usize)
                .filter(|parent| *parent <= node)
                .ok_or(ParseError::Columns("a node has no parent before it"))?;
            let frame = *frames
                .get(*number as usize)
                .ok_or(ParseError::Columns("a node has no function"))?;
            ids.push(trie.insert_past_limit(ids[parent], frame));
        }
        for (state, Sparse { nodes, ns }) in &columns.own {
            let state =
                State::from_name(state).ok_or(ParseError::Columns("unknown state of a thread"))?;
            if nodes.len() != ns.len() {
                return Err(ParseError::Columns(
                    "weights and their nodes differ in length",
                ));
            }
            let mut node = 0_usize;
            for (distance, ns) in nodes.iter().zip(ns) {
                node = node.saturating_add(*distance as usize);
                let id = ids
                    .get(node)
                    .filter(|_| node > 0)
                    .ok_or(ParseError::Columns("a weight has no node"))?;
                trie.add_weight(*id, Weight::of(state, *ns));
            }
        }
        let all = Filter {
            threads: ThreadKind::All,
            ..Filter::default()
        };
        let delta = trie.take_delta();
        Ok(ParsedColumns(Profile::collect(
            &symbols,
            &trie,
            [&delta],
            &all,
        )))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{hostile_profiles, profile};
    use crate::{ProfileColumns, collapsed};

    #[test]
    fn columns_read_back_equal() {
        let written = profile("t;f cpu=1\nt;f;g lock=2\nt;g cpu=4\n[no task];g disk=3");
        let text = serde_json::to_string(&ProfileColumns::new(&written)).unwrap();
        let read: ParsedColumns = serde_json::from_str(&text).unwrap();
        assert_eq!(read.0, written);
    }

    #[test]
    fn columns_that_are_not_a_tree_are_rejected() {
        let functions = r#""functions":{"names":["t"],"kinds":["task"],"files":[""],"lines":[0],"modules":[""]}"#;
        let weights = r#""self":{"cpu":{"nodes":[1],"ns":[5]}}"#;
        let tree =
            |parents, numbers| format!(r#""parents":{parents},"numbers":{numbers},{weights}"#);
        check(
            functions,
            &tree("[0]", "[0]"),
            "a node has no parent before it",
        );
        check(
            functions,
            &tree("[2]", "[0]"),
            "a node has no parent before it",
        );
        check(functions, &tree("[1]", "[1]"), "a node has no function");
        check(functions, &tree("[1]", "[]"), "parents and numbers differ");
        check(functions, &tree("[]", "[]"), "a weight has no node");
        let short = functions.replace("\"files\":[\"\"]", "\"files\":[]");
        check(&short, &tree("[1]", "[0]"), "differ in length");
        let color = functions.replace("\"task\"", "\"color\"");
        check(&color, &tree("[1]", "[0]"), "unknown kind");
        check(
            functions,
            &weight(r#"{"cpu":{"nodes":[0],"ns":[5]}}"#),
            "a weight has no node",
        );
        check(
            functions,
            &weight(r#"{"cpu":{"nodes":[1],"ns":[]}}"#),
            "differ in length",
        );
        check(
            functions,
            &weight(r#"{"idle":{"nodes":[1],"ns":[1]}}"#),
            "unknown state",
        );
    }

    fn check(functions: &str, rest: &str, why: &str) {
        let text = format!(r#"{{"unit":"ns",{functions},{rest}}}"#);
        let error = serde_json::from_str::<ParsedColumns>(&text).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }

    fn weight(own: &str) -> String {
        format!(r#""parents":[1],"numbers":[0],"self":{own}"#)
    }

    proptest! {
        #[test]
        fn hostile_profiles_keep_their_sums(profile in hostile_profiles()) {
            let text = serde_json::to_string(&ProfileColumns::new(&profile)).unwrap();
            let read: ParsedColumns = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read.0.total(), profile.total());
            prop_assert_eq!(collapsed(&read.0).lines().count() > 0, !read.0.is_empty());
        }
    }
}
