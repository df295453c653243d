//! All agents' stacks in one tree, with their symbols.

mod excerpt;
mod log;
mod phases;
mod sealing;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use profiler_core::wire::{Translation, WireError, v1};
use profiler_core::{CallTrie, Filter, Frame, FrameId, FrameKind, NodeId, StringId, SymbolTable};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::limits::{LEDGER_NAMES_MAX, PHASES_MAX};
use crate::packed::NODES_MAX;

pub(crate) use excerpt::{Excerpt, ProfileForm, SampleScope};
pub(crate) use phases::PhaseFilter;
pub(crate) use sealing::unsealed;

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
    /// Whether any name was counted as `[overflow]`, and so may be one that nobody knows by now.
    has_unnamed: bool,
    /// The first level: tasks, threads outside any, the agent's own, `[overflow]`; rising.
    tops: Vec<NodeId>,
    /// The first-level node above each node, by node; the root's is the root.
    tasks: Vec<NodeId>,
    /// The phases below first-level nodes, by the phase's name.
    phases: FxHashMap<(NodeId, StringId), NodeId>,
    /// The strings of `symbols`, to be found by their text.
    known: FxHashSet<Arc<str>>,
    symbol_bytes: usize,
    symbol_bytes_max: usize,
}

impl Tree {
    /// A tree of the root alone. Frame 0 is `[overflow]`, in every tree and on disk: it stands for what
    /// a damaged disk no longer tells.
    pub(crate) fn new(nodes_max: usize, symbol_bytes_max: usize) -> Tree {
        let mut symbols = SymbolTable::new();
        symbols.intern(&Frame::overflow());
        Tree {
            symbols,
            trie: CallTrie::new(nodes_max.min(NODES_MAX)),
            task_names: BTreeSet::new(),
            has_unnamed: false,
            tops: Vec::new(),
            tasks: vec![NodeId::ROOT],
            phases: FxHashMap::default(),
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
        self.note_new(strings, frames, nodes);
        Ok(())
    }

    /// Takes in a tree that was stored, with the ids that its frames (from 0) and nodes (from 1) had.
    /// Only for a tree that holds nothing yet.
    pub(crate) fn restore_all(&mut self, frames: Vec<Frame>, nodes: Vec<(NodeId, FrameId)>) {
        let strings = self.symbols.string_count();
        let held = self.symbols.frame_count();
        for frame in frames.iter().skip(held as usize) {
            let frame = frame.map(|text| self.symbols.intern_string(text));
            self.symbols.restore(frame);
        }
        for (parent, frame) in nodes {
            self.trie.restore(parent, frame);
        }
        self.note_new(strings, held, 1);
    }

    /// The first-level node of a task, which is added if it was never sampled; past the limit on
    /// names, `[overflow]`.
    pub(crate) fn task_node(&mut self, name: &str) -> NodeId {
        let strings = self.symbols.string_count();
        let frames = self.symbols.frame_count();
        let nodes = self.trie.node_count();
        let has_room = self.task_names.len() < LEDGER_NAMES_MAX || self.task_names.contains(name);
        let frame = if has_room { Frame::task(name) } else { Frame::overflow() };
        let frame = self.symbols.intern(&frame);
        let node = self.trie.insert_past_limit(NodeId::ROOT, frame);
        self.note_new(strings, frames, nodes);
        node
    }

    /// The node of a phase below that of a task, which is added if it was never sampled; past the limit
    /// on phases, `[overflow]`.
    pub(crate) fn phase_node(&mut self, task: NodeId, name: &str) -> NodeId {
        let strings = self.symbols.string_count();
        let frames = self.symbols.frame_count();
        let nodes = self.trie.node_count();
        let known = self.phases.len() < PHASES_MAX
            || self.symbols.find(&Frame::phase(name)).is_some_and(|frame| {
                let name = self.symbols.frame_ids(frame).function;
                self.phases.contains_key(&(task, name))
            });
        let frame = if known { Frame::phase(name) } else { Frame::overflow() };
        let frame = self.symbols.intern(&frame);
        let node = self.trie.insert_past_limit(task, frame);
        self.note_new(strings, frames, nodes);
        node
    }

    /// Names of all phases that any task was in.
    pub(crate) fn phase_names(&self) -> BTreeSet<Arc<str>> {
        self.phases.keys().map(|(_, name)| self.string(*name).clone()).collect()
    }

    /// Takes note of what was added to the tables behind these counts.
    pub(crate) fn note_new(&mut self, strings: u32, frames: u32, nodes: u32) {
        for id in strings..self.symbols.string_count() {
            let text = self.symbols.string(StringId(id));
            self.symbol_bytes += text.len() + STRING_BYTES;
            self.known.insert(text.clone());
        }
        let new_frames = self.symbols.frame_count() - frames;
        self.symbol_bytes += new_frames as usize * FRAME_BYTES;
        for id in nodes..self.trie.node_count() {
            self.note_top(NodeId(id));
        }
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

    fn note_top(&mut self, node: NodeId) {
        let Some((parent, frame)) = self.trie.node(node) else { return };
        debug_assert_eq!(self.tasks.len(), node.index(), "a node was added unseen");
        let frame = self.symbols.frame_ids(frame);
        let is_top = parent == NodeId::ROOT;
        self.tasks.push(if is_top { node } else { self.tasks[parent.index()] });
        if is_top {
            self.tops.push(node);
            self.has_unnamed |= frame.kind == FrameKind::Overflow;
            if frame.kind == FrameKind::Task {
                let name = self.symbols.string(frame.function).clone();
                self.task_names.insert(name);
            }
        } else if frame.kind == FrameKind::Phase
            && self.trie.node(parent).is_some_and(|(above, _)| above == NodeId::ROOT)
        {
            self.phases.insert((parent, frame.function), node);
        }
    }

    /// The first-level node above a node, or itself; the root for the root.
    ///
    /// # Panics
    /// If there is no such node.
    pub(crate) fn task_of(&self, node: NodeId) -> NodeId {
        self.tasks[node.index()]
    }

    /// What a node's frame stands for; `None` for the root.
    pub(crate) fn kind(&self, node: NodeId) -> Option<FrameKind> {
        let (_, frame) = self.trie.node(node)?;
        Some(self.symbols.frame_ids(frame).kind)
    }

    /// The function, task, phase or thread that a node stands for.
    pub(crate) fn name(&self, node: NodeId) -> Option<Arc<str>> {
        let (_, frame) = self.trie.node(node)?;
        Some(self.string(self.symbols.frame_ids(frame).function).clone())
    }

    pub(crate) fn string(&self, id: StringId) -> &Arc<str> {
        self.symbols.string(id)
    }

    /// Names of all tasks that any agent has named in its stacks.
    pub(crate) fn task_names(&self) -> &BTreeSet<Arc<str>> {
        &self.task_names
    }

    /// Whether samples or counts of a task of that name may be under `[overflow]`.
    pub(crate) fn may_be_unnamed(&self, name: &str) -> bool {
        self.has_unnamed && !self.task_names.contains(name)
    }

    /// The first-level nodes that a filter keeps, rising.
    pub(crate) fn tops_kept(&self, filter: &Filter) -> Vec<TopNode> {
        let top = |node: &NodeId| {
            let (_, id) = self.trie.node(*node).expect("the root is no first-level node");
            let frame = self.symbols.frame(id);
            filter.keeps_top(&frame).then(|| TopNode {
                node: *node,
                kind: frame.kind,
                name: self.string(self.symbols.frame_ids(id).function).clone(),
            })
        };
        self.tops.iter().filter_map(top).collect()
    }

    pub(crate) fn node_count(&self) -> u32 {
        self.trie.node_count()
    }
}

/// A first-level node: all of a task's time is at it or below.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TopNode {
    pub(crate) node: NodeId,
    pub(crate) kind: FrameKind,
    pub(crate) name: Arc<str>,
}
