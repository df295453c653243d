//! An agent's own tables: the parts of the program that it has met, in the order of meeting them.

use profiler_core::NodeId;
use profiler_core::wire::Marks;
use profiler_core::wire::v1::{self, FrameKind};

use crate::program::Program;

/// Positions of the program's entries in the agent's tables. `u32::MAX` marks entries not met yet.
#[derive(Debug)]
pub(crate) struct Dictionary {
    strings: Table,
    frames: Table,
    nodes: Table,
}

#[derive(Debug)]
struct Table {
    own_of: Vec<u32>,
    /// The program's index of each entry of the agent.
    order: Vec<u32>,
}

const UNMET: u32 = u32::MAX;

impl Table {
    /// `first`: whether entry 0 exists from the beginning.
    fn new(length: usize, first: bool) -> Table {
        let mut table = Table {
            own_of: vec![UNMET; length],
            order: Vec::new(),
        };
        if first {
            table.meet(0);
        }
        table
    }

    fn meet(&mut self, index: u32) -> u32 {
        let count = self.count();
        let own = &mut self.own_of[index as usize];
        if *own == UNMET {
            *own = count;
            self.order.push(index);
        }
        self.own_of[index as usize]
    }

    fn own(&self, index: u32) -> u32 {
        let own = self.own_of[index as usize];
        assert!(own != UNMET, "references precede the entry");
        own
    }

    fn count(&self) -> u32 {
        u32::try_from(self.order.len()).expect("programs are small")
    }
}

impl Dictionary {
    pub(crate) fn new(program: &Program) -> Dictionary {
        let mut frames = Table::new(program.frames.len(), false);
        let threads = program
            .frames
            .iter()
            .rposition(|frame| frame.kind == FrameKind::Thread);
        if let Some(threads) = threads {
            frames.meet(u32::try_from(threads).expect("programs are small"));
        }
        Dictionary {
            strings: Table::new(program.strings.len(), true),
            frames,
            nodes: Table::new(program.nodes.len(), true),
        }
    }

    /// Returns the agent's id of a node of the program, which it has now met.
    pub(crate) fn node(&mut self, program: &Program, node: NodeId) -> u32 {
        let own = self.nodes.own_of[node.index()];
        if own != UNMET {
            return own;
        }
        let (parent, frame) = program.nodes[node.index()];
        self.node(program, parent);
        let names = program.frames[frame as usize];
        self.strings.meet(names.function);
        self.strings.meet(names.file);
        self.frames.meet(frame);
        self.nodes.meet(node.0)
    }

    /// The agent's index of a string of the program.
    pub(crate) fn string(&mut self, index: u32) -> u32 {
        self.strings.meet(index)
    }

    /// The program's node for a node of the agent.
    pub(crate) fn program_node(&self, own: u32) -> NodeId {
        NodeId(self.nodes.order[own as usize])
    }

    pub(crate) fn marks(&self) -> Marks {
        Marks {
            strings: self.strings.count(),
            frames: self.frames.count(),
            nodes: self.nodes.count(),
        }
    }

    /// Encodes the entries after `held`, up to `strings_max` strings and about as many bytes of the
    /// others, and advances `held`; `None` if there are none.
    pub(crate) fn since(
        &self,
        program: &Program,
        held: &mut Marks,
        strings_max: usize,
    ) -> Option<v1::Dictionary> {
        let end = self.marks();
        if *held == end {
            return None;
        }
        let mut message = v1::Dictionary {
            string_base: held.strings,
            frame_base: held.frames,
            node_base: held.nodes,
            ..v1::Dictionary::default()
        };
        let strings = next(&self.strings, &mut held.strings, strings_max);
        message.strings = strings
            .iter()
            .map(|at| program.strings[*at as usize].clone())
            .collect();
        // Entries that refer to a string are sent only once all strings are.
        if held.strings == end.strings {
            for at in next(&self.frames, &mut held.frames, 2 * strings_max) {
                let frame = program.frames[*at as usize];
                message.frames.push(v1::Frame {
                    kind: frame.kind.into(),
                    function: self.strings.own(frame.function),
                    file: self.strings.own(frame.file),
                    line: frame.line,
                    ..v1::Frame::default()
                });
            }
        }
        if held.strings == end.strings && held.frames == end.frames {
            let first = held.nodes;
            for (own, at) in (first..).zip(next(&self.nodes, &mut held.nodes, 8 * strings_max)) {
                let (parent, frame) = program.nodes[*at as usize];
                message
                    .node_parent_gaps
                    .push(own - self.nodes.own(parent.0));
                message.node_frames.push(self.frames.own(frame));
            }
        }
        Some(message)
    }
}

/// The program's indices of the agent's entries after `held`, which is advanced.
fn next<'a>(table: &'a Table, held: &mut u32, entries_max: usize) -> &'a [u32] {
    let rest = &table.order[*held as usize..];
    let part = &rest[..rest.len().min(entries_max)];
    *held += u32::try_from(part.len()).expect("programs are small");
    part
}

#[cfg(test)]
mod tests {
    use profiler_core::wire::Translation;
    use profiler_core::{CallTrie, SymbolTable};

    use super::*;
    use crate::program::Shape;
    use crate::random::Random;

    #[test]
    fn a_collector_rebuilds_the_program_from_the_pieces() {
        let shape = Shape {
            tasks: 4,
            stacks_per_task: 30,
            idle: 3,
            depths: 3..=12,
        };
        let program = Program::generate(shape, &mut Random(1));
        for strings_max in [1, 7, 10_000] {
            let mut dictionary = Dictionary::new(&program);
            let mut symbols = SymbolTable::new();
            let mut trie = CallTrie::new(100_000);
            let mut translation = Translation::default();
            let mut held = Marks::default();
            for task in program.tasks.iter().rev() {
                for leaf in &task.leaves {
                    let own = dictionary.node(&program, *leaf);
                    while let Some(piece) = dictionary.since(&program, &mut held, strings_max) {
                        translation.apply(&piece, &mut symbols, &mut trie).unwrap();
                    }
                    let node = translation.node(NodeId(own)).unwrap();
                    let mut labels: Vec<_> = trie
                        .path(node)
                        .map(|frame| symbols.frame(frame).label())
                        .collect();
                    labels.reverse();
                    assert_eq!(labels, program.path(*leaf));
                }
            }
            assert_eq!(translation.marks(), dictionary.marks());
        }
    }
}
