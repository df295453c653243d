//! How the collector's tree is kept in the log: each growth holds what the tree got since the one
//! before. Ids on disk are the tree's own, so that reading back must give each frame and node its id
//! again, whatever is missing.

use std::collections::HashMap;

use profiler_core::{Frame, FrameId, FrameKind, NodeId, StringId};

use super::record::{GrownFrame, Growth};
use crate::tree::Tree;

/// Most frames and nodes that are filled in for what a damaged log no longer tells: more than any
/// tree has. A record that refers to one further away is wrong itself.
const GAP_MAX: u32 = 16 << 20;

/// Rough size of a frame and of a node in a record beside texts, in bytes.
const FRAME_BYTES: usize = 20;
const NODE_BYTES: usize = 6;

/// How much of the tree is in the log, or in tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Logged {
    pub(crate) frames: u32,
    pub(crate) nodes: u32,
}

impl Logged {
    /// All of it.
    pub(crate) fn of(tree: &Tree) -> Logged {
        Logged { frames: tree.symbols.frame_count(), nodes: tree.trie.node_count() }
    }
}

/// What a record about the tree asks for and cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum GrowthError {
    #[error("it refers to {what} {id} of a tree with {held}")]
    TooFar { what: &'static str, id: u32, held: u32 },
    #[error("a node's distance {gap} to its parent leaves the tree, or its lists differ in length")]
    Nodes { gap: u32 },
}

/// Frames and nodes that were filled in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Filled {
    pub(crate) frames: u32,
    pub(crate) nodes: u32,
}

impl Tree {
    /// What comes after `logged`, about `bytes_max` bytes of it, and advances `logged` over it; `None`
    /// if there is nothing.
    pub(crate) fn growth_since(&self, logged: &mut Logged, bytes_max: usize) -> Option<Growth> {
        let end = Logged::of(self);
        if *logged == end {
            return None;
        }
        let mut growth =
            Growth { frame_base: logged.frames, node_base: logged.nodes, ..Growth::default() };
        let mut texts = Texts::default();
        let mut bytes = 0;
        // Nodes come after all frames, for they may refer to any of them.
        while logged.frames < end.frames && bytes < bytes_max {
            growth.frames.push(texts.frame(self, self.symbols.frame_ids(FrameId(logged.frames))));
            logged.frames += 1;
            bytes = texts.bytes + growth.frames.len() * FRAME_BYTES;
        }
        while logged.frames == end.frames && logged.nodes < end.nodes && bytes < bytes_max {
            let id = NodeId(logged.nodes);
            let (parent, frame) = self.trie.node(id).expect("only node 0 is the root");
            growth.node_parent_gaps.push(id.0 - parent.0);
            growth.node_frames.push(frame.0);
            logged.nodes += 1;
            bytes += NODE_BYTES;
        }
        growth.strings = texts.strings;
        Some(growth)
    }

    /// Takes in a growth that was read back. What the tree holds already is passed over; what lies
    /// between is filled in, so that each id is what it was.
    pub(crate) fn restore(&mut self, growth: &Growth) -> Result<Filled, GrowthError> {
        let (frames, nodes) = (self.symbols.frame_count(), self.trie.node_count());
        check_gap("frame", growth.frame_base, frames)?;
        check_gap("node", growth.node_base, nodes)?;
        if growth.node_frames.len() != growth.node_parent_gaps.len() {
            return Err(GrowthError::Nodes { gap: 0 });
        }
        let ids = growth.node_base..;
        let wrong = |(id, gap): &(u32, &u32)| **gap == 0 || **gap > *id;
        if let Some((_, gap)) = ids.zip(&growth.node_parent_gaps).find(wrong) {
            return Err(GrowthError::Nodes { gap: *gap });
        }
        let strings = self.symbols.string_count();
        let mut filled = self.fill(growth.frame_base, growth.node_base);
        self.restore_frames(growth);
        // A frame that no record tells of is filled in too, before a node refers to it.
        if let Some(last) = growth.node_frames.iter().max() {
            check_gap("frame", *last, self.symbols.frame_count())?;
            filled.frames += self.fill(last + 1, 0).frames;
        }
        let held = self.trie.node_count() - growth.node_base;
        let new = growth.node_parent_gaps.iter().zip(&growth.node_frames).skip(held as usize);
        for (gap, frame) in new {
            let parent = NodeId(self.trie.node_count() - gap);
            self.trie.restore(parent, FrameId(*frame));
        }
        self.note_new(strings, frames, nodes);
        Ok(filled)
    }

    /// Makes sure that there is a node of that id, for a record that refers to it.
    pub(crate) fn restore_node(&mut self, node: NodeId) -> Result<Filled, GrowthError> {
        let nodes = self.trie.node_count();
        check_gap("node", node.0, nodes)?;
        let filled = self.fill(0, node.0.saturating_add(1));
        let (strings, frames) = (self.symbols.string_count(), self.symbols.frame_count());
        self.note_new(strings, frames, nodes);
        Ok(filled)
    }

    /// Adds `[overflow]` frames and nodes until there are so many. The weight of such a node counts, by
    /// worker and time if no longer by task.
    fn fill(&mut self, frames: u32, nodes: u32) -> Filled {
        let mut filled = Filled::default();
        let overflow = self.symbols.frame_ids(FrameId(0)).clone();
        while self.symbols.frame_count() < frames {
            self.symbols.restore(overflow.clone());
            filled.frames += 1;
        }
        while self.trie.node_count() < nodes {
            self.trie.restore(NodeId::ROOT, FrameId(0));
            filled.nodes += 1;
        }
        filled
    }

    fn restore_frames(&mut self, growth: &Growth) {
        let held = self.symbols.frame_count() - growth.frame_base;
        let mut ids: Vec<Option<StringId>> = vec![None; growth.strings.len()];
        for frame in growth.frames.iter().skip(held as usize) {
            let mut text = |place: u32| {
                let Some(place) = place.checked_sub(1).map(|place| place as usize) else {
                    return StringId(0);
                };
                // A place outside of the record's texts is no text.
                let Some(id) = ids.get_mut(place) else { return StringId(0) };
                *id.get_or_insert_with(|| self.symbols.intern_string(&growth.strings[place]))
            };
            let frame = Frame {
                kind: decode_kind(frame.kind),
                function: text(frame.function),
                file: text(frame.file),
                line: frame.line,
                module: text(frame.module),
                build_id: text(frame.build_id),
                offset: frame.offset,
                inlined: frame.inlined,
            };
            self.symbols.restore(frame);
        }
    }
}

/// Refuses to fill in more than could ever be missing.
fn check_gap(what: &'static str, id: u32, held: u32) -> Result<(), GrowthError> {
    if id.saturating_sub(held) > GAP_MAX || id == u32::MAX {
        return Err(GrowthError::TooFar { what, id, held });
    }
    Ok(())
}

/// The texts of one record.
#[derive(Default)]
struct Texts {
    strings: Vec<String>,
    places: HashMap<StringId, u32>,
    bytes: usize,
}

impl Texts {
    fn frame(&mut self, tree: &Tree, frame: &Frame<StringId>) -> GrownFrame {
        let mut place = |id: StringId| {
            if id == StringId(0) {
                return 0;
            }
            *self.places.entry(id).or_insert_with(|| {
                let text = tree.string(id).to_string();
                self.bytes += text.len() + 4;
                self.strings.push(text);
                u32::try_from(self.strings.len()).expect("a record is small")
            })
        };
        GrownFrame {
            kind: encode_kind(frame.kind),
            function: place(frame.function),
            file: place(frame.file),
            line: frame.line,
            module: place(frame.module),
            build_id: place(frame.build_id),
            offset: frame.offset,
            inlined: frame.inlined,
        }
    }
}

fn encode_kind(kind: FrameKind) -> u32 {
    match kind {
        FrameKind::Task => 0,
        FrameKind::NoTask => 1,
        FrameKind::Agent => 2,
        FrameKind::Truncated => 3,
        // Groups are made for answers and are in no tree.
        FrameKind::Overflow | FrameKind::Group => 4,
        FrameKind::Function => 5,
        FrameKind::Unresolved => 6,
        FrameKind::Phase => 7,
        FrameKind::Thread => 8,
    }
}

fn decode_kind(kind: u32) -> FrameKind {
    match kind {
        0 => FrameKind::Task,
        1 => FrameKind::NoTask,
        2 => FrameKind::Agent,
        3 => FrameKind::Truncated,
        5 => FrameKind::Function,
        6 => FrameKind::Unresolved,
        7 => FrameKind::Phase,
        8 => FrameKind::Thread,
        // 4, and what no version wrote: its weight counts, and its name says that it is not known.
        _ => FrameKind::Overflow,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tree_of;

    fn check_same(left: &Tree, right: &Tree) {
        assert_eq!(Logged::of(left), Logged::of(right));
        for id in 0..left.symbols.frame_count() {
            assert_eq!(left.symbols.frame(FrameId(id)), right.symbols.frame(FrameId(id)));
        }
        for id in 0..left.trie.node_count() {
            assert_eq!(left.trie.node(NodeId(id)), right.trie.node(NodeId(id)));
        }
        assert_eq!(left.task_names(), right.task_names());
    }

    /// All growths of a tree, in pieces of about `bytes_max`.
    fn growths(tree: &Tree, bytes_max: usize) -> Vec<Growth> {
        let mut logged = Logged { frames: 0, nodes: 1 };
        std::iter::from_fn(|| tree.growth_since(&mut logged, bytes_max)).collect()
    }

    fn stacks() -> impl Strategy<Value = Vec<String>> {
        let names = prop::sample::select(&["a", "b", "c:1", "c:2", "d"][..]);
        prop::collection::vec(prop::collection::vec(names, 1..6), 0..20)
            .prop_map(|stacks| stacks.iter().map(|stack| stack.join(";")).collect())
    }

    proptest! {
        #[test]
        fn a_tree_is_read_back_with_its_ids(
            stacks in stacks(), bytes_max in 1..200usize, again in any::<prop::sample::Index>(),
        ) {
            let tree = tree_of(&stacks);
            let mut back = tree_of(&[]);
            let growths = growths(&tree, bytes_max);
            for (index, growth) in growths.iter().enumerate() {
                prop_assert_eq!(back.restore(growth), Ok(Filled::default()));
                // What is held already changes nothing.
                let known = &growths[again.index(index + 1)];
                prop_assert_eq!(back.restore(known), Ok(Filled::default()));
            }
            check_same(&back, &tree);
        }

        /// Some growths are lost: every other frame and node has its id, those are `[overflow]`.
        #[test]
        fn what_is_missing_is_filled_in(
            stacks in stacks(), bytes_max in 1..100usize, lost in any::<u64>(),
        ) {
            let tree = tree_of(&stacks);
            let mut back = tree_of(&[]);
            let mut told = vec![false; tree.trie.node_count() as usize];
            for (index, growth) in growths(&tree, bytes_max).iter().enumerate() {
                if lost >> (index % 64) & 1 == 1 {
                    continue;
                }
                back.restore(growth).unwrap();
                let nodes = growth.node_base as usize..;
                for (id, _) in nodes.zip(&growth.node_frames) {
                    told[id] = true;
                }
            }
            let last = NodeId(tree.trie.node_count() - 1);
            back.restore_node(last).unwrap();
            prop_assert_eq!(back.trie.node_count(), tree.trie.node_count());
            for id in 1..tree.trie.node_count() {
                let node = back.trie.node(NodeId(id)).unwrap();
                if told[id as usize] {
                    prop_assert_eq!(Some(node), tree.trie.node(NodeId(id)));
                    let frame = back.symbols.frame(node.1);
                    prop_assert!(frame == tree.symbols.frame(node.1) || frame == Frame::overflow());
                } else {
                    prop_assert_eq!(node, (NodeId::ROOT, FrameId(0)));
                }
            }
        }

        #[test]
        fn any_growth_is_taken_in_or_refused(
            frame_base in edges(), node_base in edges(),
            frames in prop::collection::vec((0..9u32, edges()), 0..4),
            gaps in prop::collection::vec(edges(), 0..4),
            node_frames in prop::collection::vec(edges(), 0..4),
        ) {
            let frames = frames.into_iter()
                .map(|(kind, function)| GrownFrame { kind, function, ..Default::default() });
            let growth = Growth {
                strings: vec!["x".to_owned()], frame_base, frames: frames.collect(), node_base,
                node_parent_gaps: gaps, node_frames,
            };
            let mut tree = tree_of(&["a;b".to_owned()]);
            let _ = tree.restore(&growth);
            for id in 1..tree.trie.node_count() {
                let (parent, frame) = tree.trie.node(NodeId(id)).unwrap();
                prop_assert!(parent.0 < id && frame.0 < tree.symbols.frame_count());
            }
        }
    }

    fn edges() -> impl Strategy<Value = u32> {
        prop_oneof![8 => 0..6u32, 1 => (u32::MAX - 3)..=u32::MAX]
    }
}
