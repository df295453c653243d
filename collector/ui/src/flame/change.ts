// What a reader does to a profile to see through it: only the stacks through a function, all without
// it, its time with its callers', recursion as one call. The sums are made anew.

import { type Layout, NO_FUNCTION, STATE_COUNT, TreeBuilder } from './layout';
import { type Loaded, sums } from './load';

/** What to do, by the names of functions. */
export interface TreeChanges {
  /** Only stacks through one of these. */
  focus: string[];
  /** Without these and all below them. */
  drop: string[];
  /** Their own time is their callers', and what they call is called by these. */
  merge: string[];
  /** A function that is called below itself is one with its outermost call. */
  recursion: boolean;
}

export interface Changed extends Loaded {
  /** Time that was left out, in nanoseconds. */
  leftOutNs: number;
}

export function isChange({ focus, drop, merge, recursion }: TreeChanges): boolean {
  return recursion || focus.length + drop.length + merge.length > 0;
}

export function changeTree(loaded: Loaded, changes: TreeChanges): Changed {
  if (!isChange(changes)) return { ...loaded, leftOutNs: 0 };
  const { layout, functions } = loaded;
  const flags = (names: string[]) => {
    const wanted = new Set(names);
    return Uint8Array.from(functions.names, (name) => (wanted.has(name) ? 1 : 0));
  };
  const [focus, drop, merge] = [changes.focus, changes.drop, changes.merge].map(flags);
  const wanted = changes.focus.length > 0 ? pathsThrough(layout, focus) : undefined;
  const own = ownStates(layout);
  const builder = new TreeBuilder();
  // Where each node's time goes in the new tree.
  const place = new Int32Array(layout.count).fill(-1);
  place[0] = 0;
  for (let i = 1; i < layout.count; ) {
    const fn = layout.fn[i];
    if (drop[fn] === 1 || wanted?.has[i] === 0) {
      i = layout.end[i];
      continue;
    }
    const above = place[layout.parent[i]];
    const again = changes.recursion ? builder.above(above, fn) : -1;
    place[i] = merge[fn] === 1 ? above : again >= 0 ? again : builder.child(above, fn);
    if (!wanted || wanted.inside[i] === 1) {
      builder.add(place[i], layout.self[i], own.subarray(i * STATE_COUNT, (i + 1) * STATE_COUNT));
    }
    i++;
  }
  const changed = builder.done();
  return {
    ...loaded,
    layout: changed,
    leftOutNs: layout.total[0] - changed.total[0],
    ...sums(changed, functions.names.length),
  };
}

/** Which nodes lie on a path through one of `functions`, and which at or below one. */
function pathsThrough(layout: Layout, functions: Uint8Array): { has: Uint8Array; inside: Uint8Array } {
  const has = new Uint8Array(layout.count);
  const inside = new Uint8Array(layout.count);
  for (let i = 1; i < layout.count; i++) {
    if (inside[layout.parent[i]] === 1 || functions[layout.fn[i]] === 1) inside[i] = has[i] = 1;
  }
  for (let i = layout.count - 1; i > 0; i--) if (has[i] === 1) has[layout.parent[i]] = 1;
  return { has, inside };
}

/** By node and state what is the node's own: what it has less what its children have. */
export function ownStates({ count, states, parent }: Layout): Float64Array {
  const own = Float64Array.from(states);
  for (let i = 1; i < count; i++) {
    for (let s = 0; s < STATE_COUNT; s++) own[parent[i] * STATE_COUNT + s] -= states[i * STATE_COUNT + s];
  }
  // Sums of single precision leave crumbs.
  for (let at = 0; at < own.length; at++) if (own[at] < 0) own[at] = 0;
  return own;
}

/** The phase in which each node is, as the number of the phase's function; `NO_FUNCTION` for none. */
export function phasesOf(layout: Layout, kinds: string[]): Uint32Array {
  const phases = new Uint32Array(layout.count).fill(NO_FUNCTION);
  for (let i = 1; i < layout.count; i++) {
    phases[i] = kinds[layout.fn[i]] === 'phase' ? layout.fn[i] : phases[layout.parent[i]];
  }
  return phases;
}
