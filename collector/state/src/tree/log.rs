//! The tree in the log: each delta has the frames and nodes added since the one before. The ids in the
//! log are the tree's own, so replaying must restore the id of each frame and node, whatever is missing.

use std::collections::HashMap;

use profiler_core::{Frame, FrameId, FrameKind, NodeId, StringId};

use super::Tree;
use store::TreeSize;
use store::wal::{LoggedFrame, TreeDelta};

/// Most placeholders for frames or nodes that a damaged log lost: more than any tree has. A record that
/// refers to a larger id is invalid itself.
const GAP_MAX: u32 = 16 << 20;

/// Approximate size of a frame and of a node in a record without strings, in bytes.
const FRAME_BYTES: usize = 20;
const NODE_BYTES: usize = 6;

/// An invalid delta.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeDeltaError {
    #[error("the record refers to {what} {id} of a tree with {held}")]
    TooFar {
        what: &'static str,
        id: u32,
        held: u32,
    },
    #[error(
        "the record has an invalid distance {gap} from a node to its parent, or lists of different lengths"
    )]
    Nodes { gap: u32 },
}

/// Number of frames and nodes that were added in place of lost ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Placeholders {
    pub frames: u32,
    pub nodes: u32,
}

impl Tree {
    pub fn size(&self) -> TreeSize {
        TreeSize {
            frames: self.symbols.frame_count(),
            nodes: self.trie.node_count(),
        }
    }

    /// Returns the next delta past `logged`, of about `bytes_max` bytes, and advances `logged`; `None` if
    /// there is nothing new.
    pub fn delta_since(&self, logged: &mut TreeSize, bytes_max: usize) -> Option<TreeDelta> {
        let end = self.size();
        if *logged == end {
            return None;
        }
        let mut delta = TreeDelta {
            frame_base: logged.frames,
            node_base: logged.nodes,
            ..TreeDelta::default()
        };
        let mut texts = Texts::default();
        let mut bytes = 0;
        // Nodes come after all frames, because they may refer to any of them.
        while logged.frames < end.frames && bytes < bytes_max {
            delta
                .frames
                .push(texts.frame(self, self.symbols.frame_ids(FrameId(logged.frames))));
            logged.frames += 1;
            bytes = texts.bytes + delta.frames.len() * FRAME_BYTES;
        }
        while logged.frames == end.frames && logged.nodes < end.nodes && bytes < bytes_max {
            let id = NodeId(logged.nodes);
            let (parent, frame) = self.trie.node(id).expect("only node 0 is the root");
            delta.node_parent_gaps.push(id.0 - parent.0);
            delta.node_frames.push(frame.0);
            logged.nodes += 1;
            bytes += NODE_BYTES;
        }
        delta.strings = texts.strings;
        Some(delta)
    }

    /// Replays a delta. Skips what the tree already has, and adds placeholders for a gap, so that each
    /// id is restored.
    pub fn restore(&mut self, delta: &TreeDelta) -> Result<Placeholders, TreeDeltaError> {
        let frames = self.symbols.frame_count();
        let nodes = self.trie.node_count();
        check_gap("frame", delta.frame_base, frames)?;
        check_gap("node", delta.node_base, nodes)?;
        if delta.node_frames.len() != delta.node_parent_gaps.len() {
            return Err(TreeDeltaError::Nodes { gap: 0 });
        }
        let ids = delta.node_base..;
        if let Some((_, gap)) = ids
            .zip(&delta.node_parent_gaps)
            .find(|(id, gap): &(u32, &u32)| **gap == 0 || **gap > *id)
        {
            return Err(TreeDeltaError::Nodes { gap: *gap });
        }
        let mut filled = self.fill(delta.frame_base, delta.node_base);
        self.restore_frames(delta);
        // A frame that no record contains gets a placeholder before a node refers to it.
        if let Some(last) = delta.node_frames.iter().max() {
            check_gap("frame", *last, self.symbols.frame_count())?;
            filled.frames += self.fill(last + 1, 0).frames;
        }
        let held = self.trie.node_count() - delta.node_base;
        let new = delta
            .node_parent_gaps
            .iter()
            .zip(&delta.node_frames)
            .skip(held as usize);
        for (gap, frame) in new {
            let parent = NodeId(self.trie.node_count() - gap);
            let frame = self.first_equal(FrameId(*frame));
            self.trie.restore(parent, frame);
        }
        self.note_new(frames, nodes);
        Ok(filled)
    }

    /// Adds placeholders up to a node that a record refers to.
    pub fn restore_node(&mut self, node: NodeId) -> Result<Placeholders, TreeDeltaError> {
        let nodes = self.trie.node_count();
        check_gap("node", node.0, nodes)?;
        let filled = self.fill(0, node.0.saturating_add(1));
        let frames = self.symbols.frame_count();
        self.note_new(frames, nodes);
        Ok(filled)
    }

    /// Adds `[overflow]` frames and nodes up to these counts. The weight of such a node still counts by
    /// worker and time, though not by task.
    fn fill(&mut self, frames: u32, nodes: u32) -> Placeholders {
        let mut filled = Placeholders::default();
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

    fn restore_frames(&mut self, delta: &TreeDelta) {
        let held = self.symbols.frame_count() - delta.frame_base;
        let mut ids: Vec<Option<StringId>> = vec![None; delta.strings.len()];
        for frame in delta.frames.iter().skip(held as usize) {
            let mut text = |place: u32| {
                let Some(place) = place.checked_sub(1).map(|place| place as usize) else {
                    return StringId(0);
                };
                // An index outside of the record's strings stands for the empty string.
                let Some(id) = ids.get_mut(place) else {
                    return StringId(0);
                };
                *id.get_or_insert_with(|| self.symbols.intern_string(&delta.strings[place]))
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

/// Rejects an id that is further away than any gap.
fn check_gap(what: &'static str, id: u32, held: u32) -> Result<(), TreeDeltaError> {
    if id.saturating_sub(held) > GAP_MAX || id == u32::MAX {
        return Err(TreeDeltaError::TooFar { what, id, held });
    }
    Ok(())
}

/// The strings of one record.
#[derive(Default)]
struct Texts {
    strings: Vec<String>,
    places: HashMap<StringId, u32>,
    bytes: usize,
}

impl Texts {
    fn frame(&mut self, tree: &Tree, frame: &Frame<StringId>) -> LoggedFrame {
        LoggedFrame {
            kind: encode_kind(frame.kind),
            function: self.place(tree, frame.function),
            file: self.place(tree, frame.file),
            line: frame.line,
            module: self.place(tree, frame.module),
            build_id: self.place(tree, frame.build_id),
            offset: frame.offset,
            inlined: frame.inlined,
        }
    }

    /// Where a text stands in the record, from 1; 0 for the empty one.
    fn place(&mut self, tree: &Tree, id: StringId) -> u32 {
        if id == StringId(0) {
            return 0;
        }
        *self.places.entry(id).or_insert_with(|| {
            let text = tree.string(id).to_string();
            self.bytes += text.len() + 4;
            self.strings.push(text);
            u32::try_from(self.strings.len()).expect("a record is small")
        })
    }
}

fn encode_kind(kind: FrameKind) -> u32 {
    match kind {
        FrameKind::Task => 0,
        FrameKind::NoTask => 1,
        FrameKind::Agent => 2,
        FrameKind::Truncated => 3,
        // Groups exist in answers only.
        FrameKind::Overflow | FrameKind::Group => 4,
        FrameKind::Function => 5,
        FrameKind::Unresolved => 6,
        FrameKind::Phase => 7,
        FrameKind::Thread => 8,
        FrameKind::NoStack => 9,
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
        9 => FrameKind::NoStack,
        // 4, and unknown numbers: the weight counts, and the name tells that the frame is unknown.
        _ => FrameKind::Overflow,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tree_of;

    fn check_same(left: &Tree, right: &Tree) {
        assert_eq!(left.size(), right.size());
        for id in 0..left.symbols.frame_count() {
            assert_eq!(
                left.symbols.frame(FrameId(id)),
                right.symbols.frame(FrameId(id))
            );
        }
        for id in 0..left.trie.node_count() {
            assert_eq!(left.trie.node(NodeId(id)), right.trie.node(NodeId(id)));
        }
        assert_eq!(left.task_names(), right.task_names());
    }

    /// All deltas of a tree, of about `bytes_max` bytes each.
    fn deltas(tree: &Tree, bytes_max: usize) -> Vec<TreeDelta> {
        let mut logged = TreeSize {
            frames: 0,
            nodes: 1,
        };
        std::iter::from_fn(|| tree.delta_since(&mut logged, bytes_max)).collect()
    }

    fn stacks() -> impl Strategy<Value = Vec<String>> {
        let names = prop::sample::select(&["a", "b", "c:1", "c:2", "d"][..]);
        prop::collection::vec(prop::collection::vec(names, 1..6), 0..20)
            .prop_map(|stacks| stacks.iter().map(|stack| stack.join(";")).collect())
    }

    proptest! {
        #[test]
        fn deltas_restore_a_tree_with_its_ids(
            stacks in stacks(), bytes_max in 1..200usize, again in any::<prop::sample::Index>(),
        ) {
            let tree = tree_of(&stacks);
            let mut back = tree_of(&[]);
            let deltas = deltas(&tree, bytes_max);
            for (index, delta) in deltas.iter().enumerate() {
                prop_assert_eq!(back.restore(delta), Ok(Placeholders::default()));
                // A delta that the tree already has changes nothing.
                let known = &deltas[again.index(index + 1)];
                prop_assert_eq!(back.restore(known), Ok(Placeholders::default()));
            }
            check_same(&back, &tree);
        }

        /// Lost deltas: every other frame and node has its id, the lost ones are `[overflow]`.
        #[test]
        fn placeholders_keep_the_ids_after_lost_deltas(
            stacks in stacks(), bytes_max in 1..100usize, lost in any::<u64>(),
        ) {
            let tree = tree_of(&stacks);
            let mut back = tree_of(&[]);
            let mut restored = vec![false; tree.trie.node_count() as usize];
            for (index, delta) in deltas(&tree, bytes_max).iter().enumerate() {
                if lost >> (index % 64) & 1 == 1 {
                    continue;
                }
                back.restore(delta).unwrap();
                let nodes = delta.node_base as usize..;
                for (id, _) in nodes.zip(&delta.node_frames) {
                    restored[id] = true;
                }
            }
            let last = NodeId(tree.trie.node_count() - 1);
            back.restore_node(last).unwrap();
            prop_assert_eq!(back.trie.node_count(), tree.trie.node_count());
            for id in 1..tree.trie.node_count() {
                let node = back.trie.node(NodeId(id)).unwrap();
                if restored[id as usize] {
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
                .map(|(kind, function)| LoggedFrame { kind, function, ..Default::default() });
            let delta = TreeDelta {
                strings: vec!["x".to_owned()], frame_base, frames: frames.collect(), node_base,
                node_parent_gaps: gaps, node_frames,
            };
            let mut tree = tree_of(&["a;b".to_owned()]);
            let _ = tree.restore(&delta);
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
