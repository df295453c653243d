// Profiles written as collapsed stacks, one a line: `main;read 2 disk` is 2 ns in `read`, called by
// `main`, waiting for the disk. Without a state it is on a CPU. A frame `[name]` is a task.

import type { Functions, Layout } from '../src/flame/layout';
import { type LoadedProfile, loadProfile, type ProfileBody } from '../src/flame/load';

/** The body of a profile as the API returns it. */
export function profileBody(stacks: string, more: Partial<ProfileBody> = {}): ProfileBody {
  const functions = {
    names: [] as string[],
    kinds: [] as string[],
    files: [] as string[],
    lines: [] as number[],
    modules: [] as string[],
  };
  const parents: number[] = [];
  const numbers: number[] = [];
  const weights: Record<string, Map<number, number>> = {};
  const nodes = new Map<string, number>();
  for (const line of stacks.trim().split('\n')) {
    const [path, ns, state = 'cpu'] = line.trim().split(' ');
    let node = 0;
    let key = '';
    for (const frame of path.split(';')) {
      key += `;${frame}`;
      const parent = node;
      node = nodes.get(key) ?? parents.length + 1;
      if (nodes.has(key)) continue;
      nodes.set(key, node);
      parents.push(node - parent);
      let number = functions.names.indexOf(frame);
      if (number < 0) {
        number = functions.names.push(frame) - 1;
        functions.kinds.push(frame.startsWith('[') ? 'task' : 'function');
        functions.files.push(`/src/${frame}.rs`);
        functions.lines.push(0);
        functions.modules.push('');
      }
      numbers.push(number);
    }
    weights[state] ??= new Map();
    weights[state].set(node, (weights[state].get(node) ?? 0) + Number(ns));
  }
  const self = Object.fromEntries(
    Object.entries(weights).map(([state, of]) => {
      const sorted = [...of].sort(([a], [b]) => a - b);
      const steps = sorted.map(([node], i) => node - (i === 0 ? 0 : sorted[i - 1][0]));
      return [state, { nodes: steps, ns: sorted.map(([, ns]) => ns) }];
    }),
  );
  return { ...more, profile: { pruned: 0, functions, parents, numbers, self } } as ProfileBody;
}

export function profile(stacks: string): LoadedProfile {
  return loadProfile(profileBody(stacks));
}

/** The nodes at and below `top` that have time of their own, as collapsed stacks in the layout's order. */
export function stacksOf(
  { layout, functions }: { layout: Layout; functions: Pick<Functions, 'names'> },
  top = 0,
): string[] {
  const paths = [''];
  const stacks: string[] = [];
  for (let node = 1; node < layout.count; node++) {
    const above = paths[layout.parent[node]];
    paths[node] = `${above}${above && ';'}${functions.names[layout.fn[node]]}`;
    if (layout.self[node] > 0 && node >= top && node < layout.end[top])
      stacks.push(`${paths[node]} ${layout.self[node]}`);
  }
  return stacks;
}

/** Numbers below `below` from a fixed seed. */
export function randomNumbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return (state >>> 8) % below;
  };
}
