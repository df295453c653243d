//! Shapes of the fleet's tree, kept from one question to the next.
//!
//! The tree only grows, so a shape stays right for the nodes that it was made of. A question that
//! meets younger ones makes it anew, if that costs about as much as its answer does anyhow.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, RwLock};

use profiler_core::profile::Shape;
use profiler_core::{NodeId, Profile, Weight};

use crate::idset::IdSet;
use crate::limits::{SHAPE_NODES_MAX, SHAPES_MAX};
use crate::sync::{lock, read};
use crate::tree::{Excerpt, Top, Tree};

/// A shape is made for a question that touches at least one in so many nodes of the tree.
const WORTH_ONE_IN: usize = 8;

/// Whether phases are shown, and whether lines are merged.
type FormOfAnswer = (bool, bool);

/// The shapes that are kept, the last used first.
#[derive(Debug, Default)]
pub(crate) struct Shapes(Mutex<VecDeque<Arc<TreeShape>>>);

#[derive(Debug)]
struct TreeShape {
    form: FormOfAnswer,
    shape: Shape,
    /// By the tree's node: its node in the shape; the root's if it has none.
    node_of: Vec<NodeId>,
    /// By the tree's node: the first-level node above it, or itself.
    top_of: Vec<NodeId>,
}

impl Shapes {
    /// The profile of `own` time of the `touched` nodes below the `tops`; `None` where no shape tells
    /// it, for there is none or time of the runtime itself, which has no place in a shape.
    pub(crate) fn profile(
        &self,
        tree: &RwLock<Tree>,
        form: FormOfAnswer,
        (touched, tops): (&IdSet, &[Top]),
        own: impl Fn(NodeId) -> Weight,
    ) -> Option<Profile> {
        let shape = self.find(form, touched).or_else(|| self.make(tree, form, touched))?;
        let mut weights = Vec::with_capacity(touched.count());
        let mut last = (NodeId::ROOT, false);
        for node in touched.iter().map(NodeId) {
            let top = shape.top_of[node.index()];
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

    /// The shape of that form, if it is of all the nodes.
    fn find(&self, form: FormOfAnswer, touched: &IdSet) -> Option<Arc<TreeShape>> {
        let mut kept = lock(&self.0);
        let at = kept.iter().position(|shape| shape.form == form)?;
        let shape = kept.remove(at)?;
        kept.push_front(shape.clone());
        let nodes = u32::try_from(shape.node_of.len()).unwrap_or(u32::MAX);
        touched.last_below(u32::MAX).is_none_or(|last| last < nodes).then_some(shape)
    }

    fn make(
        &self,
        tree: &RwLock<Tree>,
        form: FormOfAnswer,
        touched: &IdSet,
    ) -> Option<Arc<TreeShape>> {
        let nodes = read(tree).node_count();
        let is_worth = touched.count().saturating_mul(WORTH_ONE_IN) >= nodes as usize;
        if !is_worth || nodes as usize > SHAPE_NODES_MAX {
            return None;
        }
        let excerpt = Excerpt::of(tree, (0..nodes).collect());
        let top_of = [vec![NodeId::ROOT], excerpt.tops()].concat();
        let (shape, node_of) = excerpt.shape(form);
        let made = Arc::new(TreeShape { form, shape, node_of, top_of });
        let mut kept = lock(&self.0);
        kept.retain(|shape| shape.form != form);
        kept.push_front(made.clone());
        kept.truncate(SHAPES_MAX);
        Some(made)
    }
}
