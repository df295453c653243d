//! Merging profiles: one number per node and requested state.

use profiler_core::{NodeId, State, StateSet, Weight};

use crate::QueryError;
use base::id_set::IdSet;

/// Numbers of a page of memory, which the system provides when one of them is first changed.
const PAGE_NUMBERS: usize = 512;

/// Nanoseconds by node, dense, for each requested state. Adding a row adds to one number, in any
/// order of rows. Pages that no row touches take no memory.
#[derive(Debug)]
pub(crate) struct Sums {
    /// By state, then by node; empty for a state that is not requested.
    by_state: [Vec<u64>; State::ALL.len()],
    touched: IdSet,
    nodes: usize,
    /// By state, then by node: the pages with any time.
    pages: IdSet,
    pages_left: usize,
    /// Whether some time needed one more.
    is_full: bool,
    bytes_max: usize,
}

impl Sums {
    /// Sums for a tree with that many nodes, within `bytes_max`.
    pub(crate) fn new(states: StateSet, nodes: u32, bytes_max: usize) -> Sums {
        let nodes = nodes as usize;
        let by_state = State::ALL.map(|state| {
            if states.contains(state) {
                vec![0; nodes]
            } else {
                Vec::new()
            }
        });
        Sums {
            by_state,
            touched: IdSet::with_room(nodes),
            nodes,
            pages: IdSet::default(),
            pages_left: bytes_max / (PAGE_NUMBERS * size_of::<u64>()),
            is_full: false,
            bytes_max,
        }
    }

    /// Checks that all time had room.
    ///
    /// # Errors
    /// [`QueryError::Memory`] if the time is at more nodes than fit the limit.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        if self.is_full {
            let limit = self.bytes_max;
            return Err(QueryError::Memory { limit });
        }
        Ok(())
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
            if *sum == 0 {
                let page = node as usize / PAGE_NUMBERS + state * self.nodes.div_ceil(PAGE_NUMBERS);
                let page = u32::try_from(page).expect("pages are fewer than nodes and states");
                if !self.pages.contains(page) {
                    if self.pages_left == 0 {
                        self.is_full = true;
                        return true;
                    }
                    self.pages_left -= 1;
                    self.pages.insert(page);
                }
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_with_time_count_for_the_limit() {
        let page = size_of::<u64>() * PAGE_NUMBERS;
        let mut sums = Sums::new(StateSet::ALL, 1 << 20, 2 * page);
        assert!(sums.add(7, 0, 5) && sums.add(8, 0, 5) && sums.add(1 << 19, 1, 5));
        assert!(sums.check().is_ok());
        assert_eq!(sums.weight(NodeId(1 << 19)).total_ns(), 5);
        assert!(sums.add(7, 0, 1) && sums.add(7, 1, 1));
        let error = sums.check().unwrap_err().to_string();
        assert!(error.contains("more than 8192 bytes"), "{error}");
        assert!(!sums.add(1 << 20, 0, 1), "no such node");
    }
}
