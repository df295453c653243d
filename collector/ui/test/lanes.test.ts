import { expect, test } from 'vitest';
import type { TaskColumnsAnswer, TasksAnswer } from '../src/core/api';
import { keyOf, keyOfRecord, OUTCOMES, streamOf, streamOfColumns } from '../src/stream/columns';
import { firstEndingAfter, linesOf } from '../src/stream/lanes';
import { randomNumbers } from './stacks';

type Times = [thread: string, startMs: number, endMs: number | null];

const BASE_MS = 1_700_000_000_000;
const RANGE_END_MS = 1000;

/** Tasks given oldest first, as the API returns them: newest first. */
function answer(...tasks: Times[]): TasksAnswer {
  const rows = tasks.map(([thread, start, end], id) => ({
    worker: thread.split('/')[0],
    epoch: '1',
    id,
    name: `task-${id}`,
    thread_id: Number(thread.split('/')[1]),
    thread_name: thread,
    start_ns: (BASE_MS + start) * 1e6,
    stop_ns: end === null ? null : (BASE_MS + end) * 1e6,
    outcome: end === null ? 'running' : 'ok',
  }));
  rows.sort((a, b) => b.start_ns - a.start_ns);
  const range = { from_ns: BASE_MS * 1e6, to_ns: (BASE_MS + RANGE_END_MS) * 1e6 };
  return { range, total: rows.length, tasks: rows } as unknown as TasksAnswer;
}

/** Each lane as `thread: id id …`. */
function lanesOf(...tasks: Times[]): string[] {
  const { rows, lanes } = streamOf(answer(...tasks));
  return lanes.map(({ thread, tasks }) => `${thread}: ${[...tasks].map((task) => rows.ids[task]).join(' ')}`);
}

test('tasks of a thread that follow each other share a lane', () => {
  expect(lanesOf(['w/1', 0, 10], ['w/1', 10, 20], ['w/2', 5, 15])).toEqual(['w/1: 0 1', 'w/2: 2']);
});

test('tasks that overlap get a lane each', () => {
  expect(lanesOf(['w/1', 0, 30], ['w/1', 10, 20], ['w/1', 25, 40], ['w/1', 30, 50])).toEqual(['w/1: 0 3', 'w/1: 1 2']);
});

test('an overlap below the resolution of Unix times is none', () => {
  expect(lanesOf(['w/1', 0, 10.0005], ['w/1', 10, 20])).toEqual(['w/1: 0 1']);
  expect(lanesOf(['w/1', 0, 10.5], ['w/1', 10, 20])).toEqual(['w/1: 0', 'w/1: 1']);
});

test('of too many overlapping tasks the rest is omitted and counted', () => {
  const { lanes, omitted } = streamOf(answer(...Array.from({ length: 9 }, (_, i): Times => ['w/1', i, 100])));
  expect([lanes.length, omitted]).toEqual([6, 3]);
});

test('lanes are sorted by worker, thread name and id', () => {
  expect(lanesOf(['b/1', 0, 1], ['a/2', 0, 1], ['a/1', 0, 1])).toEqual(['a/1: 2', 'a/2: 1', 'b/1: 0']);
});

test('a running task lasts until the end of the range', () => {
  const { lanes } = streamOf(answer(['w/1', 200, null]));
  expect(lanes[0].ends[0] - lanes[0].starts[0]).toBe(RANGE_END_MS - 200);
});

test('the busy time before each task is its running sum', () => {
  const { lanes } = streamOf(answer(['w/1', 0, 10], ['w/1', 20, 25], ['w/1', 30, 31]));
  expect(Array.from(lanes[0].busy, Math.round)).toEqual([0, 10, 15, 16]);
});

test('a collapsed worker is one line of all its lanes', () => {
  const { lanes } = streamOf(answer(['a/1', 0, 1], ['a/2', 0, 1], ['b/1', 0, 1], ['b/2', 0, 1]));
  const lines = linesOf(lanes, (worker) => worker === 'a');
  expect(lines.map((line) => [line.worker, line.first, line.isCollapsed, line.lanes.length])).toEqual([
    ['a', true, true, 2],
    ['b', true, false, 1],
    ['b', false, false, 1],
  ]);
});

test('the galloping search finds what a linear search finds', () => {
  const random = randomNumbers(7);
  const tasks: Times[] = [];
  for (let at = 0; tasks.length < 40; ) {
    const start = at + random(10);
    at = start + 1 + random(10);
    tasks.push(['w/1', start, at]);
  }
  const [lane] = streamOf(answer(...tasks)).lanes;
  for (let time = -1; time < 800; time++) {
    for (const from of [0, 3, 39]) {
      const found = lane.ends.findIndex((end, i) => i >= from && end > time);
      expect(firstEndingAfter(lane, time, from)).toBe(found < 0 ? lane.ends.length : found);
    }
  }
});

test('columns and records give the same stream', () => {
  const tasks = answer(['a/1', 0, 10], ['a/1', 5, 8], ['b/1', 7, 9]);
  const micros = (ns: number) => Math.round(ns / 1000);
  const columns = {
    range: tasks.range,
    total: 3,
    outcomes: [...OUTCOMES],
    names: tasks.tasks.map(({ name }) => name),
    threads: tasks.tasks.map(({ worker, epoch, thread_id: id, thread_name: name }) => ({ worker, epoch, id, name })),
    first_ns: tasks.tasks[0].start_ns,
    columns: {
      name: [0, 1, 2],
      thread: [0, 1, 2],
      id: tasks.tasks.map(({ id }) => id),
      earlier_us: tasks.tasks.map(({ start_ns }, i) => (i === 0 ? 0 : micros(tasks.tasks[i - 1].start_ns - start_ns))),
      duration_us: tasks.tasks.map(({ start_ns, stop_ns }) => micros(stop_ns! - start_ns)),
      outcome: [1, 1, 1],
    },
  } as unknown as TaskColumnsAnswer;
  const [one, other] = [streamOf(tasks), streamOfColumns(columns)];
  for (let task = 0; task < 3; task++) {
    expect(keyOf(other, task)).toBe(keyOf(one, task));
    expect(keyOf(one, task)).toBe(keyOfRecord(tasks.tasks[task]));
    expect(other.rows.baseMs + other.rows.starts[task]).toBeCloseTo(one.rows.baseMs + one.rows.starts[task], 3);
    expect(other.rows.ends[task] - other.rows.starts[task]).toBeCloseTo(one.rows.ends[task] - one.rows.starts[task], 3);
  }
});
