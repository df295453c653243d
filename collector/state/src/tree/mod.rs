//! All agents' stacks in one tree, with their symbols.

mod contexts;
mod excerpt;
mod forget;
mod log;
mod look_up;
mod phases;
mod recall;
mod sealing;
mod union;
mod used;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use profiler_core::hash::KeyedMap;
use profiler_core::wire::{Tables, Translation, WireError, v1};
use profiler_core::{CallTrie, Filter, Frame, FrameId, FrameKind, NodeId, StringId, SymbolTable};

use self::contexts::Contexts;
use self::used::Used;
use base::limits::{LEDGER_NAMES_MAX, NODE_IDS_MAX, PHASES_MAX};
use base::sync::{RwLock, rank};
use store::packed::NODES_MAX;

pub use excerpt::{Excerpt, ProfileForm, SampleScope};
pub use forget::{Forgotten, UsedIds, forget_idle};
pub use look_up::KnownTree;
pub use phases::{NodeNames, PhaseFilter, ThreadName};
pub use recall::recall;
pub use sealing::{LockedTree, unsealed};
pub use union::Adopted;

/// The tree of a collector, which its threads share.
pub type TreeLock = RwLock<Tree, rank::Tree>;

/// The frame `[overflow]`.
const OVERFLOW: FrameId = FrameId(0);

/// Memory of a frame and its table entry without its strings, in bytes.
const FRAME_BYTES: usize = 96;
/// Memory of a string and its table entry without its text, in bytes.
const STRING_BYTES: usize = 64;

/// A rejected dictionary.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DictionaryError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(
        "the collector's names and frames take {held} bytes, more than twice its limit of {limit}; \
         restart it, or raise `symbol_bytes_max`"
    )]
    Full { held: usize, limit: usize },
}

/// The fleet's symbols and call tree. An id of a frame or node never changes, so a reader may copy what it needs
/// in pieces and let writers in between. What nobody has used for a while is [forgotten](forget_idle) and
/// [read back](recall()) for queries.
#[derive(Debug)]
pub struct Tree {
    pub symbols: SymbolTable,
    pub trie: CallTrie,
    task_names: BTreeSet<Arc<str>>,
    /// The first-level nodes of tasks, by name.
    task_nodes: KeyedMap<StringId, NodeId>,
    /// Whether any task counts as `[overflow]`, so that its name may be unknown.
    has_unnamed: bool,
    /// The first level, ascending: tasks, threads outside of tasks, the agent's own threads,
    /// `[overflow]`.
    tops: Vec<NodeId>,
    /// By node from `tasks_from` on: the first-level node above it; for the root, the root.
    tasks: Vec<NodeId>,
    tasks_from: u32,
    /// Tasks and phases of the nodes before.
    contexts: Contexts,
    /// The nodes of phases, by first-level node and the phase's name.
    phases: KeyedMap<(NodeId, StringId), NodeId>,
    used: Used,
    symbol_bytes_max: usize,
    nodes_max: usize,
    /// Tasks that were added past the limit on names.
    reserved_tasks: usize,
    /// Phases that were added past the limit on them.
    reserved_phases: usize,
}

/// Result of applying a slice of a dictionary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppliedSlice {
    /// Whether the dictionary has more entries.
    pub has_more: bool,
    pub nodes: usize,
    pub symbol_bytes: usize,
    /// Whether a stack became `[overflow]`.
    pub overflowed: bool,
    /// Frames whose build id was invalid and was left out.
    pub invalid_build_ids: u64,
}

impl Tree {
    /// A tree with the root only. Frame 0 is `[overflow]` in every tree and on disk: it stands for
    /// what a damaged disk lost.
    pub fn new(nodes_max: usize, symbol_bytes_max: usize) -> Tree {
        let mut symbols = SymbolTable::new();
        symbols.intern(&Frame::overflow());
        let nodes_max = nodes_max.min(NODES_MAX);
        Tree {
            symbols,
            trie: CallTrie::new(nodes_max),
            task_names: BTreeSet::new(),
            task_nodes: KeyedMap::default(),
            has_unnamed: false,
            tops: Vec::new(),
            tasks: vec![NodeId::ROOT],
            tasks_from: 0,
            contexts: Contexts::default(),
            phases: KeyedMap::default(),
            used: Used::default(),
            symbol_bytes_max,
            nodes_max,
            reserved_tasks: 0,
            reserved_phases: 0,
        }
    }

    /// Part of a dictionary that is applied. Past the limit on symbols, or if its sender may not add any,
    /// unknown names become `[overflow]` and lines 0, so that totals stay exact; past twice the limit
    /// the dictionary is rejected.
    pub fn admit<'m>(
        &self,
        message: &'m v1::Dictionary,
        may_add: bool,
    ) -> Result<Cow<'m, v1::Dictionary>, DictionaryError> {
        let held = self.symbol_bytes();
        let limit = self.symbol_bytes_max;
        if held / 2 >= limit {
            return Err(DictionaryError::Full { held, limit });
        }
        Ok(if held >= limit || !may_add {
            Cow::Owned(self.without_new_names(message))
        } else {
            Cow::Borrowed(message)
        })
    }

    /// Stack nodes below the limit.
    pub fn free_nodes(&self) -> usize {
        self.nodes_max.saturating_sub(self.trie.held_count())
    }

    /// Bytes of names and frames, without those of an empty tree.
    pub fn symbol_bytes(&self) -> usize {
        let strings = self.symbols.held_strings() * STRING_BYTES;
        let frames = self.symbols.held_frame_count() * FRAME_BYTES;
        (self.symbols.text_bytes() + strings + frames).saturating_sub(empty_bytes())
    }

    /// Bytes of names and frames below the limit.
    pub fn free_symbol_bytes(&self) -> usize {
        self.symbol_bytes_max.saturating_sub(self.symbol_bytes())
    }

    /// Applies the next entries of a checked dictionary that the tree has already, at most `entries_max`.
    /// Returns their number.
    pub fn apply_known(
        &self,
        message: &v1::Dictionary,
        translation: &mut Translation,
        entries_max: usize,
    ) -> Result<usize, DictionaryError> {
        let before = translation.marks();
        let applied = translation.apply_known(message, &self.symbols, &self.trie, entries_max);
        self.used.note(translation, before);
        Ok(applied?)
    }

    /// The same for the tables of a sender in this process.
    pub fn apply_known_tables(
        &self,
        sender: Tables<'_>,
        translation: &mut Translation,
        entries_max: usize,
    ) -> usize {
        let receiver = Tables {
            symbols: &self.symbols,
            trie: &self.trie,
        };
        let before = translation.marks();
        let applied = translation.apply_known_tables(sender, receiver, entries_max);
        self.used.note(translation, before);
        applied
    }

    /// Applies the next entries of a dictionary that was [admitted](Tree::admit) and checked. Adds at
    /// most `nodes_left` nodes, and an `[overflow]` node for each task.
    pub fn apply_slice(
        &mut self,
        message: &v1::Dictionary,
        translation: &mut Translation,
        entries_max: usize,
        nodes_left: usize,
    ) -> Result<AppliedSlice, DictionaryError> {
        let frames = self.symbols.frame_count();
        let nodes = self.trie.node_count();
        let symbol_bytes = self.symbol_bytes();
        let translated = translation.marks();
        let invalid_build_ids = translation.invalid_build_ids();
        let ids_left = NODE_IDS_MAX.saturating_sub(nodes as usize);
        let held = self.trie.held_count();
        let own_max = held.saturating_add(nodes_left.min(ids_left));
        self.trie.set_nodes_max(self.nodes_max.min(own_max));
        let applied =
            translation.apply_slice(message, &mut self.symbols, &mut self.trie, entries_max);
        self.trie.set_nodes_max(self.nodes_max);
        self.note_new(frames, nodes);
        self.used.note(translation, translated);
        Ok(AppliedSlice {
            has_more: applied?,
            nodes: (self.trie.node_count() - nodes) as usize,
            symbol_bytes: self.symbol_bytes() - symbol_bytes,
            overflowed: (translated.nodes..translation.marks().nodes).any(|node| {
                let node = translation.node(NodeId(node));
                node.and_then(|node| self.kind(node)) == Some(FrameKind::Overflow)
            }),
            invalid_build_ids: translation.invalid_build_ids() - invalid_build_ids,
        })
    }

    /// Applies a dictionary, whole or not at all.
    #[cfg(any(test, feature = "testing"))]
    pub fn apply(
        &mut self,
        message: &v1::Dictionary,
        translation: &mut Translation,
    ) -> Result<(), DictionaryError> {
        let message = self.admit(message, true)?.into_owned();
        translation.check(&message, &self.trie)?;
        self.apply_slice(&message, translation, usize::MAX, usize::MAX)
            .map(|_| ())
    }

    /// Restores a stored tree with the ids of its frames (from 0) and nodes (from 1). The tree must
    /// be empty.
    pub fn restore_all(&mut self, frames: Vec<Frame>, nodes: Vec<(NodeId, FrameId)>) {
        let held = self.symbols.frame_count();
        for frame in frames.iter().skip(held as usize) {
            let frame = frame.map(|text| self.symbols.intern_string(text));
            self.symbols.restore(frame);
        }
        for (parent, frame) in nodes {
            let frame = self.first_equal(frame);
            self.trie.restore(parent, frame);
        }
        self.note_new(held, 1);
        // Those that no agent or push needs soon are forgotten a generation earlier.
        self.used.start_generation();
    }

    /// A frame, or an equal one before it: one that came back after it was forgotten is stored twice. Those that
    /// stand for lost ones stay apart.
    fn first_equal(&self, id: FrameId) -> FrameId {
        let first = self.symbols.first_equal(id);
        if first == OVERFLOW { id } else { first }
    }

    /// A task's first-level node, added if the task was never sampled. Past the limit on names,
    /// `[overflow]`.
    pub fn task_node(&mut self, name: &str) -> NodeId {
        let node = self.add_task(name, || false);
        node.unwrap_or_else(|| self.add_child(NodeId::ROOT, &Frame::overflow()))
    }

    /// A task's first-level node, added if there is none. Past the limit on names it is added only if
    /// `may_reserve`; past twice the limit it is not.
    pub fn add_task(&mut self, name: &str, may_reserve: impl FnOnce() -> bool) -> Option<NodeId> {
        if let Some(node) = self.find_task(name) {
            return Some(node);
        }
        if self.task_nodes.len() >= LEDGER_NAMES_MAX {
            if self.reserved_tasks >= LEDGER_NAMES_MAX || !may_reserve() {
                return None;
            }
            self.reserved_tasks += 1;
        }
        Some(self.add_child(NodeId::ROOT, &Frame::task(name)))
    }

    /// A task's first-level node.
    pub fn find_task(&self, name: &str) -> Option<NodeId> {
        let name = self.symbols.string_id(name)?;
        self.task_nodes.get(&name).copied()
    }

    /// A phase's node below its task, added if the phase was never sampled. Past the limit on
    /// phases, `[overflow]`.
    pub fn phase_node(&mut self, task: NodeId, name: &str) -> NodeId {
        let node = self.add_phase(task, name, || false);
        node.unwrap_or_else(|| self.add_child(task, &Frame::overflow()))
    }

    /// A phase's node below its task, as [`Tree::add_task`].
    pub fn add_phase(
        &mut self,
        task: NodeId,
        name: &str,
        may_reserve: impl FnOnce() -> bool,
    ) -> Option<NodeId> {
        if let Some(node) = self.find_phase(task, name) {
            return Some(node);
        }
        if self.phases.len() >= PHASES_MAX {
            if self.reserved_phases >= PHASES_MAX || !may_reserve() {
                return None;
            }
            self.reserved_phases += 1;
        }
        Some(self.add_child(task, &Frame::phase(name)))
    }

    /// A phase's node below its task.
    pub fn find_phase(&self, task: NodeId, name: &str) -> Option<NodeId> {
        let name = self.symbols.string_id(name)?;
        self.phases.get(&(task, name)).copied()
    }

    fn add_child(&mut self, parent: NodeId, frame: &Frame<&str>) -> NodeId {
        let frames = self.symbols.frame_count();
        let nodes = self.trie.node_count();
        let frame = self.symbols.intern(frame);
        let node = self.trie.insert_past_limit(parent, frame);
        self.note_new(frames, nodes);
        node
    }

    /// Names of all phases of all tasks.
    pub fn phase_names(&self) -> BTreeSet<Arc<str>> {
        self.phases
            .keys()
            .map(|(_, name)| self.string(*name).clone())
            .collect()
    }

    /// Indexes everything that was added since the tables had these sizes.
    pub fn note_new(&mut self, frames: u32, nodes: u32) {
        self.reserve_marks();
        for id in frames..self.symbols.frame_count() {
            self.used.note_frame(&self.symbols, FrameId(id));
        }
        for id in nodes..self.trie.node_count() {
            self.used.note_node(&self.symbols, &self.trie, NodeId(id));
            self.note_top(NodeId(id));
        }
    }

    fn reserve_marks(&mut self) {
        self.used.reserve([
            self.symbols.string_count(),
            self.symbols.frame_count(),
            self.trie.node_count(),
        ]);
    }

    fn without_new_names(&self, message: &v1::Dictionary) -> v1::Dictionary {
        let mut message = message.clone();
        for text in &mut message.strings {
            if self.symbols.string_id(text).is_none() {
                *text = Frame::overflow().label();
            }
        }
        for frame in &mut message.frames {
            frame.line = 0;
            frame.offset = 0;
        }
        message
    }

    fn note_top(&mut self, node: NodeId) {
        let Some((parent, frame)) = self.trie.node(node) else {
            return;
        };
        debug_assert_eq!(
            self.tasks_from as usize + self.tasks.len(),
            node.index(),
            "a node was added unseen"
        );
        let is_top = parent == NodeId::ROOT;
        let task = if is_top { node } else { self.task_of(parent) };
        self.tasks.push(task);
        let frame = self.symbols.frame_ids(frame);
        if is_top {
            self.tops.push(node);
            self.has_unnamed |= frame.kind == FrameKind::Overflow;
            if frame.kind == FrameKind::Task {
                let name = self.symbols.string(frame.function).clone();
                self.task_names.insert(name);
                self.task_nodes.entry(frame.function).or_insert(node);
            }
        } else if frame.kind == FrameKind::Phase
            && self
                .trie
                .node(parent)
                .is_some_and(|(above, _)| above == NodeId::ROOT)
        {
            self.phases.insert((parent, frame.function), node);
        }
    }

    /// The first-level node above a node, or the node itself; the root for the root.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn task_of(&self, node: NodeId) -> NodeId {
        match node.0.checked_sub(self.tasks_from) {
            Some(index) => self.tasks[index as usize],
            None => self.task_of_context(self.contexts.of(node)),
        }
    }

    /// The first-level node of a task or phase.
    fn task_of_context(&self, context: NodeId) -> NodeId {
        match self.trie.node(context) {
            Some((parent, _)) if parent != NodeId::ROOT => parent,
            _ => context,
        }
    }

    /// Parent and frame of a node; `None` for the root. A forgotten node is `[overflow]` below its task or phase.
    pub fn row(&self, node: NodeId) -> Option<(NodeId, FrameId)> {
        self.trie
            .node(node)
            .or_else(|| (node != NodeId::ROOT).then(|| (self.contexts.of(node), OVERFLOW)))
    }

    /// Whether some nodes are forgotten.
    pub fn has_forgotten(&self) -> bool {
        self.held_count() < self.node_count()
    }

    /// The kind of a node's frame; `None` for the root.
    pub fn kind(&self, node: NodeId) -> Option<FrameKind> {
        let (_, frame) = self.trie.node(node)?;
        Some(self.symbols.frame_ids(frame).kind)
    }

    /// The function, task, phase or thread of a node.
    pub fn name(&self, node: NodeId) -> Option<Arc<str>> {
        let (_, frame) = self.trie.node(node)?;
        Some(self.string(self.symbols.frame_ids(frame).function).clone())
    }

    pub fn string(&self, id: StringId) -> &Arc<str> {
        self.symbols.string(id)
    }

    /// Names of all tasks in the stacks of any agent.
    pub fn task_names(&self) -> &BTreeSet<Arc<str>> {
        &self.task_names
    }

    /// Whether samples or counts of that task may be in `[overflow]`.
    pub fn may_be_unnamed(&self, name: &str) -> bool {
        self.has_unnamed && !self.task_names.contains(name)
    }

    /// The first-level nodes that a filter keeps, ascending.
    pub fn tops_kept(&self, filter: &Filter) -> Vec<TopNode> {
        let top = |node: &NodeId| {
            let (_, id) = self
                .trie
                .node(*node)
                .expect("the root is no first-level node");
            let frame = self.symbols.frame(id);
            filter.keeps_top(&frame).then(|| TopNode {
                node: *node,
                kind: frame.kind,
                name: self.string(self.symbols.frame_ids(id).function).clone(),
            })
        };
        self.tops.iter().filter_map(top).collect()
    }

    /// The number of times that idle names were looked for.
    pub fn generation(&self) -> u64 {
        self.used.generation()
    }

    /// Number of ids of nodes, including the root's.
    pub fn node_count(&self) -> u32 {
        self.trie.node_count()
    }

    /// Number of nodes in memory, including the root.
    pub fn held_count(&self) -> u32 {
        u32::try_from(self.trie.held_count() + 1).expect("no more than ids")
    }

    /// Whether more than half of a limit is in use.
    pub fn is_half_full(&self) -> bool {
        self.free_nodes() < self.nodes_max / 2
            || self.free_symbol_bytes() < self.symbol_bytes_max / 2
    }
}

/// Bytes of the names and frames of an empty tree: the empty string, and `[overflow]` with its frame.
fn empty_bytes() -> usize {
    2 * STRING_BYTES + FRAME_BYTES + Frame::overflow().function.len()
}

/// A first-level node: all of a task's time is at it or below.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopNode {
    pub node: NodeId,
    pub kind: FrameKind,
    pub name: Arc<str>,
}
