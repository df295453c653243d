//! The counting tree.

use crate::hash::KeyedMap;

use crate::{Delta, Frame, FrameId, State, SymbolTable, Weight};

/// Index of a node in a [`CallTrie`] or a [`Profile`](crate::Profile). A parent's id is smaller
/// than its child's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The root: it has no frame, and its children are the tasks.
    pub const ROOT: NodeId = NodeId(0);

    /// The id as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The limit on nodes is reached; the tree is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the limit of {nodes_max} distinct stack nodes is reached")]
#[non_exhaustive]
pub struct Full {
    /// The limit, as given to [`CallTrie::new`].
    pub nodes_max: usize,
}

/// A tree of frames that counts weight by node. [`CallTrie::take_delta`] drains its weights each cycle.
///
/// A tree that lives long may forget nodes, with all below them. A forgotten node keeps its id, and comes back
/// under it.
#[derive(Clone, Debug)]
pub struct CallTrie {
    /// Parent and frame of node `before` + n + 1; the root has neither.
    nodes: Vec<(NodeId, FrameId)>,
    /// Number of nodes from a first-level node to node `before` + n + 1, both included.
    depths: Vec<u16>,
    /// Nodes up to this id, but the root, are not in `nodes`.
    before: usize,
    /// Those of them that are not forgotten.
    older: KeyedMap<NodeId, OlderNode>,
    children: KeyedMap<(NodeId, FrameId), NodeId>,
    /// Weight counted since the last delta. A weight for every node would take 56 bytes each, and a
    /// cycle touches few.
    counted: Vec<(NodeId, Weight)>,
    /// By node: its index in `counted` plus 1, or 0. Shorter than `nodes` until a later node is
    /// counted at.
    slots: Vec<u32>,
    nodes_max: usize,
}

/// A node that was there when others were forgotten.
#[derive(Clone, Copy, Debug)]
struct OlderNode {
    parent: NodeId,
    frame: FrameId,
    depth: u16,
}

impl CallTrie {
    /// A tree that holds only the root and may grow by `nodes_max` nodes.
    #[must_use]
    pub fn new(nodes_max: usize) -> Self {
        CallTrie {
            nodes: Vec::new(),
            depths: Vec::new(),
            before: 0,
            older: KeyedMap::default(),
            children: KeyedMap::default(),
            counted: Vec::new(),
            slots: Vec::new(),
            nodes_max,
        }
    }

    /// Changes the limit on nodes. Those above it stay.
    pub fn set_nodes_max(&mut self, nodes_max: usize) {
        self.nodes_max = nodes_max;
    }

    /// Returns the child of `parent` for `frame`; adds it if it is new.
    ///
    /// # Errors
    /// [`Full`] if it is new and the tree is at its limit.
    ///
    /// # Panics
    /// If `parent` is not a node of this tree.
    #[inline]
    pub fn insert(&mut self, parent: NodeId, frame: FrameId) -> Result<NodeId, Full> {
        // A new stack adds its nodes in a row, so a parent is mostly followed by its first child.
        // Checking that neighbor first saves the hash (0.3 × the time).
        if self.is_next(parent, frame) {
            return Ok(NodeId(parent.0 + 1));
        }
        if let Some(child) = self.children.get(&(parent, frame)) {
            return Ok(*child);
        }
        if self.held_count() >= self.nodes_max {
            return Err(Full {
                nodes_max: self.nodes_max,
            });
        }
        Ok(self.push(parent, frame))
    }

    /// The child of `parent` for `frame`, if the tree has it.
    #[must_use]
    pub fn find(&self, parent: NodeId, frame: FrameId) -> Option<NodeId> {
        if self.is_next(parent, frame) {
            return Some(NodeId(parent.0 + 1));
        }
        self.children.get(&(parent, frame)).copied()
    }

    /// Whether the node after `parent` is its child for `frame`. Older nodes are looked up by their hash.
    #[inline]
    fn is_next(&self, parent: NodeId, frame: FrameId) -> bool {
        // Node `before` + n + 1 is at index n.
        self.nodes.get(parent.index().wrapping_sub(self.before)) == Some(&(parent, frame))
    }

    /// Returns the child of `parent` for `frame`; adds it even past the limit. Only for
    /// `[overflow]` nodes, which absorb what the limit rejects: at most one per parent.
    ///
    /// # Panics
    /// If `parent` is not a node of this tree.
    pub fn insert_past_limit(&mut self, parent: NodeId, frame: FrameId) -> NodeId {
        match self.children.get(&(parent, frame)) {
            Some(child) => *child,
            None => self.push(parent, frame),
        }
    }

    /// Like [`CallTrie::insert`], but past the limit it returns the `[overflow]` node below the
    /// first level above `parent`. A new first-level node is always added: task names have a limit
    /// of their own.
    ///
    /// # Panics
    /// If `parent` is not a node of this tree.
    pub fn insert_or_overflow(
        &mut self,
        parent: NodeId,
        frame: FrameId,
        symbols: &mut SymbolTable,
    ) -> NodeId {
        if let Ok(node) = self.insert(parent, frame) {
            return node;
        }
        if parent == NodeId::ROOT {
            return self.insert_past_limit(parent, frame);
        }
        let mut top = parent;
        while let Some((above, _)) = self.node(top).filter(|(above, _)| *above != NodeId::ROOT) {
            top = above;
        }
        self.insert_past_limit(top, symbols.intern(&Frame::overflow()))
    }

    /// Adds a node with the next id, past the limit and even if an equal one exists. Only for
    /// reading a stored tree, whose ids must not change. Lookups find the first of two equal nodes.
    ///
    /// # Panics
    /// If `parent` is not a node of this tree.
    pub fn restore(&mut self, parent: NodeId, frame: FrameId) -> NodeId {
        let known = self.children.get(&(parent, frame)).copied();
        let id = self.push(parent, frame);
        if let Some(known) = known {
            self.children.insert((parent, frame), known);
        }
        id
    }

    /// Returns the node at the end of `path`, outermost frame first; adds missing nodes.
    ///
    /// # Errors
    /// [`Full`] if the tree is at its limit; nodes added on the way stay.
    pub fn insert_path(&mut self, path: impl IntoIterator<Item = FrameId>) -> Result<NodeId, Full> {
        path.into_iter()
            .try_fold(NodeId::ROOT, |node, frame| self.insert(node, frame))
    }

    fn push(&mut self, parent: NodeId, frame: FrameId) -> NodeId {
        assert!(
            parent.0 < self.node_count(),
            "{parent:?} is not a node of this tree"
        );
        self.depths.push(self.depth(parent).saturating_add(1));
        self.nodes.push((parent, frame));
        let id = NodeId(self.node_count() - 1);
        self.children.insert((parent, frame), id);
        id
    }

    /// Counts `nanoseconds` of `state` at `node`.
    ///
    /// # Panics
    /// If `node` is not a node of this tree.
    pub fn add(&mut self, node: NodeId, state: State, nanoseconds: u64) {
        self.add_weight(node, Weight::of(state, nanoseconds));
    }

    /// Counts `weight` at `node`.
    ///
    /// # Panics
    /// If `node` is not a node of this tree.
    pub fn add_weight(&mut self, node: NodeId, weight: Weight) {
        assert!(
            node.0 < self.node_count(),
            "{node:?} is not a node of this tree"
        );
        if weight.is_zero() {
            return;
        }
        if node.index() >= self.slots.len() {
            self.slots.resize(self.node_count() as usize, 0);
        }
        match &mut self.slots[node.index()] {
            slot @ 0 => {
                self.counted.push((node, weight));
                *slot = u32::try_from(self.counted.len()).expect("fewer than nodes");
            }
            slot => self.counted[*slot as usize - 1].1 += weight,
        }
    }

    /// Takes the weight counted since the last call. Costs the nodes touched, not the tree.
    pub fn take_delta(&mut self) -> Delta {
        for (node, _) in &self.counted {
            self.slots[node.index()] = 0;
        }
        self.counted.drain(..).collect()
    }

    /// Parent and frame of a node; `None` for the root and for forgotten nodes.
    ///
    /// # Panics
    /// If `node` is not a node of this tree.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Option<(NodeId, FrameId)> {
        match self.place(node) {
            Some(index) => Some(self.nodes[index]),
            None => self
                .older
                .get(&node)
                .map(|older| (older.parent, older.frame)),
        }
    }

    /// Number of nodes from the first level to `node`; 0 for the root and for forgotten nodes. Stops at
    /// `u16::MAX`.
    ///
    /// # Panics
    /// If `node` is not a node of this tree.
    #[must_use]
    pub fn depth(&self, node: NodeId) -> u16 {
        match self.place(node) {
            Some(index) => self.depths[index],
            None => self.older.get(&node).map_or(0, |older| older.depth),
        }
    }

    /// The index of a node in `nodes`; `None` for the root and for older nodes.
    #[inline]
    fn place(&self, node: NodeId) -> Option<usize> {
        node.index().checked_sub(self.before + 1)
    }

    /// Number of ids of nodes, including the root's.
    #[must_use]
    pub fn node_count(&self) -> u32 {
        let count = self.before + self.nodes.len() + 1;
        u32::try_from(count).expect("nodes_max keeps ids below 2^32")
    }

    /// Number of nodes that the tree has, without the root.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.older.len() + self.nodes.len()
    }

    /// Ids of the nodes that the tree has, ascending, without the root.
    #[must_use]
    pub fn held_nodes(&self) -> Vec<NodeId> {
        let mut ids: Vec<NodeId> = self.older.keys().copied().collect();
        ids.sort_unstable();
        let first = u32::try_from(self.before + 1).expect("ids have 32 bits");
        ids.extend((first..self.node_count()).map(NodeId));
        ids
    }

    /// Lets nodes stay when [`CallTrie::close`] frees those around them.
    pub fn set_aside(&mut self, nodes: &[NodeId]) {
        for id in nodes {
            if let Some((parent, frame)) = self.node(*id) {
                let depth = self.depth(*id);
                let node = OlderNode {
                    parent,
                    frame,
                    depth,
                };
                self.older.insert(*id, node);
            }
        }
    }

    /// Forgets nodes, with which all below them must go. [`CallTrie::close`] must follow.
    pub fn forget(&mut self, nodes: &[NodeId]) {
        for id in nodes {
            let Some(place) = self.node(*id) else {
                continue;
            };
            self.older.remove(id);
            if self.children.get(&place) == Some(id) {
                self.children.remove(&place);
            }
        }
    }

    /// Frees the memory of the nodes before `end`, of which each was set aside or forgotten.
    pub fn close(&mut self, end: NodeId) {
        let count = end.index().saturating_sub(self.before + 1);
        self.nodes.drain(..count);
        self.depths.drain(..count);
        self.nodes.shrink_to_fit();
        self.depths.shrink_to_fit();
        self.before += count;
    }

    /// Brings a forgotten node back, whose parent must be there. Lookups find an equal node that came in the
    /// meantime.
    pub fn recall(&mut self, id: NodeId, parent: NodeId, frame: FrameId) {
        if self.place(id).is_some() || self.older.contains_key(&id) {
            return;
        }
        let depth = self.depth(parent).saturating_add(1);
        let node = OlderNode {
            parent,
            frame,
            depth,
        };
        self.older.insert(id, node);
        self.children.entry((parent, frame)).or_insert(id);
    }

    /// The frames from `node` up to the first level, innermost first.
    pub fn path(&self, node: NodeId) -> impl Iterator<Item = FrameId> + '_ {
        std::iter::successors(self.node(node), |(parent, _)| self.node(*parent))
            .map(|(_, frame)| frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_share_prefixes_and_parents_come_first() {
        let mut trie = CallTrie::new(10);
        let a = trie.insert_path([FrameId(1), FrameId(2)]).unwrap();
        let b = trie.insert_path([FrameId(1), FrameId(3)]).unwrap();
        assert_eq!(trie.node_count(), 4);
        assert_eq!(trie.node(a).unwrap().0, trie.node(b).unwrap().0);
        assert_eq!(trie.path(b).collect::<Vec<_>>(), [FrameId(3), FrameId(1)]);
        assert_eq!([NodeId::ROOT, a, b].map(|node| trie.depth(node)), [0, 2, 2]);
        assert_eq!(trie.node(NodeId::ROOT), None);
    }

    #[test]
    fn a_delta_holds_what_was_counted_since_the_last() {
        let mut trie = CallTrie::new(10);
        let a = trie.insert_path([FrameId(1)]).unwrap();
        let b = trie.insert_path([FrameId(2)]).unwrap();
        trie.add(b, State::Sleep, 5);
        trie.add(a, State::Cpu, 1);
        trie.add(b, State::Cpu, 2);
        trie.add(a, State::Cpu, 0);
        let both = Weight::of(State::Cpu, 2) + Weight::of(State::Sleep, 5);
        let expected = [(a, Weight::of(State::Cpu, 1)), (b, both)];
        assert_eq!(trie.take_delta(), Delta::from_iter(expected));
        assert!(trie.take_delta().is_empty());
        trie.add(b, State::Disk, 4);
        assert_eq!(trie.take_delta(), Delta::from_iter([(b, State::Disk, 4)]));
    }

    #[test]
    fn a_restored_node_has_the_next_id_and_lookups_find_the_first_of_two_equal() {
        let mut trie = CallTrie::new(1);
        for id in 1..4 {
            assert_eq!(trie.restore(NodeId::ROOT, FrameId(7)), NodeId(id));
        }
        assert_eq!(trie.insert(NodeId::ROOT, FrameId(7)), Ok(NodeId(1)));
        assert_eq!(trie.node(NodeId(3)), Some((NodeId::ROOT, FrameId(7))));
    }

    #[test]
    fn forgotten_nodes_make_room_and_come_back_under_their_ids() {
        let mut trie = CallTrie::new(4);
        let a = trie.insert_path([FrameId(1), FrameId(2)]).unwrap();
        let b = trie.insert_path([FrameId(3), FrameId(4)]).unwrap();
        let all = trie.held_nodes();
        trie.set_aside(&[NodeId(3), b]);
        trie.forget(&all[..2]);
        trie.close(NodeId(5));
        assert_eq!((trie.held_count(), trie.node_count()), (2, 5));
        assert_eq!((trie.node(a), trie.depth(a)), (None, 0));
        assert_eq!(
            (trie.node(b), trie.depth(b)),
            (Some((NodeId(3), FrameId(4))), 2)
        );
        assert_eq!(trie.find(NodeId(3), FrameId(4)), Some(b));

        let again = trie.insert_path([FrameId(1), FrameId(2)]).unwrap();
        assert_eq!((again, trie.held_count()), (NodeId(6), 4));
        let full = trie.insert(again, FrameId(9));
        assert_eq!(full, Err(Full { nodes_max: 4 }));
        trie.recall(NodeId(1), NodeId::ROOT, FrameId(1));
        trie.recall(a, NodeId(1), FrameId(2));
        assert_eq!(
            (trie.node(a), trie.depth(a)),
            (Some((NodeId(1), FrameId(2))), 2)
        );
        assert_eq!(trie.find(NodeId::ROOT, FrameId(1)), Some(NodeId(5)));
        trie.add(a, State::Cpu, 3);
        assert_eq!(trie.take_delta(), Delta::from_iter([(a, State::Cpu, 3)]));
    }

    #[test]
    fn a_full_tree_rejects_new_nodes_only() {
        let mut trie = CallTrie::new(1);
        let a = trie.insert(NodeId::ROOT, FrameId(1)).unwrap();
        assert_eq!(trie.insert(a, FrameId(2)), Err(Full { nodes_max: 1 }));
        assert_eq!(trie.insert(NodeId::ROOT, FrameId(1)), Ok(a));
        let over = trie.insert_past_limit(a, FrameId(9));
        assert_eq!(trie.insert_past_limit(a, FrameId(9)), over);
        assert_eq!(trie.node_count(), 3);
    }
}
