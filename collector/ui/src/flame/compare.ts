// Two normalized profiles in one tree: the weight of each function before and after.

import type { ProfileAnswer } from '../core/api';
import { AFTER, BEFORE, type Functions, type Layout, STATE_COUNT, TreeBuilder } from './layout';
import { FunctionTable, type ProfileBody, readNodes } from './load';

/** How two profiles are normalized: each to 100 %, to time per sampled worker second, or to time per task. */
export type Scale = 'share' | 'time' | 'task';

export interface Comparison {
  /** Widths are the sum of both sides; `states` holds each side's weight at `BEFORE` and `AFTER`. */
  layout: Layout;
  functions: Functions;
  /** Weights by function and side; recursive calls count once. */
  selfBefore: Float64Array;
  selfAfter: Float64Array;
  totalBefore: Float64Array;
  totalAfter: Float64Array;
  metadata: [ProfileAnswer, ProfileAnswer];
  scale: Scale;
  /** The time per task of a full weight. */
  taskNs: number;
}

/**
 * The weight of a whole profile; of one thread that runs all the time on each worker; or of a task on the slower
 * side.
 */
export const FULL_WEIGHT = 1e12;

/** Compares two profiles; `tasks` is the number of tasks that ended on each side. */
export function compare(bodies: [ProfileBody, ProfileBody], scale: Scale, tasks: number[]): Comparison {
  const table = new FunctionTable();
  const builder = new TreeBuilder();
  const sides = bodies.map((body) => readNodes(body.profile, table));
  const sums = sides.map(({ self }) => self.reduce((all, one) => all + one, 0));
  const taskNs = Math.max(...sums.map((sum, side) => (tasks[side] > 0 ? sum / tasks[side] : 0)));
  sides.forEach(({ parent, fn, self }, side) => {
    const { [scale]: full } = { share: sums[side], time: bodies[side].sampled_ns, task: taskNs * tasks[side] };
    const factor = full > 0 ? FULL_WEIGHT / full : 0;
    const target = new Uint32Array(parent.length);
    const weights = new Float64Array(STATE_COUNT);
    for (let i = 1; i < parent.length; i++) {
      target[i] = builder.child(target[parent[i]], fn[i]);
      weights[side === 0 ? BEFORE : AFTER] = self[i] * factor;
      builder.add(target[i], self[i] * factor, weights);
    }
  });
  const layout = builder.done();
  const functions = table.columns();
  const metadata = bodies.map(({ profile: _, ...rest }) => rest) as [ProfileAnswer, ProfileAnswer];
  return { layout, functions, metadata, scale, taskNs, ...bothSums(layout, functions.names.length) };
}

function bothSums({ count, fn, end, parent, states }: Layout, functions: number) {
  const columns = Array.from({ length: 4 }, () => new Float64Array(functions));
  const [selfBefore, selfAfter, totalBefore, totalAfter] = columns;
  const until = new Uint32Array(functions);
  for (let i = 1; i < count; i++) {
    const before = states[i * STATE_COUNT + BEFORE];
    const after = states[i * STATE_COUNT + AFTER];
    selfBefore[fn[i]] += before;
    selfAfter[fn[i]] += after;
    // Subtract the child's weight: it is not the parent's own.
    if (parent[i] !== 0) {
      selfBefore[fn[parent[i]]] -= before;
      selfAfter[fn[parent[i]]] -= after;
    }
    if (i < until[fn[i]]) continue;
    totalBefore[fn[i]] += before;
    totalAfter[fn[i]] += after;
    until[fn[i]] = end[i];
  }
  // Single-precision sums leave rounding errors.
  for (const column of [selfBefore, selfAfter])
    column.forEach((value, at) => {
      if (value < FULL_WEIGHT * 1e-7) column[at] = Math.max(0, value);
    });
  return { selfBefore, selfAfter, totalBefore, totalAfter };
}
