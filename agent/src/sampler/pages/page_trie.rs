//! A counting tree like [`CallTrie`](profiler_core::CallTrie), in pages of its own, because a tick may
//! not wait for the program's allocator.

use profiler_core::{FrameId, NodeId, State, Weight};

use super::page_map::PageMap;
use system::page_vec::PageVec;

/// The limit on nodes is reached, or there is no memory; the tree is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sampler) struct Full;

/// See the [module](self).
#[derive(Debug, Default)]
pub(in crate::sampler) struct PageTrie {
    /// Parent and frame of node n + 1; the root has neither.
    nodes: PageVec<(NodeId, FrameId)>,
    children: PageMap<(NodeId, FrameId), NodeId>,
    /// Weight since the last delta.
    counted: PageVec<(NodeId, Weight)>,
    /// By node: its index in `counted` plus 1, or 0. Shorter than `nodes` until a later node is counted at.
    slots: PageVec<u32>,
    nodes_max: usize,
}

/// Weights by node.
#[derive(Debug, Default)]
pub(crate) struct RawDelta {
    entries: PageVec<(NodeId, State, u64)>,
    /// Time of further entries, for which there was no memory.
    pub(in crate::sampler) lost_ns: u64,
}

impl RawDelta {
    pub(crate) fn entries(&self) -> &[(NodeId, State, u64)] {
        &self.entries
    }

    #[cfg(test)]
    pub(crate) fn total(&self) -> Weight {
        self.entries
            .iter()
            .fold(Weight::ZERO, |sum, (_, state, ns)| {
                sum + Weight::of(*state, *ns)
            })
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl PageTrie {
    /// A tree that holds only the root and may grow by `nodes_max` nodes.
    pub(in crate::sampler) fn new(nodes_max: usize) -> PageTrie {
        PageTrie {
            nodes_max,
            ..PageTrie::default()
        }
    }

    /// Returns the child of `parent` for `frame`; adds it if it is new.
    ///
    /// # Errors
    /// [`Full`] if it is new and cannot be added.
    pub(in crate::sampler) fn insert(
        &mut self,
        parent: NodeId,
        frame: FrameId,
    ) -> Result<NodeId, Full> {
        match self.find(parent, frame) {
            Some(child) => Ok(child),
            None if self.nodes.len() >= self.nodes_max => Err(Full),
            None => self.push(parent, frame),
        }
    }

    /// Returns the child of `parent` for `frame`; adds it even past the limit: at most one per parent.
    /// Without memory it returns `parent`.
    pub(in crate::sampler) fn insert_past_limit(
        &mut self,
        parent: NodeId,
        frame: FrameId,
    ) -> NodeId {
        let child = self.find(parent, frame);
        child.unwrap_or_else(|| self.push(parent, frame).unwrap_or(parent))
    }

    fn find(&self, parent: NodeId, frame: FrameId) -> Option<NodeId> {
        // A new stack adds its nodes in a row, so a parent is mostly followed by its first child.
        if self.nodes.get(parent.index()) == Some(&(parent, frame)) {
            return Some(NodeId(parent.0 + 1));
        }
        self.children.get(&(parent, frame)).copied()
    }

    fn push(&mut self, parent: NodeId, frame: FrameId) -> Result<NodeId, Full> {
        let id = NodeId(u32::try_from(self.nodes.len() + 1).map_err(|_| Full)?);
        if !self.children.insert((parent, frame), id) {
            return Err(Full);
        }
        if !self.nodes.push((parent, frame)) {
            self.children.remove(&(parent, frame));
            return Err(Full);
        }
        Ok(id)
    }

    /// Counts `weight` at `node`. Returns `false` if there is no memory.
    #[must_use]
    pub(in crate::sampler) fn add_weight(&mut self, node: NodeId, weight: Weight) -> bool {
        if weight.is_zero() {
            return true;
        }
        if node.index() >= self.slots.len() && !self.slots.resize(self.nodes.len() + 1, 0) {
            return false;
        }
        match self.slots[node.index()] {
            0 if self.counted.push((node, weight)) => {
                self.slots[node.index()] = u32::try_from(self.counted.len()).unwrap_or(0);
            }
            0 => return false,
            slot => self.counted[slot as usize - 1].1 += weight,
        }
        true
    }

    /// Takes the weight counted since the last call, at nodes that are `wanted` and at others.
    pub(in crate::sampler) fn take_delta(
        &mut self,
        wanted: impl Fn(&Self, NodeId) -> bool,
    ) -> [RawDelta; 2] {
        let counted = std::mem::take(&mut self.counted);
        let mut parts = [RawDelta::default(), RawDelta::default()];
        for (node, weight) in counted.iter() {
            self.slots[node.index()] = 0;
            let part = &mut parts[usize::from(!wanted(self, *node))];
            for state in State::ALL
                .into_iter()
                .filter(|state| weight.get(*state) > 0)
            {
                if !part.entries.push((*node, state, weight.get(state))) {
                    part.lost_ns += weight.get(state);
                }
            }
        }
        parts
    }

    /// Parent and frame of a node; `None` for the root.
    pub(in crate::sampler) fn node(&self, node: NodeId) -> Option<(NodeId, FrameId)> {
        node.index().checked_sub(1).map(|index| self.nodes[index])
    }

    /// Parent and frame of the nodes from `first` on, which is not the root.
    pub(in crate::sampler) fn nodes_from(&self, first: NodeId) -> &[(NodeId, FrameId)] {
        &self.nodes[first.index() - 1..]
    }

    /// Number of nodes, including the root.
    pub(in crate::sampler) fn node_count(&self) -> u32 {
        u32::try_from(self.nodes.len() + 1).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::{CallTrie, Delta};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_counts_as_the_common_tree_does(
            steps in prop::collection::vec((0..40u32, 0..6u32, 0..50u64, 0..9u8), 0..300),
        ) {
            let mut expected = CallTrie::new(30);
            let mut trie = PageTrie::new(30);
            for (parent, frame, time, step) in steps {
                let parent = NodeId(parent % expected.node_count());
                match step {
                    0 => {
                        let parts = trie.take_delta(|_, node| node.0.is_multiple_of(2));
                        let is_even = |delta: &RawDelta| {
                            delta.entries().iter().all(|(node, ..)| node.0.is_multiple_of(2))
                        };
                        prop_assert!(is_even(&parts[0]));
                        let all = parts.iter().flat_map(|part| part.entries().iter().copied());
                        prop_assert_eq!(Delta::from_iter(all), expected.take_delta());
                    }
                    1 => prop_assert_eq!(
                        trie.insert_past_limit(parent, FrameId(frame)),
                        expected.insert_past_limit(parent, FrameId(frame))
                    ),
                    2..5 => prop_assert_eq!(
                        trie.insert(parent, FrameId(frame)).ok(),
                        expected.insert(parent, FrameId(frame)).ok()
                    ),
                    _ => {
                        let weight = Weight::of(State::ALL[frame as usize], time);
                        prop_assert!(trie.add_weight(parent, weight));
                        expected.add_weight(parent, weight);
                    }
                }
                prop_assert_eq!(trie.node_count(), expected.node_count());
                prop_assert_eq!(trie.node(parent), expected.node(parent));
            }
        }
    }
}
