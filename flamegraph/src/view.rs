//! Views of a profile: what readers hide, fold and select. The page computes the transforms of the tree
//! itself (`collector/ui/src/flame/transform.ts`); `flamegraph/views.json` has the examples that both are
//! tested with.

mod invert;
mod select;

use std::collections::HashMap;

use profiler_core::profile::ProfileNode;
use profiler_core::{FrameId, FrameKind, NodeId, Profile, StateSet, Weight};

use self::select::Selection;
pub use self::select::{Selector, SelectorError};
use crate::symbols::{
    is_main, is_own, is_plumbing, is_python, is_start, label, portable_file, starts_rust,
};

/// Frames that are folded into their callers, which get their time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stacks {
    /// None.
    #[default]
    Full,
    /// Frames of the language and of runtimes that say nothing about the program.
    Simple,
    /// All that are not the program's own.
    Own,
    /// All but functions of Python.
    Python,
    /// Functions of Python.
    Native,
}

/// Selection of the shown part of a profile. The default is everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// Whether time outside of tasks is hidden. It is shown if there are no tasks at all.
    pub hides_outside: bool,
    /// The states to show.
    pub states: StateSet,
    /// Folded frames.
    pub stacks: Stacks,
    /// Shows only stacks through one of these functions.
    pub focus: Vec<Selector>,
    /// Hides these functions with their callees.
    pub hide: Vec<Selector>,
    /// Merges these functions into their callers, which get their self time and callees.
    pub merge: Vec<Selector>,
    /// Merges recursive calls into the outermost one.
    pub merges_recursion: bool,
    /// Whether the tree is bottom-up: the functions that ran are the roots, and their callers the children.
    pub is_inverted: bool,
    /// Shows only stacks through the node with this [id](PathId), if the profile has one.
    pub zoom: Option<PathId>,
}

/// Identifies a node by a hash of the functions on its path, so that it is found again in a later profile.
/// The page writes it to its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathId(u32);

impl PathId {
    const RADIX: u32 = 36;

    /// Parses an id in base 36; `None` if it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<PathId> {
        u32::from_str_radix(text, PathId::RADIX).ok().map(PathId)
    }

    fn below(self, function: u32) -> PathId {
        let mixed = (self.0 ^ function).wrapping_mul(2_654_435_761);
        PathId(mixed.wrapping_add(self.0.wrapping_mul(31)).wrapping_add(1))
    }
}

/// The time that a view hides, by reason. Each time is hidden for the first reason that applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hidden {
    /// Outside of tasks.
    pub outside: Weight,
    /// In tasks, in states that are not shown.
    pub states: Weight,
    /// By `focus` and `hide`.
    pub functions: Weight,
    /// Not below the zoomed node.
    pub zoom: Weight,
}

impl Hidden {
    /// The sum of all reasons.
    #[must_use]
    pub fn total(&self) -> Weight {
        self.outside + self.states + self.functions + self.zoom
    }
}

/// The shown part of a profile.
#[derive(Clone, Debug)]
pub struct ViewedProfile {
    /// The profile of the shown time.
    pub profile: Profile,
    /// The other time. With the profile's total it sums to the whole.
    pub hidden: Hidden,
    /// The number of functions that are folded into their callers.
    pub folded: usize,
    /// The label of the zoomed node.
    pub zoomed: Option<String>,
    /// Selectors of the view that select no function.
    pub unmatched: Vec<Unmatched>,
}

/// A selector that selects no function of a profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unmatched {
    /// Its parameter: `focus`, `hide` or `merge`.
    pub purpose: &'static str,
    /// The selector.
    pub selector: Selector,
}

impl View {
    /// Applies the view: first to time outside of tasks and to states, then to frames, then to the tree,
    /// which is then inverted and zoomed.
    #[must_use]
    pub fn apply(&self, whole: Profile) -> ViewedProfile {
        let mut hidden = Hidden::default();
        let mut folded = 0;
        let mut profile = whole;
        if self.selects() {
            (profile, folded) = self.select(&profile, &mut hidden);
        }
        let mut unmatched = Vec::new();
        if self.transforms() {
            let before = profile.total();
            profile = self.transform(&profile, &mut unmatched);
            hidden.functions = difference(before, profile.total());
        }
        if self.is_inverted {
            profile = invert::inverted(&profile);
        }
        let mut zoomed = None;
        if let Some(node) = self.zoom.and_then(|id| find(&profile, id)) {
            let before = profile.total();
            zoomed = Some(label(
                &profile.frame(profile.nodes()[node.index() - 1].frame),
            ));
            profile = below(&profile, node);
            hidden.zoom = difference(before, profile.total());
        }
        ViewedProfile {
            profile,
            hidden,
            folded,
            zoomed,
            unmatched,
        }
    }

    fn selects(&self) -> bool {
        self.hides_outside || self.states != StateSet::ALL || self.stacks != Stacks::Full
    }

    fn transforms(&self) -> bool {
        let View {
            focus, hide, merge, ..
        } = self;
        self.merges_recursion || [focus, hide, merge].iter().any(|some| !some.is_empty())
    }

    /// The shown time and frames, and the number of folded functions.
    fn select(&self, whole: &Profile, hidden: &mut Hidden) -> (Profile, usize) {
        let kinds = of_frames(whole, |_, frame| frame.kind);
        let hides_outside = self.hides_outside
            && whole
                .nodes()
                .iter()
                .any(|node: &ProfileNode| kinds[node.frame.0 as usize] == FrameKind::Task);
        let is_folded = of_frames(whole, |_, frame| match (frame.kind, self.stacks) {
            (FrameKind::Unresolved, Stacks::Python) => true,
            (FrameKind::Function, Stacks::Simple) => is_plumbing(frame.function),
            (FrameKind::Function, Stacks::Own) => !is_own(frame),
            (FrameKind::Function, Stacks::Python) => !is_python(frame),
            (FrameKind::Function, Stacks::Native) => is_python(frame),
            _ => false,
        });
        let same = if self.stacks == Stacks::Full {
            None
        } else {
            Some(same_functions(whole))
        };
        let shims = (self.stacks == Stacks::Simple).then(|| shims_of(whole, &kinds, &is_folded));
        let shown_frame =
            |frame: FrameId| same.as_ref().map_or(frame, |same| same[frame.0 as usize]);
        let mut was_folded = vec![false; kinds.len()];
        let mut tree = TreeRows::new(whole);
        for node in whole.nodes() {
            let above = tree.target(node.parent);
            let frame = node.frame.0 as usize;
            let is_outside = hides_outside && kinds[frame] == FrameKind::NoTask;
            let Some(above) = above.filter(|_| !is_outside) else {
                hidden.outside += node.own;
                tree.skip();
                continue;
            };
            let own = node.own.keep(self.states);
            hidden.states += difference(node.own, own);
            let is_shim = shims
                .as_ref()
                .is_some_and(|shims| shims[tree.targets.len()]);
            // The root has no time of its own.
            if (is_folded[frame] || is_shim) && above != NodeId::ROOT {
                was_folded[shown_frame(node.frame).0 as usize] = true;
                tree.merge(above, own);
            } else {
                tree.add(above, shown_frame(node.frame), own);
            }
        }
        let folded = was_folded.iter().filter(|folded| **folded).count();
        (whole.with_rows(&tree.rows), folded)
    }

    /// The tree after `focus`, `hide`, `merge` and recursion. Adds selectors that select nothing to `unmatched`.
    fn transform(&self, profile: &Profile, unmatched: &mut Vec<Unmatched>) -> Profile {
        let [focus, hide, merge] = [
            ("focus", &self.focus),
            ("hide", &self.hide),
            ("merge", &self.merge),
        ]
        .map(|(purpose, selectors)| {
            let selection = Selection::of(profile, selectors);
            let of_purpose = |selector| Unmatched { purpose, selector };
            unmatched.extend(selection.unmatched.into_iter().map(of_purpose));
            selection.frames
        });
        let paths = if self.focus.is_empty() {
            None
        } else {
            Some(paths_through(profile, &focus))
        };
        let same = same_functions(profile);
        let mut tree = TreeRows::new(profile);
        for (id, node) in (1..).zip(profile.nodes()) {
            let frame = node.frame.0 as usize;
            let is_shown = !hide[frame] && paths.as_ref().is_none_or(|paths| paths.has[id]);
            let Some(above) = tree.target(node.parent).filter(|_| is_shown) else {
                tree.skip();
                continue;
            };
            let is_inside = paths.as_ref().is_none_or(|paths| paths.inside[id]);
            let own = if is_inside { node.own } else { Weight::ZERO };
            let function = same[frame];
            let outermost = if self.merges_recursion {
                tree.above(above, function)
            } else {
                None
            };
            if merge[frame] && above != NodeId::ROOT {
                tree.merge(above, own);
            } else if let Some(outermost) = outermost {
                tree.merge(outermost, own);
            } else {
                tree.add(above, function, own);
            }
        }
        profile.with_rows(&tree.rows)
    }
}

/// By node: whether its function starts a program or a thread, as
/// [`plumbing_of_stack`](crate::symbols::plumbing_of_stack) finds it in one stack. `kinds` and `is_plumbing` are by frame.
fn shims_of(profile: &Profile, kinds: &[FrameKind], is_plumbing: &[bool]) -> Vec<bool> {
    let of_name = |rule: fn(&str) -> bool| {
        of_frames(profile, |_, frame| {
            frame.kind == FrameKind::Function && rule(frame.function)
        })
    };
    let [is_start, is_main, starts_rust] = [is_start, is_main, starts_rust].map(of_name);
    let nodes = profile.nodes();
    let mut calls_rust = vec![false; nodes.len() + 1];
    for node in nodes {
        calls_rust[node.parent.index()] |= starts_rust[node.frame.0 as usize];
    }
    let mut is_shim = vec![false; nodes.len() + 1];
    let mut is_outermost = vec![true; nodes.len() + 1];
    for (id, node) in (1..).zip(nodes) {
        let frame = node.frame.0 as usize;
        let is_first = is_outermost[node.parent.index()];
        is_shim[id] = is_first && (is_start[frame] || is_main[frame] && calls_rust[id]);
        let is_function = kinds[frame] == FrameKind::Function;
        is_outermost[id] = is_first && (!is_function || is_shim[id] || is_plumbing[frame]);
    }
    is_shim
}

/// Rows of a new tree, and by node of the old tree the row that gets its time.
struct TreeRows {
    rows: Vec<ProfileNode>,
    targets: Vec<Option<NodeId>>,
}

impl TreeRows {
    fn new(old: &Profile) -> TreeRows {
        let mut targets = Vec::with_capacity(old.nodes().len() + 1);
        targets.push(Some(NodeId::ROOT));
        TreeRows {
            rows: Vec::with_capacity(old.nodes().len()),
            targets,
        }
    }

    /// The row of a node that was visited; `None` if it is hidden.
    fn target(&self, node: NodeId) -> Option<NodeId> {
        self.targets[node.index()]
    }

    /// Hides the next node.
    fn skip(&mut self) {
        self.targets.push(None);
    }

    /// Adds the next node to the row of another.
    fn merge(&mut self, row: NodeId, own: Weight) {
        self.rows[row.index() - 1].own += own;
        self.targets.push(Some(row));
    }

    /// Adds a row for the next node.
    fn add(&mut self, parent: NodeId, frame: FrameId, own: Weight) {
        self.rows.push(ProfileNode { parent, frame, own });
        let row = u32::try_from(self.rows.len()).expect("no more rows than nodes");
        self.targets.push(Some(NodeId(row)));
    }

    /// The nearest row at or above `row` with that frame.
    fn above(&self, row: NodeId, frame: FrameId) -> Option<NodeId> {
        let start = (row != NodeId::ROOT).then_some(row);
        std::iter::successors(start, |row: &NodeId| {
            match self.rows[row.index() - 1].parent {
                NodeId::ROOT => None,
                parent => Some(parent),
            }
        })
        .find(|row| self.rows[row.index() - 1].frame == frame)
    }
}

/// Nodes on a path through selected functions, and nodes at or below one; by node.
struct Paths {
    has: Vec<bool>,
    inside: Vec<bool>,
}

fn paths_through(profile: &Profile, is_selected: &[bool]) -> Paths {
    let mut inside = vec![false; profile.nodes().len() + 1];
    for (id, node) in (1..).zip(profile.nodes()) {
        inside[id] = inside[node.parent.index()] || is_selected[node.frame.0 as usize];
    }
    let mut has = inside.clone();
    for (id, node) in (1..)
        .zip(profile.nodes())
        .collect::<Vec<(usize, _)>>()
        .into_iter()
        .rev()
    {
        if has[id] {
            has[node.parent.index()] = true;
        }
    }
    Paths { has, inside }
}

/// By frame, the first frame of the same function. The builds of a program and the libraries with a copy
/// of a source file do not tell functions apart.
fn same_functions(profile: &Profile) -> Vec<FrameId> {
    let mut known = HashMap::new();
    (0..profile.symbols().frame_count())
        .map(|id| {
            let frame = profile.frame(FrameId(id));
            let module = if frame.file.is_empty() {
                frame.module
            } else {
                ""
            };
            let file = portable_file(frame.file);
            let function = (frame.kind, frame.function, file, frame.line, module);
            *known
                .entry((function, frame.offset, frame.inlined))
                .or_insert(FrameId(id))
        })
        .collect()
}

fn of_frames<T>(
    profile: &Profile,
    value: impl Fn(usize, &profiler_core::Frame<&str>) -> T,
) -> Vec<T> {
    let frames = 0..profile.symbols().frame_count();
    frames
        .map(|id| value(id as usize, &profile.frame(FrameId(id))))
        .collect()
}

/// The node with that id; of several the one that the page meets first: it visits the heaviest sibling
/// first.
fn find(profile: &Profile, id: PathId) -> Option<NodeId> {
    let functions = of_frames(profile, |_, frame| {
        let kind = crate::json::kind_name(frame.kind);
        hash(&format!(
            "{kind}\n{}\n{}",
            frame.label(),
            portable_file(frame.file)
        ))
    });
    let mut ids = vec![PathId(0)];
    let mut found = Vec::new();
    for (number, node) in (1u32..).zip(profile.nodes()) {
        let own = ids[node.parent.index()].below(functions[node.frame.0 as usize]);
        ids.push(own);
        if own == id {
            found.push(NodeId(number));
        }
    }
    if found.len() < 2 {
        return found.pop();
    }
    let totals = profile.totals();
    found.into_iter().min_by_key(|node: &NodeId| {
        let mut path: Vec<_> = std::iter::successors(Some(*node), |node: &NodeId| {
            match profile.nodes()[node.index() - 1].parent {
                NodeId::ROOT => None,
                parent => Some(parent),
            }
        })
        .map(|node| (u64::MAX - totals[node.index()].total_ns(), node))
        .collect();
        path.reverse();
        path
    })
}

/// FNV-1a over UTF-16, as on the page.
fn hash(text: &str) -> u32 {
    text.encode_utf16().fold(2_166_136_261, |value, unit| {
        (value ^ u32::from(unit)).wrapping_mul(16_777_619)
    })
}

/// Only the time at and below a node.
fn below(profile: &Profile, top: NodeId) -> Profile {
    let mut is_inside = vec![false; profile.nodes().len() + 1];
    is_inside[top.index()] = true;
    let rows: Vec<ProfileNode> = (1..)
        .zip(profile.nodes())
        .map(|(id, node)| {
            is_inside[id] |= is_inside[node.parent.index()];
            let own = if is_inside[id] {
                node.own
            } else {
                Weight::ZERO
            };
            ProfileNode { own, ..*node }
        })
        .collect();
    profile.with_rows(&rows)
}

/// Returns `whole` minus `part`, state by state.
fn difference(whole: Weight, part: Weight) -> Weight {
    let mut rest = Weight::ZERO;
    for state in profiler_core::State::ALL {
        rest.count(state, whole.get(state).saturating_sub(part.get(state)));
    }
    rest
}

#[cfg(test)]
mod tests;
