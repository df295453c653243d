//! The names and stacks of one series, as an agent keeps its own: they are sent once.

use std::collections::HashMap;

use import::{Imported, ImportedSample};
use profiler_core::limits::MESSAGE_BYTES_TARGET;
use profiler_core::wire::{Marks, dictionary_since, encode_cycle, encode_weights, v1};
use profiler_core::{CallTrie, Delta, NodeId, SymbolTable, TimeRange};

use base::limits::{PUSHED_NODES_MAX, PUSHED_TABLES_BYTES_MAX};

/// Memory of a frame and of a node, besides texts.
const FRAME_BYTES: usize = 128;
const NODE_BYTES: usize = 32;

/// Most samples of one flush: at most half of the largest message, at up to 15 bytes each in two lists.
const FLUSH_SAMPLES_MAX: usize = 1 << 15;

/// The names and stacks that a series ever had.
#[derive(Debug)]
pub(super) struct Tables {
    symbols: SymbolTable,
    trie: CallTrie,
    /// Number of them that the collector's session has.
    held: Marks,
    text_bytes: usize,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables {
            symbols: SymbolTable::new(),
            trie: CallTrie::new(PUSHED_NODES_MAX),
            held: Marks::default(),
            text_bytes: 0,
        }
    }
}

impl Tables {
    /// Whether the series should start over with empty tables.
    pub(super) fn is_full(&self) -> bool {
        self.trie.node_count() as usize >= PUSHED_NODES_MAX / 2
            || self.bytes() >= PUSHED_TABLES_BYTES_MAX
    }

    fn bytes(&self) -> usize {
        let frames = self.symbols.frame_count() as usize * FRAME_BYTES;
        let nodes = self.trie.node_count() as usize * NODE_BYTES;
        self.text_bytes + frames + nodes
    }

    /// Adds the stacks of the samples with these labels. Returns the samples in terms of the tables.
    pub(super) fn add(&mut self, imported: &Imported, labels: u16) -> Vec<ImportedSample> {
        let mut known = HashMap::from([(NodeId::ROOT, NodeId::ROOT)]);
        let samples = imported
            .samples
            .iter()
            .filter(|sample| sample.labels == labels);
        let translated = samples.map(|sample| ImportedSample {
            node: self.node(imported, sample.node, &mut known),
            thread: self.node(imported, sample.thread, &mut known),
            ..*sample
        });
        translated.collect()
    }

    fn node(
        &mut self,
        imported: &Imported,
        theirs: NodeId,
        known: &mut HashMap<NodeId, NodeId>,
    ) -> NodeId {
        let mut missing = Vec::new();
        let mut above = theirs;
        while !known.contains_key(&above) {
            let Some((parent, frame)) = imported.trie.node(above) else {
                break;
            };
            missing.push((above, frame));
            above = parent;
        }
        let mut node = known[&above];
        for (theirs, frame) in missing.into_iter().rev() {
            let frame = imported.symbols.frame(frame);
            let strings = self.symbols.string_count();
            let id = self.symbols.intern(&frame);
            if self.symbols.string_count() > strings {
                let texts = [frame.function, frame.file, frame.module, frame.build_id];
                self.text_bytes += texts.map(str::len).iter().sum::<usize>();
            }
            node = self.trie.insert_or_overflow(node, id, &mut self.symbols);
            known.insert(theirs, node);
        }
        node
    }

    /// The next names and stacks that the session lacks.
    pub(super) fn dictionary(&mut self) -> Option<v1::Dictionary> {
        dictionary_since(
            &self.symbols,
            &self.trie,
            &mut self.held,
            MESSAGE_BYTES_TARGET,
        )
    }
}

/// The samples of `range`. Those of a large profile are divided over it.
pub(super) fn parts(samples: &[ImportedSample], range: TimeRange) -> Vec<Part> {
    let chunks = samples.chunks(FLUSH_SAMPLES_MAX);
    let count = chunks.len() as u64;
    let at = |number: u64| {
        let offset_ns = u128::from(range.length_ns()) * u128::from(number) / u128::from(count);
        range
            .start()
            .shifted(i64::try_from(offset_ns).unwrap_or(i64::MAX))
    };
    chunks
        .zip(0..)
        .map(|(chunk, number): (&[ImportedSample], u64)| {
            let range = TimeRange::new(at(number), at(number + 1)).unwrap_or(range);
            let weight_ns = chunk.iter().map(|sample| sample.nanoseconds).sum();
            Part {
                cycle: cycle(chunk, range),
                weight_ns,
                samples: chunk.len(),
            }
        })
        .collect()
}

/// A part of the samples, for a flush of its own.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) cycle: v1::Cycle,
    pub(super) weight_ns: u64,
    pub(super) samples: usize,
}

fn cycle(samples: &[ImportedSample], range: TimeRange) -> v1::Cycle {
    let quantum_ns = samples
        .iter()
        .map(|sample| sample.nanoseconds)
        .fold(0, greatest_divisor);
    let threads = encode_weights(&sums(samples, |sample| sample.thread), quantum_ns);
    let cycle = encode_cycle(&sums(samples, |sample| sample.node), range, quantum_ns);
    v1::Cycle { threads, ..cycle }
}

fn sums(samples: &[ImportedSample], node: fn(&ImportedSample) -> NodeId) -> Delta {
    samples
        .iter()
        .map(|sample: &ImportedSample| (node(sample), sample.state, sample.nanoseconds))
        .collect()
}

fn greatest_divisor(a: u64, b: u64) -> u64 {
    let [mut a, mut b] = [a, b];
    while b > 0 {
        [a, b] = [b, a % b];
    }
    a
}
