//! Phases of tasks, the second level of the tree, and which of them a query keeps.

use std::sync::Arc;

use profiler_core::hash::KeyedMap;
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
    pub fn keeps(&self, phase: Option<&str>) -> bool {
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
        each_node(tree, |node| {
            let parent = scopes[node.parent.index()];
            scopes.push(parent.below(node.kind, node.name, || true, self));
        });
        Some(scopes.into_iter().map(|scope| scope.is_kept).collect())
    }
}

/// Groups of the tree's nodes: by node the number of its group, and the names of the groups.
pub struct NodeNames<N> {
    pub by_node: Vec<u32>,
    /// Group 0 has none of the names.
    pub names: Vec<N>,
}

/// A thread as agents report it: its name, and the system's id or 0.
pub type ThreadName = (Arc<str>, u32);

impl NodeNames<Arc<str>> {
    /// Nodes by the phase of their task. Group 0 is outside of tasks.
    pub fn phases(tree: &TreeLock) -> NodeNames<Arc<str>> {
        let mut numbers = Numbers::default();
        let mut by_node = vec![0];
        // Whether a node is a first-level node: a phase below it is one of its task.
        let mut is_top = vec![false];
        each_node(tree, |node| {
            let is_first = node.parent == NodeId::ROOT;
            by_node.push(match node.kind {
                FrameKind::Task if is_first => numbers.of(EXECUTE.into()),
                FrameKind::Phase if is_top[node.parent.index()] => numbers.of(node.name.clone()),
                _ => by_node[node.parent.index()],
            });
            is_top.push(is_first);
        });
        NodeNames {
            by_node,
            names: numbers.names,
        }
    }
}

impl NodeNames<ThreadName> {
    /// Nodes by their thread. Group 0 is no single thread.
    pub fn threads(tree: &TreeLock) -> NodeNames<ThreadName> {
        let mut numbers = Numbers::default();
        let mut by_node = vec![0];
        each_node(tree, |node| {
            by_node.push(match node.kind {
                FrameKind::Thread => numbers.of((node.name.clone(), node.line)),
                _ => 0,
            });
        });
        NodeNames {
            by_node,
            names: numbers.names,
        }
    }
}

/// Numbers from 1, in the order in which names come.
struct Numbers<N> {
    by_name: KeyedMap<N, u32>,
    names: Vec<N>,
}

impl<N> Default for Numbers<N> {
    fn default() -> Numbers<N> {
        Numbers {
            by_name: KeyedMap::default(),
            names: Vec::new(),
        }
    }
}

impl<N: Clone + Eq + std::hash::Hash> Numbers<N> {
    fn of(&mut self, name: N) -> u32 {
        let Numbers { by_name, names } = self;
        *by_name.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            u32::try_from(names.len()).expect("a tree has fewer nodes")
        })
    }
}

/// A node of the tree and its frame.
struct NodeFrame<'a> {
    parent: NodeId,
    kind: FrameKind,
    name: &'a Arc<str>,
    line: u32,
}

/// Visits all nodes but the root, parents first, under short locks.
fn each_node(tree: &TreeLock, mut visit: impl FnMut(NodeFrame<'_>)) {
    let mut next = 1u32;
    loop {
        let tree = read(tree);
        let end = tree.node_count().min(next.saturating_add(NODES_AT_ONCE));
        if end <= next {
            return;
        }
        for node in (next..end).map(NodeId) {
            let (parent, frame) = tree.row(node).expect("only node 0 is the root");
            let frame = tree.symbols.frame_ids(frame);
            visit(NodeFrame {
                parent,
                kind: frame.kind,
                name: tree.string(frame.function),
                line: frame.line,
            });
        }
        next = end;
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
