//! The task or phase of each node that may be forgotten.

use profiler_core::NodeId;

/// Contexts of the nodes before an end. The new nodes of one sender follow on each other, so one run has many.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    /// By the first node, ascending.
    runs: Vec<ContextRun>,
    end: u32,
}

/// Nodes in a row with one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ContextRun {
    first: NodeId,
    /// The first-level node above the nodes, or the phase below it; a task or phase is its own.
    context: NodeId,
}

impl Contexts {
    /// The first node without a context here.
    pub(super) fn end(&self) -> u32 {
        self.end
    }

    /// The context of a node before the end.
    pub(super) fn of(&self, node: NodeId) -> NodeId {
        let place = self.runs.partition_point(|run| run.first <= node);
        place
            .checked_sub(1)
            .map_or(NodeId::ROOT, |run| self.runs[run].context)
    }

    /// Adds the context of the next node.
    pub(super) fn push(&mut self, context: NodeId) {
        if self.runs.last().is_none_or(|last| last.context != context) {
            let first = NodeId(self.end);
            self.runs.push(ContextRun { first, context });
        }
        self.end += 1;
    }
}
