import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import {
  bytes,
  clock,
  count,
  digits,
  duration,
  isLive,
  isoTime,
  parseTimeMs,
  percent,
  quantity,
  rangeText,
  timeStepMs,
} from '../src/core/time';

const NOW = Date.parse('2026-01-31T12:00:00Z');

beforeEach(() => void vi.useFakeTimers({ now: NOW }));
afterEach(() => void vi.useRealTimers());

test.each([
  ['now', 0],
  ['-90s', -90_000],
  ['-1h30m', -5_400_000],
  ['-1500ms', -1500],
  ['-1w', -604_800_000],
  ['2026-01-31T12:00:01Z', 1000],
  ['2026-01-31T13:00:00+01:00', 0],
  [String(NOW / 1000), 0],
])('the time %s is parsed', (text, relativeMs) => {
  expect(parseTimeMs(text, NOW) - NOW).toBe(relativeMs);
});

test.each(['', 'yesterday', '5m', '-5', '-5x', '2026-01-31T12:00:00', '2026-01-31', '2026-13-31T12:00:00Z'])(
  'the time %j is invalid',
  (text) => {
    expect(parseTimeMs(text, NOW)).toBeNaN();
  },
);

test.each([
  [0, '0 s'],
  [7, '7.00 ns'],
  [999.4e3, '999 µs'],
  [1.2e6, '1.20 ms'],
  [1e9, '1.00 s'],
  [119e9, '119 s'],
  [120e9, '2.00 min'],
  [7500e9, '2 h 5 min'],
  [3 * 86_400e9, '3.00 d'],
  [-2e6, '-2.00 ms'],
])('%d ns are %s', (ns, text) => {
  expect(duration(ns)).toBe(text);
});

test.each([
  [digits(0), '0'],
  [digits(0.5), '0.50'],
  [digits(12.34), '12.3'],
  [digits(1234.5), '1,235'],
  [count(1_234_567), '1,234,567'],
  [count(999), '999'],
  [quantity(1, 'task'), '1 task'],
  [quantity(0, 'task'), '0 tasks'],
  [quantity(2500, 'task'), '2,500 tasks'],
  [percent(1, 3), '33.3%'],
  [percent(1, 1), '100%'],
  [percent(0, 5), '0%'],
  [percent(1, 1e6), '<0.01%'],
  [percent(1, 0), '–'],
  [bytes(0), '0 B'],
  [bytes(999), '999 B'],
  [bytes(1500), '1.50 kB'],
  [bytes(2.5e12), '2.50 TB'],
])('%s is %s', (text, expected) => {
  expect(text).toBe(expected);
});

test('a time of the API has milliseconds only if needed', () => {
  expect(isoTime(NOW)).toBe('2026-01-31T12:00:00Z');
  expect(isoTime(NOW + 5.4)).toBe('2026-01-31T12:00:00.005Z');
});

test('a range is named by its length, or by its ends', () => {
  expect(rangeText({ from: '-5m', to: 'now' }, NOW)).toBe('the last 5 min');
  expect(rangeText({ from: '-1d', to: 'now' }, NOW)).toBe('the last 1 d');
  const fixed = { from: '2026-01-31T11:00:00Z', to: '2026-01-31T11:01:30Z' };
  expect([isLive(fixed), isLive({ from: '-5m', to: 'now' })]).toEqual([false, true]);
  const [from, to] = [fixed.from, fixed.to].map((text) => clock(Date.parse(text)));
  expect(rangeText(fixed, NOW)).toBe(`${from} – ${to} (90 s)`);
});

test('a clock time names the day unless it is today', () => {
  expect(clock(NOW)).toMatch(/^\d\d:\d\d:\d\d$/);
  expect(clock(NOW + 5, true)).toMatch(/^\d\d:\d\d:\d\d\.005$/);
  expect(clock(NOW - 3 * 86_400_000)).toMatch(/^2026-01-2[789] \d\d:\d\d:\d\d$/);
});

test('a time axis has the shortest step that fits', () => {
  expect([0.5, 3, 1000, 61_000].map(timeStepMs)).toEqual([1, 5, 1000, 120_000]);
});
