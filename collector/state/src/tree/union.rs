//! A tree that has the stacks of several others.

use profiler_core::{FrameId, NodeId};

use super::Tree;
use store::{Numbers, TopNumber};

/// Numbers that a tree has for the frames and nodes of another one.
#[derive(Debug, Default)]
pub struct Adopted {
    frames: Vec<FrameId>,
    pub numbers: Numbers,
}

impl Tree {
    /// Adds the next frames and nodes of another tree, at most `entries_max`. Nodes past the limit become
    /// `[overflow]`. Returns whether there are more.
    pub fn adopt(&mut self, other: &Tree, adopted: &mut Adopted, entries_max: usize) -> bool {
        let frames = self.symbols.frame_count();
        let nodes = self.trie.node_count();
        let mut left = entries_max;
        for id in next_ids(adopted.frames.len(), other.symbols.frame_count(), &mut left) {
            let frame = other.symbols.frame(FrameId(id));
            adopted.frames.push(self.symbols.intern(&frame));
        }
        let Adopted {
            frames: frame_ids,
            numbers,
        } = adopted;
        if numbers.nodes.is_empty() {
            numbers.nodes.push(NodeId::ROOT);
        }
        // Nodes refer to any frame.
        if frame_ids.len() < other.symbols.frame_count() as usize {
            left = 0;
        }
        for id in next_ids(numbers.nodes.len(), other.trie.node_count(), &mut left) {
            let (parent, frame) = other
                .trie
                .node(NodeId(id))
                .expect("only node 0 is the root");
            let frame = frame_ids[frame.0 as usize];
            let in_union = self.trie.insert_or_overflow(
                numbers.nodes[parent.index()],
                frame,
                &mut self.symbols,
            );
            numbers.nodes.push(in_union);
            if parent == NodeId::ROOT {
                numbers.tops.push(TopNumber {
                    in_store: NodeId(id),
                    in_union,
                });
            }
        }
        self.note_new(frames, nodes);
        adopted.numbers.nodes.len() < other.trie.node_count() as usize
    }
}

/// The next ids before `end`, at most `left`, which it lowers.
fn next_ids(next: usize, end: u32, left: &mut usize) -> std::ops::Range<u32> {
    let next = u32::try_from(next).expect("ids have 32 bits");
    let count = (end - next).min(u32::try_from(*left).unwrap_or(u32::MAX));
    *left -= count as usize;
    next..next + count
}
