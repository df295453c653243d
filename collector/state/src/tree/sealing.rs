//! The tree's part of a sealing.

use profiler_core::{Frame, FrameId, NodeId, StringId};

use super::{Tree, TreeLock};
use base::sync::{read, write};
use store::{FrameRow, NodeRow, TaskTree, TreeSize, UnsealedTree};

/// Nodes and frames that are copied under one lock of the tree.
const COPIED_AT_ONCE: u32 = 4_096;

/// Locked for each node apart, because others wait for the tree.
pub struct LockedTree<'a>(pub &'a TreeLock);

impl TaskTree for LockedTree<'_> {
    fn task_node(&mut self, name: &str) -> NodeId {
        write(self.0).task_node(name)
    }

    fn phase_node(&mut self, task: NodeId, name: &str) -> NodeId {
        write(self.0).phase_node(task, name)
    }
}

/// Copies the frames and nodes past `sealed`, in pieces so that the lock is never held for long.
pub fn unsealed(tree: &TreeLock, sealed: TreeSize) -> UnsealedTree {
    let mut unsealed = UnsealedTree::default();
    let mut next_node = sealed.nodes;
    // Nodes first: their frames are older, so they exist when the frames are copied.
    loop {
        let tree = read(tree);
        let end = tree
            .node_count()
            .min(next_node.saturating_add(COPIED_AT_ONCE));
        if end <= next_node {
            break;
        }
        for id in (next_node..end).map(NodeId) {
            let (parent, frame) = tree.trie.node(id).expect("only node 0 is the root");
            unsealed.nodes.push(NodeRow { id, parent, frame });
        }
        next_node = end;
    }
    let mut next_frame = sealed.frames;
    loop {
        let tree = read(tree);
        let end = tree
            .symbols
            .frame_count()
            .min(next_frame.saturating_add(COPIED_AT_ONCE));
        if end <= next_frame {
            break;
        }
        let ids = (next_frame..end).map(FrameId);
        unsealed.frames.extend(ids.map(|id| FrameRow {
            id,
            frame: frame_of(&tree, id),
        }));
        next_frame = end;
    }
    unsealed
}

/// A frame that shares the tree's strings.
fn frame_of(tree: &Tree, id: FrameId) -> Frame {
    let frame = tree.symbols.frame_ids(id);
    let text = |id: StringId| tree.string(id).clone();
    Frame {
        kind: frame.kind,
        function: text(frame.function),
        file: text(frame.file),
        line: frame.line,
        module: text(frame.module),
        build_id: text(frame.build_id),
        offset: frame.offset,
        inlined: frame.inlined,
    }
}
