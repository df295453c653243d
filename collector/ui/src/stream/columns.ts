// Tasks in columns, so that a million of them fit in memory.

import type { Task, TaskColumnsAnswer, TasksAnswer, TaskThread } from '../core/api';
import { type Lane, lanesOf } from './lanes';

/** Tasks, newest start first. */
export interface TaskColumns {
  count: number;
  names: string[];
  threads: TaskThread[];
  outcomes: readonly string[];
  /** Index of each task's name, thread and outcome. */
  name: Uint32Array;
  thread: Uint32Array;
  outcome: Uint8Array;
  /** Unique within a thread's session. */
  ids: Float64Array;
  /** Earliest start. Starts and ends are milliseconds after it; a running task ends now. */
  baseMs: number;
  starts: Float64Array;
  ends: Float64Array;
}

/** Content of the task stream. */
export interface Stream {
  rows: TaskColumns;
  lanes: Lane[];
  /** Tasks omitted because they overlap with too many others of their thread. */
  omitted: number;
  /** Number of all tasks; `rows` holds the newest of them. */
  total: number;
  /** The full records in the order of `rows`, if they were sent. */
  records?: Task[];
}

export const OUTCOMES = ['running', 'ok', 'failed', 'cancelled', 'panicked', 'lost'] as const;

export function streamOf({ tasks, range, total }: TasksAnswer): Stream {
  const names = new Interner<string>();
  const threads = new Interner<TaskThread>();
  const baseMs = tasks.reduce((least, task) => Math.min(least, task.start_ns / 1e6), range.to_ns / 1e6);
  const rows: TaskColumns = {
    count: tasks.length,
    names: names.values,
    threads: threads.values,
    outcomes: OUTCOMES,
    baseMs,
    name: Uint32Array.from(tasks, ({ name }) => names.of(name, () => name)),
    thread: Uint32Array.from(tasks, ({ worker, epoch, thread_id, thread_name }) =>
      threads.of(`${worker}\n${epoch}\n${thread_id}`, () => ({ worker, epoch, id: thread_id, name: thread_name })),
    ),
    outcome: Uint8Array.from(tasks, ({ outcome }) => Math.max(0, (OUTCOMES as readonly string[]).indexOf(outcome))),
    ids: Float64Array.from(tasks, ({ id }) => id),
    starts: Float64Array.from(tasks, ({ start_ns }) => start_ns / 1e6 - baseMs),
    ends: Float64Array.from(
      tasks,
      ({ start_ns, stop_ns }) => Math.max(start_ns, stop_ns ?? range.to_ns) / 1e6 - baseMs,
    ),
  };
  return { rows, ...lanesOf(rows), total, records: tasks };
}

export function streamOfColumns({
  range,
  total,
  outcomes,
  names,
  threads,
  first_ns,
  columns,
}: TaskColumnsAnswer): Stream {
  const count = columns.id.length;
  const firstMs = (first_ns ?? range.to_ns) / 1e6;
  const earlierUs = columns.earlier_us.reduce((sum, us) => sum + us, 0);
  const baseMs = firstMs - earlierUs / 1e3;
  const starts = new Float64Array(count);
  const ends = new Float64Array(count);
  let startUs = earlierUs;
  for (let i = 0; i < count; i++) {
    startUs -= columns.earlier_us[i];
    starts[i] = startUs / 1e3;
    ends[i] = (startUs + columns.duration_us[i]) / 1e3;
  }
  const rows: TaskColumns = {
    count,
    names,
    threads,
    outcomes,
    baseMs,
    starts,
    ends,
    name: Uint32Array.from(columns.name),
    thread: Uint32Array.from(columns.thread),
    outcome: Uint8Array.from(columns.outcome),
    ids: Float64Array.from(columns.id),
  };
  return { rows, ...lanesOf(rows), total };
}

/** Identifies a task across responses. */
export function keyOf({ rows }: Stream, task: number): string {
  const { worker, epoch } = rows.threads[rows.thread[task]];
  return `${worker}\n${epoch}\n${rows.ids[task]}`;
}

export const keyOfRecord = ({ worker, epoch, id }: Task): string => `${worker}\n${epoch}\n${id}`;

/** Numbers repeated values. */
class Interner<T> {
  readonly values: T[] = [];
  private readonly known = new Map<string, number>();

  of(key: string, value: () => T): number {
    let number = this.known.get(key);
    if (number === undefined) {
      number = this.values.push(value()) - 1;
      this.known.set(key, number);
    }
    return number;
  }
}
