//! A call tree for tests of the store.

use std::sync::Arc;

use profiler_core::{CallTrie, Frame, FrameId, NodeId, SymbolTable};

use crate::lists::{FrameRow, NodeRow};
use crate::seal::{TreeSize, UnsealedTree};
use crate::sums::task_sums::TaskTree;

/// A tree as the collector has one.
pub(super) struct TestTree {
    pub(super) symbols: SymbolTable,
    pub(super) trie: CallTrie,
}

impl TestTree {
    pub(super) fn new() -> TestTree {
        let mut symbols = SymbolTable::new();
        symbols.intern(&Frame::overflow());
        TestTree {
            symbols,
            trie: CallTrie::new(10_000),
        }
    }

    pub(super) fn task_of(&self, mut node: NodeId) -> NodeId {
        while let Some((above, _)) = self.trie.node(node).filter(|(up, _)| *up != NodeId::ROOT) {
            node = above;
        }
        node
    }

    pub(super) fn unsealed(&self, sealed: TreeSize) -> UnsealedTree {
        let frame = |id| {
            let frame = self.symbols.frame(id).map(Arc::<str>::from);
            FrameRow { id, frame }
        };
        let frames = (sealed.frames..self.symbols.frame_count()).map(FrameId);
        let nodes = (sealed.nodes..self.trie.node_count()).map(NodeId);
        UnsealedTree {
            frames: frames.map(frame).collect(),
            nodes: nodes
                .map(|id| {
                    let (parent, frame) = self.trie.node(id).unwrap();
                    NodeRow { id, parent, frame }
                })
                .collect(),
        }
    }
}

impl TaskTree for TestTree {
    fn task_node(&mut self, name: &str) -> NodeId {
        let frame = self.symbols.intern(&Frame::task(name));
        self.trie.insert_past_limit(NodeId::ROOT, frame)
    }

    fn phase_node(&mut self, task: NodeId, name: &str) -> NodeId {
        let frame = self.symbols.intern(&Frame::phase(name));
        self.trie.insert_past_limit(task, frame)
    }
}
