//! Forgotten stacks are read back from tables for queries.

use std::collections::BTreeSet;

use profiler_core::hash::KeyedMap;
use profiler_core::{Frame, FrameId, NodeId};

use super::{OVERFLOW, Tree, TreeLock};
use base::id_set::IdSet;
use base::log_limit::{Admitted, LineLimit};
use base::sync::{read, write};
use store::{FrameRow, NodeRow, StoreError, Tables};

/// Entries that are brought back under one lock of the tree.
const AT_ONCE: usize = 4_096;

/// Any query can cause these lines.
static UNREAD: LineLimit = LineLimit::new();

/// Reads back the forgotten ones of these nodes, with their ancestors. Those that cannot be read, and those past
/// half of the tree's limit, stay `[overflow]`.
pub fn recall(tree: &TreeLock, tables: &Tables, nodes: &IdSet) {
    let missing = missing(tree, nodes);
    if missing.is_empty() {
        return;
    }
    if let Err(error) = read_back(tree, tables, missing)
        && let Some(Admitted { suppressed }) = UNREAD.admit()
    {
        let reason = error.to_string();
        tracing::warn!(reason, suppressed, "names of older data cannot be read");
    }
}

/// The forgotten nodes among `nodes` and their ancestors, as far as these are known.
fn missing(tree: &TreeLock, nodes: &IdSet) -> BTreeSet<NodeId> {
    if !read(tree).has_forgotten() {
        return BTreeSet::new();
    }
    let mut missing = BTreeSet::new();
    let ids: Vec<u32> = nodes.iter().collect();
    for piece in ids.chunks(AT_ONCE) {
        let tree = read(tree);
        let is_missing = |id: &NodeId| id.0 < tree.node_count() && tree.is_forgotten(*id);
        missing.extend(piece.iter().copied().map(NodeId).filter(is_missing));
    }
    missing
}

fn read_back(
    tree: &TreeLock,
    tables: &Tables,
    missing: BTreeSet<NodeId>,
) -> Result<(), StoreError> {
    let room = read(tree).recall_room();
    let is_forgotten = |id: NodeId| read(tree).is_forgotten(id);
    let mut nodes = tables.node_rows(missing, is_forgotten)?;
    // Parents first, so that a cut leaves no node without them.
    nodes.truncate(room);
    let wanted: BTreeSet<FrameId> = {
        let tree = read(tree);
        let frames = nodes.iter().map(|row| row.frame);
        frames
            .filter(|frame| !tree.symbols.holds_frame(*frame))
            .collect()
    };
    let frames = tables.frame_rows(&wanted)?;
    for piece in nodes.chunks(AT_ONCE) {
        write(tree).recall(piece, &frames);
    }
    Ok(())
}

impl Tree {
    /// Whether a node is not in memory.
    pub fn is_forgotten(&self, id: NodeId) -> bool {
        id != NodeId::ROOT && self.trie.node(id).is_none()
    }

    /// Nodes that queries may bring back.
    fn recall_room(&self) -> usize {
        (self.nodes_max / 2).saturating_sub(self.trie.held_count())
    }

    /// Brings nodes back, parents first.
    pub(super) fn recall(&mut self, rows: &[NodeRow], frames: &[FrameRow]) {
        let by_id: KeyedMap<FrameId, &Frame> =
            frames.iter().map(|row| (row.id, &row.frame)).collect();
        for row in rows {
            let frame = match by_id.get(&row.frame) {
                Some(frame) => self.symbols.recall_frame(row.frame, frame),
                None if self.symbols.holds_frame(row.frame) => row.frame,
                None => OVERFLOW,
            };
            self.trie.recall(row.id, row.parent, frame);
        }
        self.reserve_marks();
        for row in rows {
            self.used.note_node(&self.symbols, &self.trie, row.id);
        }
    }
}
