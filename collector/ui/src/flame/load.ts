// Converts a profile from the API to columns. Runs in a web worker, so that a large response never
// blocks the page.

import type { ProfileAnswer } from '../core/api';
import { crateOf } from '../core/names';
import { STATES, type State } from '../core/states';
import { type Functions, type Layout, layOut, NO_FUNCTION, type Nodes, STATE_COUNT } from './layout';

/** A profile in columns, as the API returns it (docs/API.md). */
export interface ApiColumns {
  /** Nodes that were merged into a leaf `[pruned]`. */
  pruned: number;
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
  /** Hidden time outside tasks, in nanoseconds. */
  outsideNs: number;
  metadata: ProfileAnswer;
  /** Nodes that were too narrow to be sent individually. */
  pruned: number;
}

/** Whether time outside tasks is shown. It is never hidden if there are no tasks. */
export type Outside = 'shown' | 'hidden';

export function loadProfile(body: ProfileBody, outside: Outside): LoadedProfile {
  const { profile, ...metadata } = body;
  const table = new FunctionTable();
  const { outsideNs, ...nodes } = readNodes(profile, outside, table);
  const layout = layOut(nodes);
  const functions = table.columns();
  return { layout, functions, outsideNs, metadata, pruned: profile.pruned, ...sums(layout, functions.names.length) };
}

/** Nodes in columns, the root first, and the sum of the hidden time. */
export function readNodes(profile: ApiColumns, outside: Outside, table: FunctionTable): Nodes & { outsideNs: number } {
  const { functions, parents, numbers } = profile;
  const known = functions.names.map((_, at) => table.number(functions, at));
  const isTask = functions.kinds.map((kind) => kind === 'task');
  const hide = outside === 'hidden' && isTask.includes(true);
  const count = parents.length + 1;
  const newIndex = new Int32Array(count).fill(-1);
  newIndex[0] = 0;
  const parent = new Uint32Array(count);
  const fn = new Uint32Array(count);
  fn[0] = NO_FUNCTION;
  let next = 1;
  for (let i = 1; i < count; i++) {
    const from = i - parents[i - 1];
    if (newIndex[from] < 0 || (hide && from === 0 && !isTask[numbers[i - 1]])) continue;
    newIndex[i] = next;
    parent[next] = newIndex[from];
    fn[next] = known[numbers[i - 1]];
    next++;
  }
  const self = new Float64Array(next);
  const states = new Float64Array(next * STATE_COUNT);
  let outsideNs = 0;
  STATES.forEach((state, s) => {
    const { nodes, ns } = profile.self[state] ?? { nodes: [], ns: [] };
    let node = 0;
    for (let at = 0; at < nodes.length; at++) {
      node += nodes[at];
      const target = newIndex[node];
      if (target < 0) outsideNs += ns[at];
      else {
        self[target] += ns[at];
        states[target * STATE_COUNT + s] = ns[at];
      }
    }
  });
  return { parent: parent.subarray(0, next), fn: fn.subarray(0, next), self, states, outsideNs };
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
    const crates = names.map((_, fn) =>
      kinds[fn] === 'function' || kinds[fn] === 'unresolved' ? crateOf(files[fn], modules[fn]) : kinds[fn],
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
