//! Difference between a profile and an earlier one of the same process.

use std::collections::HashMap;

use profiler_core::{CallTrie, NodeId, SymbolTable};

use super::limits::NODES_MAX;
use super::model::{Imported, ImportedSample};

impl Imported {
    /// Subtracts an earlier profile whose counters are part of this one's. Sums that would be below 0 are removed,
    /// because a process that started over counts from 0.
    pub fn subtract(&mut self, earlier: &Imported) {
        let mut nodes = vec![NodeId::ROOT];
        for id in (1..earlier.trie.node_count()).map(NodeId) {
            let (parent, frame) = earlier.trie.node(id).expect("ids are below the count");
            let frame = self.symbols.intern(&earlier.symbols.frame(frame));
            let parent = nodes[parent.0 as usize];
            nodes.push(
                self.trie
                    .insert_or_overflow(parent, frame, &mut self.symbols),
            );
        }
        let label_set = |labels: u16| {
            let labels = &earlier.label_sets[usize::from(labels)];
            self.label_sets.iter().position(|known| known == labels)
        };
        let mut weights: HashMap<_, u64> = HashMap::new();
        for sample in &earlier.samples {
            let ImportedSample {
                second,
                node,
                state,
                thread,
                nanoseconds,
                labels,
            } = *sample;
            let [node, thread] = [node, thread].map(|node| nodes[node.0 as usize]);
            if let Some(labels) = label_set(labels) {
                let key = (second, node, state as u8, thread, labels);
                *weights.entry(key).or_default() += nanoseconds;
            }
        }
        self.samples.retain_mut(|sample| {
            let ImportedSample {
                second,
                node,
                state,
                thread,
                labels,
                ..
            } = *sample;
            let key = (second, node, state as u8, thread, usize::from(labels));
            let earlier_ns = weights.get(&key).copied().unwrap_or(0);
            sample.nanoseconds = sample.nanoseconds.saturating_sub(earlier_ns);
            sample.nanoseconds > 0
        });
        self.keep_used();
    }

    /// Drops the names and stacks that no sample has, so that nobody stores them. The others keep their order.
    fn keep_used(&mut self) {
        let count = self.trie.node_count();
        let mut is_used = vec![false; count as usize];
        let used = self
            .samples
            .iter()
            .flat_map(|sample| [sample.node, sample.thread]);
        for node in used {
            let mut above = node;
            while !std::mem::replace(&mut is_used[above.index()], true) {
                above = self.trie.node(above).map_or(above, |(parent, _)| parent);
            }
        }
        let mut symbols = SymbolTable::new();
        let mut trie = CallTrie::new(NODES_MAX);
        let mut kept = vec![NodeId::ROOT; count as usize];
        for id in (1..count).map(NodeId).filter(|id| is_used[id.index()]) {
            let (parent, frame) = self.trie.node(id).expect("ids are below the count");
            let frame = symbols.intern(&self.symbols.frame(frame));
            kept[id.index()] = trie.insert_past_limit(kept[parent.index()], frame);
        }
        for sample in &mut self.samples {
            sample.node = kept[sample.node.index()];
            sample.thread = kept[sample.thread.index()];
        }
        self.symbols = symbols;
        self.trie = trie;
    }
}
