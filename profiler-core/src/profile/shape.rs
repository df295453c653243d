//! The shape of a tree: the part that all its profiles share, so that each profile costs only its
//! own nodes.

use std::sync::Arc;

use super::form::{self, Children, Cut, Frames};
use super::{Profile, ProfileNode};
use crate::{Frame, FrameId, NodeId, StringId, Weight};

/// A normalized tree without weights: siblings sorted by frame, equal ones merged. Profiles of
/// parts of it need no text comparisons, which otherwise take most of the time.
#[derive(Clone, Debug)]
pub struct Shape {
    strings: Vec<Arc<str>>,
    frames: Vec<Frame<StringId>>,
    /// Parent and frame; node `NodeId(n)` is at `n - 1`.
    nodes: Vec<(NodeId, FrameId)>,
    /// By source row: the node that it is part of; the root if it was removed.
    of_row: Vec<NodeId>,
}

impl Shape {
    /// Builds the shape of the tree of `rows` (parent and frame), as [`Profile::from_rows`] takes
    /// them.
    ///
    /// # Panics
    /// If a row names a node, frame or text that does not exist.
    #[must_use]
    pub fn of(
        strings: Vec<Arc<str>>,
        mut frames: Vec<Frame<StringId>>,
        rows: &[(NodeId, FrameId)],
        by_function: bool,
    ) -> Shape {
        let mut rows: Vec<ProfileNode> = rows
            .iter()
            .map(|(parent, frame)| ProfileNode {
                parent: *parent,
                frame: *frame,
                own: Weight::ZERO,
            })
            .collect();
        if by_function {
            let (functions, of_frame) = form::functions(&frames);
            rows.iter_mut()
                .for_each(|row| row.frame = of_frame[row.frame.0 as usize]);
            frames = functions;
        }
        let numbered = Frames {
            strings: &strings,
            frames: &frames,
        };
        let ranks = form::ranks(numbered, &rows);
        let (mut nodes, mut of_row) = merged(&rows, &ranks);
        let cut = by_function
            .then(|| form::cut_runtime(numbered, &nodes))
            .flatten();
        if let Some(Cut {
            rows,
            of_row: of_node,
        }) = cut
        {
            let (cut, of_cut) = merged(&rows, &ranks);
            for node in &mut of_row {
                let index = of_node[node.index() - 1].index().checked_sub(1);
                *node = index.map_or(NodeId::ROOT, |index| of_cut[index]);
            }
            nodes = cut;
        }
        let nodes = nodes.iter().map(|node| (node.parent, node.frame)).collect();
        Shape {
            strings,
            frames,
            nodes,
            of_row,
        }
    }

    /// The node that a row became part of. `None` for a runtime frame, which has a node only where
    /// it has time of its own.
    ///
    /// # Panics
    /// If the row does not exist.
    #[must_use]
    pub fn node(&self, row: NodeId) -> Option<NodeId> {
        let node = self.of_row[row.index() - 1];
        (node != NodeId::ROOT).then_some(node)
    }

    /// Builds the profile of these weights, by node of this shape. A node may appear several times.
    ///
    /// # Panics
    /// If a node does not exist.
    #[must_use]
    pub fn profile(&self, weights: &[(NodeId, Weight)]) -> Profile {
        let weights = || weights.iter().filter(|(_, weight)| !weight.is_zero());
        let mut needed = Bitmap::new(self.nodes.len());
        for (node, _) in weights() {
            let mut at = *node;
            while at != NodeId::ROOT && needed.mark(at) {
                at = self.nodes[at.index() - 1].0;
            }
        }
        let needed = needed.ranked();
        let node = |id: NodeId| {
            let (parent, frame) = self.nodes[id.index() - 1];
            ProfileNode {
                parent: needed.rank(parent),
                frame,
                own: Weight::ZERO,
            }
        };
        let mut nodes: Vec<ProfileNode> = needed.ids().map(node).collect();
        for (node, weight) in weights() {
            nodes[needed.rank(*node).index() - 1].own += *weight;
        }
        form::profile_of(
            Frames {
                strings: &self.strings,
                frames: &self.frames,
            },
            nodes,
        )
    }
}

/// All rows normalized, and the node that each became part of.
fn merged(rows: &[ProfileNode], ranks: &[u32]) -> (Vec<ProfileNode>, Vec<NodeId>) {
    let mut of_row = vec![NodeId::ROOT; rows.len()];
    let children = Children::of(rows, ranks, true);
    let nodes = form::merged_with(rows, children, |row, node| of_row[row.index() - 1] = node);
    (nodes, of_row)
}

/// A set of nodes as a bitmap.
struct Bitmap(Vec<u64>);

const WORD: u32 = u64::BITS;

impl Bitmap {
    fn new(nodes: usize) -> Bitmap {
        Bitmap(vec![0; nodes / WORD as usize + 1])
    }

    /// Bitmap a node; returns whether it was unmarked before.
    fn mark(&mut self, node: NodeId) -> bool {
        let word = &mut self.0[(node.0 / WORD) as usize];
        let before = std::mem::replace(word, *word | 1 << (node.0 % WORD));
        before != *word
    }

    fn ranked(self) -> Ranked {
        let mut count = 0;
        let before = self.0.iter().map(|word| {
            count += word.count_ones();
            count - word.count_ones()
        });
        Ranked {
            before: before.collect(),
            bitmap: self,
        }
    }
}

/// The same set with each node's rank.
struct Ranked {
    bitmap: Bitmap,
    /// By word: number of marked nodes before it.
    before: Vec<u32>,
}

impl Ranked {
    /// Rank from 1 in rising order; the root's is 0, because it is never marked.
    fn rank(&self, node: NodeId) -> NodeId {
        let word = (node.0 / WORD) as usize;
        let bit = node.0 % WORD;
        let upto = self.bitmap.0[word] & (u64::MAX >> (WORD - 1 - bit));
        NodeId(if node == NodeId::ROOT {
            0
        } else {
            self.before[word] + upto.count_ones()
        })
    }

    fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0u32..)
            .step_by(WORD as usize)
            .zip(&self.bitmap.0)
            .flat_map(|(start, word)| {
                let rest = std::iter::successors(Some(*word), |bits| {
                    bits.checked_sub(1).map(|below| bits & below)
                });
                let bits = rest.take_while(|bits| *bits != 0);
                bits.map(move |bits| NodeId(start + bits.trailing_zeros()))
            })
    }
}
