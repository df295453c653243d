//! Merging profiles: one number per node and requested state.

use profiler_core::{NodeId, State, StateSet, Weight};

use crate::QueryError;
use base::id_set::IdSet;

/// Nanoseconds by node, dense, for each requested state. Adding a row adds to one number, in any
/// order of rows. Pages that no row touches take no memory.
#[derive(Debug)]
pub(crate) struct Sums {
    /// By state, then by node; empty for a state that is not requested.
    by_state: [Vec<u64>; State::ALL.len()],
    touched: IdSet,
    nodes: usize,
}

impl Sums {
    /// Sums for a tree with that many nodes, within `bytes_max`.
    pub(crate) fn new(states: StateSet, nodes: u32, bytes_max: usize) -> Result<Sums, QueryError> {
        let nodes = nodes as usize;
        let bytes = states.states().count() * nodes * size_of::<u64>() + nodes / 8;
        if bytes > bytes_max {
            return Err(QueryError::Memory {
                bytes,
                limit: bytes_max,
            });
        }
        let by_state = State::ALL.map(|state| {
            if states.contains(state) {
                vec![0; nodes]
            } else {
                Vec::new()
            }
        });
        Ok(Sums {
            by_state,
            touched: IdSet::with_room(nodes),
            nodes,
        })
    }

    /// Adds time of a node, if its state is requested. Returns false if there is no such node or
    /// state, which is damage.
    #[inline]
    pub(crate) fn add(&mut self, node: u32, state: usize, nanoseconds: u64) -> bool {
        if node as usize >= self.nodes || state >= State::ALL.len() {
            return false;
        }
        // The list of a state that is not requested is empty.
        if let Some(sum) = self.by_state[state].get_mut(node as usize) {
            *sum = sum.saturating_add(nanoseconds);
            self.touched.insert(node);
        }
        true
    }

    /// The nodes with any time.
    pub(crate) fn touched(&self) -> &IdSet {
        &self.touched
    }

    /// All time of a node.
    pub(crate) fn weight(&self, node: NodeId) -> Weight {
        let mut weight = Weight::ZERO;
        for (state, sums) in State::ALL.into_iter().zip(&self.by_state) {
            weight.count(state, sums.get(node.index()).copied().unwrap_or(0));
        }
        weight
    }
}
