// Tasks on lanes: one for each worker's thread, more where tasks of a thread overlap.

import type { Task } from '../core/api';

/** Tasks that do not overlap, by start. */
export interface Lane {
  worker: string;
  thread: string;
  /** Whether it is the first lane of its worker. */
  first: boolean;
  /** Milliseconds since `Lanes.baseMs`. */
  starts: Float64Array;
  ends: Float64Array;
  /** Sum of the lengths of all tasks before each, and of all at the end. */
  busy: Float64Array;
  /** Which task of the answer each is. */
  tasks: Uint32Array;
}

export interface Lanes {
  baseMs: number;
  lanes: Lane[];
  /** Tasks that overlap with too many others of their thread to have a place. */
  leftOut: number;
}

/** Most lanes of one thread. */
const OVERLAPS_MAX = 6;

export function lanesOf(tasks: Task[], nowNs: number): Lanes {
  const baseMs = tasks.reduce((least, task) => Math.min(least, task.start_ns / 1e6), Infinity);
  const byThread = new Map<string, number[]>();
  for (let i = tasks.length - 1; i >= 0; i--) {
    const { worker, epoch, thread_id } = tasks[i];
    const key = `${worker}\n${epoch}\n${thread_id}`;
    const list = byThread.get(key);
    if (list) list.push(i);
    else byThread.set(key, [i]);
  }
  const threads = [...byThread.values()].sort(([a], [b]) => {
    const [left, right] = [tasks[a], tasks[b]];
    return compare(left.worker, right.worker) || compare(left.thread_name, right.thread_name) || left.thread_id - right.thread_id;
  });
  const lanes: Lane[] = [];
  let leftOut = 0;
  for (const thread of threads) {
    thread.sort((a, b) => tasks[a].start_ns - tasks[b].start_ns);
    const rows: { end: number; tasks: number[] }[] = [];
    for (const index of thread) {
      const task = tasks[index];
      let row = rows.find((one) => one.end <= task.start_ns);
      if (!row && rows.length < OVERLAPS_MAX) rows.push((row = { end: 0, tasks: [] }));
      if (!row) leftOut++;
      else {
        row.tasks.push(index);
        row.end = task.stop_ns ?? nowNs;
      }
    }
    for (const row of rows) lanes.push(lane(tasks, row.tasks, baseMs, nowNs, lanes[lanes.length - 1]));
  }
  return { baseMs, lanes, leftOut };
}

function lane(tasks: Task[], indexes: number[], baseMs: number, nowNs: number, before: Lane | undefined): Lane {
  const { worker, thread_name, thread_id } = tasks[indexes[0]];
  const starts = Float64Array.from(indexes, (i) => tasks[i].start_ns / 1e6 - baseMs);
  const ends = Float64Array.from(indexes, (i) => Math.max(tasks[i].start_ns, tasks[i].stop_ns ?? nowNs) / 1e6 - baseMs);
  const busy = new Float64Array(indexes.length + 1);
  starts.forEach((start, i) => (busy[i + 1] = busy[i] + ends[i] - start));
  const thread = thread_name || `thread ${thread_id}`;
  return { worker, thread, first: before?.worker !== worker, starts, ends, busy, tasks: Uint32Array.from(indexes) };
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** The first task of a lane that ends after a time. */
export function firstEndingAfter(lane: Lane, timeMs: number, from = 0): number {
  let low = from;
  let high = from;
  for (let step = 1; high < lane.ends.length && lane.ends[high] <= timeMs; step *= 2) {
    low = high + 1;
    high += step;
  }
  high = Math.min(high, lane.ends.length);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.ends[middle] > timeMs) high = middle;
    else low = middle + 1;
  }
  return low;
}
