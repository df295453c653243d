// Converts a profile from the API to columns. Runs in a web worker, so that a large response never
// blocks the page.

import type { ProfileAnswer } from '../core/api';
import { STATES, type State } from '../core/states';
import { crateOf } from '../core/symbols';
import { type Functions, type Layout, layOut, NO_FUNCTION, type Nodes, STATE_COUNT } from './layout';

/** A profile in columns, as the API returns it (docs/API.md). */
export interface ApiColumns {
  /** Nodes that were merged into a leaf `[pruned]`. */
  pruned: number;
  /** Programs and libraries with a build id. */
  builds?: { module: string; build_id: string }[];
  functions: { names: string[]; kinds: string[]; files: string[]; lines: number[]; modules: string[] };
  parents: number[];
  numbers: number[];
  self: Partial<Record<State, { nodes: number[]; ns: number[] }>>;
}

/** A profile answer with its columns. */
export interface ProfileBody extends ProfileAnswer {
  profile: ApiColumns;
}

/** A profile as the page holds it. */
export interface LoadedProfile {
  layout: Layout;
  functions: Functions;
  /** Self and total time by function; recursive calls count once. */
  fnSelf: Float64Array;
  fnTotal: Float64Array;
  metadata: ProfileAnswer;
  /** Nodes that were too narrow to be sent individually. */
  pruned: number;
}

export function loadProfile(body: ProfileBody): LoadedProfile {
  const { profile, ...metadata } = body;
  const table = new FunctionTable();
  const layout = layOut(readNodes(profile, table));
  const functions = table.columns();
  return { layout, functions, metadata, pruned: profile.pruned, ...sums(layout, functions.names.length) };
}

/** Nodes in columns, the root first. */
export function readNodes({ functions, parents, numbers, self }: ApiColumns, table: FunctionTable): Nodes {
  const tableNumbers = functions.names.map((_, at) => table.number(functions, at));
  const count = parents.length + 1;
  const nodes: Nodes = {
    parent: Uint32Array.from({ length: count }, (_, i) => (i === 0 ? 0 : i - parents[i - 1])),
    fn: Uint32Array.from({ length: count }, (_, i) => (i === 0 ? NO_FUNCTION : tableNumbers[numbers[i - 1]])),
    self: new Float64Array(count),
    states: new Float64Array(count * STATE_COUNT),
  };
  STATES.forEach((state, s) => {
    const { nodes: steps, ns } = self[state] ?? { nodes: [], ns: [] };
    let node = 0;
    for (let at = 0; at < steps.length; at++) {
      node += steps[at];
      nodes.self[node] += ns[at];
      nodes.states[node * STATE_COUNT + s] += ns[at];
    }
  });
  return nodes;
}

/** Interns functions. */
export class FunctionTable {
  private readonly known = new Map<string, number>();
  private readonly names: string[] = [];
  private readonly files: string[] = [];
  private readonly lines: number[] = [];
  private readonly modules: string[] = [];
  private readonly kinds: string[] = [];

  /** The number of a response's function. */
  number({ names, kinds, files, lines, modules }: ApiColumns['functions'], at: number): number {
    const key = `${kinds[at]}\n${names[at]}\n${files[at]}\n${lines[at]}\n${files[at] ? '' : modules[at]}`;
    let number = this.known.get(key);
    if (number === undefined) {
      number = this.names.push(names[at]) - 1;
      this.known.set(key, number);
      this.files.push(files[at]);
      this.lines.push(lines[at]);
      this.modules.push(modules[at]);
      this.kinds.push(kinds[at]);
    }
    return number;
  }

  columns(): Functions {
    const { names, files, modules, kinds } = this;
    const crates = names.map((name, fn) =>
      kinds[fn] === 'function' || kinds[fn] === 'unresolved' ? crateOf(name, files[fn], modules[fn]) : kinds[fn],
    );
    return { names, files, lines: Uint32Array.from(this.lines), modules, kinds, crates };
  }
}

/** Self and total time of each function. */
export function sums(layout: Layout, functions: number): { fnSelf: Float64Array; fnTotal: Float64Array } {
  const fnSelf = new Float64Array(functions);
  const fnTotal = new Float64Array(functions);
  // The end of the subtree in which a function is already counted, so that recursion counts once.
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
