//! What one cycle adds.

use crate::{NodeId, TimeRange, Weight, WorkerId};

/// Weights by node of one tree, each node once, in rising order. Adding deltas of the same tree is
/// merging.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Delta {
    pairs: Vec<(NodeId, Weight)>,
}

impl Delta {
    /// The pairs, in rising order of nodes; no weight is zero.
    #[must_use]
    pub fn pairs(&self) -> &[(NodeId, Weight)] {
        &self.pairs
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Sum of all weights.
    #[must_use]
    pub fn total(&self) -> Weight {
        self.pairs.iter().map(|(_, weight)| *weight).sum()
    }

    /// The sum of both, which must be of the same tree.
    #[must_use]
    pub fn merge(&self, other: &Delta) -> Delta {
        let (mut left, mut right) = (&self.pairs[..], &other.pairs[..]);
        let mut pairs = Vec::with_capacity(left.len().max(right.len()));
        while let ([(a, x), left_rest @ ..], [(b, y), right_rest @ ..]) = (left, right) {
            pairs.push(match a.cmp(b) {
                std::cmp::Ordering::Less => (*a, *x),
                std::cmp::Ordering::Greater => (*b, *y),
                std::cmp::Ordering::Equal => (*a, *x + *y),
            });
            left = if a <= b { left_rest } else { left };
            right = if b <= a { right_rest } else { right };
        }
        pairs.extend_from_slice(left);
        pairs.extend_from_slice(right);
        Delta { pairs }
    }
}

impl FromIterator<(NodeId, Weight)> for Delta {
    /// Adds up what comes for the same node; the order does not matter.
    fn from_iter<I: IntoIterator<Item = (NodeId, Weight)>>(pairs: I) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().filter(|(_, weight)| !weight.is_zero()).collect();
        pairs.sort_unstable_by_key(|(node, _)| *node);
        pairs.dedup_by(|(next, weight), (node, sum)| {
            let same = next == node;
            if same {
                *sum += *weight;
            }
            same
        });
        Delta { pairs }
    }
}

/// A sealed span of one worker's time. It belongs to the ranges that hold its start, whole, so that
/// every split of a range sums to the range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// Whose time it is.
    pub worker: WorkerId,
    /// From when to when, by the collector's clock.
    pub range: TimeRange,
    /// What was counted, by nodes of the collector's tree.
    pub delta: Delta,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn deltas() -> impl Strategy<Value = Delta> {
        let weight = (0..1_000u64, 0..1_000u64, 0..1_000u64)
            .prop_map(|(cpu_ns, runnable_ns, wait_ns)| Weight { cpu_ns, runnable_ns, wait_ns });
        prop::collection::vec(((0..40u32).prop_map(NodeId), weight), 0..60)
            .prop_map(|pairs| pairs.into_iter().collect())
    }

    proptest! {
        #[test]
        fn merging_is_commutative_and_associative_and_keeps_weight(
            a in deltas(), b in deltas(), c in deltas()
        ) {
            prop_assert_eq!(a.merge(&b), b.merge(&a));
            prop_assert_eq!(a.merge(&b).merge(&c), a.merge(&b.merge(&c)));
            prop_assert_eq!(a.merge(&Delta::default()), a.clone());
            prop_assert_eq!(a.merge(&b).total(), a.total() + b.total());
            let model: Delta = a.pairs().iter().chain(b.pairs()).copied().collect();
            prop_assert_eq!(a.merge(&b), model);
        }

        #[test]
        fn nodes_rise_and_no_weight_is_zero(a in deltas()) {
            prop_assert!(a.pairs().windows(2).all(|pair| pair[0].0 < pair[1].0));
            prop_assert!(a.pairs().iter().all(|(_, weight)| !weight.is_zero()));
        }
    }
}
