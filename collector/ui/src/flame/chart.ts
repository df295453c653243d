// A flame chart: the stacks of each second from left to right. Stacks are counted by second, so their order
// inside a second is not known: what continues from the second before comes first, then the heaviest.

import { fillEnds, fillRows, type Layout, NO_FUNCTION, STATE_COUNT } from './layout';
import type { LoadedProfile } from './load';

export interface Chart {
  /** Positions and widths are time; weights are in `states`. */
  layout: Layout;
  /** Start of the first column, in milliseconds since the Unix epoch. */
  startMs: number;
  columns: number;
  /** Thread time that fills a column. */
  fullNs: number;
}

/** Length of a column, the cycle in which agents count stacks. */
export const COLUMN_MS = 1000;

/** A column with at least this part of its time is drawn in full: cycles are not exactly a second long. */
const FULL_SHARE = 0.95;

/** The chart of a profile by second; `undefined` without any. */
export function chartOf({ layout, functions }: LoadedProfile): Chart | undefined {
  const groups: { node: number; startMs: number }[] = [];
  for (let node = 1; node < layout.count; node = layout.end[node]) {
    const startMs = Date.parse(functions.names[layout.fn[node]] ?? '');
    if (functions.kinds[layout.fn[node]] === 'group' && startMs >= 0) groups.push({ node, startMs });
  }
  if (groups.length === 0) return undefined;
  groups.sort((a, b) => a.startMs - b.startMs);
  const startMs = groups[0].startMs;
  const columns = Math.round((groups[groups.length - 1].startMs - startMs) / COLUMN_MS) + 1;
  const fullNs = Math.max(COLUMN_MS * 1e6, ...groups.map(({ node }) => layout.total[node]));
  const boxes = new Boxes(layout, columns * fullNs);
  for (const { node, startMs: at } of groups) {
    const share = layout.total[node] / fullNs;
    const scale = share >= FULL_SHARE ? 1 / share : 1;
    boxes.addBelow(node, 0, Math.round((at - startMs) / COLUMN_MS) * fullNs, scale);
  }
  return { layout: boxes.done(), startMs, columns, fullNs };
}

/** Boxes from left to right. */
class Boxes {
  private readonly parent = [0];
  private readonly fn = [NO_FUNCTION];
  private readonly self = [0];
  private readonly width: number[];
  private readonly x = [0];
  private readonly depth = [0];
  private readonly states: number[] = Array(STATE_COUNT).fill(0);
  /** The last box of each row. */
  private readonly last = [0];

  constructor(
    private readonly source: Layout,
    private readonly widthNs: number,
  ) {
    this.width = [widthNs];
  }

  /** Adds the children of a node below a box, from `x` on. */
  addBelow(node: number, box: number, x: number, scale: number): void {
    const { source } = this;
    const children: number[] = [];
    for (let child = node + 1; child < source.end[node]; child = source.end[child]) children.push(child);
    const first = children.findIndex((child) => this.continued(child, box, x) >= 0);
    if (first > 0) children.unshift(...children.splice(first, 1));
    let at = x;
    for (const child of children) {
      const width = source.total[child] * scale;
      this.addBelow(child, this.add(child, box, at, width), at, scale);
      at += width;
    }
  }

  /** The box that ends at `x` and is of the same function below the same box, or -1. */
  private continued(node: number, parent: number, x: number): number {
    const box = this.last[this.depth[parent] + 1] ?? -1;
    if (box < 0 || this.parent[box] !== parent || this.fn[box] !== this.source.fn[node]) return -1;
    return Math.abs(this.x[box] + this.width[box] - x) < this.widthNs * 1e-9 ? box : -1;
  }

  private add(node: number, parent: number, x: number, width: number): number {
    const { source } = this;
    let box = this.continued(node, parent, x);
    if (box < 0) {
      box = this.parent.push(parent) - 1;
      this.fn.push(source.fn[node]);
      this.self.push(0);
      this.x.push(x);
      this.width.push(0);
      this.depth.push(this.depth[parent] + 1);
      for (let s = 0; s < STATE_COUNT; s++) this.states.push(0);
      this.last.length = this.depth[box];
      this.last.push(box);
    }
    this.width[box] += width;
    this.self[box] += source.self[node];
    for (let s = 0; s < STATE_COUNT; s++) {
      const ns = source.states[node * STATE_COUNT + s];
      this.states[box * STATE_COUNT + s] += ns;
      if (parent === 0) this.states[s] += ns;
    }
    return box;
  }

  done(): Layout {
    const count = this.parent.length;
    const layout: Layout = {
      count,
      parent: Uint32Array.from(this.parent),
      fn: Uint32Array.from(this.fn),
      self: Float64Array.from(this.self),
      total: Float64Array.from(this.width),
      states: Float32Array.from(this.states),
      x: Float64Array.from(this.x),
      depth: Uint16Array.from(this.depth),
      end: new Uint32Array(count),
      rowNodes: new Uint32Array(count),
      rowStarts: new Uint32Array(0),
    };
    fillEnds(layout);
    fillRows(layout);
    return layout;
  }
}
