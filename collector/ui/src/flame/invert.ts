// The bottom-up tree of a profile. The collector does the same for files (`flamegraph/src/view/invert.rs`).

import { STATE_COUNT, TreeBuilder } from './layout';
import type { LoadedProfile } from './load';
import { ownStates } from './transform';

/** Most nodes. Callers past the limit are omitted, those of the lightest stacks first. */
const NODES_MAX = 1 << 19;

/** The profile with each stack reversed: the functions that ran are the roots, their callers the children. */
export function invertTree(loaded: LoadedProfile): LoadedProfile {
  const { count, fn, parent, self } = loaded.layout;
  const own = ownStates(loaded.layout);
  const leaves = Array.from({ length: count }, (_, node) => node).filter((node) => self[node] > 0);
  leaves.sort((a, b) => self[b] - self[a] || a - b);
  const builder = new TreeBuilder();
  for (const leaf of leaves) {
    let at = 0;
    for (let node = leaf; node !== 0; node = parent[node]) {
      // The first level has as many nodes as there are functions, and always has room.
      if (at !== 0 && builder.size >= NODES_MAX && !builder.has(at, fn[node])) break;
      at = builder.child(at, fn[node]);
    }
    builder.add(at, self[leaf], own.subarray(leaf * STATE_COUNT, (leaf + 1) * STATE_COUNT));
  }
  // Sums by function stay: the time of a function does not depend on the tree's direction.
  return { ...loaded, layout: builder.done() };
}
