//! The part of the tree that one answer needs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use profiler_core::profile::{ProfileNode, Shape};
use profiler_core::{Filter, Frame, FrameId, FrameKind, NodeId, Profile, StringId, Weight};

use super::TreeLock;
use super::phases::{Level, NodeScope, PhaseFilter};
use base::id_set::{IdSet, RankedIds};
use base::sync::read;
use naming::{Addresses, Naming};
use store::rows::EXECUTE;

/// Nodes and frames that an [`Excerpt`] copies under one lock: below a millisecond.
const EXCERPT_AT_ONCE: usize = 4_096;

/// The samples that a profile keeps.
#[derive(Clone, Copy, Debug)]
pub struct SampleScope<'a> {
    pub filter: &'a Filter,
    pub phases: &'a PhaseFilter,
}

/// The levels that a profile has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProfileForm {
    /// Whether phases are a level. Otherwise the stacks below them are merged into their task.
    pub has_phases: bool,
    /// Whether the lines of a function are merged.
    pub by_function: bool,
}

/// The part of a [`Tree`](super::Tree) that some nodes need, with ids of its own: ranks among the needed ids.
/// Nothing is looked up by text, so making one costs no more than copying it.
#[derive(Debug)]
pub struct Excerpt {
    strings: Vec<Arc<str>>,
    frames: Vec<Frame<StringId>>,
    /// Parent and frame of node n + 1.
    nodes: Vec<(NodeId, FrameId)>,
    /// The tree's nodes in the excerpt, with the root. Their ranks are the excerpt's ids.
    ids: RankedIds,
    /// By frame: the frames of the functions at its address, outermost first. Empty for those that are
    /// shown as they are.
    functions: Vec<Range<u32>>,
}

impl Excerpt {
    /// Copies the `touched` nodes and their ancestors. Locks the tree for [`EXCERPT_AT_ONCE`] nodes
    /// or frames at a time, so that a dictionary never waits for a whole query.
    pub fn of(tree: &TreeLock, touched: IdSet) -> Excerpt {
        let (ids, rows) = rows_above(tree, touched);
        let frame_ids = rows
            .iter()
            .map(|(_, frame)| frame.0)
            .collect::<IdSet>()
            .ranked();
        let nodes = rows
            .into_iter()
            .rev()
            .map(|(parent, frame)| {
                (
                    NodeId(ids.place(parent.0)),
                    FrameId(frame_ids.place(frame.0)),
                )
            })
            .collect();
        let (strings, frames) = copy_frames(tree, &frame_ids);
        let functions = vec![0..0; frames.len()];
        Excerpt {
            strings,
            frames,
            nodes,
            ids,
            functions,
        }
    }

    /// The same with the names of functions that are known by now.
    pub fn named(mut self, naming: &Naming) -> Excerpt {
        let mut wanted = Addresses::new();
        for frame in self
            .frames
            .iter()
            .filter(|frame| frame.kind == FrameKind::Unresolved)
        {
            if let Some(key) = self.key_of(frame, naming) {
                wanted.entry(key).or_default().insert(frame.offset);
            }
        }
        if wanted.is_empty() {
            return self;
        }
        let names = naming.names(&wanted);
        let mut string_ids: BTreeMap<Arc<str>, StringId> = BTreeMap::new();
        for number in 0..self.frames.len() {
            let Frame {
                kind,
                module,
                build_id,
                offset,
                ..
            } = self.frames[number];
            if kind != FrameKind::Unresolved {
                continue;
            }
            let key = self.key_of(&self.frames[number], naming);
            let of_key = key.and_then(|key| names.get(&key));
            let Some(functions) = of_key.and_then(|names| names.get(&offset)) else {
                continue;
            };
            let start = self.frames.len() as u32;
            for function in &**functions {
                let texts = [&function.function, &function.file, &function.module];
                let [name, file, origin] = texts.map(|text| {
                    *string_ids.entry(text.clone()).or_insert_with(|| {
                        self.strings.push(text.clone());
                        StringId(self.strings.len() as u32 - 1)
                    })
                });
                self.frames.push(Frame {
                    kind: function.kind,
                    function: name,
                    file,
                    line: function.line,
                    module: if function.module.is_empty() {
                        module
                    } else {
                        origin
                    },
                    build_id,
                    offset: 0,
                    inlined: function.inlined,
                });
            }
            self.functions[number] = start..self.frames.len() as u32;
        }
        self
    }

    /// By what a frame without a name is looked up.
    fn key_of(&self, frame: &Frame<StringId>, naming: &Naming) -> Option<Arc<str>> {
        let [build_id, module] =
            [frame.build_id, frame.module].map(|id| &self.strings[id.0 as usize]);
        naming.key_of(build_id, module).cloned()
    }

    /// The frames that a node shows, outermost first.
    fn shown(&self, frame: FrameId) -> impl DoubleEndedIterator<Item = FrameId> + use<> {
        let functions = self
            .functions
            .get(frame.0 as usize)
            .cloned()
            .unwrap_or(0..0);
        let shown = if functions.is_empty() {
            frame.0..frame.0 + 1
        } else {
            functions
        };
        shown.map(FrameId)
    }

    /// The excerpt's id of one of the tree's nodes. The node must be in the excerpt.
    pub fn node(&self, node: NodeId) -> NodeId {
        NodeId(self.ids.place(node.0))
    }

    /// The tree's ids, by the excerpt's.
    pub fn tree_ids(&self) -> Vec<NodeId> {
        self.ids.iter().map(NodeId).collect()
    }

    /// The first-level node above each node but the root, parents first, by the tree's ids.
    pub fn tops(&self) -> Vec<NodeId> {
        let mut tops: Vec<NodeId> = Vec::with_capacity(self.nodes.len());
        for ((parent, _), id) in self.nodes.iter().zip(self.ids.iter().skip(1)) {
            tops.push(match parent.index().checked_sub(1) {
                Some(above) => tops[above],
                None => NodeId(id),
            });
        }
        tops
    }

    /// By id in the excerpt: the phase or task that a node belongs to, or the first-level node of anything
    /// else; the root's is the root.
    pub fn contexts(&self) -> Vec<NodeId> {
        let mut contexts = vec![NodeId::ROOT];
        for (id, (parent, frame)) in (1u32..).zip(&self.nodes) {
            let is_phase = self.frames[frame.0 as usize].kind == FrameKind::Phase;
            let above = contexts[parent.index()];
            let starts = *parent == NodeId::ROOT || (is_phase && above == *parent);
            contexts.push(if starts { NodeId(id) } else { above });
        }
        contexts
    }

    /// The frames from `node` out to the first level, innermost first.
    pub fn path(&self, node: NodeId) -> impl Iterator<Item = FrameId> + '_ {
        let at = |node: NodeId| node.index().checked_sub(1).map(|index| self.nodes[index]);
        std::iter::successors(at(node), move |(parent, _)| at(*parent))
            .flat_map(|(_, frame)| self.shown(frame).rev())
    }

    pub fn frame(&self, id: FrameId) -> Frame<&str> {
        let Frame {
            kind,
            function,
            file,
            line,
            module,
            build_id,
            offset,
            inlined,
        } = self.frames[id.0 as usize];
        let [function, file, module, build_id] =
            [function, file, module, build_id].map(|text| &*self.strings[text.0 as usize]);
        Frame {
            kind,
            function,
            file,
            line,
            module,
            build_id,
            offset,
            inlined,
        }
    }

    /// A profile of the samples in `scope`; `own` returns the own weight of each of the tree's nodes.
    pub fn profile(
        &self,
        scope: SampleScope<'_>,
        own: impl Fn(NodeId) -> Weight,
        form: ProfileForm,
    ) -> Profile {
        let SampleScope { filter, phases } = scope;
        let mut rows: Vec<ProfileNode> = Vec::with_capacity(self.nodes.len());
        // By our node: its row, or the row of its parent if it has none.
        let mut row_of = vec![NodeId::ROOT];
        let mut scopes = vec![NodeScope::ROOT];
        for (&(parent, frame), id) in self.nodes.iter().zip(self.ids.iter().skip(1)) {
            let kind = self.frames[frame.0 as usize].kind;
            let scope = scopes[parent.index()].below(
                kind,
                self.name(frame),
                || filter.keeps_top(&self.frame(frame)),
                phases,
            );
            let weight = if scope.is_kept {
                own(NodeId(id))
            } else {
                Weight::ZERO
            };
            let above = row_of[parent.index()];
            if is_merged(kind, scope.level, above, form) {
                rows[above.index() - 1].own += weight;
                row_of.push(above);
            } else {
                let mut row = above;
                for frame in self.shown(frame) {
                    rows.push(ProfileNode {
                        parent: row,
                        frame,
                        own: Weight::ZERO,
                    });
                    row = NodeId(u32::try_from(rows.len()).expect("inlined functions are few"));
                }
                rows[row.index() - 1].own = weight;
                row_of.push(row);
            }
            scopes.push(scope);
        }
        Profile::from_rows(&self.strings, &self.frames, rows, form.by_function)
    }

    /// The shape of such profiles, and by node of the excerpt its node in the shape; the root for
    /// none.
    pub fn shape(self, form: ProfileForm) -> (Shape, Vec<NodeId>) {
        let mut rows: Vec<(NodeId, FrameId)> = Vec::with_capacity(self.nodes.len());
        let mut row_of = vec![NodeId::ROOT];
        let mut scopes = vec![NodeScope::ROOT];
        for &(parent, frame) in &self.nodes {
            let kind = self.frames[frame.0 as usize].kind;
            let scope = scopes[parent.index()].below(kind, "", || true, &PhaseFilter::All);
            let above = row_of[parent.index()];
            if is_merged(kind, scope.level, above, form) {
                row_of.push(above);
            } else {
                let mut row = above;
                for frame in self.shown(frame) {
                    rows.push((row, frame));
                    row = NodeId(u32::try_from(rows.len()).expect("inlined functions are few"));
                }
                row_of.push(row);
            }
            scopes.push(scope);
        }
        let shape = Shape::of(self.strings, self.frames, &rows, form.by_function);
        for row in row_of.iter_mut().skip(1) {
            *row = shape.node(*row).unwrap_or(NodeId::ROOT);
        }
        (shape, row_of)
    }

    /// The phase of each node but the root, parents first; `None` outside of tasks.
    pub fn phases(&self) -> Vec<Option<&str>> {
        let mut phases: Vec<Option<&str>> = Vec::with_capacity(self.nodes.len());
        for (parent, frame) in &self.nodes {
            let kind = self.frames[frame.0 as usize].kind;
            let above = parent.index().checked_sub(1);
            let is_second = above.is_some_and(|above| self.nodes[above].0 == NodeId::ROOT);
            phases.push(match (kind, above) {
                (FrameKind::Task, None) => Some(EXECUTE),
                (FrameKind::Phase, Some(_)) if is_second => Some(self.name(*frame)),
                (_, Some(above)) => phases[above],
                (_, None) => None,
            });
        }
        phases
    }

    fn name(&self, frame: FrameId) -> &str {
        &self.strings[self.frames[frame.0 as usize].function.0 as usize]
    }
}

/// Whether a node has no row of its own, so that its time counts to the row `above` it.
fn is_merged(kind: FrameKind, level: Level, above: NodeId, form: ProfileForm) -> bool {
    match kind {
        FrameKind::Phase => level == Level::Phase && !form.has_phases,
        // Nodes of threads hold time by thread. No sample has one, unless an agent is faulty.
        FrameKind::Thread => above != NodeId::ROOT,
        _ => false,
    }
}

/// The needed nodes with the root; and parent and frame of all but the root, children first.
fn rows_above(tree: &TreeLock, mut needed: IdSet) -> (RankedIds, Vec<(NodeId, FrameId)>) {
    let mut rows = Vec::new();
    needed.insert(NodeId::ROOT.0);
    let mut end = u32::MAX;
    while end > 1 {
        let tree = read(tree);
        let until = rows.len() + EXCERPT_AT_ONCE;
        while end > 1 && rows.len() < until {
            end = needed.last_below(end).unwrap_or(NodeId::ROOT.0);
            if let Some((parent, frame)) = tree.row(NodeId(end)) {
                needed.insert(parent.0);
                rows.push((parent, frame));
            }
        }
    }
    (needed.ranked(), rows)
}

/// The frames, and the strings that they need, renumbered.
fn copy_frames(tree: &TreeLock, ids: &RankedIds) -> (Vec<Arc<str>>, Vec<Frame<StringId>>) {
    let ids: Vec<u32> = ids.iter().collect();
    let mut frames: Vec<Frame<StringId>> = Vec::with_capacity(ids.len());
    for piece in ids.chunks(EXCERPT_AT_ONCE) {
        let tree = read(tree);
        frames.extend(
            piece
                .iter()
                .map(|id| tree.symbols.frame_ids(FrameId(*id)).clone()),
        );
    }
    let string_ids = frames
        .iter()
        .flat_map(|frame: &Frame<StringId>| {
            [frame.function, frame.file, frame.module, frame.build_id].map(|text| text.0)
        })
        .collect::<IdSet>()
        .ranked();
    let ids: Vec<u32> = string_ids.iter().collect();
    let mut strings = Vec::with_capacity(ids.len());
    for piece in ids.chunks(EXCERPT_AT_ONCE) {
        let tree = read(tree);
        strings.extend(
            piece
                .iter()
                .map(|id| tree.symbols.string(StringId(*id)).clone()),
        );
    }
    for frame in &mut frames {
        let Frame {
            function,
            file,
            module,
            build_id,
            ..
        } = frame;
        for text in [function, file, module, build_id] {
            *text = StringId(string_ids.place(text.0));
        }
    }
    (strings, frames)
}
