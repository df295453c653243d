// A profile of the API to columns. Runs in a worker, so that a large answer never stops the page.

import { crateOf } from '../core/names';
import { STATES } from '../core/states';
import { layOut, NO_FUNCTION, STATE_COUNT, type Functions, type Layout } from './layout';

type States = Record<string, number>;

interface ApiNode {
  parent: number;
  name: string;
  kind: string;
  file: string;
  line: number;
  module: string;
  self: States;
}

export interface ProfileBody {
  range: { from_ns: number; to_ns: number };
  data: { from_ns: number; to_ns: number } | null;
  achieved_share: number | null;
  achieved_rate_hz: number | null;
  workers: string[];
  windows: number;
  empty: boolean;
  /** Files of the store that could not be read; a collector without a store names none. */
  damaged?: string[];
  totals: Record<string, number>;
  profile: { nodes: ApiNode[] };
}

/** A profile as the page holds it. */
export interface Loaded {
  layout: Layout;
  functions: Functions;
  /** By function: time of its own, and time below it; a recursive call counts once. */
  fnSelf: Float64Array;
  fnTotal: Float64Array;
  /** Time outside all tasks that was left out, in nanoseconds. */
  outsideNs: number;
  about: Omit<ProfileBody, 'profile'>;
}

/** Where time outside all tasks goes: with the rest, or nowhere if there are tasks at all. */
export type Outside = 'shown' | 'hidden';

export function load(body: ProfileBody, outside: Outside): Loaded {
  const { profile, ...about } = body;
  const nodes = profile.nodes;
  const hide = outside === 'hidden' && nodes.some((node) => node.kind === 'task');
  const table = new FunctionTable();
  const kept = new Int32Array(nodes.length + 1).fill(-1);
  kept[0] = 0;
  const parent = [0];
  const fn = [NO_FUNCTION];
  const self = [0];
  const states: number[] = Array(STATE_COUNT).fill(0);
  let outsideNs = 0;
  for (let i = 0; i < nodes.length; i++) {
    const node = nodes[i];
    const own = node.self;
    const weight = own.cpu + own.runnable + own.wait;
    const below = kept[node.parent];
    if (below < 0 || (hide && node.parent === 0 && node.kind !== 'task')) {
      outsideNs += weight;
      continue;
    }
    kept[i + 1] = parent.length;
    parent.push(below);
    fn.push(table.number(node));
    self.push(weight);
    for (const state of STATES) states.push(own[state] ?? 0);
  }
  const layout = layOut({ parent, fn, self, states });
  const functions = table.columns();
  return { layout, functions, outsideNs, about, ...sums(layout, functions.names.length) };
}

class FunctionTable {
  private readonly numbers = new Map<string, number>();
  private readonly functions: ApiNode[] = [];

  number(node: ApiNode): number {
    const key = `${node.kind}\n${node.name}\n${node.file}\n${node.line}\n${node.file ? '' : node.module}`;
    let number = this.numbers.get(key);
    if (number === undefined) {
      number = this.functions.push(node) - 1;
      this.numbers.set(key, number);
    }
    return number;
  }

  columns(): Functions {
    const all = this.functions;
    return {
      names: all.map((node) => node.name),
      files: all.map((node) => node.file),
      lines: Uint32Array.from(all, (node) => node.line),
      modules: all.map((node) => node.module),
      kinds: all.map((node) => node.kind),
      crates: all.map((node) => (node.kind === 'function' || node.kind === 'unresolved' ? crateOf(node.file, node.module) : node.kind)),
    };
  }
}

/** Self and total of each function. */
export function sums(layout: Layout, functions: number): { fnSelf: Float64Array; fnTotal: Float64Array } {
  const fnSelf = new Float64Array(functions);
  const fnTotal = new Float64Array(functions);
  // Up to which node a function is being counted already: below itself it is not counted again.
  const until = new Uint32Array(functions);
  for (let i = 1; i < layout.count; i++) {
    const fn = layout.fn[i];
    fnSelf[fn] += layout.self[i];
    if (i < until[fn]) continue;
    fnTotal[fn] += layout.total[i];
    until[fn] = layout.end[i];
  }
  return { fnSelf, fnTotal };
}
