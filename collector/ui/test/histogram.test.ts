import { expect, test } from 'vitest';
import { bucketsOf } from '../src/components/tasks/Histogram';

test('every duration is in the bucket that contains it', () => {
  const durations = [0, 1, 3, 1000, 1023, 1024, 5e9, 5e9];
  const buckets = bucketsOf(durations);
  expect(buckets.length).toBeLessThanOrEqual(48);
  for (const { fromNs, toNs, count } of buckets) {
    expect(count).toBe(durations.filter((ns) => Math.max(1, ns) >= fromNs && Math.max(1, ns) < toNs).length);
  }
  expect(buckets.reduce((sum, { count }) => sum + count, 0)).toBe(durations.length);
});

test('near durations get fine buckets', () => {
  const buckets = bucketsOf([1000, 1100, 1900]);
  expect(buckets.length).toBe(9);
  expect(buckets[0].toNs / buckets[0].fromNs).toBeCloseTo(2 ** (1 / 8));
});

test('without durations there are no buckets', () => {
  expect(bucketsOf([])).toEqual([]);
});
