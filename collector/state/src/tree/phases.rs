//! Phases of tasks, the second level of the tree, and which of them a query keeps.

use profiler_core::{FrameKind, NodeId};

use super::TreeLock;
use base::sync::read;
use store::rows::EXECUTE;

/// Nodes that are read under one lock of the tree.
const NODES_AT_ONCE: u32 = 4_096;

/// The phases whose samples are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PhaseFilter {
    /// All time, in a task or not.
    #[default]
    All,
    /// These phases of tasks.
    Named(Vec<String>),
    /// Time outside of tasks.
    NoTask,
}

impl PhaseFilter {
    /// Whether a phase is kept; `None` for time outside of tasks.
    fn keeps(&self, phase: Option<&str>) -> bool {
        match (self, phase) {
            (PhaseFilter::All, _) | (PhaseFilter::NoTask, None) => true,
            (PhaseFilter::Named(names), Some(phase)) => names.iter().any(|name| name == phase),
            (PhaseFilter::Named(_), None) | (PhaseFilter::NoTask, Some(_)) => false,
        }
    }

    /// By node of the tree, whether its own time is kept; `None` if all time is kept.
    pub fn nodes(&self, tree: &TreeLock) -> Option<Vec<bool>> {
        if *self == PhaseFilter::All {
            return None;
        }
        let mut scopes = vec![NodeScope::ROOT];
        loop {
            let tree = read(tree);
            let next = u32::try_from(scopes.len()).expect("ids have 32 bits");
            let end = tree.node_count().min(next.saturating_add(NODES_AT_ONCE));
            if end <= next {
                return Some(scopes.into_iter().map(|scope| scope.is_kept).collect());
            }
            for node in (next..end).map(NodeId) {
                let (parent, frame) = tree.trie.node(node).expect("only node 0 is the root");
                let frame = tree.symbols.frame_ids(frame);
                let name = tree.string(frame.function);
                let parent = scopes[parent.index()];
                scopes.push(parent.below(frame.kind, name, || true, self));
            }
        }
    }
}

/// The depth of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Level {
    Root,
    Top,
    Phase,
    Stack,
}

/// The state of a walk down the tree: a node's level and whether a query keeps its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NodeScope {
    pub(super) level: Level,
    /// Whether the node's own time is kept.
    pub(super) is_kept: bool,
    /// Whether its first-level node is kept.
    is_top_kept: bool,
}

impl NodeScope {
    pub(super) const ROOT: NodeScope = NodeScope {
        level: Level::Root,
        is_kept: false,
        is_top_kept: false,
    };

    /// The scope of a child whose frame has that kind and name. `keeps_top` is called for first-level
    /// nodes only.
    pub(super) fn below(
        self,
        kind: FrameKind,
        name: &str,
        keeps_top: impl FnOnce() -> bool,
        phases: &PhaseFilter,
    ) -> NodeScope {
        match (self.level, kind) {
            (Level::Root, _) => {
                let phase = (kind == FrameKind::Task).then_some(EXECUTE);
                let is_top_kept = keeps_top();
                let is_kept = is_top_kept && phases.keeps(phase);
                NodeScope {
                    level: Level::Top,
                    is_kept,
                    is_top_kept,
                }
            }
            (Level::Top, FrameKind::Phase) => {
                let is_kept = self.is_top_kept && phases.keeps(Some(name));
                NodeScope {
                    level: Level::Phase,
                    is_kept,
                    ..self
                }
            }
            _ => NodeScope {
                level: Level::Stack,
                ..self
            },
        }
    }
}
