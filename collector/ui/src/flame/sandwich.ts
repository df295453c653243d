// The sandwich view of one function: its callers and its callees.

import { type Layout, STATE_COUNT, TreeBuilder } from './layout';

export interface Sandwich {
  /** The function is the root's only child; its callers are below it, nearest first. */
  callers: Layout;
  /** The function is the root's only child; its callees are below it. */
  callees: Layout;
}

export function sandwich(layout: Layout, fn: number): Sandwich {
  const callers = new TreeBuilder();
  const callees = new TreeBuilder();
  const target = new Uint32Array(layout.count);
  for (let i = 1; i < layout.count; ) {
    if (layout.fn[i] !== fn) {
      i++;
      continue;
    }
    let at = callers.child(0, fn);
    for (let up = layout.parent[i]; up !== 0; up = layout.parent[up]) at = callers.child(at, layout.fn[up]);
    callers.add(at, layout.total[i], statesOf(layout, i));
    // Recursive calls are in the outermost one's subtree, so nothing counts twice.
    for (let node = i; node < layout.end[i]; node++) {
      const above = node === i ? 0 : target[layout.parent[node]];
      target[node] = callees.child(above, layout.fn[node]);
      if (layout.self[node] > 0) callees.add(target[node], layout.self[node], ownStates(layout, node));
    }
    i = layout.end[i];
  }
  return { callers: callers.done(), callees: callees.done() };
}

function statesOf(layout: Layout, node: number): Float32Array {
  return layout.states.subarray(node * STATE_COUNT, (node + 1) * STATE_COUNT);
}

/** A node's own weight by state: its total less its children's. */
function ownStates(layout: Layout, node: number): Float32Array {
  const own = statesOf(layout, node).slice();
  for (let child = node + 1; child < layout.end[node]; child = layout.end[child]) {
    for (let s = 0; s < STATE_COUNT; s++) own[s] = Math.max(0, own[s] - layout.states[child * STATE_COUNT + s]);
  }
  return own;
}
