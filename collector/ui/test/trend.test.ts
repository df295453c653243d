import { expect, test } from 'vitest';
import { trendLines } from '../src/core/trend';

const point = (second: number, p50_ns: number | null) => ({
  start_ns: second * 1e9,
  ended: 3,
  failed: 0,
  p50_ns,
  p90_ns: 2,
  p99_ns: 3,
});

test('steps without tasks are gaps', () => {
  const lines = trendLines([point(10, 1), point(20, 4), point(50, 9), point(60, null)], 10e9);
  expect(lines.map(({ name }) => name)).toEqual(['p50', 'p90', 'p99']);
  expect(lines[0].times).toEqual([10, 20, 30, 50, 60]);
  expect(lines[0].values).toEqual([1, 4, null, 9, null]);
  expect(lines[2].values).toEqual([3, 3, null, 3, 3]);
});
