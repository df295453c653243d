//! Lookups of the names and stacks of pushed profiles.

use std::sync::RwLockReadGuard;

use import::{KnownTables, LookUp};
use profiler_core::{Frame, FrameId, NodeId, StringId};

use super::{Tree, TreeLock};
use base::sync::{Guard, read};

/// A tree in which names and stacks of a profile are looked up, and marked as used.
#[derive(Clone, Copy, Debug)]
pub struct KnownTree<'a>(pub &'a TreeLock);

/// A tree that is locked for lookups.
struct Opened<'a>(Guard<RwLockReadGuard<'a, Tree>>);

impl KnownTables for KnownTree<'_> {
    fn open(&self) -> Box<dyn LookUp + '_> {
        Box::new(Opened(read(self.0)))
    }
}

impl LookUp for Opened<'_> {
    fn name(&self, text: &str) -> Option<StringId> {
        let id = self.0.symbols.string_id(text)?;
        // Its id is of no other text until the generation after this one ends.
        self.0.used.mark_string(id);
        Some(id)
    }

    fn frame(&self, frame: &Frame<StringId>) -> Option<FrameId> {
        let id = self.0.symbols.find_ids(frame)?;
        self.0.used.mark_frame(id);
        Some(id)
    }

    fn child(&self, parent: NodeId, frame: FrameId) -> Option<NodeId> {
        let id = self.0.trie.find(parent, frame)?;
        self.0.used.mark_node(id);
        Some(id)
    }
}
