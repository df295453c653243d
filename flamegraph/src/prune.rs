//! Bounds the size of outputs without losing weight: subtrees that are too small to matter become
//! one `[pruned]` leaf next to their larger siblings.

use std::borrow::Cow;

use profiler_core::profile::ProfileNode;
use profiler_core::{CallTrie, Filter, Frame, FrameId, NodeId, Profile, ThreadKind, Weight};

/// Name of the leaf that holds pruned weight.
pub(crate) const PRUNED: &str = "[pruned]";

/// Nothing is pruned up to this many nodes, if the stacks' bytes fit too.
pub(crate) const NODES_MAX: usize = 100_000;

/// Subtrees below `1 / share` of the total are pruned, with the first share whose result fits. The
/// last share keeps only nodes that hold the whole weight: one path, which always fits.
const SHARES: [u64; 6] = [100_000, 10_000, 1_000, 100, 10, 1];

/// Depth of each node, starting with the root's 0; the first level is 1.
pub(crate) fn depths(profile: &Profile) -> Vec<u32> {
    let mut depths = vec![0u32];
    for node in profile.nodes() {
        depths.push(depths[node.parent.index()] + 1);
    }
    depths
}

/// Prunes `profile` if it has more than `nodes_max` nodes, or if its stacks, written one a line
/// with `name_bytes` per frame, would take more than `bytes_max` bytes.
pub(crate) fn bounded(
    profile: &Profile,
    nodes_max: usize,
    bytes_max: u64,
    name_bytes: impl Fn(&Frame<&str>) -> usize,
) -> Cow<'_, Profile> {
    let fits = |profile: &Profile| {
        profile.nodes().len() <= nodes_max && stacks_bytes(profile, &name_bytes) <= bytes_max
    };
    if fits(profile) {
        return Cow::Borrowed(profile);
    }
    let total = profile.total().total_ns();
    let mut pruned = Profile::default();
    for share in SHARES {
        pruned = prune(profile, total / share);
        if fits(&pruned) {
            break;
        }
    }
    Cow::Owned(pruned)
}

/// Bytes of all stacks with weight of their own.
fn stacks_bytes(profile: &Profile, name_bytes: impl Fn(&Frame<&str>) -> usize) -> u64 {
    let names: Vec<u64> = (0..profile.symbols().frame_count())
        .map(|id| name_bytes(&profile.frame(FrameId(id))) as u64)
        .collect();
    let mut path_bytes = vec![0u64];
    let mut sum = 0u64;
    for node in profile.nodes() {
        let bytes = path_bytes[node.parent.index()] + names[node.frame.0 as usize];
        path_bytes.push(bytes);
        if !node.own.is_zero() {
            sum = sum.saturating_add(bytes);
        }
    }
    sum
}

/// Moves every subtree below `least_ns` into a `[pruned]` leaf of its parent.
pub(crate) fn prune(profile: &Profile, least_ns: u64) -> Profile {
    let totals = profile.totals();
    let mut symbols = profile.symbols().clone();
    let leaf = symbols.intern(&Frame {
        function: PRUNED,
        ..Frame::overflow()
    });
    let mut trie = CallTrie::new(profile.nodes().len() * 2);
    // Target of each node's weight, and whether the target is a `[pruned]` leaf.
    let mut places: Vec<(NodeId, bool)> = vec![(NodeId::ROOT, false)];
    for (node, total) in profile.nodes().iter().zip(&totals[1..]) {
        let (parent, gone) = places[node.parent.index()];
        let place = if gone {
            (parent, true)
        } else if total.total_ns() < least_ns {
            (trie.insert_past_limit(parent, leaf), true)
        } else {
            (trie.insert_past_limit(parent, node.frame), false)
        };
        trie.add_weight(place.0, node.own);
        places.push(place);
    }
    let all = Filter {
        threads: ThreadKind::All,
        ..Filter::default()
    };
    let delta = trie.take_delta();
    let pruned = Profile::collect(&symbols, &trie, [&delta], &all);
    debug_assert_eq!(pruned.total(), profile.total(), "no weight vanishes");
    pruned
}

/// Nanoseconds of the node itself, over all states.
pub(crate) fn own_ns(node: &ProfileNode) -> u64 {
    Weight::total_ns(&node.own)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::collapsed;
    use crate::testing::{hostile_profiles, profile};

    #[test]
    fn small_siblings_share_one_leaf() {
        let all = profile("t;big cpu=90\nt;big;tiny cpu=1\nt;a cpu=2\nt;b sleep=3\nu cpu=4");
        assert_eq!(
            collapsed(&prune(&all, 5)),
            "[pruned] 00004\nt;[pruned] 00005\nt;big 00090\nt;big;[pruned] 00001\n"
        );
    }

    #[test]
    fn a_profile_within_bounds_is_unchanged() {
        let small = profile("t;f cpu=1");
        assert!(matches!(bounded(&small, 2, 20, |_| 10), Cow::Borrowed(_)));
        assert!(matches!(bounded(&small, 1, 20, |_| 10), Cow::Owned(_)));
        assert!(matches!(bounded(&small, 2, 19, |_| 10), Cow::Owned(_)));
    }

    #[test]
    fn pruning_goes_on_until_the_nodes_fit() {
        let all = profile("t;a cpu=900\nt;b cpu=60\nt;c cpu=40");
        assert_eq!(bounded(&all, 3, u64::MAX, |_| 1).nodes().len(), 3);
    }

    proptest! {
        #[test]
        fn pruning_keeps_every_state_s_weight(all in hostile_profiles(), least in 0..2_000u64) {
            prop_assert_eq!(prune(&all, least).total(), all.total());
            prop_assert_eq!(bounded(&all, 0, 0, |_| 1).total(), all.total());
        }
    }
}
