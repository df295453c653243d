// Lanes of tasks: one per thread, more where tasks of a thread overlap.

import type { TaskColumns } from './columns';

/** Tasks of one thread that do not overlap, in order of start. */
export interface Lane {
  worker: string;
  thread: string;
  /** Index of the thread. */
  threadIndex: number;
  /** Milliseconds since `TaskColumns.baseMs`. */
  starts: Float64Array;
  ends: Float64Array;
  /** Busy time before each task, and in total at the end. */
  busy: Float64Array;
  /** Index of each task in the columns. */
  tasks: Uint32Array;
}

/** A line to draw: a lane, or all lanes of a collapsed worker. */
export interface Line {
  lanes: Lane[];
  worker: string;
  /** Whether it is the worker's first line. */
  first: boolean;
  isCollapsed: boolean;
}

/** Unix times have a resolution of a quarter of a microsecond as numbers: a smaller overlap is none. */
const TOUCH_MS = 0.001;
/** Limit on lanes per thread. */
const OVERLAPS_MAX = 6;

export function lanesOf(rows: TaskColumns): { lanes: Lane[]; omitted: number } {
  const { threads, starts, ends } = rows;
  const sorted = [...threads.keys()].sort(
    (a, b) =>
      compare(threads[a].worker, threads[b].worker) ||
      compare(threads[a].name, threads[b].name) ||
      threads[a].id - threads[b].id,
  );
  const lanes: Lane[] = [];
  let omitted = 0;
  const tasksOf = byThread(rows);
  for (const threadIndex of sorted) {
    const tasks = tasksOf[threadIndex];
    // Tasks arrive in order of start, but of those that start together, shorter ones come first.
    const order = (a: number, b: number) => starts[a] - starts[b] || ends[a] - ends[b];
    if (tasks.some((task, i) => i > 0 && order(tasks[i - 1], task) > 0)) tasks.sort(order);
    const free: number[] = [];
    const rowOf = new Uint8Array(tasks.length).fill(OVERLAPS_MAX);
    const counts = new Uint32Array(OVERLAPS_MAX + 1);
    for (let i = 0; i < tasks.length; i++) {
      let row = 0;
      while (row < free.length && free[row] > starts[tasks[i]] + TOUCH_MS) row++;
      if (row < OVERLAPS_MAX) free[row] = ends[tasks[i]];
      rowOf[i] = row;
      counts[row]++;
    }
    omitted += counts[OVERLAPS_MAX];
    const name = threads[threadIndex].name || `thread ${threads[threadIndex].id}`;
    for (let row = 0; row < free.length; row++) {
      lanes.push(
        lane(
          rows,
          tasks.filter((_, i) => rowOf[i] === row),
          { worker: threads[threadIndex].worker, thread: name, threadIndex },
        ),
      );
    }
  }
  return { lanes, omitted };
}

/** The tasks of each thread, oldest first. */
function byThread({ count, threads, thread }: TaskColumns): Uint32Array[] {
  const counts = new Uint32Array(threads.length);
  for (let i = 0; i < count; i++) counts[thread[i]]++;
  const tasks = Array.from(counts, (length) => new Uint32Array(length));
  const filled = new Uint32Array(threads.length);
  for (let i = count - 1; i >= 0; i--) tasks[thread[i]][filled[thread[i]]++] = i;
  return tasks;
}

function lane(rows: TaskColumns, tasks: Uint32Array, of: Pick<Lane, 'worker' | 'thread' | 'threadIndex'>): Lane {
  const starts = Float64Array.from(tasks, (i) => rows.starts[i]);
  const ends = Float64Array.from(tasks, (i) => rows.ends[i]);
  const busy = new Float64Array(tasks.length + 1);
  for (let i = 0; i < tasks.length; i++) busy[i + 1] = busy[i] + ends[i] - starts[i];
  return { ...of, starts, ends, busy, tasks };
}

/** The lines to draw; all lanes of a collapsed worker are one. */
export function linesOf(lanes: Lane[], isCollapsed: (worker: string) => boolean): Line[] {
  const lines: Line[] = [];
  for (const one of lanes) {
    const before = lines[lines.length - 1];
    const first = before?.worker !== one.worker;
    if (!first && before.isCollapsed) before.lanes.push(one);
    else lines.push({ lanes: [one], worker: one.worker, first, isCollapsed: isCollapsed(one.worker) });
  }
  return lines;
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
