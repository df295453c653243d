// A profile in columns, laid out for drawing. Parents come before children, a subtree is contiguous,
// the heaviest child comes first, and each row's nodes are sorted by position.

import { STATES } from '../core/states';

/** The functions of a profile, each once. */
export interface Functions {
  names: string[];
  files: string[];
  lines: Uint32Array;
  modules: string[];
  kinds: string[];
  crates: string[];
}

export interface Layout {
  count: number;
  parent: Uint32Array;
  /** Function of each node; `NO_FUNCTION` for the root. */
  fn: Uint32Array;
  self: Float64Array;
  total: Float64Array;
  /** Nanoseconds by state of the node and its descendants, `STATE_COUNT` per node. */
  states: Float32Array;
  /** Start of each node, in nanoseconds from the left. */
  x: Float64Array;
  depth: Uint16Array;
  /** The first node after a node's subtree. */
  end: Uint32Array;
  /** Nodes by row, and the start of each row. */
  rowNodes: Uint32Array;
  rowStarts: Uint32Array;
}

export const NO_FUNCTION = 0xffffffff;
export const STATE_COUNT = STATES.length;
/** Indices of a comparison's weights, which take the position of the states. */
export const BEFORE = 0;
export const AFTER = 1;

/** Nodes in input order: parents before children, node 0 is the root. */
export interface Nodes {
  parent: Uint32Array;
  fn: Uint32Array;
  self: Float64Array;
  /** Of the node alone, without its descendants. */
  states: Float64Array;
}

export function layOut(nodes: Nodes): Layout {
  const count = nodes.parent.length;
  const sums = new Float64Array(count);
  const states = new Float64Array(count * STATE_COUNT);
  for (let i = 0; i < count; i++) sums[i] = nodes.self[i];
  states.set(nodes.states);
  for (let i = count - 1; i > 0; i--) {
    const parent = nodes.parent[i];
    sums[parent] += sums[i];
    for (let s = 0; s < STATE_COUNT; s++) states[parent * STATE_COUNT + s] += states[i * STATE_COUNT + s];
  }
  const order = heaviestFirst(nodes.parent, sums);
  const layout: Layout = {
    count,
    parent: new Uint32Array(count),
    fn: new Uint32Array(count),
    self: new Float64Array(count),
    total: new Float64Array(count),
    states: new Float32Array(count * STATE_COUNT),
    x: new Float64Array(count),
    depth: new Uint16Array(count),
    end: new Uint32Array(count),
    rowNodes: new Uint32Array(count),
    rowStarts: new Uint32Array(0),
  };
  const position = new Uint32Array(count);
  for (let i = 0; i < count; i++) position[order[i]] = i;
  const used = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    const node = order[i];
    layout.fn[i] = nodes.fn[node];
    layout.self[i] = nodes.self[node];
    layout.total[i] = sums[node];
    for (let s = 0; s < STATE_COUNT; s++) layout.states[i * STATE_COUNT + s] = states[node * STATE_COUNT + s];
    if (i === 0) continue;
    const parent = position[nodes.parent[node]];
    layout.parent[i] = parent;
    layout.x[i] = layout.x[parent] + used[parent];
    used[parent] += sums[node];
    layout.depth[i] = layout.depth[parent] + 1;
  }
  fillEnds(layout);
  fillRows(layout);
  return layout;
}

/** The nodes depth first, each parent's heaviest child first. */
function heaviestFirst(parent: ArrayLike<number>, sums: Float64Array): Uint32Array {
  const count = parent.length;
  const starts = new Uint32Array(count + 1);
  for (let i = 1; i < count; i++) starts[parent[i] + 1]++;
  for (let i = 0; i < count; i++) starts[i + 1] += starts[i];
  const fill = starts.slice();
  const children = new Uint32Array(Math.max(0, count - 1));
  for (let i = 1; i < count; i++) children[fill[parent[i]]++] = i;
  const order = new Uint32Array(count);
  const stack = new Uint32Array(count);
  let depth = 1;
  for (let at = 0; depth > 0; at++) {
    const node = stack[--depth];
    order[at] = node;
    const from = starts[node];
    const to = starts[node + 1];
    if (to - from > 1) children.subarray(from, to).sort((a, b) => sums[b] - sums[a] || a - b);
    for (let i = to - 1; i >= from; i--) stack[depth++] = children[i];
  }
  return order;
}

/** Fills in where subtrees end. */
export function fillEnds({ count, parent, end }: Layout): void {
  for (let i = 0; i < count; i++) end[i] = i + 1;
  for (let i = count - 1; i > 0; i--) end[parent[i]] = Math.max(end[parent[i]], end[i]);
}

/** Fills in the nodes of each row. */
export function fillRows(layout: Layout): void {
  const { count, depth, rowNodes } = layout;
  let rows = 0;
  for (let i = 0; i < count; i++) rows = Math.max(rows, depth[i] + 1);
  const starts = new Uint32Array(rows + 1);
  for (let i = 0; i < count; i++) starts[depth[i] + 1]++;
  for (let row = 0; row < rows; row++) starts[row + 1] += starts[row];
  const fill = starts.slice();
  for (let i = 0; i < count; i++) rowNodes[fill[depth[i]]++] = i;
  layout.rowStarts = starts;
}

/** Sums stacks into a tree. */
export class TreeBuilder {
  private readonly parent = [0];
  private readonly fn = [NO_FUNCTION];
  private readonly self = [0];
  private readonly states: number[] = Array(STATE_COUNT).fill(0);
  private readonly known = new Map<number, number>();

  /** The number of nodes, with the root. */
  get size(): number {
    return this.parent.length;
  }

  /** Whether `node` has a child for a function. */
  has(node: number, fn: number): boolean {
    return this.known.has(keyOf(node, fn));
  }

  /** The child of `node` for a function; created if missing. */
  child(node: number, fn: number): number {
    const key = keyOf(node, fn);
    let child = this.known.get(key);
    if (child === undefined) {
      child = this.parent.length;
      this.known.set(key, child);
      this.parent.push(node);
      this.fn.push(fn);
      this.self.push(0);
      for (let s = 0; s < STATE_COUNT; s++) this.states.push(0);
    }
    return child;
  }

  /** The nearest node at or above `node` for a function, or -1. */
  above(node: number, fn: number): number {
    for (let at = node; at !== 0; at = this.parent[at]) if (this.fn[at] === fn) return at;
    return -1;
  }

  /**
   * Adds a weight to a node. `states` sum to `total`, which is the node's own weight, or includes its
   * omitted callees.
   */
  add(node: number, nanoseconds: number, states: ArrayLike<number>): void {
    this.self[node] += nanoseconds;
    for (let s = 0; s < STATE_COUNT; s++) this.states[node * STATE_COUNT + s] += states[s];
  }

  done(): Layout {
    return layOut({
      parent: Uint32Array.from(this.parent),
      fn: Uint32Array.from(this.fn),
      self: Float64Array.from(this.self),
      states: Float64Array.from(this.states),
    });
  }
}

/** Both numbers are below 2^26 for any profile that fits in a page, so the key is exact. */
const keyOf = (node: number, fn: number) => node * 67_108_864 + fn;

/** The crate of a function; tasks and the like have none. */
export function crateAt({ kinds, crates }: Functions, fn: number): string | undefined {
  return kinds[fn] === 'function' || kinds[fn] === 'unresolved' ? crates[fn] : undefined;
}
