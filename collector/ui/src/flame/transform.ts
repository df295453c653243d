// Transforms of a profile: focus on functions, hide them, merge them into callers, collapse recursion.
// Sums are recomputed. The collector does the same for files (`flamegraph/src/view.rs`); the examples in
// `flamegraph/views.json` are for both.

import { type Layout, NO_FUNCTION, STATE_COUNT, TreeBuilder } from './layout';
import { type LoadedProfile, sums } from './load';
import { selected } from './select';

/** Transforms, by selectors of functions. */
export interface TreeTransforms {
  /** Keep only stacks through one of these. */
  focus: string[];
  /** Hide these with their callees. */
  hide: string[];
  /** Merge these into their callers, which get their self time and callees. */
  merge: string[];
  /** Merge recursive calls into the outermost one. */
  recursion: boolean;
}

export interface TransformedProfile extends LoadedProfile {
  /** Time that is hidden, in nanoseconds. */
  hiddenNs: number;
}

export function hasTransforms({ focus, hide, merge, recursion }: TreeTransforms): boolean {
  return recursion || focus.length + hide.length + merge.length > 0;
}

export function transformTree(loaded: LoadedProfile, changes: TreeTransforms): TransformedProfile {
  if (!hasTransforms(changes)) return { ...loaded, hiddenNs: 0 };
  const { layout, functions } = loaded;
  const [focus, hide, merge] = [changes.focus, changes.hide, changes.merge].map((some) => selected(functions, some));
  const wanted = changes.focus.length > 0 ? pathsThrough(layout, focus) : undefined;
  const own = ownStates(layout);
  const builder = new TreeBuilder();
  // The node of the new tree that gets each node's time, or -1.
  const target = new Int32Array(layout.count).fill(-1);
  target[0] = 0;
  for (let i = 1; i < layout.count; ) {
    const fn = layout.fn[i];
    if (hide[fn] === 1 || wanted?.has[i] === 0) {
      i = layout.end[i];
      continue;
    }
    const above = target[layout.parent[i]];
    const again = changes.recursion ? builder.above(above, fn) : -1;
    target[i] = merge[fn] === 1 && above > 0 ? above : again >= 0 ? again : builder.child(above, fn);
    if (!wanted || wanted.inside[i] === 1) {
      builder.add(target[i], layout.self[i], own.subarray(i * STATE_COUNT, (i + 1) * STATE_COUNT));
    }
    i++;
  }
  const changed = builder.done();
  return {
    ...loaded,
    layout: changed,
    hiddenNs: layout.total[0] - changed.total[0],
    ...sums(changed, functions.names.length),
  };
}

/** Nodes on a path through one of `functions`, and nodes at or below one. */
function pathsThrough(layout: Layout, functions: Uint8Array): { has: Uint8Array; inside: Uint8Array } {
  const has = new Uint8Array(layout.count);
  const inside = new Uint8Array(layout.count);
  for (let i = 1; i < layout.count; i++) {
    if (inside[layout.parent[i]] === 1 || functions[layout.fn[i]] === 1) inside[i] = has[i] = 1;
  }
  for (let i = layout.count - 1; i > 0; i--) if (has[i] === 1) has[layout.parent[i]] = 1;
  return { has, inside };
}

/** Each node's own weight by state: its total less its children's. */
export function ownStates({ count, states, parent }: Layout): Float64Array {
  const own = Float64Array.from(states);
  for (let i = 1; i < count; i++) {
    for (let s = 0; s < STATE_COUNT; s++) own[parent[i] * STATE_COUNT + s] -= states[i * STATE_COUNT + s];
  }
  // Single-precision sums leave rounding errors.
  for (let at = 0; at < own.length; at++) if (own[at] < 0) own[at] = 0;
  return own;
}

/** The function number of each node's phase, or `NO_FUNCTION`. */
export function phasesOf(layout: Layout, kinds: string[]): Uint32Array {
  const phases = new Uint32Array(layout.count).fill(NO_FUNCTION);
  for (let i = 1; i < layout.count; i++) {
    phases[i] = kinds[layout.fn[i]] === 'phase' ? layout.fn[i] : phases[layout.parent[i]];
  }
  return phases;
}
