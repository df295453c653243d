// Two profiles in one tree: how wide each function was before and is after, both made comparable.

import type { ProfileAnswer } from '../core/api';
import { AFTER, BEFORE, type Functions, type Layout, STATE_COUNT, TreeBuilder } from './layout';
import { FunctionTable, type Outside, type ProfileBody, readNodes } from './load';

/** What makes two profiles comparable: each is a whole, or each is time by how long was sampled. */
export type Scale = 'share' | 'time';

export type About = ProfileAnswer;

export interface Compared {
  /** Widths are of both together; `states` holds, at `BEFORE` and `AFTER`, what each side has of it. */
  layout: Layout;
  functions: Functions;
  /** By function, of both sides; recursive calls count once. */
  selfBefore: Float64Array;
  selfAfter: Float64Array;
  totalBefore: Float64Array;
  totalAfter: Float64Array;
  about: [About, About];
  scale: Scale;
}

/** A whole profile weighs this much, or that a thread ran all the time on each worker. */
export const WHOLE = 1e12;

export function compare(bodies: [ProfileBody, ProfileBody], outside: Outside, scale: Scale): Compared {
  const table = new FunctionTable();
  const builder = new TreeBuilder();
  const sides = bodies.map((body) => readNodes(body.profile, outside, table));
  sides.forEach(({ parent, fn, self }, side) => {
    const sum = scale === 'share' ? self.reduce((all, one) => all + one, 0) : bodies[side].sampled_ns;
    const factor = sum > 0 ? WHOLE / sum : 0;
    const place = new Uint32Array(parent.length);
    const weights = new Float64Array(STATE_COUNT);
    for (let i = 1; i < parent.length; i++) {
      place[i] = builder.child(place[parent[i]], fn[i]);
      weights[side === 0 ? BEFORE : AFTER] = self[i] * factor;
      builder.add(place[i], self[i] * factor, weights);
    }
  });
  const layout = builder.done();
  const functions = table.columns();
  const about = bodies.map(({ profile: _, ...rest }) => rest) as [About, About];
  return { layout, functions, about, scale, ...bothSums(layout, functions.names.length) };
}

function bothSums({ count, fn, end, parent, states }: Layout, functions: number) {
  const columns = Array.from({ length: 4 }, () => new Float64Array(functions));
  const [selfBefore, selfAfter, totalBefore, totalAfter] = columns;
  const until = new Uint32Array(functions);
  for (let i = 1; i < count; i++) {
    const [before, after] = [states[i * STATE_COUNT + BEFORE], states[i * STATE_COUNT + AFTER]];
    selfBefore[fn[i]] += before;
    selfAfter[fn[i]] += after;
    // What is a child's is not its parent's own.
    if (parent[i] !== 0) {
      selfBefore[fn[parent[i]]] -= before;
      selfAfter[fn[parent[i]]] -= after;
    }
    if (i < until[fn[i]]) continue;
    totalBefore[fn[i]] += before;
    totalAfter[fn[i]] += after;
    until[fn[i]] = end[i];
  }
  // Sums of single precision leave crumbs.
  for (const column of [selfBefore, selfAfter])
    column.forEach((value, at) => {
      if (value < WHOLE * 1e-7) column[at] = Math.max(0, value);
    });
  return { selfBefore, selfAfter, totalBefore, totalAfter };
}
