//! All agents' stacks in one tree, with their symbols.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, RwLock};

use profiler_core::wire::{Translation, WireError, v1};
use profiler_core::{CallTrie, Frame, FrameId, FrameKind, NodeId, StringId, SymbolTable};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::sync::read;

/// Nodes and frames that an [`Excerpt`] copies under one lock: below a millisecond.
const EXCERPT_AT_ONCE: usize = 4_096;

/// What a frame and its entry in the table of frames take beside its strings, in bytes.
const FRAME_BYTES: usize = 96;
/// What a string and its entry in the table of strings take beside its text, in bytes.
const STRING_BYTES: usize = 64;

/// A dictionary that was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DictionaryError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(
        "the collector's names and frames take {held} bytes, more than twice its limit of {limit}; \
         restart it, or raise `symbol_bytes_max`"
    )]
    Full { held: usize, limit: usize },
}

/// The fleet's symbols and call tree. It only grows: an id once given stays, so a reader may take
/// what it needs in pieces and let writers in between.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) symbols: SymbolTable,
    pub(crate) trie: CallTrie,
    task_names: BTreeSet<Arc<str>>,
    /// The strings of `symbols`, to be found by their text.
    known: FxHashSet<Arc<str>>,
    symbol_bytes: usize,
    symbol_bytes_max: usize,
}

impl Tree {
    pub(crate) fn new(nodes_max: usize, symbol_bytes_max: usize) -> Tree {
        Tree {
            symbols: SymbolTable::new(),
            trie: CallTrie::new(nodes_max),
            task_names: BTreeSet::new(),
            known: FxHashSet::default(),
            symbol_bytes: 0,
            symbol_bytes_max,
        }
    }

    /// Takes in a dictionary, whole or not at all. Past the limit on symbols, names that are not known
    /// become `[overflow]` and lines 0, so that totals stay true; past twice the limit, it is refused.
    pub(crate) fn apply(
        &mut self,
        message: &v1::Dictionary,
        translation: &mut Translation,
    ) -> Result<(), DictionaryError> {
        let (held, limit) = (self.symbol_bytes, self.symbol_bytes_max);
        if held / 2 >= limit {
            return Err(DictionaryError::Full { held, limit });
        }
        let strings = self.symbols.string_count();
        let frames = self.symbols.frame_count();
        let nodes = self.trie.node_count();
        let message = match held >= limit {
            true => Cow::Owned(self.without_new_names(message)),
            false => Cow::Borrowed(message),
        };
        translation.apply(&message, &mut self.symbols, &mut self.trie)?;
        for id in strings..self.symbols.string_count() {
            let text = self.symbols.string(StringId(id));
            self.symbol_bytes += text.len() + STRING_BYTES;
            self.known.insert(text.clone());
        }
        let new_frames = self.symbols.frame_count() - frames;
        self.symbol_bytes += new_frames as usize * FRAME_BYTES;
        for id in nodes..self.trie.node_count() {
            self.note_task_name(NodeId(id));
        }
        Ok(())
    }

    fn without_new_names(&self, message: &v1::Dictionary) -> v1::Dictionary {
        let mut message = message.clone();
        for text in &mut message.strings {
            // The empty string is known to every table, and so is never in `known`.
            if !text.is_empty() && !self.known.contains(text.as_str()) {
                *text = Frame::overflow().label();
            }
        }
        for frame in &mut message.frames {
            (frame.line, frame.offset) = (0, 0);
        }
        message
    }

    fn note_task_name(&mut self, node: NodeId) {
        if let Some((NodeId::ROOT, frame)) = self.trie.node(node) {
            let frame = self.symbols.frame_ids(frame);
            if frame.kind == FrameKind::Task {
                let name = self.symbols.string(frame.function).clone();
                self.task_names.insert(name);
            }
        }
    }

    pub(crate) fn string(&self, id: StringId) -> &Arc<str> {
        self.symbols.string(id)
    }

    /// Names of all tasks that any agent has named in its stacks.
    pub(crate) fn task_names(&self) -> &BTreeSet<Arc<str>> {
        &self.task_names
    }

    pub(crate) fn node_count(&self) -> u32 {
        self.trie.node_count()
    }
}

/// The part of a [`Tree`] that some nodes need, with ids of its own.
pub(crate) struct Excerpt {
    pub(crate) symbols: SymbolTable,
    pub(crate) trie: CallTrie,
    /// Our id by the tree's; the root where the node is not in it.
    ids: Vec<NodeId>,
}

impl Excerpt {
    /// Copies `touched` and what is above them. The tree's lock is held for [`EXCERPT_AT_ONCE`]
    /// nodes or frames at a time, so that a dictionary never waits for a whole question.
    pub(crate) fn of(tree: &RwLock<Tree>, touched: impl Iterator<Item = NodeId>) -> Excerpt {
        let mut needed: Vec<bool> = Vec::new();
        for node in touched {
            if node.index() >= needed.len() {
                needed.resize(node.index() + 1, false);
            }
            needed[node.index()] = true;
        }
        let rows = rows_above(tree, &mut needed);
        let (symbols, frames) = copy_frames(tree, &rows);
        let mut excerpt = Excerpt {
            symbols,
            trie: CallTrie::new(rows.len()),
            ids: vec![NodeId::ROOT; needed.len()],
        };
        for Row { id, parent, frame } in rows.into_iter().rev() {
            let parent = excerpt.ids[parent.index()];
            let node = excerpt.trie.insert(parent, frames[&frame]);
            excerpt.ids[id.index()] = node.expect("the limit is the number of rows");
        }
        excerpt
    }

    /// Our id of the tree's node, which must be one of those that the excerpt was made for.
    pub(crate) fn node(&self, node: NodeId) -> NodeId {
        self.ids[node.index()]
    }
}

struct Row {
    id: NodeId,
    parent: NodeId,
    frame: FrameId,
}

/// The needed nodes and those above them, children before parents.
fn rows_above(tree: &RwLock<Tree>, needed: &mut [bool]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut next = needed.len();
    while next > 1 {
        let tree = read(tree);
        let until = rows.len() + EXCERPT_AT_ONCE;
        while next > 1 && rows.len() < until {
            next -= 1;
            if needed[next] {
                let id = NodeId(u32::try_from(next).expect("it is the id of a node"));
                let (parent, frame) = tree.trie.node(id).expect("only node 0 is the root");
                needed[parent.index()] = true;
                rows.push(Row { id, parent, frame });
            }
        }
    }
    rows
}

/// The rows' frames in a table of their own, with their ids there.
fn copy_frames(tree: &RwLock<Tree>, rows: &[Row]) -> (SymbolTable, FxHashMap<FrameId, FrameId>) {
    let mut wanted: Vec<FrameId> = rows.iter().map(|row| row.frame).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut symbols = SymbolTable::new();
    let mut ids = FxHashMap::default();
    for piece in wanted.chunks(EXCERPT_AT_ONCE) {
        let tree = read(tree);
        ids.extend(piece.iter().map(|id| (*id, symbols.intern(&tree.symbols.frame(*id)))));
    }
    (symbols, ids)
}
