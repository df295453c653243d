//! Bottom-up trees.

use std::cmp::Reverse;

use profiler_core::hash::KeyedMap;
use profiler_core::profile::ProfileNode;
use profiler_core::{FrameId, NodeId, Profile};

use super::same_functions;

/// Most nodes of an inverted tree. Callers past the limit are omitted, those of the lightest stacks first.
const NODES_MAX: usize = 1 << 19;

/// The profile with each stack reversed: the function that ran is a root, and its children are its
/// callers. A root's total is the function's self time; the sum over all roots is that of the profile.
pub(super) fn inverted(profile: &Profile) -> Profile {
    invert(profile, NODES_MAX)
}

pub(super) fn invert(profile: &Profile, nodes_max: usize) -> Profile {
    let same = same_functions(profile);
    let nodes = profile.nodes();
    let mut leaves: Vec<&ProfileNode> = nodes.iter().filter(|node| !node.own.is_zero()).collect();
    leaves.sort_by_key(|node| Reverse(node.own.total_ns()));
    let mut rows: Vec<ProfileNode> = Vec::new();
    let mut known: KeyedMap<(NodeId, FrameId), NodeId> = KeyedMap::default();
    for leaf in leaves {
        let caller = |node: &&ProfileNode| match node.parent {
            NodeId::ROOT => None,
            parent => Some(&nodes[parent.index() - 1]),
        };
        let mut at = NodeId::ROOT;
        for node in std::iter::successors(Some(leaf), caller) {
            let frame = same[node.frame.0 as usize];
            // The first level has as many nodes as there are functions, and always has room.
            let has_room = at == NodeId::ROOT || rows.len() < nodes_max;
            at = match known.get(&(at, frame)) {
                Some(row) => *row,
                None if has_room => {
                    rows.push(ProfileNode {
                        parent: at,
                        frame,
                        own: Default::default(),
                    });
                    let row = NodeId(u32::try_from(rows.len()).expect("rows are limited"));
                    known.insert((at, frame), row);
                    row
                }
                None => break,
            };
        }
        rows[at.index() - 1].own += leaf.own;
    }
    profile.with_rows(&rows)
}
