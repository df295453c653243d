//! The strings, frames and nodes of the tree that were looked up or added lately.

use std::sync::atomic::{AtomicU64, Ordering};

use profiler_core::wire::{Marks, ReceiverId, Translation};
use profiler_core::{CallTrie, FrameId, NodeId, StringId, SymbolTable};

/// Marks of the present generation and of the one before. Readers of the tree set them.
#[derive(Debug, Default)]
pub(super) struct Used {
    strings: Generations,
    frames: Generations,
    nodes: Generations,
    generation: u64,
}

#[derive(Debug, Default)]
struct Generations {
    now: Vec<AtomicU64>,
    before: Vec<AtomicU64>,
}

impl Used {
    /// Makes room for that many ids of strings, frames and nodes.
    pub(super) fn reserve(&mut self, [strings, frames, nodes]: [u32; 3]) {
        self.strings.reserve(strings);
        self.frames.reserve(frames);
        self.nodes.reserve(nodes);
    }

    /// Marks all that a sender got after `marks`.
    pub(super) fn note(&self, translation: &Translation, marks: Marks) {
        translation.each_since(marks, |id| match id {
            ReceiverId::String(id) => self.strings.mark(id.0),
            ReceiverId::Frame(id) => self.frames.mark(id.0),
            ReceiverId::Node(id) => self.nodes.mark(id.0),
        });
    }

    pub(super) fn mark_string(&self, id: StringId) {
        self.strings.mark(id.0);
    }

    pub(super) fn mark_frame(&self, id: FrameId) {
        self.frames.mark(id.0);
    }

    pub(super) fn mark_node(&self, id: NodeId) {
        self.nodes.mark(id.0);
    }

    /// Marks a frame with its strings.
    pub(super) fn note_frame(&self, symbols: &SymbolTable, id: FrameId) {
        self.frames.mark(id.0);
        let frame = symbols.frame_ids(id);
        for text in [frame.function, frame.file, frame.module, frame.build_id] {
            self.strings.mark(text.0);
        }
    }

    /// Marks a node with its frame.
    pub(super) fn note_node(&self, symbols: &SymbolTable, trie: &CallTrie, id: NodeId) {
        self.nodes.mark(id.0);
        if let Some((_, frame)) = trie
            .node(id)
            .filter(|(_, frame)| symbols.holds_frame(*frame))
        {
            self.note_frame(symbols, frame);
        }
    }

    pub(super) fn has_string(&self, id: StringId) -> bool {
        self.strings.has(id.0)
    }

    pub(super) fn has_frame(&self, id: FrameId) -> bool {
        self.frames.has(id.0)
    }

    pub(super) fn has_node(&self, id: NodeId) -> bool {
        self.nodes.has(id.0)
    }

    /// Forgets the marks of the generation before the present one, and starts the next.
    pub(super) fn start_generation(&mut self) {
        let tables = [&mut self.strings, &mut self.frames, &mut self.nodes];
        tables.into_iter().for_each(Generations::start);
        self.generation += 1;
    }

    /// The number of generations before the present one.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }
}

const WORD: u32 = u64::BITS;

impl Generations {
    fn reserve(&mut self, ids: u32) {
        let words = ids.div_ceil(WORD) as usize;
        if words > self.now.len() {
            self.now.resize_with(words, AtomicU64::default);
        }
    }

    fn mark(&self, id: u32) {
        let bit = 1 << (id % WORD);
        let Some(word) = self.now.get((id / WORD) as usize) else {
            return;
        };
        // Most are marked already, and a write would take the line from other readers.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn has(&self, id: u32) -> bool {
        [&self.now, &self.before].into_iter().any(|words| {
            let word = words.get((id / WORD) as usize);
            word.is_some_and(|word| word.load(Ordering::Relaxed) >> (id % WORD) & 1 == 1)
        })
    }

    fn start(&mut self) {
        std::mem::swap(&mut self.now, &mut self.before);
        let words = self.before.len().max(self.now.len());
        self.now.clear();
        self.now.resize_with(words, AtomicU64::default);
    }
}
