//! Merged profiles: read-only trees with their symbols.

mod form;
mod shape;

use std::sync::Arc;

use crate::hash::KeyedMap;

use crate::{
    CallTrie, Delta, Frame, FrameId, FrameKind, NodeId, StateSet, StringId, SymbolTable, TimeRange,
    Weight, Window, WorkerId,
};

pub(crate) use form::Frames;
pub use shape::Shape;

/// Threads that a query covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ThreadKind {
    /// The program's own threads, in a task or not.
    #[default]
    Program,
    /// The threads of the profiler's agent.
    Agent,
    /// Both.
    All,
}

/// Data that a query keeps. The default keeps every task, worker and state of the program's threads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Task names; empty keeps all, including threads outside any task.
    pub tasks: Vec<String>,
    /// Whether threads outside any task are kept although tasks are named.
    pub outside_tasks: bool,
    /// Worker ids; empty keeps all.
    pub workers: Vec<String>,
    /// States of threads.
    pub states: StateSet,
    /// Program's or agent's threads.
    pub threads: ThreadKind,
}

impl Filter {
    /// Whether this worker's time is kept.
    #[must_use]
    pub fn keeps_worker(&self, worker: &WorkerId) -> bool {
        self.workers.is_empty() || self.workers.iter().any(|kept| **kept == *worker.0)
    }

    /// Whether the subtree below a first-level frame is kept.
    #[must_use]
    pub fn keeps_top<S: AsRef<str>>(&self, frame: &Frame<S>) -> bool {
        let of_agent = frame.kind == FrameKind::Agent;
        let thread = match self.threads {
            ThreadKind::Program => !of_agent,
            ThreadKind::Agent => of_agent,
            ThreadKind::All => true,
        };
        let is_kept = || match frame.kind {
            FrameKind::Task => self
                .tasks
                .iter()
                .any(|kept| kept == frame.function.as_ref()),
            FrameKind::NoTask => self.outside_tasks,
            _ => false,
        };
        thread && (self.tasks.is_empty() || is_kept())
    }
}

/// One node of a [`Profile`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProfileNode {
    /// The node above it, with a smaller id.
    pub parent: NodeId,
    /// Its frame.
    pub frame: FrameId,
    /// Time in this frame itself, without its children.
    pub own: Weight,
}

/// A merged tree of frames with their weights. Nothing is pruned before it is summed.
///
/// The first level holds tasks, `[no task]` and `[agent]`. Nodes are in depth-first order with
/// siblings sorted by frame, so equal profiles are equal values whatever they were merged from.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    symbols: SymbolTable,
    nodes: Vec<ProfileNode>,
}

impl PartialEq for Profile {
    fn eq(&self, other: &Self) -> bool {
        // Symbols are numbered in order of first use, so equal trees have equal ids.
        self.nodes == other.nodes
            && self.symbols.frame_count() == other.symbols.frame_count()
            && (0..self.symbols.frame_count())
                .all(|id| self.symbols.frame(FrameId(id)) == other.symbols.frame(FrameId(id)))
    }
}

impl Eq for Profile {}

impl Profile {
    /// Sums `deltas` of `trie`, keeping the states, tasks and threads of `filter`. The caller
    /// selects workers by its choice of deltas; [`Profile::of_windows`] filters workers too.
    ///
    /// # Panics
    /// If a delta names a node that is not in `trie`.
    pub fn collect<'a>(
        symbols: &SymbolTable,
        trie: &CallTrie,
        deltas: impl IntoIterator<Item = &'a Delta>,
        filter: &Filter,
    ) -> Profile {
        let mut sums = vec![Weight::ZERO; trie.node_count() as usize];
        for (node, state, nanoseconds) in deltas.into_iter().flat_map(Delta::entries) {
            if filter.states.contains(*state) {
                sums[node.index()].count(*state, *nanoseconds);
            }
        }
        let mut kept = vec![false; sums.len()];
        let rows = (1..trie.node_count()).filter_map(|id| {
            let (parent, frame) = trie.node(NodeId(id))?;
            let keep = match parent {
                NodeId::ROOT => filter.keeps_top(&symbols.frame(frame)),
                parent => kept[parent.index()],
            };
            kept[id as usize] = keep;
            let own = if keep {
                sums[id as usize]
            } else {
                Weight::ZERO
            };
            Some(ProfileNode { parent, frame, own })
        });
        form::formed(symbols.frames_by_number(), &rows.collect::<Vec<_>>())
    }

    /// Builds a profile from rows: parents come before their children, and node `NodeId(n)` is at
    /// `n - 1`. Frames and texts are given by index. With `by_function`, equivalent to
    /// [`Profile::by_function`] on the result, in one pass.
    ///
    /// # Panics
    /// If a row names a node, frame or text that does not exist.
    #[must_use]
    pub fn from_rows(
        strings: &[Arc<str>],
        frames: &[Frame<StringId>],
        rows: Vec<ProfileNode>,
        by_function: bool,
    ) -> Profile {
        let frames = form::Frames { strings, frames };
        if by_function {
            form::formed_by_function(frames, rows)
        } else {
            form::formed(frames, &rows)
        }
    }

    /// Sums the windows that start in `range` and match `filter`.
    ///
    /// # Panics
    /// If a window names a node that is not in `trie`.
    pub fn of_windows<'a>(
        symbols: &SymbolTable,
        trie: &CallTrie,
        windows: impl IntoIterator<Item = &'a Window>,
        range: TimeRange,
        filter: &Filter,
    ) -> Profile {
        let deltas = windows
            .into_iter()
            .filter(|window| range.contains(window.range.start()))
            .filter(|window| filter.keeps_worker(&window.worker))
            .map(|window| &window.delta);
        Profile::collect(symbols, trie, deltas, filter)
    }

    /// The sum of two profiles.
    #[must_use]
    pub fn merge(&self, other: &Profile) -> Profile {
        let mut union = Union::default();
        for profile in [self, other] {
            for (id, weight) in union.add(profile).into_iter().zip(&profile.nodes) {
                union.rows[id].own += weight.own;
            }
        }
        form::formed(union.symbols.frames_by_number(), &union.rows)
    }

    /// Puts each profile below a first-level node of its own. Profiles with equal names are summed.
    #[must_use]
    pub fn grouped<'a>(groups: impl IntoIterator<Item = (&'a str, &'a Profile)>) -> Profile {
        let mut union = Union::default();
        for (name, profile) in groups {
            let group = union.symbols.intern(&Frame::group(name));
            let group = union.child(NodeId::ROOT, group);
            for (id, node) in union
                .add_below(group, profile)
                .into_iter()
                .zip(&profile.nodes)
            {
                union.rows[id].own += node.own;
            }
        }
        form::formed(union.symbols.frames_by_number(), &union.rows)
    }

    /// Compares `self` with `after`, node by node.
    #[must_use]
    pub fn diff(&self, after: &Profile) -> ProfileDiff {
        let mut union = Union::default();
        let before_ids = union.add(self);
        let after_ids = union.add(after);
        let mut before = vec![Weight::ZERO; union.rows.len()];
        let mut later = before.clone();
        for (id, node) in before_ids.into_iter().zip(&self.nodes) {
            before[id] += node.own;
        }
        for (id, node) in after_ids.into_iter().zip(&after.nodes) {
            later[id] += node.own;
        }
        let nodes = union
            .rows
            .iter()
            .zip(before.into_iter().zip(later))
            .map(|(node, (before, after))| DiffNode {
                parent: node.parent,
                frame: node.frame,
                before,
                after,
            })
            .collect();
        ProfileDiff {
            symbols: union.symbols,
            nodes,
        }
    }

    /// Keeps only what `filter` selects. Ignores its workers, which a profile no longer has.
    #[must_use]
    pub fn keep(&self, filter: &Filter) -> Profile {
        let mut kept = vec![false; self.nodes.len() + 1];
        let rows = self.nodes.iter().zip(1..).map(|(node, id)| {
            kept[id] = match node.parent {
                NodeId::ROOT => filter.keeps_top(&self.symbols.frame(node.frame)),
                parent => kept[parent.index()],
            };
            let own = if kept[id] {
                node.own.keep(filter.states)
            } else {
                Weight::ZERO
            };
            ProfileNode { own, ..*node }
        });
        form::formed(self.symbols.frames_by_number(), &rows.collect::<Vec<_>>())
    }

    /// Merges the lines of a function and the unresolved addresses of a module, and [removes the
    /// runtime's frames](Profile::without_runtime). This is what a flame graph draws.
    #[must_use]
    pub fn by_function(&self) -> Profile {
        form::formed_by_function(self.symbols.frames_by_number(), self.nodes.clone())
    }

    /// Removes the frames by which Rust's standard library starts a thread. Stacks then begin with
    /// the program's first function, like the standard library's own backtraces.
    #[must_use]
    pub fn without_runtime(&self) -> Profile {
        let frames = self.symbols.frames_by_number();
        match form::cut_runtime(frames, &self.nodes) {
            Some(cut) => form::formed(frames, &cut.rows),
            None => self.clone(),
        }
    }

    /// Merges the phases of each task: removes the phase level below tasks.
    #[must_use]
    pub fn without_phases(&self) -> Profile {
        let frames = self.symbols.frames_by_number();
        match form::cut_phases(frames, &self.nodes) {
            Some(cut) => form::formed(frames, &cut),
            None => self.clone(),
        }
    }

    /// A profile of other rows with the frames of this one, in the order of [`Profile::from_rows`].
    ///
    /// # Panics
    /// If a row names a node or frame that does not exist.
    #[must_use]
    pub fn with_rows(&self, rows: &[ProfileNode]) -> Profile {
        form::formed(self.symbols.frames_by_number(), rows)
    }

    /// The nodes without the root: node `NodeId(n)` is at `n - 1`.
    #[must_use]
    pub fn nodes(&self) -> &[ProfileNode] {
        &self.nodes
    }

    /// A node's frame.
    ///
    /// # Panics
    /// If `id` is not from this profile.
    #[must_use]
    pub fn frame(&self, id: FrameId) -> Frame<&str> {
        self.symbols.frame(id)
    }

    /// The table of this profile's frames.
    #[must_use]
    pub fn symbols(&self) -> &SymbolTable {
        &self.symbols
    }

    /// Weight of the whole profile.
    #[must_use]
    pub fn total(&self) -> Weight {
        self.nodes.iter().map(|node| node.own).sum()
    }

    /// Whether the profile has no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Weight of each node including its children, by [`NodeId`]; the root's is the whole
    /// profile's.
    #[must_use]
    pub fn totals(&self) -> Vec<Weight> {
        let mut totals = vec![Weight::ZERO; self.nodes.len() + 1];
        for (index, node) in self.nodes.iter().enumerate().rev() {
            totals[index + 1] += node.own;
            let total = totals[index + 1];
            totals[node.parent.index()] += total;
        }
        totals
    }

    /// The first level with the weight of each node: tasks, `[no task]`, `[agent]`.
    pub fn top_level(&self) -> impl Iterator<Item = (Frame<&str>, Weight)> {
        let totals = self.totals();
        self.nodes
            .iter()
            .zip(1..)
            .filter(|(node, _)| node.parent == NodeId::ROOT)
            .map(move |(node, id)| (self.frame(node.frame), totals[id]))
    }
}

/// Two profiles on one tree.
#[derive(Clone, Debug)]
pub struct ProfileDiff {
    symbols: SymbolTable,
    nodes: Vec<DiffNode>,
}

/// One node of a [`ProfileDiff`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiffNode {
    /// The node above it, with a smaller id.
    pub parent: NodeId,
    /// Its frame.
    pub frame: FrameId,
    /// Its own weight in the first profile.
    pub before: Weight,
    /// Its own weight in the second.
    pub after: Weight,
}

impl ProfileDiff {
    /// The nodes without the root: node `NodeId(n)` is at `n - 1`.
    #[must_use]
    pub fn nodes(&self) -> &[DiffNode] {
        &self.nodes
    }

    /// A node's frame.
    ///
    /// # Panics
    /// If `id` is not from this diff.
    #[must_use]
    pub fn frame(&self, id: FrameId) -> Frame<&str> {
        self.symbols.frame(id)
    }
}

/// The union of several profiles' trees, under construction.
#[derive(Default)]
struct Union {
    symbols: SymbolTable,
    rows: Vec<ProfileNode>,
    children: KeyedMap<(NodeId, FrameId), NodeId>,
}

impl Union {
    /// Adds the tree of `profile` without its weights; returns the row of each of its nodes.
    fn add(&mut self, profile: &Profile) -> Vec<usize> {
        self.add_below(NodeId::ROOT, profile)
    }

    /// The same, below a node of the union.
    fn add_below(&mut self, above: NodeId, profile: &Profile) -> Vec<usize> {
        let frames: Vec<FrameId> = (0..profile.symbols.frame_count())
            .map(FrameId)
            .map(|id| self.symbols.intern(&profile.symbols.frame(id)))
            .collect();
        let mut ids = vec![above];
        for node in &profile.nodes {
            ids.push(self.child(ids[node.parent.index()], frames[node.frame.0 as usize]));
        }
        ids[1..].iter().map(|id| id.index() - 1).collect()
    }

    /// Returns the child of `parent` for `frame`; adds it without weight if it is new.
    fn child(&mut self, parent: NodeId, frame: FrameId) -> NodeId {
        let rows = &mut self.rows;
        *self.children.entry((parent, frame)).or_insert_with(|| {
            rows.push(ProfileNode {
                parent,
                frame,
                own: Weight::ZERO,
            });
            node_id(rows.len())
        })
    }
}

fn node_id(index: usize) -> NodeId {
    NodeId(u32::try_from(index).expect("a tree's limit keeps ids below 2^32"))
}

#[cfg(test)]
mod tests;
