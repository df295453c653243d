import { expect, test } from 'vitest';
import { chartOf } from '../src/flame/chart';
import { STATE_COUNT } from '../src/flame/layout';
import { loadProfile } from '../src/flame/load';
import { profile, profileBody } from './stacks';

const at = (second: number) => `2026-01-31T12:00:0${second}Z`;
const MS = 1_000_000;

/** A profile by second: stacks with milliseconds. */
function bySecond(stacks: [number, string, number][]) {
  const body = profileBody(stacks.map(([second, path, ms]) => `${at(second)};${path} ${ms * MS}`).join('\n'));
  const { names, kinds } = body.profile.functions;
  names.forEach((name, fn) => {
    if (name.startsWith('2026')) kinds[fn] = 'group';
  });
  return loadProfile(body);
}

function boxes(loaded: ReturnType<typeof bySecond>) {
  const { layout } = chartOf(loaded)!;
  return Array.from({ length: layout.count - 1 }, (_, i) => {
    const node = i + 1;
    const from = Math.round(layout.x[node] / MS);
    const to = Math.round((layout.x[node] + layout.total[node]) / MS);
    return `${layout.depth[node]} ${loaded.functions.names[layout.fn[node]]} ${from}-${to}`;
  });
}

test('columns are in the order of time, and hidden time is blank', () => {
  const loaded = bySecond([
    [4, 'b', 300],
    [1, 'a', 200],
    [1, 'a;x', 400],
  ]);
  const chart = chartOf(loaded)!;
  expect([chart.columns, chart.startMs]).toEqual([4, Date.parse(at(1))]);
  expect(boxes(loaded)).toEqual(['1 a 0-600', '2 x 0-400', '1 b 3000-3300']);
});

test('equal neighbors are joined, and what continues comes first', () => {
  const loaded = bySecond([
    [1, 'a;x', 700],
    [1, 'a;y', 300],
    [2, 'a;x', 600],
    [2, 'a;y', 400],
    [3, 'b', 1000],
  ]);
  expect(boxes(loaded)).toEqual(['1 a 0-2000', '2 x 0-700', '2 y 700-1400', '2 x 1400-2000', '1 b 2000-3000']);
});

test('a cycle of almost a second fills its column, and keeps its weight', () => {
  const loaded = bySecond([
    [1, 'a', 980],
    [2, 'a', 1000],
  ]);
  expect(boxes(loaded)).toEqual(['1 a 0-2000']);
  expect(Math.round(chartOf(loaded)!.layout.states[STATE_COUNT] / MS)).toBe(1980);
});

test('several threads need more than a second of thread time for a column', () => {
  const loaded = bySecond([
    [1, 'a', 3000],
    [2, 'a', 1500],
  ]);
  expect(chartOf(loaded)!.fullNs).toBe(3000 * MS);
  expect(boxes(loaded)).toEqual(['1 a 0-4500']);
});

test('a profile that is not by second has no chart', () => {
  expect(chartOf(profile('main;a 2'))).toBeUndefined();
});
