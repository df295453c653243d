//! Shapes of the fleet's tree, cached between queries.
//!
//! Ids of nodes never change, so a shape stays valid for the nodes that it was made of. For a query
//! with newer nodes it is made again if the tree has not grown since the previous such query and
//! the query touches enough of the tree that this costs about as much as the answer itself. So a
//! tree that keeps growing costs nothing extra.

use std::collections::VecDeque;
use std::sync::Arc;

use profiler_core::profile::Shape;
use profiler_core::{NodeId, Profile, Weight};

use crate::tree::{Excerpt, ProfileForm, TopNode, TreeLock};
use base::id_set::IdSet;
use base::limits::{SHAPE_NODES_MAX, SHAPES_MAX};
use base::sync::{Mutex, lock, rank, read};
use naming::Naming;

/// A shape is made for queries that touch at least one in this many nodes of the tree.
const WORTH_ONE_IN: usize = 8;

/// The cached shapes.
#[derive(Debug, Default)]
pub struct ShapeCache(Mutex<CachedShapes, rank::Shapes>);

#[derive(Debug, Default)]
struct CachedShapes {
    /// By last use, the newest first.
    shapes: VecDeque<Arc<TreeShape>>,
    /// Number of nodes of the tree when a query last found no shape.
    missed_at: u32,
}

/// The tree, and the names of what agents did not name.
#[derive(Clone, Copy, Debug)]
pub struct NamedTree<'t> {
    pub tree: &'t TreeLock,
    pub naming: &'t Naming,
}

#[derive(Debug)]
struct TreeShape {
    form: ProfileForm,
    /// Of the names in it.
    revision: u64,
    shape: Shape,
    /// By the tree's node: its node in the shape, or the root if it has none.
    node_of: Vec<NodeId>,
    /// By the tree's node: the first-level node above it, or itself.
    top_of: Vec<NodeId>,
}

impl ShapeCache {
    /// The profile of the `own` time of the `touched` nodes below the `tops`. `None` if there is no shape,
    /// or if a node has time of the language runtime, which shapes leave out.
    pub fn profile(
        &self,
        NamedTree { tree, naming }: NamedTree<'_>,
        form: ProfileForm,
        touched: &IdSet,
        tops: &[TopNode],
        own: impl Fn(NodeId) -> Weight,
    ) -> Option<Profile> {
        let revision = naming.revision();
        let found = self.find(form, revision, touched);
        let shape = found.or_else(|| self.make(NamedTree { tree, naming }, form, touched))?;
        let mut weights = Vec::with_capacity(touched.count());
        let mut last = (NodeId::ROOT, false);
        for node in touched.iter().map(NodeId) {
            let top = shape.top_of[node.index()];
            // The node was forgotten when the shape was made.
            if top == NodeId::ROOT {
                return None;
            }
            if top != last.0 {
                last = (top, tops.binary_search_by_key(&top, |top| top.node).is_ok());
            }
            let weight = if last.1 { own(node) } else { Weight::ZERO };
            if !weight.is_zero() {
                let place = shape.node_of[node.index()];
                weights.push((place, weight));
                if place == NodeId::ROOT {
                    return None;
                }
            }
        }
        Some(shape.shape.profile(&weights))
    }

    /// The shape of that form, if it covers all touched nodes.
    fn find(&self, form: ProfileForm, revision: u64, touched: &IdSet) -> Option<Arc<TreeShape>> {
        let shapes = &mut lock(&self.0).shapes;
        let at = shapes
            .iter()
            .position(|shape| shape.form == form && shape.revision == revision)?;
        let shape = shapes.remove(at)?;
        shapes.push_front(shape.clone());
        let nodes = u32::try_from(shape.node_of.len()).unwrap_or(u32::MAX);
        touched
            .last_below(u32::MAX)
            .is_none_or(|last| last < nodes)
            .then_some(shape)
    }

    fn make(
        &self,
        NamedTree { tree, naming }: NamedTree<'_>,
        form: ProfileForm,
        touched: &IdSet,
    ) -> Option<Arc<TreeShape>> {
        let revision = naming.revision();
        let (nodes, held) = {
            let tree = read(tree);
            (tree.node_count(), tree.held_count())
        };
        let is_worth = touched.count().saturating_mul(WORTH_ONE_IN) >= held as usize;
        let rests = std::mem::replace(&mut lock(&self.0).missed_at, nodes) == nodes;
        if !rests || !is_worth || held as usize > SHAPE_NODES_MAX {
            return None;
        }
        let held = read(tree).trie.held_nodes();
        let excerpt = Excerpt::of(tree, held.iter().map(|node| node.0).collect()).named(naming);
        // A shape lasts, so it must not have a node that was forgotten meanwhile.
        let is_whole = {
            let tree = read(tree);
            !held.iter().any(|node| tree.is_forgotten(*node))
        };
        if naming.is_unfinished() || !is_whole {
            return None;
        }
        let ids = excerpt.tree_ids();
        let tops = [vec![NodeId::ROOT], excerpt.tops()].concat();
        let (shape, of_excerpt) = excerpt.shape(form);
        let mut top_of = vec![NodeId::ROOT; nodes as usize];
        let mut node_of = top_of.clone();
        for ((id, top), node) in ids
            .iter()
            .zip(tops)
            .zip(of_excerpt)
            .filter(|((id, _), _)| id.0 < nodes)
        {
            top_of[id.index()] = top;
            node_of[id.index()] = node;
        }
        let made = Arc::new(TreeShape {
            form,
            revision,
            shape,
            node_of,
            top_of,
        });
        let shapes = &mut lock(&self.0).shapes;
        shapes.retain(|shape| shape.form != form);
        shapes.push_front(made.clone());
        shapes.truncate(SHAPES_MAX);
        Some(made)
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::{Filter, Frame, FrameId, State, ThreadKind};
    use proptest::prelude::*;

    use super::*;
    use crate::tree::{PhaseFilter, SampleScope, Tree};
    use base::sync::write;

    /// Tasks, no task, the agent, phases, threads, lines of two functions, and the root of a thread
    /// of Rust's runtime.
    fn frames(tree: &mut Tree) -> Vec<FrameId> {
        let begin = "std::sys::__rust_begin_short_backtrace";
        let first = [
            Frame::task("a"),
            Frame::task("b"),
            Frame::no_task(),
            Frame::agent(),
        ];
        let below = [
            Frame::phase("p"),
            Frame::thread("x", 1),
            Frame::function(begin, "", 0),
        ];
        let lines = (0..6).map(|line| Frame::function(["f", "g"][line % 2], "", line as u32));
        let all = first.into_iter().chain(below).chain(lines);
        all.map(|frame| tree.symbols.intern(&frame)).collect()
    }

    fn grow(tree: &mut Tree, rows: &[(u32, usize)]) {
        let count = tree.symbols.frame_count();
        let nodes = tree.node_count();
        let frames = frames(tree);
        for (parent, frame) in rows {
            let parent = NodeId(parent % tree.node_count());
            let frame = frames[if parent == NodeId::ROOT {
                frame % 4
            } else {
                4 + frame % 9
            }];
            tree.trie.insert(parent, frame).unwrap();
        }
        tree.note_new(count, nodes);
    }

    fn rows() -> impl Strategy<Value = Vec<(u32, usize)>> {
        prop::collection::vec((any::<u32>(), 0..36usize), 1..40)
    }

    proptest! {
        /// Before and after growth of the tree, whatever was asked before.
        #[test]
        fn a_shape_and_an_excerpt_give_the_same_profile(
            growths in prop::collection::vec((rows(), 1..4u64, any::<bool>(), any::<bool>()), 1..4),
        ) {
            let tree = TreeLock::new(Tree::new(1_000, 1 << 20));
            let shapes = ShapeCache::default();
            for (rows, every, has_phases, by_function) in growths {
                grow(&mut write(&tree), &rows);
                let form = ProfileForm { has_phases, by_function };
                for (tasks, threads) in
                    [(vec![], ThreadKind::Program), (vec!["a".to_owned()], ThreadKind::All)]
                {
                    let filter = Filter { tasks, threads, ..Filter::default() };
                    let nodes = read(&tree).node_count();
                    let touched: IdSet = (1..nodes).filter(|id| u64::from(*id) % every == 0).collect();
                    let own = |node: NodeId| {
                        let mut weight = Weight::ZERO;
                        if u64::from(node.0) % every == 0 {
                            weight.count(State::Lock, u64::from(node.0) % 3);
                        }
                        weight
                    };
                    let tops = read(&tree).tops_kept(&filter);
                    let excerpt = Excerpt::of(&tree, touched.clone());
                    let expected = excerpt.profile(SampleScope { filter: &filter, phases: &PhaseFilter::All }, own, form);
                    let naming = Naming::default();
                    let named = NamedTree { tree: &tree, naming: &naming };
                    let ask = || shapes.profile(named, form, &touched, &tops, own);
                    match [ask(), ask()] {
                        [before, Some(profile)] => {
                            prop_assert!(before.is_none_or(|before| before == profile));
                            prop_assert_eq!(profile, expected);
                        }
                        _ => prop_assert!(by_function || touched.count() == 0),
                    }
                }
                prop_assert!(lock(&shapes.0).shapes.len() <= SHAPES_MAX);
            }
        }
    }
}
