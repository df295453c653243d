//! Normalizes the rows of a tree into a profile: no empty branches, depth-first order, siblings
//! sorted by frame, equal siblings merged.
//!
//! Frames stay numbers until the last step. The first design interned each frame's texts at every
//! step (merging lines, cutting the runtime, normalizing): 15 ms for 20,000 nodes; this takes a
//! fifth.

use std::sync::Arc;

use crate::hash::KeyedMap;

use super::{Profile, ProfileNode, node_id};
use crate::{Frame, FrameId, FrameKind, NodeId, StringId};

/// The standard library calls this around a thread's first function, so that backtraces can omit
/// the frames above it.
const LAST_OF_RUNTIME: &str = "__rust_begin_short_backtrace";

/// Frames and their texts, by index.
#[derive(Clone, Copy)]
pub(crate) struct Frames<'a> {
    pub(crate) strings: &'a [Arc<str>],
    pub(crate) frames: &'a [Frame<StringId>],
}

impl<'a> Frames<'a> {
    fn text(&self, id: StringId) -> &'a Arc<str> {
        &self.strings[id.0 as usize]
    }
}

/// Builds a profile from rows. Parents come before their children; node `NodeId(n)` is row `n - 1`.
pub(super) fn formed(frames: Frames<'_>, rows: &[ProfileNode]) -> Profile {
    profile_of(frames, merged(rows, &ranks(frames, rows)))
}

/// The same, merging the lines of a function and the unresolved addresses of a module.
pub(super) fn formed_by_function(frames: Frames<'_>, mut rows: Vec<ProfileNode>) -> Profile {
    let (functions, of_frame) = functions(frames.frames);
    let frames = Frames {
        frames: &functions,
        ..frames
    };
    for row in &mut rows {
        row.frame = of_frame[row.frame.0 as usize];
    }
    let ranks = ranks(frames, &rows);
    let rows = merged(&rows, &ranks);
    let rows = match cut_runtime(frames, &rows) {
        Some(Cut { rows, .. }) => merged(&rows, &ranks),
        None => rows,
    };
    profile_of(frames, rows)
}

/// Rows without the runtime's frames.
pub(super) struct Cut {
    /// Not normalized yet.
    pub(super) rows: Vec<ProfileNode>,
    /// By old row: its new row; the root if it was removed.
    pub(super) of_row: Vec<NodeId>,
}

/// Removes the rows between a thread's root and its first function; `None` if there are none.
pub(super) fn cut_runtime(frames: Frames<'_>, rows: &[ProfileNode]) -> Option<Cut> {
    let is_last = |frame: &Frame<StringId>| frames.text(frame.function).contains(LAST_OF_RUNTIME);
    let is_last: Vec<bool> = frames.frames.iter().map(is_last).collect();
    if !rows.iter().any(|row| is_last[row.frame.0 as usize]) {
        return None;
    }
    let mut cut = Vec::with_capacity(rows.len());
    let mut of_row = Vec::with_capacity(rows.len());
    // By node: the parent of its children in the new tree, the task or phase above it, and whether
    // it is below such a frame. Only the outermost such frame is the thread's own; threads that the
    // program itself starts deeper keep theirs.
    let mut kept = vec![(NodeId::ROOT, NodeId::ROOT, false)];
    for row in rows {
        let (above, top, below) = kept[row.parent.index()];
        let last = is_last[row.frame.0 as usize];
        kept.push(if last && !below && row.own.is_zero() {
            of_row.push(NodeId::ROOT);
            (top, top, true)
        } else {
            cut.push(ProfileNode {
                parent: above,
                ..*row
            });
            let id = node_id(cut.len());
            of_row.push(id);
            let is_phase = frames.frames[row.frame.0 as usize].kind == FrameKind::Phase;
            let is_top = row.parent == NodeId::ROOT || (is_phase && above == top);
            (id, if is_top { id } else { top }, below || last)
        });
    }
    Some(Cut { rows: cut, of_row })
}

/// Removes the phases of tasks and adds their own time to the parent; `None` if there are none. The
/// result is not normalized.
pub(super) fn cut_phases(frames: Frames<'_>, rows: &[ProfileNode]) -> Option<Vec<ProfileNode>> {
    let is_phase = |row: &ProfileNode| frames.frames[row.frame.0 as usize].kind == FrameKind::Phase;
    if !rows.iter().any(is_phase) {
        return None;
    }
    let mut cut: Vec<ProfileNode> = Vec::with_capacity(rows.len());
    // By node: its replacement, and whether it is at the first level, where phases are below.
    let mut kept = vec![(NodeId::ROOT, false)];
    for row in rows {
        let (above, is_below_top) = kept[row.parent.index()];
        kept.push(if is_below_top && is_phase(row) {
            cut[above.index() - 1].own += row.own;
            (above, false)
        } else {
            cut.push(ProfileNode {
                parent: above,
                ..*row
            });
            (node_id(cut.len()), row.parent == NodeId::ROOT)
        });
    }
    Some(cut)
}

/// The distinct functions of frames, and the function of each frame.
pub(super) fn functions(frames: &[Frame<StringId>]) -> (Vec<Frame<StringId>>, Vec<FrameId>) {
    let mut functions = Vec::new();
    let mut known = KeyedMap::default();
    let of_frame = frames
        .iter()
        .map(|frame| {
            let function = Frame {
                line: 0,
                offset: 0,
                inlined: false,
                ..frame.clone()
            };
            let next = FrameId(u32::try_from(functions.len()).expect("no more than frames"));
            *known.entry(function).or_insert_with_key(|function| {
                functions.push(function.clone());
                next
            })
        })
        .collect();
    (functions, of_frame)
}

/// By frame: its rank in the order of the frames that rows use.
pub(super) fn ranks(frames: Frames<'_>, rows: &[ProfileNode]) -> Vec<u32> {
    let mut is_used = vec![false; frames.frames.len()];
    for row in rows {
        is_used[row.frame.0 as usize] = true;
    }
    let mut used: Vec<usize> = (0..is_used.len()).filter(|frame| is_used[*frame]).collect();
    used.sort_by_cached_key(|frame| {
        let Frame {
            kind,
            function,
            file,
            line,
            module,
            build_id,
            offset,
            inlined,
        } = frames.frames[*frame];
        let [function, file, module, build_id] =
            [function, file, module, build_id].map(|text| &**frames.text(text));
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
    });
    let mut ranks = vec![0; is_used.len()];
    for (rank, frame) in (0..).zip(used) {
        ranks[frame] = rank;
    }
    ranks
}

/// Merges rows of equal frames below one parent: depth first, siblings by rank, without rows that
/// have no weight in their subtree.
fn merged(rows: &[ProfileNode], ranks: &[u32]) -> Vec<ProfileNode> {
    merged_with(rows, Children::of(rows, ranks, false), |_, _| {})
}

/// The same for these children; calls `visit` with each row and the node that it became part of.
pub(super) fn merged_with(
    rows: &[ProfileNode],
    children: Children,
    mut visit: impl FnMut(NodeId, NodeId),
) -> Vec<ProfileNode> {
    let row = |id: u32| &rows[id as usize - 1];
    let rank = |id: u32| children.ranks[id as usize];
    let mut nodes = Vec::with_capacity(children.order.len());
    // Rows that become one node are adjacent here, and each row appears once.
    let mut members: Vec<u32> = Vec::with_capacity(children.order.len());
    // Nodes still to be written: the range of their members, and their parent.
    let mut waiting: Vec<(usize, usize, NodeId)> = Vec::new();
    let expand = |members: &[u32], waiting: &mut Vec<_>, from: usize, this: NodeId| {
        let mut stop = members.len();
        // Pushes the last sibling first, so that a stack pops them in order.
        for index in (from..members.len()).rev() {
            if index == from || rank(members[index - 1]) != rank(members[index]) {
                waiting.push((index, stop, this));
                stop = index;
            }
        }
    };
    members.extend_from_slice(children.below(NodeId::ROOT));
    expand(&members, &mut waiting, 0, NodeId::ROOT);
    while let Some((start, stop, parent)) = waiting.pop() {
        let ProfileNode { frame, mut own, .. } = *row(members[start]);
        members[start + 1..stop]
            .iter()
            .for_each(|id| own += row(*id).own);
        nodes.push(ProfileNode { parent, frame, own });
        members[start..stop]
            .iter()
            .for_each(|id| visit(NodeId(*id), node_id(nodes.len())));
        let from = members.len();
        for index in start..stop {
            members.extend_from_slice(children.below(NodeId(members[index])));
        }
        if stop - start > 1 {
            members[from..].sort_unstable_by_key(|id| rank(*id));
        }
        expand(&members, &mut waiting, from, node_id(nodes.len()));
    }
    nodes
}

/// Ids of the rows with weight in their subtree, by parent and rank.
pub(super) struct Children {
    order: Vec<u32>,
    /// The children of a parent are at starts[parent]..starts[parent + 1].
    starts: Vec<u32>,
    /// By id.
    ranks: Vec<u32>,
}

impl Children {
    /// `all` includes rows without weight.
    pub(super) fn of(rows: &[ProfileNode], ranks: &[u32], all: bool) -> Children {
        let mut needed = vec![all; rows.len() + 1];
        for (index, row) in rows.iter().enumerate().rev() {
            let id = index + 1;
            needed[id] |= !row.own.is_zero();
            needed[row.parent.index()] |= needed[id];
        }
        let ids = (1u32..)
            .zip(rows)
            .filter(|(id, _)| needed[*id as usize])
            .map(|(id, _)| id);
        let rank = |row: &ProfileNode| ranks[row.frame.0 as usize];
        let ranks: Vec<u32> = std::iter::once(0).chain(rows.iter().map(rank)).collect();
        // Two counting sorts: cheaper than sorting siblings, because most parents have one or two.
        let rank_count = ranks.iter().max().map_or(0, |rank| *rank as usize + 1);
        let (by_rank, _) = counting_sort(ids.clone(), |id| ranks[id as usize], rank_count);
        let (order, starts) = counting_sort(
            by_rank.iter().copied(),
            |id: u32| rows[id as usize - 1].parent.0,
            rows.len() + 1,
        );
        Children {
            order,
            starts,
            ranks,
        }
    }

    fn below(&self, parent: NodeId) -> &[u32] {
        let [start, stop] = [parent.index(), parent.index() + 1].map(|at| self.starts[at] as usize);
        &self.order[start..stop]
    }
}

/// Sorts ids by a key below `keys`, stably; returns them with the start of each key.
fn counting_sort(
    ids: impl Iterator<Item = u32> + Clone,
    key: impl Fn(u32) -> u32,
    keys: usize,
) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0u32; keys + 1];
    for id in ids.clone() {
        starts[key(id) as usize + 1] += 1;
    }
    for index in 1..starts.len() {
        starts[index] += starts[index - 1];
    }
    let mut next = starts.clone();
    let mut order = vec![0; starts[keys] as usize];
    for id in ids {
        let slot = &mut next[key(id) as usize];
        order[*slot as usize] = id;
        *slot += 1;
    }
    (order, starts)
}

/// Builds a symbol table for normalized rows, numbered in order of first use.
pub(super) fn profile_of(frames: Frames<'_>, mut nodes: Vec<ProfileNode>) -> Profile {
    // A few nodes of a large tree need few of its frames, most of which share their file.
    let frames_max = frames.frames.len().min(nodes.len());
    let strings_max = frames.strings.len().min(2 * frames_max);
    let mut symbols = crate::SymbolTable::with_capacity(frames_max, strings_max);
    let mut strings: Vec<Option<StringId>> = vec![None; frames.strings.len()];
    let mut ids: Vec<Option<FrameId>> = vec![None; frames.frames.len()];
    for node in &mut nodes {
        let frame = node.frame.0 as usize;
        node.frame = *ids[frame].get_or_insert_with(|| {
            let frame = &frames.frames[frame];
            let mut text = |id: StringId| {
                let string = &mut strings[id.0 as usize];
                *string.get_or_insert_with(|| symbols.intern_shared(frames.text(id)))
            };
            let function = text(frame.function);
            let file = text(frame.file);
            let module = text(frame.module);
            let build_id = text(frame.build_id);
            symbols.intern_ids(Frame {
                function,
                file,
                module,
                build_id,
                ..frame.clone()
            })
        });
    }
    Profile { symbols, nodes }
}
